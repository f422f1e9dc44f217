"""`inspect`: texts through models, from the command line to a page."""

import json
from pathlib import Path

import pytest
from inference.test_load import plain, saved
from tiny import prepared, recipe, write_text
from typer.testing import CliRunner

import bertsmith
from bertsmith.cli.application import app
from bertsmith.commands import inspect, pretrain
from bertsmith.errors import BertsmithError, FolderError, TextError
from bertsmith.insight import cells, gradient_flow
from bertsmith.models.hf import folder as folders
from bertsmith.models.recurrent import Recurrent, RecurrentConfig
from bertsmith.nn.init import initialise
from bertsmith.nn.rnn.cells import Cell
from bertsmith.runs import checkpoint_models
from bertsmith.text.tokenizer import TokenizerConfig, train
from bertsmith.train import checkpoint


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text, an untrained LSTM, an untrained plain RNN, and an untrained BERT."""
    folder = tmp_path_factory.mktemp("look")
    tokenizer = train(write_text(folder / "text.txt", 12).read_text().split("\n"), TokenizerConfig(kind="words"))
    kinds: list[Cell] = ["rnn", "lstm"]
    for cell in kinds:
        config = RecurrentConfig(cell=cell, vocabulary=tokenizer.vocabulary, width=16, layers=1, tie_embeddings=True)
        trunk = Recurrent(config)
        initialise(trunk, 0, 0.5)
        folders.write(folder / cell / "model", config, trunk.state_dict(prefix="trunk."))
        tokenizer.save(folder / cell / "model")
    plain(folder / "bert" / "model")
    saved(folder / "squad" / "model", "answer")
    return folder


def test_a_page_is_written_and_the_console_has_a_few_lines(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = place / "deep" / "page.html"
    inspect.inspect([place / "bert"], ["the [MASK] sees", "the dog sees"], out, as_json=True)
    page = out.read_text(encoding="utf-8")
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org", "")
    printed = capsys.readouterr().out
    assert "bert: 'the [MASK] sees'" in printed
    assert "self-attention: 8 heads: " in printed
    assert "[MASK] at 2: " in printed
    assert f"written {out}" in printed
    figures = json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))
    assert figures["texts"] == ["the [MASK] sees", "the dog sees"]
    assert len(figures["comparisons"]) == 1


def test_the_ending_decides_what_is_written(place: Path) -> None:
    found = inspect.inspect([place / "bert"], ["the cat"], place / "only.json", as_json=True, attribute=False)
    assert json.loads((place / "only.json").read_text(encoding="utf-8")) == found.figures()
    with pytest.raises(TextError, match=r"page.pdf: has the unknown ending '.pdf'"):
        inspect.inspect([place / "bert"], ["the cat"], place / "page.pdf")


def test_recurrent_networks_are_compared_on_one_page(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = place / "page.html"
    inspect.inspect([place / "rnn" / "model", place / "lstm" / "model"], [], out, file=place / "text.txt")
    page = out.read_text(encoding="utf-8")
    for heading in ("Gradient flow through time", "Cells of rnn", "Cells of lstm", "letters of the last word"):
        assert heading in page
    printed = capsys.readouterr().out
    assert "of the gradient reaches 16 tokens back" in printed
    assert "This network has no attention." in printed


def test_pngs_are_written_next_to_the_page(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Path] = []
    monkeypatch.setattr(gradient_flow, "draw", lambda path, *_: drawn.append(path))
    monkeypatch.setattr(cells, "draw", lambda path, *_: drawn.append(path))
    monkeypatch.setattr("bertsmith.insight.inspection.pictures.draw", lambda path, *_: drawn.append(path))
    inspect.inspect([place / "lstm"], [], place / "page.html", file=place / "text.txt", pictures=True)
    assert drawn == [place / "page.png", place / "page-time.png", place / "page-cells-lstm.png"]


def test_a_file_has_a_text_or_a_pair_on_each_line(place: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("who sees ?\tthe cat sees\n\nwho ?\tthe dog\n")
    found = inspect.inspect([place / "squad"], ["what ?\ta river"], tmp_path / "page.html", file=lines)
    assert found.texts == ["what ?\na river", "who sees ?\nthe cat sees", "who ?\nthe dog"]
    lines.write_text("\n")
    with pytest.raises(TextError, match=r"lines.txt: has no text."):
        inspect.inspect([place / "bert"], [], tmp_path / "page.html", file=lines)
    lines.write_text("the cat\n" * 40)
    with pytest.raises(TextError, match=r"lines.txt: has 40 lines, and a page shows 32 texts. Give the few"):
        inspect.inspect([place / "bert"], [], tmp_path / "page.html", file=lines)


def test_a_map_alone_shows_its_first_text(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("the cat sees\nthe dog likes the cat\nold cat\n")
    found = inspect.inspect([place / "bert"], [], tmp_path / "page.html", map_file=lines, word="cat")
    assert found.map is not None
    assert "Map(3 occurrences of 'cat', PCA)" in capsys.readouterr().out


def test_what_is_missing_is_said_in_one_line(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "page.html"
    with pytest.raises(BertsmithError) as caught:
        inspect.inspect([place / "bert"], [], out)
    message = 'inspect: there is no text to read. Give one with --text "...", or a file with --file.'
    assert str(caught.value) == message
    text = place / "text.txt"
    with pytest.raises(TextError) as wrong:
        inspect.inspect([place / "bert"], [str(text)], out)
    assert str(wrong.value) == f"--text {text}: is a file, and --text takes the text itself. Use --file {text}."
    (tmp_path / "few.txt").write_text("a few words\n")
    with pytest.raises(TextError, match=r"few.txt: has fewer than 16 words. Give it a page of text."):
        inspect.inspect([place / "lstm" / "model"], [], out, file=tmp_path / "few.txt")
    with pytest.raises(FolderError, match="is missing"):
        inspect.inspect([tmp_path / "none"], ["the cat"], out)
    inspect._check_is_no_file("\0")  # what no file can be named
    inspect._check_is_no_file("a" * 100_000)


def test_the_verb_takes_texts_and_says_what_is_wrong(place: Path) -> None:
    runner = CliRunner()
    out = place / "cli.html"
    given = ["inspect", str(place / "bert"), "--text", "the cat", "--text", "the dog", "--no-attributions"]
    done = runner.invoke(app, [*given, "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert out.exists()
    assert runner.invoke(app, ["inspect", str(place / "bert"), "--text", "the cat"]).exit_code == 2  # no --out


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of a few steps that keeps all its checkpoints."""
    folder = tmp_path_factory.mktemp("run")
    data = prepared(folder)
    given = recipe(data, folder / "mine", "train.steps=6", "train.checkpoints=3", "train.keep_checkpoints=9")
    pretrain.pretrain(given)
    return folder / "mine"


@pytest.mark.slow("trains a small model")
def test_checkpoints_of_a_run_are_models_over_training(run: Path, tmp_path: Path) -> None:
    found = inspect.inspect([run / "checkpoints"], ["the [MASK] sees ."], tmp_path / "page.html")
    steps = [one.step for one in checkpoint.load_all(run / "checkpoints")]
    assert len(steps) == 3
    assert [one.name for one in found.subjects] == [f"mine step {step}" for step in steps]
    assert [(a, b) for a, b, _ in found.comparisons] == [(0, 1), (0, 2), (1, 2)]
    # The last checkpoint is the model of the run.
    last = bertsmith.inspect([run / "checkpoints" / f"step-{steps[-1]:09d}", run], "the [MASK] sees .")
    hidden = [one.reading.trace.hidden[-1] for one in last.readings]
    assert hidden[0] == pytest.approx(hidden[1], abs=1e-5)
    assert last.figures()["comparisons"][0]["what"] == "models"


@pytest.mark.slow("trains a small model")
def test_a_checkpoint_without_its_run_is_refused_in_one_line(run: Path, tmp_path: Path) -> None:
    assert checkpoint_models.is_checkpoint(run / "checkpoints")
    assert not checkpoint_models.is_checkpoint(run)
    assert not checkpoint_models.is_checkpoint(tmp_path / "checkpoints")
    lone = tmp_path / "checkpoints" / "step-000000100"
    lone.mkdir(parents=True)
    with pytest.raises(FolderError, match=r"step-000000100: there is no recipe.toml in .* Give a checkpoint inside of"):
        list(checkpoint_models.load_checkpoints(lone))
    (tmp_path / "recipe.toml").write_bytes((run / "recipe.toml").read_bytes())
    moved = (tmp_path / "recipe.toml").read_text().replace(str(run.parent / "data"), "gone")
    (tmp_path / "recipe.toml").write_text(moved)
    with pytest.raises(FolderError, match=r"its tokenizer is no longer there. It was in gone."):
        list(checkpoint_models.load_checkpoints(lone))
