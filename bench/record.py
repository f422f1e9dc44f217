"""The record of a measurement: its figures with the command, the commit and the machine."""

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
    """A hash of files, or of the whole package, to tell results of different code apart."""
    read = files or sorted(Path(bertsmith.__file__).parent.rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in read)).hexdigest()[:16]


def record(path: Path, figures: dict[str, Any], machine: dict[str, str]) -> None:
    """Write the figures as JSON, with the command that reproduces them."""
    asked = subprocess.run(
        ["git", "rev-parse", "--verify", "--quiet", "HEAD"], capture_output=True, text=True, check=False
    )
    written = {
        "command": shlex.join(["python", *sys.argv]),
        "commit": os.environ.get("COMMIT") or asked.stdout.strip() or "unknown",  # set where there is no repository
        "date": datetime.now(UTC).date().isoformat(),
        "machine": machine,
        **figures,
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(written, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
