"""Scripts in processes of their own, where no shapes are checked at run time: a compiler cannot look through checks."""

import subprocess
import sys
from pathlib import Path


def run(beside: str, name: str, script: str) -> None:
    """A function of a file beside a test, which must not raise."""
    command = [sys.executable, str(Path(beside).with_name(name)), script]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
