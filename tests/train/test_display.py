"""A run is shown calmly, and showing it never harms it."""

import io
import re
import sys
from dataclasses import replace

import pytest

from bertsmith.train.display import Display, Progress

HALF = Progress(
    step=1_500,
    fraction=0.5,
    loss=3.21449,
    learning_rate=1e-4,
    tokens_per_second=12_345.0,
    mfu=0.4321,
    seconds_left=245.0,
)


class Broken(io.StringIO):
    """A terminal that was closed."""

    def write(self, text: str) -> int:
        raise BrokenPipeError


def screen(text: str) -> list[str]:
    """What stands on a terminal in the end."""
    lines, row = [""], 0
    for piece in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|[\r\n]|[^\x1b\r\n]+", text):
        if piece == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif piece == "\x1b[1A":
            row -= 1
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif not piece.startswith(("\x1b", "\r")):
            lines[row] += piece
    return [line.rstrip() for line in lines if line]


def test_plain_lines_say_everything() -> None:
    stream = io.StringIO()
    with Display("pretraining", stream=stream) as display:
        display.say("resuming from step 1000")
        display.update(HALF)
        display.show_validation("step 1500: validation loss 3.1")
    assert stream.getvalue().splitlines() == [
        "resuming from step 1000",
        "pretraining 50%, step 1,500, loss 3.214, lr 1.0e-04, 12.3k tokens/s, MFU 43.2%, 4 min 05 s left",
        "step 1500: validation loss 3.1",
    ]


def test_unknown_progress_is_not_shown() -> None:
    stream = io.StringIO()
    with Display(stream=stream) as display:
        display.update(replace(HALF, mfu=None, seconds_left=None, tokens_per_second=950.0))
    assert stream.getvalue() == "training 50%, step 1,500, loss 3.214, lr 1.0e-04, 950 tokens/s\n"


def test_plain_lines_are_few_and_the_last_is_always_shown() -> None:
    stream = io.StringIO()
    with Display(stream=stream, interval=3600.0) as display:
        for step in range(1, 1001):
            display.update(replace(HALF, step=step))
    assert re.findall(r"step ([\d,]+),", stream.getvalue()) == ["1", "1,000"]


def test_every_update_is_a_line_when_asked() -> None:
    stream = io.StringIO()
    with Display(stream=stream, interval=0.0) as display:
        for step in range(5):
            display.update(replace(HALF, step=step))
    assert len(stream.getvalue().splitlines()) == 5


@pytest.mark.parametrize(("speed", "said"), [(0.0, "0"), (999.0, "999"), (1e3, "1.0k"), (1.25e6, "1.25M")])
def test_speeds_are_abbreviated(speed: float, said: str) -> None:
    assert f"{said} tokens/s" in replace(HALF, tokens_per_second=speed).facts
    assert f"{said} images/s" in replace(HALF, images_per_second=speed).facts


def test_a_terminal_shows_a_bar_with_the_figures_below(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    stream = io.StringIO()
    with Display("pretraining", terminal=True, stream=stream) as display:
        display.say("[bold] is no markup")
        display.update(HALF)
        display.show_validation("step 1500: validation loss 3.1")
        display.say("a word above the bar")
    first, second, bar, facts, validation = screen(stream.getvalue())
    assert (first, second) == ("[bold] is no markup", "a word above the bar")
    assert re.fullmatch(r"pretraining  ━+.?━+   50%  4 min 05 s left", bar)
    assert len(bar) == 80
    assert facts == "step 1,500   loss 3.214   lr 1.0e-04   12.3k tokens/s   MFU 43.2%"
    assert validation == "step 1500: validation loss 3.1"


def test_a_narrow_terminal_cuts_and_does_not_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    stream = io.StringIO()
    with Display("pretraining", terminal=True, stream=stream) as display:
        display.update(HALF)
    bar, facts = screen(stream.getvalue())
    assert len(bar) == 40
    assert facts == "step 1,500   loss 3.214   lr 1.0e-04   …"


def test_a_terminal_is_left_with_the_end_of_the_run_and_a_cursor() -> None:
    stream = io.StringIO()
    with Display(terminal=True, stream=stream) as display:
        display.update(HALF)
        display.update(replace(HALF, step=3_000, fraction=1.0, seconds_left=0.0))
    assert "step 3,000" in screen(stream.getvalue())[-1]
    assert stream.getvalue().rindex("\x1b[?25h") > stream.getvalue().rindex("\x1b[?25l")


@pytest.mark.parametrize("terminal", [False, True])
def test_a_closed_terminal_does_not_end_the_run(terminal: bool) -> None:
    before = sys.stdout
    with Display(terminal=terminal, stream=Broken(), interval=0.0) as display:
        for _ in range(3):
            display.say("hello")
            display.update(HALF)
            display.show_validation("fine")
    assert sys.stdout is before


@pytest.mark.parametrize("terminal", [False, True])
def test_a_stream_closed_in_between_does_not_end_the_run(terminal: bool) -> None:
    before = sys.stdout
    stream = io.StringIO()
    with Display(terminal=terminal, stream=stream, interval=0.0) as display:
        display.update(HALF)
        stream.close()
        display.update(replace(HALF, step=1_501))
        display.say("hello")
    assert sys.stdout is before


def test_characters_that_the_output_cannot_encode_are_replaced() -> None:
    raw = io.BytesIO()
    with Display(stream=io.TextIOWrapper(raw, encoding="ascii")) as display:
        display.say("naïve")
        assert raw.getvalue() == b"na?ve\n"


def test_a_dumb_terminal_gets_plain_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    for kind, moves in (("dumb", False), ("xterm", True)):
        monkeypatch.setenv("TERM", kind)
        stream = Terminal()
        with Display(stream=stream) as display:
            display.update(HALF)
        assert ("\x1b[" in stream.getvalue()) == moves


def test_nothing_is_shown_after_the_end() -> None:
    stream = io.StringIO()
    display = Display(stream=stream)
    display.close()
    display.say("too late")
    assert stream.getvalue() == ""


def test_a_long_evaluation_shows_how_much_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("bertsmith.train.display.time.monotonic", lambda: now[0])
    stream = io.StringIO()
    with Display(stream=stream, terminal=False, interval=10.0) as display:
        for share in (0.2, 0.4, 0.6, 1.0):  # over before the interval has passed
            display.show_evaluation(share)
            now[0] += 2
        assert stream.getvalue() == ""
        for share in (0.1, 0.3, 0.5, 0.7, 1.0):
            display.show_evaluation(share)
            now[0] += 6
    assert stream.getvalue() == "evaluating: 50%\n"
