"""The verb `tokenizer`: what it does with lines that are not text."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from bertsmith.cli import app
from bertsmith.errors import TextError
from bertsmith.text.tokenizer import Tokenizer


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
