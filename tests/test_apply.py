"""A model used from the command line: lines in, answers out, in the same order."""

import io
import json
from pathlib import Path

import numpy as np
import pytest
from tasks.small import CASES, shape, stirred, tokenizer

from bertsmith import apply, load
from bertsmith.errors import FolderError, TextError
from bertsmith.models import folder as folders
from bertsmith.models.foreign import Learnt
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.masked import MaskedLM

TEXTS = ["the cat", "the old dog sees the green garden", "", "river", "the dog likes the cat in 1984"]


def saved(folder: Path, name: str) -> Path:
    task = CASES[name].task()
    kind = "classify" if name in ("class", "number", "labels") else name
    answer = name if kind == "classify" else "class"
    folders.write(
        folder, task.trunk.config, task.state_dict(), {}, Learnt(task=kind, labels=task.labels, answer=answer)
    )
    tokenizer().save(folder, length=64)
    return folder


@pytest.fixture
def masked(tmp_path: Path) -> Path:
    objective = stirred(MaskedLM(Transformer(shape()), MaskedLM.Config()))
    folders.write(tmp_path / "masked", objective.trunk.config, objective.state_dict(), {})
    tokenizer().save(tmp_path / "masked", length=64)
    return tmp_path / "masked"


def said(capsys: pytest.CaptureFixture[str]) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_predictions_come_in_the_order_of_the_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(tmp_path / "model", "class")
    texts = [text for text in TEXTS if text]
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n")
    apply.predict(model, [str(tmp_path / "lines.txt")], out=None)
    found = said(capsys)
    alone = [load(model).classify([text])[0] for text in texts]
    assert [one["label"] for one in found] == [one["label"] for one in alone]
    for one, other in zip(found, alone, strict=True):
        assert one["chances"] == pytest.approx(other["chances"], abs=1e-6)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(texts)))
    apply.predict(model, [], out=tmp_path / "out.jsonl")
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == found


def test_pairs_come_as_tabs_json_or_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = saved(tmp_path / "model", "number")
    (tmp_path / "a.txt").write_text("the cat\tthe dog\n")
    (tmp_path / "a.jsonl").write_text(json.dumps({"sentence1": "the cat", "sentence2": "the dog"}) + "\n")
    (tmp_path / "a.tsv").write_text("sentence1\tsentence2\nthe cat\tthe dog\n")
    apply.predict(model, [str(tmp_path / f"a.{kind}") for kind in ("txt", "jsonl", "tsv")], out=None)
    found = [one["number"] for one in said(capsys)]
    assert len(found) == 3
    assert found == pytest.approx([load(model).classify([("the cat", "the dog")])[0]["number"]] * 3, abs=1e-6)


def test_every_task_can_be_asked_by_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {
        "tag": [{"words": ["the", "cat"]}, {"text": "the old dog."}],
        "answer": [{"question": "who", "passage": "the cat sees the dog"}],
        "choose": [{"text": "the cat", "endings": ["sees", "likes the dog", "river"]}],
    }
    for name, records in asked.items():
        model = saved(tmp_path / name, name)
        (tmp_path / "asked.jsonl").write_text("\n".join(map(json.dumps, records)))
        apply.predict(model, [str(tmp_path / "asked.jsonl")], out=None)
        found = said(capsys)
        assert len(found) == len(records)
        match name:
            case "tag":
                assert [one["words"] for one in found] == [["the", "cat"], ["the", "old", "dog", "."]]
            case "answer":
                assert found[0]["answer"] in "the cat sees the dog"
            case "choose":
                assert found[0]["ending"] in records[0]["endings"]


def test_vectors_go_to_a_file(masked: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    texts = [text for text in TEXTS if text]
    (tmp_path / "lines.txt").write_text("\n".join(texts))
    inputs, how = [str(tmp_path / "lines.txt")], {"precision": "float32"}
    apply.embed(masked, inputs, tmp_path / "v.npy", **how)
    apply.embed(masked, inputs, tmp_path / "v.parquet", **how)
    expected = load(masked).embed(texts, **how)
    assert np.array_equal(np.load(tmp_path / "v.npy"), expected)
    table = parquet.read_table(tmp_path / "v.parquet")
    assert table["text"].to_pylist() == texts
    assert np.array_equal(np.array(table["vector"].to_pylist(), np.float32), expected)
    with pytest.raises(TextError, match=r"v\.txt: has the unknown ending '\.txt'\. Use \.npy or \.parquet\.$"):
        apply.embed(masked, inputs, tmp_path / "v.txt")


def test_the_nearest_text_of_a_text_is_itself(masked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [text for text in TEXTS if text]
    (tmp_path / "lines.txt").write_text("\n".join(texts))
    apply.neighbours(masked, texts[:2], [str(tmp_path / "lines.txt")], top=2, as_json=True)
    found = said(capsys)
    assert [one["neighbours"][0]["text"] for one in found] == texts[:2]
    assert all(one["neighbours"][0]["cosine"] == pytest.approx(1, abs=1e-2) for one in found)


def test_scores_are_told_line_by_line(masked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [text for text in TEXTS if text]
    (tmp_path / "lines.txt").write_text("\n".join(texts))
    apply.score(masked, [str(tmp_path / "lines.txt")], form="within_word", as_json=True)
    expected = [one.total for one in load(masked).score(texts)]
    assert [one["total"] for one in said(capsys)] == pytest.approx(expected, rel=1e-5)
    apply.score(masked, [str(tmp_path / "lines.txt")], form="original", as_json=False)
    assert "pseudo-perplexity" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", "a.txt:1: is not JSON. A line that begins with { is read as JSON."),
        ('{"text": 7}', "a.txt:1: 'text' is 7. Give a string."),
        ('{"other": "x"}', "a.txt:1: 'text' is None. Give a string."),
    ],
)
def test_a_bad_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", "class")
    (tmp_path / "a.txt").write_text(line)
    with pytest.raises(TextError) as caught:
        apply.predict(model, [str(tmp_path / "a.txt")], out=None)
    assert str(caught.value).endswith(message)


def test_a_model_that_was_not_fine_tuned_says_so(masked: Path, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"was not fine-tuned\. Fine-tune it first with: bertsmith finetune\.$"):
        apply.predict(masked, [], out=None)
    (tmp_path / "bad.txt").write_bytes(b"\xff\xfe")
    with pytest.raises(TextError, match=r"bad\.txt: is not UTF-8 text\.$"):
        apply.score(masked, [str(tmp_path / "bad.txt")], form="original", as_json=True)
