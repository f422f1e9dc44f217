"""Pictures for papers and slides, by matplotlib, which is wanted only where one is asked for."""

from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from bertsmith import files
from bertsmith.errors import RunError


def figure(
    path: Path, width: float, height: float, alternative: str = "leave --png out: the page needs nothing"
) -> Any:
    """An empty figure of so many inches; it needs no screen. `instead` is what can be done without the library."""
    try:
        made = import_module("matplotlib.figure").Figure
    except ImportError:
        raise RunError(path, "needs matplotlib", f"Install it with: pip install matplotlib; or {alternative}") from None
    return made(figsize=(width, height), layout="constrained")


def save(path: Path, drawn: Any) -> None:
    """Write a figure; one that is there already is replaced whole."""
    stream = BytesIO()
    drawn.savefig(stream, format="png", dpi=150)
    files.write_atomic(path, stream.getvalue())
