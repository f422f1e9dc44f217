"""The progress of reading text: a bar on a terminal, lines elsewhere."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich import progress as bars

from bertsmith import terminal

CONSOLE = terminal.console()


@contextmanager
def progress_bar(title: str, noun: str) -> Iterator[Callable[[float, int], None]]:
    """A progress bar on a terminal; elsewhere a line at each tenth."""
    if CONSOLE.is_terminal:
        columns = ("{task.description}", bars.BarColumn(), bars.TaskProgressColumn(), bars.TimeRemainingColumn())
        with bars.Progress(*columns, console=CONSOLE) as bar:
            task = bar.add_task(title, total=1.0)
            yield lambda share, count: bar.update(task, completed=share, description=f"{title}, {count:,} {noun}")
        return
    shown = 0

    def line(share: float, count: int) -> None:
        nonlocal shown
        if int(share * 10) > shown:
            shown = int(share * 10)
            CONSOLE.print(f"{title} {share:.0%}, {count:,} {noun}")

    yield line
