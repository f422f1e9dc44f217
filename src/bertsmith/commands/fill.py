"""`fill`: the likeliest words for each [MASK] of a text (fill-mask)."""

import sys
from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from bertsmith import terminal
from bertsmith.inference.fill import FilledText
from bertsmith.inference.load import load_text_model

CONSOLE = terminal.console()
BAR_WIDTH = 24  # characters of a bar for probability 1


def fill(model: Path, texts: Sequence[str] | None, *, top_k: int, as_json: bool) -> None:
    """Fill the masks of the texts, or of each line of standard input."""
    loaded = load_text_model(model)
    for text in sys.stdin if texts is None else texts:
        if text.strip():
            filled = loaded.fill(text.strip(), top_k)
            if as_json:
                print(terminal.json_line(filled.to_dict()), flush=True)
            else:
                _show(filled)


def _show(filled: FilledText) -> None:
    CONSOLE.print(f"\n{filled.text}", style="bold")
    for blank in filled.blanks:
        for guess in blank:
            bar = "█" * round(BAR_WIDTH * guess.probability)
            CONSOLE.print(f"  {guess.probability:6.1%}  {escape(guess.word):16s} [cyan]{bar}[/]", markup=True)
        CONSOLE.print()
