"""A measurement is kept with the command, the commit and the machine that made it."""

import hashlib
import json
import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import bertsmith


def code(*files: Path) -> str:
    """A hash of files, or of the whole package: figures of unlike code are not to be taken for alike."""
    read = files or sorted(Path(bertsmith.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in read)).hexdigest()[:16]


def record(path: Path, figures: dict[str, Any], machine: dict[str, str]) -> None:
    """Write the figures as JSON, so that anyone can run the same command and compare."""
    asked = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", "HEAD"], capture_output=True, text=True, check=False
    )
    written = {
        "command": shlex.join(["python", *sys.argv]),
        "commit": os.environ.get("COMMIT") or asked.stdout.strip() or "unknown",  # a copy elsewhere is told it
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine,
        **figures,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
