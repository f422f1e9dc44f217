"""The terminal: text from files is shown literally; markup and control characters in it have no effect."""

import json
import os
import re
import sys
import time
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.text import Text

# All control characters except tab and line feed, and those that change the direction of writing.
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
PROGRESS_SECONDS = 30.0  # seconds between two plain lines of progress


def escape_control(text: object) -> str:
    """A text with its control characters escaped, as in \\x1b[31m: it cannot colour, move or clear anything."""
    return escape_surrogates(CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), str(text)))


def escape_surrogates(text: str) -> str:
    """A text that can be written as UTF-8: bytes of a file's name that are none become \\udce9 and so on."""
    return text.encode("utf-8", "backslashreplace").decode()


def count_of(number: int, noun: str) -> str:
    """A number with its noun: 1 vector, 2,000 vectors, 3 classes."""
    plural = noun + ("es" if noun.endswith("s") else "s")
    return f"{number:,} {noun if number == 1 else plural}"


def json_line(record: object) -> str:
    """A record as JSON with every control character escaped: the same record, and harmless on a terminal."""
    text = json.dumps(record, ensure_ascii=False)
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Terminal(Console):
    """rich's console for untrusted text: no markup by default, no emoji, no control characters."""

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(escape_control(text), **options)


def console(*, errors: bool = False) -> Terminal:
    """A console for the standard output, or for the standard error. Of several processes only the first one prints."""
    quiet = os.environ.get("RANK", "0") != "0"  # torchrun's number of this process
    return Terminal(highlight=False, soft_wrap=True, markup=False, emoji=False, stderr=errors, quiet=quiet)


class ProgressCounter:
    """Rows done and rows per second, on the standard error: in place on a terminal, else a line every half minute."""

    def __init__(self, noun: str, done: int = 0, *, every: float = PROGRESS_SECONDS) -> None:
        self.noun, self.done_before, self.started, self.every = noun, done, time.monotonic(), every
        self._next, self._bar = self.started + every, None
        if sys.stderr.isatty():
            columns = SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn()
            self._bar = Progress(*columns, console=console(errors=True), transient=True)
            self._task = self._bar.add_task(self._message(done))

    def update(self, done: int) -> None:
        """Set the number of rows done, and show it when it is time."""
        if self._bar is not None:
            self._bar.update(self._task, description=self._message(done))
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + self.every
            print(f"bertsmith: {self._message(done)}", file=sys.stderr, flush=True)

    def rate(self, done: int) -> float:
        """Rows per second, not counting those done before."""
        return (done - self.done_before) / max(time.monotonic() - self.started, 1e-9)

    def _message(self, done: int) -> str:
        return f"{done:,} {self.noun}, {self.rate(done):,.0f} a second"

    def __enter__(self) -> "ProgressCounter":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
