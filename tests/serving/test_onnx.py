"""Exported folders are served by ONNX Runtime, with the answers of the library and only the verbs that a graph has."""

import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from inference.test_onnx import finetuned, graph_of, sentence_graph_of
from serving.local import LocalServer, local
from serving.test_reranking import BODY, ranked, two_classes
from tasks.small import prose, shape, tokenizer

from bertsmith.inference.load import load
from bertsmith.inference.model import Model
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer

pytestmark = pytest.mark.slow("traces networks and opens them in ONNX Runtime")


@pytest.fixture(scope="module")
def graphs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("graphs")
    torch = {name: load(finetuned(folder / f"torch-{name}", name), "cpu") for name in ("class", "tag")}
    found = {name: graph_of(model, folder / name) for name, model in torch.items()}
    encoder = Transformer(shape())
    folders.write(
        folder / "encoder", encoder.config, {f"trunk.{name}": value for name, value in encoder.state_dict().items()}
    )
    tokenizer().save(folder / "encoder")
    found["vectors"] = sentence_graph_of(load(folder / "encoder", "cpu"), folder / "vectors")
    return {name: load(path, backend="onnx") for name, path in found.items()}


@pytest.fixture(scope="module")
def server(graphs: dict[str, Model]) -> Iterator[LocalServer]:
    with local(graphs) as running:
        yield running


@pytest.mark.exhaustive
def test_a_graph_answers_as_the_library_does(server: LocalServer, graphs: dict[str, Model]) -> None:
    texts = [text for text in prose(8, 2) if text]
    found = server.post("/predict", {"inputs": texts, "model": "class"})
    for one, known in zip(found, graphs["class"].predict(texts), strict=True):
        assert one["label"] == known["label"]
        assert one["probabilities"] == pytest.approx(known["probabilities"], abs=1e-6)
    assert server.post("/tag", {"inputs": texts[0]})["tags"] == graphs["tag"].tag(texts[0])["tags"]
    assert np.allclose(server.post("/embed", {"inputs": texts}), graphs["vectors"].embed(texts), atol=1e-6)


@pytest.mark.exhaustive
def test_a_graph_is_asked_only_for_what_it_has(server: LocalServer) -> None:
    verbs = {one["id"]: set(one["verbs"]) for one in server.ask("GET", "/v1/models").json["data"]}
    assert "embed" in verbs["vectors"]
    assert "embed" not in verbs["class"] | verbs["tag"]
    assert all(not found & {"score", "inspect"} for found in verbs.values())


def test_a_cross_encoder_reranks_as_a_graph_too(tmp_path: Path) -> None:
    judge = two_classes(tmp_path / "judge", "entailment", "not_entailment")
    with local({"graph": load(graph_of(judge, tmp_path / "graph"), backend="onnx")}) as server:
        [listed] = server.ask("GET", "/v1/models").json["data"]
        assert "rerank" in listed["verbs"]
        assert abs(listed["created"] - time.time()) < 600
        found = [one["index"] for one in server.post("/rerank", BODY)]
        assert found == [index for index, _ in ranked(judge, "entailment")]
        line = server.refusal("/embed", {"inputs": "x"}, 422)
        assert line == "model: none here can embed. graph answers /rerank, /predict, /tokenize."
