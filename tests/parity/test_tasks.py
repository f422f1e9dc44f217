"""Fine-tuned models answer alike here and in transformers, whoever has written them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from parity.members import PROBLEMS
from parity.parity import MOST
from tasks.small import CASES, LENGTH, Case, prose, shape, stirred, tokenizer
from torch import Tensor

from bertsmith.data.rows import Row, pack_rows
from bertsmith.inference.load import load
from bertsmith.inference.model import Model
from bertsmith.models.hf import convert
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.finetuned import FinetunedTask
from bertsmith.models.hf.sentence_transformers import SentenceConfig
from bertsmith.models.hf.sentence_transformers import write as write_sentence
from bertsmith.models.transformer import Transformer
from bertsmith.tasks.base import Bucket, Item, Task
from bertsmith.tasks.embedding import SentenceEmbedding

KINDS = {  # the case, and transformers' class with what its configuration says
    "class": ("BertForSequenceClassification", {"num_labels": 3}),
    "number": ("BertForSequenceClassification", {"num_labels": 1, "problem_type": "regression"}),
    "labels": (
        "BertForSequenceClassification",
        {"num_labels": 3, "problem_type": "multi_label_classification"},
    ),
    "tag": ("BertForTokenClassification", {"num_labels": 2}),
    "answer": ("BertForQuestionAnswering", {}),
    "choose": ("BertForMultipleChoice", {}),
}
AUTO = {
    "BertForSequenceClassification": "AutoModelForSequenceClassification",
    "BertForTokenClassification": "AutoModelForTokenClassification",
    "BertForQuestionAnswering": "AutoModelForQuestionAnswering",
    "BertForMultipleChoice": "AutoModelForMultipleChoice",
}


def reference(name: str, **words: Any) -> Any:
    """A random model of transformers."""
    kind, own = KINDS[name]
    config = transformers.BertConfig(**{**convert.to_config_json(shape(), ()), **own, **words})
    return stirred(getattr(transformers, kind)(config))


def padded(rows: Sequence[Row], endings: int = 1) -> dict[str, Tensor]:
    longest = max(map(len, rows))
    ids, segments, mask = (np.zeros((len(rows), longest), np.int64) for _ in range(3))
    for number, row in enumerate(rows):
        ids[number, : len(row)], segments[number, : len(row)], mask[number, : len(row)] = row.ids, row.segments, 1
    shape = (len(rows) // endings, endings, longest) if endings > 1 else (len(rows), longest)
    named = {"input_ids": ids, "token_type_ids": segments, "attention_mask": mask}
    return {name: torch.from_numpy(part).reshape(shape) for name, part in named.items()}


def theirs(model: Any, rows: Sequence[Row], endings: int = 1) -> list[Tensor]:
    """What transformers says of each row, padding taken off."""
    with torch.no_grad():
        said = model(**padded(rows, endings))
    if "start_logits" in said:
        both = torch.stack([said.start_logits, said.end_logits], -1)
        return [one[: len(row)] for one, row in zip(both, rows, strict=True)]
    if said.logits.ndim == 3:
        return [one[: len(row)] for one, row in zip(said.logits, rows, strict=True)]
    return list(said.logits.flatten() if endings > 1 else said.logits)


def ours(task: Task, rows: Sequence[Row]) -> list[Tensor]:
    with torch.inference_mode():
        return task.outputs(pack_rows(rows))


def assert_same(one: list[Tensor], other: list[Tensor]) -> None:
    assert max(float((left - right).abs().max()) for left, right in zip(one, other, strict=True)) <= MOST
    assert max(float(left.abs().max()) for left in one) > 0.1


def items_of(task: Task, case: Case) -> list[Item]:
    return task.preprocess(case.examples, tokenizer(), LENGTH)


def opened(folder: Path) -> tuple[Model, Task]:
    tokenizer().save(folder)
    model = load(folder)
    assert isinstance(model.objective, Task)
    return model, model.objective


@pytest.mark.parametrize("name", KINDS)
def test_what_transformers_has_saved_says_the_same_here(name: str, tmp_path: Path) -> None:
    model, case = reference(name), CASES[name]
    model.save_pretrained(tmp_path)
    _, task = opened(tmp_path)
    assert type(task) is type(case.task())
    items = items_of(case.task(), case)
    rows = [row for item in items for row in item.rows]
    assert any(row.segments.any() for row in rows) or name == "tag"
    assert_same(ours(task, rows), theirs(model, rows, len(items[0].rows)))


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_what_is_written_here_says_the_same_in_transformers(name: str, tmp_path: Path) -> None:
    case, (kind, _) = CASES[name], KINDS[name]
    task = case.task()
    problem = PROBLEMS.get(name, "single_label")
    learnt = FinetunedTask(task="classify" if name in PROBLEMS else name, labels=task.labels, problem=problem)
    folders.write(tmp_path, shape(), task.state_dict(), finetuned=learnt)
    assert folders.read(tmp_path).finetuned == learnt
    model, report = getattr(transformers, AUTO[kind]).from_pretrained(tmp_path, output_loading_info=True)
    assert type(model).__name__ == kind
    assert not any(report.values()), report
    if task.labels:
        assert model.config.id2label == dict(enumerate(task.labels))
        assert model.config.label2id == {label: number for number, label in enumerate(task.labels)}
    items = items_of(task, case)
    rows = [row for item in items for row in item.rows]
    assert_same(theirs(model.eval(), rows, len(items[0].rows)), ours(task, rows))
    _, again = opened(tmp_path)
    assert_same(ours(again, rows), ours(task, rows))


@pytest.mark.parametrize("name", KINDS)
def test_losses_equal_those_of_transformers(name: str, tmp_path: Path) -> None:
    case, model = CASES[name], reference(name)
    model.save_pretrained(tmp_path)
    task = case.task()
    task.load_state_dict(folders.read(tmp_path).state_dict)
    items = items_of(task, case)
    batch = task.collate(items, Bucket(batch_size=len(items), max_length=LENGTH))
    rows = [row for item in items for row in item.rows]
    inputs = padded(rows, len(items[0].rows))
    targets = [item.target for item in items]
    if name == "tag":
        labels = np.full(inputs["input_ids"].shape, -100)
        for number, target in enumerate(targets):
            labels[number, : len(target)] = target
        inputs["labels"] = torch.from_numpy(labels)
    elif name == "answer":
        inputs["start_positions"], inputs["end_positions"] = torch.tensor(targets).T
    else:
        inputs["labels"] = torch.from_numpy(np.array(targets))
    ((term, found),) = task(batch).items()
    with torch.no_grad():
        if name == "answer":  # theirs gives chances to padding, which is not there: a row at a time there is none
            alone = [
                {part: inputs[part][n : n + 1] for part in ("start_positions", "end_positions")}
                for n in range(len(rows))
            ]
            loss = np.mean([model(**padded([row]), **own).loss.item() for row, own in zip(rows, alone, strict=True)])
        else:
            loss = model(**inputs).loss.item()
    assert found.total.item() / batch.counts[term] == pytest.approx(loss, abs=MOST)


@pytest.mark.parametrize("name", ["class", "tag"])
def test_texts_are_tokenised_alike_on_both_sides(name: str, tmp_path: Path) -> None:
    task, model = CASES[name].task(), reference(name)
    model.save_pretrained(tmp_path)
    tokenizer().save(tmp_path, max_length=64)
    fast = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for example, item in zip(CASES[name].examples, items_of(task, CASES[name]), strict=False):
        if name == "tag":
            said = fast([list(example.words)], is_split_into_words=True, truncation=True, max_length=64)
            if len(item.rows[0]) < LENGTH:
                assert said["input_ids"][0] == item.rows[0].ids.tolist()
            else:
                break
        else:
            said = fast(*example.texts, truncation="longest_first", max_length=LENGTH)
            assert said["input_ids"] == item.rows[0].ids.tolist()
            assert said["token_type_ids"] == item.rows[0].segments.tolist()


def test_from_text_to_answer_a_pipeline_of_transformers_says_what_we_say(tmp_path: Path) -> None:
    model = reference("class", id2label={0: "no", 1: "so-so", 2: "yes"}, label2id={"no": 0, "so-so": 1, "yes": 2})
    model.save_pretrained(tmp_path)
    loaded, _ = opened(tmp_path)
    texts = [text for text in prose(12, 30) if text]
    pipe = transformers.pipeline("text-classification", str(tmp_path), device="cpu", top_k=None)
    for text, theirs_said, said in zip(texts, pipe(texts), loaded.classify(texts), strict=True):
        scores = {one["label"]: one["score"] for one in theirs_said}
        assert said["probabilities"] == pytest.approx(scores, abs=MOST), text


def test_a_model_that_was_saved_without_names_has_numbered_labels(tmp_path: Path) -> None:
    reference("tag").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert "id2label" not in config  # two labels go without saying
    model, task = opened(tmp_path)
    assert task.labels == ("LABEL_0", "LABEL_1")
    assert set(model.tag(["the cat"])[0]["tags"]) <= set(task.labels)


def test_four_endings_are_compared_as_in_transformers(tmp_path: Path) -> None:
    reference("choose").save_pretrained(tmp_path)
    model, _ = opened(tmp_path)
    assert len(model.choose("the cat", ["sees", "likes the dog", "old", "in the garden"])["probabilities"]) == 4


# ---------------------------------------------------------------------------------------------- sentence vectors


@pytest.mark.parametrize("pooling", ["mean", "first"])
@pytest.mark.parametrize("normalise", [True, False])
def test_sentence_transformers_opens_what_is_written(pooling: Any, normalise: bool, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer  # slow to import

    task: SentenceEmbedding = stirred(
        SentenceEmbedding(Transformer(shape()), SentenceEmbedding.Config(pooling=pooling))
    )
    folders.write(tmp_path, shape(), task.state_dict())
    tokenizer().save(tmp_path, max_length=64)
    config = SentenceConfig(pooling=pooling, normalise=normalise, length=LENGTH)
    write_sentence(tmp_path, config, 32)
    texts = prose(20, 40, 40)
    vectors = SentenceTransformer(str(tmp_path), device="cpu").encode(texts, show_progress_bar=False)
    model = load(tmp_path)
    assert model.sentence_config == config
    assert np.abs(model.embed(texts, precision="float32") - vectors).max() <= MOST
    if normalise:
        rows = [Row(np.array(ids, np.int32), np.zeros(len(ids), np.int32)) for ids in _framed(texts)]
        assert np.abs(torch.stack(ours(task, rows)).numpy() - vectors).max() <= MOST


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the short name of its modules
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_what_sentence_transformers_has_saved_is_opened(pooling: str, tmp_path: Path) -> None:
    from sentence_transformers import SentenceTransformer, models

    bert = stirred(transformers.BertModel(transformers.BertConfig(**convert.to_config_json(shape(), ()))))
    bert.save_pretrained(tmp_path / "bert")
    tokenizer().save(tmp_path / "bert", max_length=64)
    inner = models.Transformer(str(tmp_path / "bert"), max_seq_length=20)
    parts = [inner, models.Pooling(32, pooling_mode=pooling), models.Normalize()]
    whole = SentenceTransformer(modules=parts, device="cpu")
    whole.save(str(tmp_path / "whole"), create_model_card=False)
    texts = prose(20, 41, 40)
    model = load(tmp_path / "whole")
    assert model.sentence_config == SentenceConfig(
        pooling="mean" if pooling == "mean" else "first", normalise=True, length=20
    )
    theirs_said = whole.encode(texts, show_progress_bar=False)
    assert np.abs(model.embed(texts, precision="float32") - theirs_said).max() <= MOST


def _framed(texts: list[str]) -> list[list[int]]:
    begin, end = tokenizer().start_id, tokenizer().stop_id
    return [[begin, *ids[: LENGTH - 2], end] for ids in tokenizer().encode(texts)]
