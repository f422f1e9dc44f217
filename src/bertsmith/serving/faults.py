"""Faults of the server in its log: their kind and their place, and no text of a request, which a message may quote."""

import sys
import traceback
from pathlib import Path

FRAMES = 4  # the innermost ones


def log_fault(error: BaseException) -> None:
    """A line on the standard error."""
    frames = traceback.extract_tb(error.__traceback__)[-FRAMES:]
    where = " <- ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(frames))
    print(f"bertsmith serve: {type(error).__name__} at {where}", file=sys.stderr, flush=True)
