"""`bertsmith export`: a folder of graphs that every verb opens, checked against the model, or no folder at all."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from inference.test_onnx import finetuned, written
from laws.networks import shrunk
from onnx import numpy_helper
from tasks.small import prose, shape, stirred, tokenizer
from typer.testing import CliRunner

import bertsmith
from bertsmith.cli import app
from bertsmith.commands import export
from bertsmith.errors import BertsmithError
from bertsmith.inference import onnx_comparison
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig

pytestmark = pytest.mark.slow("traces networks and opens them in ONNX Runtime")


@pytest.fixture(autouse=True)
def _in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_comparison, "TIMED_SECONDS", 0.0)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finetuned(tmp_path_factory.mktemp("classifier"), "class")


@pytest.fixture(scope="module")
def labelled(classifier: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Texts with the labels that the model gives them, except for every fourth."""
    texts = [text for text in prose(60, 4) if text]
    said = [one.label for one in bertsmith.load(classifier).predict(texts)]
    said = [("no", "so-so", "yes")[number % 3] if number % 4 == 0 else label for number, label in enumerate(said)]
    path = tmp_path_factory.mktemp("data") / "test.csv"
    rows = [f'"{text}",{label}' for text, label in zip(texts, said, strict=True)]
    path.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    return path


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


def test_a_classifier_is_exported_scored_and_used_by_every_verb(
    classifier: Path, labelled: Path, tmp_path: Path
) -> None:
    out = tmp_path / "onnx"
    shown = run("export", classifier, "--onnx", "--int8", "--data", labelled, "--out", out)
    assert all(
        word in shown for word in ("weights (torch)", "onnx-int8", "accuracy", "texts/s", "model_quantized.onnx")
    )
    forms = json.loads((out / "export.json").read_text())["forms"]
    weights, graph, int8 = forms
    assert graph["score"] == weights["score"] > 0.5
    assert int8["score"] >= 0.99 * weights["score"]
    assert graph["difference"] < 1e-5 < int8["difference"]
    assert graph["bytes"] == (out / "model.onnx").stat().st_size
    assert min(form["texts_per_second"] for form in forms) > 0
    assert {"config.json", "tokenizer.json", "MANIFEST.json"} <= {path.name for path in out.iterdir()}
    assert not (out / "model.safetensors").exists()
    before, after = (run("predict", folder, "--text", "the old cat") for folder in (classifier, out))
    assert json.loads(before)["label"] == json.loads(after)["label"]
    evaluated = bertsmith.evaluate(out, labelled)
    assert isinstance(evaluated, bertsmith.Evaluation)
    assert evaluated.scores["accuracy"] == weights["score"]


@pytest.mark.exhaustive
def test_the_python_call_returns_the_forms_and_the_model(tmp_path: Path) -> None:
    plain = written(tmp_path / "model", shape())
    made = bertsmith.export(bertsmith.load(plain), tmp_path / "onnx")
    assert repr(made) == f"Export('{tmp_path / 'onnx'}', onnx)"
    assert made.forms[1].difference is not None
    assert made.forms[1].difference < 1e-5
    text = "the [MASK] sees the river"
    assert made.model.fill(text).best == bertsmith.load(plain).fill(text).best
    again = bertsmith.export(plain, tmp_path / "onnx", int8=True)  # in place of the older export
    assert [form.name for form in again.forms] == ["weights (torch)", "onnx", "onnx-int8"]


def broken(target: Path) -> None:
    """Weights of which nothing is left."""
    graph = onnx.load(target)
    for one in graph.graph.initializer:
        if one.data_type == onnx.TensorProto.FLOAT and len(one.dims) == 2:
            noise = np.random.default_rng(0).normal(size=list(one.dims)).astype(np.float32)
            one.CopyFrom(numpy_helper.from_array(noise, one.name))
    onnx.save(graph, target)


@pytest.mark.exhaustive(suite=1)
@pytest.mark.parametrize("scored", [True, False])
def test_int8_that_loses_too_much_is_refused_and_leaves_nothing(
    scored: bool, classifier: Path, labelled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def quantise(source: Path, target: Path) -> None:
        target.write_bytes(source.read_bytes())
        broken(target)

    monkeypatch.setattr(export, "quantise", quantise)
    fact = r"in int8 accuracy falls from .* to .*, by more than 1%" if scored else "have a cosine of .* less than 0.98"
    with pytest.raises(BertsmithError, match=f"{fact}.*without --int8") as refused:
        export.export(classifier, tmp_path / "onnx", int8=True, data=labelled if scored else None)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.exhaustive
def test_a_graph_that_is_not_the_model_is_refused(
    classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = export.export_graph

    def wrong(model: Any, path: Path) -> None:
        trace(model, path)
        broken(path)

    monkeypatch.setattr(export, "export_graph", wrong)
    with pytest.raises(BertsmithError, match="its graph differs from it"):
        export.export(classifier, tmp_path / "onnx")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.exhaustive
def test_only_an_older_export_is_replaced(classifier: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BertsmithError, match="is not an exported folder"):
        export.export(classifier, classifier)
    assert bertsmith.load(classifier).predict("the cat").label
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("kept")
    with pytest.raises(BertsmithError, match="is not an exported folder"):
        export.export(classifier, tmp_path / "notes")
    export.export(classifier, tmp_path / "onnx")
    content = (tmp_path / "onnx" / "model.onnx").read_bytes()

    def stopped(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(export, "export_graph", stopped)
    with pytest.raises(KeyboardInterrupt):
        export.export(classifier, tmp_path / "onnx")
    assert (tmp_path / "onnx" / "model.onnx").read_bytes() == content
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "onnx"]
    with pytest.raises(BertsmithError, match="is an exported folder itself"):
        export.export(tmp_path / "onnx", tmp_path / "again")


def test_what_cannot_be_exported_is_refused_in_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "gpt"
    config = replace(FAMILY["gpt2"], **shrunk(FAMILY["gpt2"]) | {"vocabulary": tokenizer().vocabulary})
    assert isinstance(config, TransformerConfig)
    state = {f"trunk.{name}": weight for name, weight in stirred(Transformer(config)).state_dict().items()}
    folders.write(folder, config, state)
    tokenizer().save(folder)
    with pytest.raises(BertsmithError, match=r"is no encoder, and has no export to ONNX\. These have: bert, roberta"):
        export.export(folder, tmp_path / "onnx")
    with pytest.raises(BertsmithError, match="names no format"):
        bertsmith.export(folder, tmp_path / "onnx", onnx=False)
    assert not (tmp_path / "onnx").exists()
