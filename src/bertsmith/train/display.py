"""The console display of a run: a progress bar on a terminal, plain lines everywhere else."""

import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bertsmith.terminal import escape_control
from bertsmith.train.clock import format_duration


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress and the newest metrics of a run."""

    step: int
    fraction: float  # of the run that is done, 0 to 1
    loss: float
    learning_rate: float
    tokens_per_second: float
    images_per_second: float | None = None  # of a network of images, whose tokens are patches
    mfu: float | None = None  # model FLOPs utilisation: the share of the device's peak FLOP/s
    seconds_left: float | None = None

    @property
    def facts(self) -> list[str]:
        """Step, loss, learning rate and speed, as text."""
        facts = [f"step {self.step:,}", f"loss {self.loss:.3f}", f"lr {self.learning_rate:.1e}"]
        images = self.images_per_second
        speed = (
            f"{_abbreviate(self.tokens_per_second)} tokens/s" if images is None else f"{_abbreviate(images)} images/s"
        )
        facts.append(speed)
        return facts if self.mfu is None else [*facts, f"MFU {self.mfu:.1%}"]

    @property
    def time_left(self) -> str:
        return "" if self.seconds_left is None else f"{format_duration(self.seconds_left)} left"


class Display:
    """Shows a run on the console. An output that fails is given up, and never stops the run."""

    def __init__(
        self,
        title: str = "training",
        *,
        terminal: bool | None = None,  # by default, whether the stream is one
        stream: Any = None,  # a text stream; by default, the standard output
        interval: float = 10.0,  # seconds between two plain lines
        silent: bool = False,  # show nothing: another process of the run shows it
    ) -> None:
        stream = sys.stdout if stream is None else stream
        terminal = _is_terminal(stream) if terminal is None else terminal
        self._view: _View | None = None if silent else _Bar(title, stream) if terminal else _Lines(title, stream)
        self._interval = 0.1 if terminal else interval
        self._latest: Progress | None = None
        self._shown: Progress | None = None
        self._next = self._next_evaluation = 0.0
        self._evaluated = 1.0  # the share of the evaluation that was shown last

    def update(self, progress: Progress) -> None:
        """Take the newest progress, and show it if the interval has passed."""
        self._latest = progress
        if time.monotonic() >= self._next:
            self._show(progress)

    def say(self, text: str) -> None:
        """Print a line; on a terminal, above the bar."""
        self._safely(lambda view: view.say(text))

    def show_validation(self, text: str) -> None:
        """Show the newest validation; on a terminal, below the bar."""
        self._safely(lambda view: view.show_validation(text))

    def show_evaluation(self, share: float) -> None:
        """Show how much of an evaluation is done; one that ends before the interval has passed shows nothing."""
        now = time.monotonic()
        if share <= self._evaluated:  # a new one
            self._next_evaluation = now + self._interval
        self._evaluated = share
        if now >= self._next_evaluation and share < 1:
            self._next_evaluation = now + self._interval
            self._safely(lambda view: view.show_validation(f"evaluating: {share:.0%}"))

    def close(self) -> None:
        """Show the final progress."""
        if self._latest is not None and self._latest is not self._shown:
            self._show(self._latest)
        self._safely(lambda view: view.close())
        self._view = None

    def __enter__(self) -> "Display":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _show(self, progress: Progress) -> None:
        self._next = time.monotonic() + self._interval
        self._shown = progress
        self._safely(lambda view: view.show(progress))

    def _safely(self, act: "Callable[[_View], None]") -> None:
        if self._view is None:
            return
        try:
            act(self._view)
        except (OSError, ValueError):  # a closed terminal, a broken pipe, a character that the encoding lacks
            view, self._view = self._view, None
            with suppress(OSError, ValueError):
                view.close()


class _View(Protocol):
    """Terminal or plain lines."""

    def show(self, progress: Progress) -> None: ...
    def say(self, text: str) -> None: ...
    def show_validation(self, text: str) -> None: ...
    def close(self) -> None: ...


class _Lines:
    """One line at a time, for files, pipes and logs of clusters."""

    def __init__(self, title: str, stream: Any) -> None:
        self.title, self.stream = title, stream

    def show(self, progress: Progress) -> None:
        facts = [f"{self.title} {progress.fraction:.0%}", *progress.facts, progress.time_left]
        self.say(", ".join(fact for fact in facts if fact))

    def say(self, text: str) -> None:
        encoding = self.stream.encoding or "utf-8"
        self.stream.write(escape_control(text).encode(encoding, "replace").decode(encoding) + "\n")
        self.stream.flush()

    show_validation = say

    def close(self) -> None:
        pass


class _Console(Console):
    """rich's console, which would end the program when its pipe breaks; here the run continues."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


class _Bar:
    """A bar with metrics below it, redrawn in place; without a thread, since a data loader may fork."""

    def __init__(self, title: str, stream: Any) -> None:
        self.title, self.validation = title, ""
        self.console = _Console(file=stream, force_terminal=True, highlight=False)
        self.live = Live(console=self.console, auto_refresh=False)
        self.progress: Progress | None = None

    def show(self, progress: Progress) -> None:
        self.progress = progress
        self._draw()

    def say(self, text: str) -> None:
        self.console.print(escape_control(text), markup=False, emoji=False, soft_wrap=True)

    def show_validation(self, text: str) -> None:
        self.validation = text
        self._draw()

    def close(self) -> None:
        self.live.stop()

    def _draw(self) -> None:
        if not self.live.is_started:
            self.live.start()
        self.live.update(self._render(), refresh=True)

    def _render(self) -> Group:
        lines: list[Table | Text] = []
        if self.progress is not None:
            bar = ProgressBar(total=1.0, completed=self.progress.fraction, complete_style="cyan")
            top = Table.grid(padding=(0, 2), expand=True)
            top.add_column(no_wrap=True)
            top.add_column(ratio=1)
            top.add_column(no_wrap=True, justify="right")
            top.add_column(no_wrap=True, justify="right", style="dim")
            top.add_row(Text(self.title, "bold"), bar, f"{self.progress.fraction:4.0%}", self.progress.time_left)
            lines += [top, Text("   ".join(self.progress.facts), no_wrap=True, overflow="ellipsis")]
        if self.validation:
            lines.append(Text(self.validation, "green", no_wrap=True, overflow="ellipsis"))
        return Group(*lines)


def _is_terminal(stream: Any) -> bool:
    return bool(stream.isatty()) and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def _abbreviate(number: float) -> str:
    """A large number, abbreviated: 950, 12.3k, 1.25M."""
    if number < 1_000:
        return f"{number:.0f}"
    if number < 1_000_000:
        return f"{number / 1_000:.1f}k"
    return f"{number / 1_000_000:.2f}M"
