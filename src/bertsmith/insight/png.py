"""PNG pictures for papers and slides, by matplotlib, which is an extra."""

from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import Any

from bertsmith import files
from bertsmith.errors import RunError


def figure(
    path: Path, width: float, height: float, alternative: str = "leave --png out: the page needs nothing"
) -> Any:
    """An empty figure, in inches, without a screen. `instead` names the remedy where matplotlib is missing."""
    try:
        made = import_module("matplotlib.figure").Figure
    except ImportError:
        raise RunError(path, "needs matplotlib", f"Install it with: pip install matplotlib; or {alternative}") from None
    return made(figsize=(width, height), layout="constrained")


def save(path: Path, drawn: Any) -> None:
    """Write a figure atomically."""
    stream = BytesIO()
    drawn.savefig(stream, format="png", dpi=150)
    files.write_atomic(path, stream.getvalue())
