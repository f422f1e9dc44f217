"""The verbs `tokenizer` and `prepare`: lines that are not text, and running text."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tiny import recipe, write_text
from typer.testing import CliRunner

from bertsmith.cli import app
from bertsmith.commands.prepare import prepare, tokenizer
from bertsmith.errors import FolderError, TextError
from bertsmith.runs import build
from bertsmith.text import sentences
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig


def trained(policy: str, folder: Path) -> set[str]:
    """The vocabulary of a text whose lines with invalid bytes are the only ones about a zebra."""
    text, out = folder / "text.txt", folder / "out"
    text.write_bytes("die Bäckerin sieht den Hund .\n".encode() * 40 + b"ein \xff Zebra .\n" * 2)
    command = ["tokenizer", text, "--out", out, "--vocabulary", 100, "--on-bad-line", policy]
    said = CliRunner().invoke(app, list(map(str, command)))
    if said.exception is not None:
        raise said.exception
    return set(Tokenizer.load(out).piece_ids)


def test_lines_of_invalid_bytes_are_read_skipped_or_refused(tmp_path: Path) -> None:
    assert "z" in trained("replace", tmp_path)
    assert "z" not in trained("skip", tmp_path)
    with pytest.raises(TextError, match=r"text\.txt:41: "):
        trained("fail", tmp_path)


def test_running_text_is_split_by_simple_rules_where_sentencex_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "sentencex", None)
    sentences._segment.cache_clear()
    try:
        (tmp_path / "text").mkdir()
        for name in ("one.txt", "two.md"):
            (tmp_path / "text" / name).write_text("Dr. Brown came in. He sat down! Was he ill? " * 30)
        tokenizer([str(tmp_path / "text")], tmp_path / "vocabulary", TokenizerConfig(vocabulary=100))
        capsys.readouterr()
        prepared = prepare([str(tmp_path / "text")], tmp_path / "data", tmp_path / "vocabulary", validation_share=0.1)
        assert prepared.train["sentences"] + prepared.valid["sentences"] == 90  # the second file is a duplicate
        note = f"text: {sentences.RULES_NOTE}"
        assert capsys.readouterr().out.count(note) == 1
    finally:
        sentences._segment.cache_clear()
    monkeypatch.undo()
    with pytest.raises(FolderError, match=r"data: was prepared with another sentence splitter\. Choose another folder"):
        prepare([str(tmp_path / "text")], tmp_path / "data", tmp_path / "vocabulary", validation_share=0.1)


def test_text_that_is_not_prepared_is_not_trained_on(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    text = write_text(tmp_path / "texts" / "a.txt")
    (tmp_path / "run" / "data" / "train").mkdir(parents=True)
    fact = "is not a folder that `bertsmith prepare` wrote. Prepare its text first: bertsmith prepare"
    for path, expected in (
        (text, f"{fact} {text} --tokenizer TOKENIZER --out DATA; or do it all: bertsmith make {text} --out RUN."),
        (text.parent, f"{fact} {text.parent} --tokenizer TOKENIZER"),
        (tmp_path / "run", f"is a run. Its prepared text is {tmp_path / 'run' / 'data'}."),
        (tmp_path / "no", "there is no such folder. Make it with: bertsmith prepare TEXT --tokenizer TOKENIZER --out"),
    ):
        with pytest.raises(FolderError) as caught:
            build.load_data(recipe(path, tmp_path / "out"))
        assert str(caught.value).startswith(f"{path}: {expected}")
    continued = replace(recipe(text, tmp_path / "out"), start=Path("bert"))
    with pytest.raises(
        FolderError, match=r" --tokenizer bert --out DATA; or do it all: bertsmith make .* --from bert --out RUN"
    ):
        build.load_data(continued)
