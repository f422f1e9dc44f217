"""Inference on the command line: predict, embed, search, score, fill; outputs in input order, and resumed."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tasks.small import CASES, shape, stirred, tokenizer
from typer.testing import CliRunner

from bertsmith import load
from bertsmith.cli import app
from bertsmith.commands import embed, fill, predict, score
from bertsmith.data import output
from bertsmith.data.output import Output
from bertsmith.errors import FolderError, RunError, TextError
from bertsmith.inference import embedder
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import sentence_transformers
from bertsmith.models.hf.finetuned import FinetunedTask
from bertsmith.models.hf.sentence_transformers import SentenceConfig
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.masked import MaskedLM

TEXTS = ["the cat", "the old dog sees the green garden", "", "river", "the dog likes the cat in 1984"]


def saved(folder: Path, name: str, **learnt_from: object) -> Path:
    task = CASES[name].task()
    kind = "classify" if name in ("class", "number", "labels") else name
    problem = {"number": "regression", "labels": "multi_label"}.get(name, "single_label")
    extra = {"bertsmith": {folders.TRAINED_ON: learnt_from}} if learnt_from else {}
    learnt = FinetunedTask(task=kind, labels=task.labels, problem=problem)
    folders.write(folder, task.trunk.config, task.state_dict(), extra, learnt)
    tokenizer().save(folder, max_length=64)
    return folder


@pytest.fixture
def masked(tmp_path: Path) -> Path:
    objective = stirred(MaskedLM(Transformer(shape()), MaskedLM.Config()))
    folders.write(tmp_path / "masked", objective.trunk.config, objective.state_dict(), {})
    tokenizer().save(tmp_path / "masked", max_length=64)
    return tmp_path / "masked"


def said(capsys: pytest.CaptureFixture[str]) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_predictions_read_as_many_tokens_as_training_and_say_what_they_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = load(saved(tmp_path / "model", "class", max_length=8))
    whole, read = "the old dog sees the green garden", "the old dog sees the green"
    assert model.prediction_length == 8 < model.max_length
    long, short = model.predict([whole, read])
    assert long.truncated_tokens == 1
    assert "truncated_tokens" not in short
    assert long.probabilities == pytest.approx(short.probabilities, abs=1e-6)
    fact = (
        "bertsmith: 1 text is longer than the 8 tokens that the model was fine-tuned to read, and truncated; "
        "finetune with data.max_length reads more\n"
    )
    for out in (None, tmp_path / "found.jsonl"):
        predict.predict(Path(model.path), [], texts=[whole, read], out=out)
        assert capsys.readouterr().err == fact


def test_predictions_come_in_the_order_of_the_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = saved(tmp_path / "model", "class")
    texts = [text for text in TEXTS if text]
    (tmp_path / "lines.txt").write_text("\n".join(texts) + "\n")
    predict.predict(model, [str(tmp_path / "lines.txt")], out=None)
    found = said(capsys)
    alone = [load(model).classify([text])[0] for text in texts]
    assert [one["label"] for one in found] == [one["label"] for one in alone]
    for one, other in zip(found, alone, strict=True):
        assert one["probabilities"] == pytest.approx(other["probabilities"], abs=1e-6)
    monkeypatch.setattr("sys.stdin", io.StringIO("\n".join(texts)))
    predict.predict(model, [], out=tmp_path / "out.jsonl")
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == found


def test_pairs_come_as_tabs_json_or_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = saved(tmp_path / "model", "number")
    (tmp_path / "a.txt").write_text("the cat\tthe dog\n")
    (tmp_path / "a.jsonl").write_text(json.dumps({"sentence1": "the cat", "sentence2": "the dog"}) + "\n")
    (tmp_path / "a.tsv").write_text("sentence1\tsentence2\nthe cat\tthe dog\n")
    predict.predict(model, [str(tmp_path / f"a.{kind}") for kind in ("txt", "jsonl", "tsv")], out=None)
    found = [one["number"] for one in said(capsys)]
    assert len(found) == 3
    assert found == pytest.approx([load(model).classify([("the cat", "the dog")])[0]["number"]] * 3, abs=1e-6)


def test_every_task_predicts_from_json_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = {
        "tag": [{"words": ["the", "cat"]}, {"text": "the old dog."}],
        "answer": [{"question": "who", "passage": "the cat sees the dog"}],
        "choose": [{"text": "the cat", "endings": ["sees", "likes the dog", "river"]}],
    }
    for name, records in asked.items():
        model = saved(tmp_path / name, name)
        (tmp_path / "asked.jsonl").write_text("\n".join(map(json.dumps, records)))
        predict.predict(model, [str(tmp_path / "asked.jsonl")], out=None)
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
    embed.embed(masked, inputs, tmp_path / "v.npy", **how)
    embed.embed(masked, inputs, tmp_path / "v.parquet", **how)
    expected = load(masked).embed(texts, **how)
    assert np.array_equal(np.load(tmp_path / "v.npy"), expected)
    table = parquet.read_table(tmp_path / "v.parquet")
    assert table["text"].to_pylist() == texts
    assert np.array_equal(np.array(table["vector"].to_pylist(), np.float32), expected)
    with pytest.raises(TextError, match=r"v\.txt: has the unknown ending '\.txt'\. Use \.npy or \.parquet\.$"):
        embed.embed(masked, inputs, tmp_path / "v.txt")


def test_the_nearest_text_of_a_text_is_itself(masked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [text for text in TEXTS if text]
    (tmp_path / "lines.txt").write_text("\n\n".join(texts))
    embed.search(masked, texts[:2], [str(tmp_path / "lines.txt")], top_k=2, as_json=True)
    printed = capsys.readouterr()
    assert printed.err == f"bertsmith: {tmp_path / 'lines.txt'}: {len(texts) - 1} blank lines have no row\n"
    found = [json.loads(line) for line in printed.out.splitlines()]
    assert [one["neighbours"][0]["text"] for one in found] == texts[:2]
    assert all(one["neighbours"][0]["cosine"] == pytest.approx(1, abs=1e-2) for one in found)


def test_search_gives_cosines_of_a_folder_that_does_not_normalise(
    masked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence_transformers.write(masked, SentenceConfig(normalise=False), shape().width)
    (tmp_path / "lines.txt").write_text("the cat\nthe old dog sees\n")
    embed.search(masked, ["the cat"], [str(tmp_path / "lines.txt")], top_k=2, as_json=True)
    (found,) = said(capsys)
    assert found["neighbours"][0] == {"text": "the cat", "cosine": pytest.approx(1, abs=1e-2)}


def test_scores_are_printed_line_by_line(masked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = [text for text in TEXTS if text]
    (tmp_path / "lines.txt").write_text("\n".join(texts))
    score.score(masked, [str(tmp_path / "lines.txt")], pll_form="within_word", as_json=True)
    expected = [one.log_likelihood for one in load(masked).score(texts)]
    assert [one["log_likelihood"] for one in said(capsys)] == pytest.approx(expected, rel=1e-5)
    score.score(masked, [str(tmp_path / "lines.txt")], pll_form="original", as_json=False)
    assert "pseudo-perplexity" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{broken", "a.txt:1: is not JSON. A line that begins with { is read as JSON."),
        ('{"text": 7}', "a.txt:1: 'text' is 7. Give a string."),
        ('{"other": "x"}', "a.txt:1: has no column 'text', but 'other'. Give {\"text\": \"...\"}."),
    ],
)
def test_a_bad_line_is_named(line: str, message: str, tmp_path: Path) -> None:
    model = saved(tmp_path / "model", "class")
    (tmp_path / "a.txt").write_text(line)
    with pytest.raises(TextError) as caught:
        predict.predict(model, [str(tmp_path / "a.txt")], out=None)
    assert str(caught.value).endswith(message)


def test_a_model_that_was_not_fine_tuned_is_refused(masked: Path, tmp_path: Path) -> None:
    with pytest.raises(
        FolderError, match=r"was not fine-tuned\. Fine-tune it first: bertsmith finetune .* --out .*-tuned\.$"
    ):
        predict.predict(masked, [], out=None)
    (tmp_path / "bad.txt").write_bytes(b"a\xff\n")
    with pytest.raises(TextError, match=r"bad\.txt: is not UTF-8 text\.$"):
        score.score(masked, [str(tmp_path / "bad.txt")], pll_form="original", as_json=True)


# ------------------------------------------------------------------------------- what was learnt from


def test_a_model_reads_its_training_columns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learnt = {"kind": "classify", "texts": ["Verbatim"], "label": "verdict", "context_columns": 1}
    model = saved(tmp_path / "model", "class", **learnt)
    (tmp_path / "a.csv").write_text("verdict,Verbatim,remark\na,the cat,x y\nb,the old dog,\n")
    (tmp_path / "b.csv").write_text("review\nthe cat\nthe old dog\n")
    predict.predict(model, [str(tmp_path / "a.csv")], out=None)
    found = said(capsys)
    assert [one["label"] for one in found] == [one["label"] for one in load(model).classify(["the cat", "the old dog"])]
    predict.predict(model, [str(tmp_path / "b.csv")], out=tmp_path / "b.jsonl")
    assert [json.loads(line) for line in (tmp_path / "b.jsonl").read_text().splitlines()] == found
    printed = f"bertsmith: {tmp_path / 'b.csv'}: texts from 'review'; the model was trained on 'Verbatim'\n"
    assert capsys.readouterr().err == printed
    # Values of a wrong type from another program are ignored.
    for odd in ({"kind": "classify", "texts": "Verbatim"}, {"kind": "tag", "texts": ["Verbatim"]}):
        assert load(saved(tmp_path / "odd", "class", **odd)).input_format().texts == ()


def test_a_text_on_the_command_line_is_predicted(tmp_path: Path) -> None:
    model = str(saved(tmp_path / "runs" / "model", "class"))
    for arguments in (["the old cat"], ["--text", "cat"], ["the dog", "--text", "cat"]):
        answered = CliRunner().invoke(app, ["predict", str(tmp_path / "runs"), *arguments], catch_exceptions=False)
        texts = [one for one in arguments if one != "--text"]
        found = [json.loads(line)["label"] for line in answered.stdout.splitlines()]
        assert found == [one["label"] for one in load(model).classify(texts)]
    with pytest.raises(TextError, match=r"revews\.csv: does not exist"):
        CliRunner().invoke(app, ["predict", model, str(tmp_path / "revews.csv")], catch_exceptions=False)


def test_answers_are_written_in_squads_format(tmp_path: Path) -> None:
    model = saved(tmp_path / "model", "answer")
    asked = [{"id": f"q{number}", "question": "who"} for number in range(3)]
    content = {"data": [{"paragraphs": [{"context": "the cat sees the dog", "qas": asked}]}]}
    (tmp_path / "dev.json").write_text(json.dumps(content))
    predict.predict(model, [str(tmp_path / "dev.json")], out=tmp_path / "said.json")
    found = json.loads((tmp_path / "said.json").read_text())
    assert found == {f"q{number}": load(model).answer("who", "the cat sees the dog")["answer"] for number in range(3)}
    with pytest.raises(TextError, match=r"said\.json: SQuAD's format is for question answering only\. Use \.jsonl\.$"):
        predict.predict(saved(tmp_path / "class", "class"), [], out=tmp_path / "said.json")


# -------------------------------------------------------------------------- written as it goes, and resumed

LINES = [f"the {'old ' * (number % 5)}cat sees {number} dogs" for number in range(11)]
Verb = Callable[[Path], None]


def verbs(folder: Path) -> dict[str, Verb]:
    """A command for each kind of output file."""
    model = saved(folder / "class", "class")
    objective = stirred(MaskedLM(Transformer(shape()), MaskedLM.Config()))
    folders.write(folder / "masked", objective.trunk.config, objective.state_dict(), {})
    tokenizer().save(folder / "masked", max_length=64)
    (folder / "lines.txt").write_text("\n".join(LINES) + "\n")
    inputs = [str(folder / "lines.txt")]
    return {
        "predicted.jsonl": lambda out: predict.predict(model, inputs, out=out),
        "vectors.npy": lambda out: embed.embed(folder / "masked", inputs, out),
        "vectors.parquet": lambda out: embed.embed(folder / "masked", inputs, out),
        "scored.jsonl": lambda out: score.score(folder / "masked", inputs, pll_form="original", as_json=False, out=out),
    }


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of two lines, each of which is recorded."""
    monkeypatch.setattr(predict, "BATCH_LINES", 2)
    monkeypatch.setattr(score, "BATCH_LINES", 2)
    monkeypatch.setitem(embedder.CHUNK_TEXTS, "cpu", 2)
    monkeypatch.setattr(output, "JOURNAL_SECONDS", 0.0)


def dying(after: int, die: Callable[[], object]) -> Callable[..., None]:
    """`Output.add` that dies after a number of calls."""
    add, calls = Output.add, [0]

    def added(self: Output, *given: Any) -> None:
        if calls[0] == after:
            self._write(b"half a row")
            die()
        calls[0] += 1
        add(self, *given)

    return added


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("name", ["predicted.jsonl", "vectors.npy", "vectors.parquet", "scored.jsonl"])
def test_an_interrupted_output_is_resumed_to_the_same_bytes(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name.endswith(".parquet"):
        pytest.importorskip("pyarrow")
    verb = verbs(tmp_path)[name]
    verb(tmp_path / name)
    undisturbed, printed = (tmp_path / name).read_bytes(), capsys.readouterr().out
    resumed = tmp_path / "again" / name  # a folder that does not exist yet
    for after in (0, 2, 1):  # batches before each interruption
        with monkeypatch.context() as patched:
            patched.setattr(Output, "add", dying(after, lambda: 1 // 0))
            with pytest.raises(ZeroDivisionError):
                verb(resumed)
        assert not resumed.exists()
    verb(resumed)
    assert resumed.read_bytes() == undisturbed
    seen = capsys.readouterr()
    assert f"{resumed}: resuming after 6 rows" in seen.err
    if name == "scored.jsonl":
        assert seen.out.splitlines()[-1] == printed.splitlines()[-1].replace(str(tmp_path / name), str(resumed))
    assert [path.name for path in resumed.parent.iterdir()] == [name]
    if name == "vectors.npy":
        assert np.load(tmp_path / name).shape == (11, shape().width)


KILLED = """
import os, signal, sys
from pathlib import Path
from bertsmith.commands import embed
from bertsmith.data import output
from bertsmith.data.output import Output
from bertsmith.inference import embedder

embedder.CHUNK_TEXTS["cpu"], output.JOURNAL_SECONDS = 2, 0.0
add = Output.add

def added(self, *given):
    if self.rows == 6:
        self._write(b"half a row")
        os.kill(os.getpid(), signal.SIGKILL)
    add(self, *given)

Output.add = added
embed.embed(Path(sys.argv[1]), [sys.argv[2]], Path(sys.argv[3]))
"""


@pytest.mark.slow
@pytest.mark.usefixtures("small")
def test_the_output_of_a_killed_process_is_resumed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verb = verbs(tmp_path)["vectors.npy"]
    out = tmp_path / "killed.npy"
    arguments = [str(tmp_path / "masked"), str(tmp_path / "lines.txt"), str(out)]
    died = subprocess.run([sys.executable, "-c", KILLED, *arguments], env=os.environ, check=False)
    assert died.returncode == -signal.SIGKILL
    verb(out)
    assert "resuming after 6 rows" in capsys.readouterr().err
    verb(tmp_path / "whole.npy")
    assert out.read_bytes() == (tmp_path / "whole.npy").read_bytes()


@pytest.mark.usefixtures("small")
def test_another_model_starts_anew_and_changed_standard_input_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verb, out, model = verbs(tmp_path)["predicted.jsonl"], tmp_path / "out.jsonl", tmp_path / "class"

    def die(run: Callable[[], None]) -> None:
        with monkeypatch.context() as patched:
            patched.setattr(Output, "add", dying(2, lambda: 1 // 0))
            with pytest.raises(ZeroDivisionError):
                run()

    die(lambda: verb(out))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "note": "another model"}))
    verb(out)
    printed = f"{out}.part: was written with another model or other options, so it is written anew"
    assert printed in capsys.readouterr().err
    assert len(out.read_text().splitlines()) == len(LINES)
    for text in ("\n".join(LINES), "other lines"):
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        if text == "other lines":
            with pytest.raises(TextError, match="standard input: differs from the text read before the interruption"):
                predict.predict(model, [], out=tmp_path / "in.jsonl")
        else:
            die(lambda: predict.predict(model, [], out=tmp_path / "in.jsonl"))


# --------------------------------------------------------------------------------- what is shown, and refused


def test_texts_that_look_like_markup_are_shown_unchanged(
    masked: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "the [/] cat [bold]sees\x1b[31m a dog :smile:"
    (tmp_path / "lines.txt").write_text(text + "\n")
    inputs, shown = [str(tmp_path / "lines.txt")], text.replace("\x1b", "\\x1b")
    score.score(masked, inputs, pll_form="original", as_json=False)
    embed.search(masked, [text], inputs, top_k=1, as_json=False)
    seen = capsys.readouterr().out
    assert seen.count(shown) == 3
    assert "\x1b" not in seen
    embed.embed(masked, inputs, tmp_path / "a[/].npy")
    assert f"in {tmp_path / 'a[/].npy'}" in capsys.readouterr().out
    fill.fill(masked, ["the [/] [MASK] \x1b[31m"], top_k=1, as_json=False)
    assert "the [/] [MASK] \\x1b[31m" in capsys.readouterr().out


def test_an_impossible_output_is_refused_in_one_line(masked: Path, tmp_path: Path) -> None:
    (tmp_path / "lines.txt").write_text("the cat\n")
    inputs = [str(tmp_path / "lines.txt")]
    with pytest.raises(RunError, match=r"lines\.txt' is a file and not a folder\. Choose another folder\.$"):
        embed.embed(masked, inputs, tmp_path / "lines.txt" / "v.npy")
    (tmp_path / "v.npy").mkdir()
    with pytest.raises(RunError, match=r"v\.npy: is a folder\. Name a file in it\.$"):
        embed.embed(masked, inputs, tmp_path / "v.npy")
