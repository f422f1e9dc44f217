"""Texts are ranked by the class that means relevant, in any order of the classes, or the client has to name it."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from inference.test_load import saved
from serving.local import LocalServer, local
from tasks.small import shape, stirred

from bertsmith.inference.load import load
from bertsmith.inference.model import Model
from bertsmith.models.transformer import Transformer
from bertsmith.serving.relevance import positives
from bertsmith.tasks.classification import SequenceClassification

TEXTS = ["the old cat", "a dog", "the river"]
BODY: dict[str, Any] = {"query": "the cat", "texts": TEXTS}


def two_classes(folder: Path, *labels: str) -> Model:
    trunk = stirred(Transformer(replace(shape(), dropout=0.0)))
    task = stirred(SequenceClassification(trunk, SequenceClassification.Config(), labels))
    return load(saved(folder, "class", task), "cpu")


@pytest.fixture(scope="module")
def judges(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    folder = tmp_path_factory.mktemp("judges")
    names = {"rte": ("entailment", "not_entailment"), "sides": ("left", "right")}
    found = {name: two_classes(folder / name, *labels) for name, labels in names.items()}
    return found | {"number": load(saved(folder / "number", "number"), "cpu")}


@pytest.fixture(scope="module")
def server(judges: dict[str, Model]) -> Iterator[LocalServer]:
    with local(judges) as running:
        yield running


def ranked(model: Model, label: str) -> list[tuple[int, float]]:
    found = [one["probabilities"][label] for one in model.predict([("the cat", text) for text in TEXTS])]
    return sorted(enumerate(found), key=lambda pair: -pair[1])


@pytest.mark.parametrize(
    ("labels", "positive"),
    [
        (("0", "1"), "1"),
        (("no", "yes"), "yes"),
        (("True", "False"), "True"),
        (("negative", "positive"), "positive"),
        (("LABEL_0", "LABEL_1"), "LABEL_1"),
        (("irrelevant", "relevant"), "relevant"),
        (("Relevant", "non-relevant"), "Relevant"),
        (("entailment", "not_entailment"), "entailment"),
        (("duplicate", "not duplicate"), "duplicate"),
        (("match", "mismatch"), "match"),
        (("answer", "no_answer"), "answer"),
    ],
)
def test_the_class_that_means_relevant_is_known_by_its_name(labels: tuple[str, str], positive: str) -> None:
    assert positives(labels) == positives(labels[::-1]) == [positive]


def test_of_two_unlike_names_either_may_mean_relevant() -> None:
    assert positives(["left", "right"]) == ["left", "right"]


def test_texts_are_ranked_by_the_first_class_where_it_means_relevant(
    server: LocalServer, judges: dict[str, Model]
) -> None:
    found = [(one["index"], one["score"]) for one in server.post("/models/rte/rerank", BODY)]
    assert [index for index, _ in found] == [index for index, _ in ranked(judges["rte"], "entailment")]
    assert [score for _, score in found] == pytest.approx([one for _, one in ranked(judges["rte"], "entailment")])


def test_a_client_names_the_class_where_it_is_not_known(server: LocalServer, judges: dict[str, Model]) -> None:
    assert server.refusal("/models/sides/rerank", BODY, 422) == (
        "model sides: has the classes 'left' and 'right', and does not know which of them means relevant. "
        'Name it: "positive": "left".'
    )
    for label in ("left", "right"):
        found = server.post("/models/sides/rerank", BODY | {"positive": label})
        assert [one["index"] for one in found] == [index for index, _ in ranked(judges["sides"], label)]


def test_a_class_that_is_not_there_is_refused(server: LocalServer) -> None:
    for model, remedy in {"rte": "Give one of: entailment, not_entailment", "number": "Leave it out"}.items():
        line = f"positive: 'up' is no class by which {model} reranks. {remedy}."
        assert server.refusal(f"/models/{model}/rerank", BODY | {"positive": "up"}, 422) == line


def test_the_list_of_models_says_which_rerank_without_being_told_a_class(server: LocalServer) -> None:
    listed = {one["id"]: (one["reranks"], one["positives"]) for one in server.ask("GET", "/v1/models").json["data"]}
    assert listed == {"rte": (True, ["entailment"]), "sides": (False, ["left", "right"]), "number": (True, [])}
