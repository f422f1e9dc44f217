"""What others have written is shown and never obeyed."""

import io
import json
import re
import time
from pathlib import Path

import pytest
from rich.table import Table

from bertsmith import terminal
from bertsmith.train.display import Display


def test_control_characters_are_spelt_out_and_others_left_alone() -> None:
    assert (
        terminal.escape_control("\x1b[31mred\x07 \x9b2J \x7f \u202eabc") == "\\x1b[31mred\\x07 \\x9b2J \\x7f \\u202eabc"
    )
    assert terminal.escape_control("né\t日本 👩‍💻\n") == "né\t日本 👩‍💻\n"


def test_an_escaped_record_is_the_same_record() -> None:
    record = {"text": "\x1b[2J\x9b \u202e [/] né"}
    line = terminal.json_line(record)
    assert json.loads(line) == record
    assert not terminal.CONTROL.search(line)
    assert "né" in line


def test_markup_emoji_and_escapes_in_texts_are_text() -> None:
    stream = io.StringIO()
    console = terminal.console()
    console.file = stream
    console.print("[/] [bold]a[/bold] :smile: \x1b[31mred")
    table = Table("a", box=None)
    table.add_row("[/x] \x1b]0;title\x07")
    console.print(table)
    said = stream.getvalue()
    assert "[/] [bold]a[/bold] :smile: \\x1b[31mred" in said
    assert "[/x] \\x1b]0;title\\x07" in said


def test_every_verb_prints_through_the_terminal() -> None:
    """A name such as `a[/]` after hours of work must not be taken for markup by any of them."""
    source = Path(terminal.__file__).parent
    made = {path.name for path in source.rglob("*.py") if re.search(r"[^_]Console\(", path.read_text(encoding="utf-8"))}
    assert made <= {"terminal.py", "display.py"}  # display.py has a console of its own, for its bar


def test_a_line_of_a_run_is_cleaned_too() -> None:
    stream = io.StringIO()
    Display("training", stream=stream, terminal=False).say("\x1b[2J [/] done")
    assert stream.getvalue() == "\\x1b[2J [/] done\n"


def test_progress_is_a_line_now_and_then_where_there_is_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with terminal.ProgressCounter("rows", 5, every=0.01) as count:
        count.update(6)
        time.sleep(0.02)
        count.update(1_007)
    assert capsys.readouterr().err.startswith("bertsmith: 1,007 rows, ")


def test_progress_is_shown_in_place_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    with terminal.ProgressCounter("rows") as count:
        count.update(1_234)
    assert "1,234 rows" in stream.getvalue()


def test_one_is_singular() -> None:
    counted = [terminal.count_of(*one) for one in ((1, "vector"), (0, "vector"), (2_000, "dev example"), (2, "class"))]
    assert counted == ["1 vector", "0 vectors", "2,000 dev examples", "2 classes"]
    assert terminal.count_of(1, "class") == "1 class"
