"""A measurement is kept with the command, the commit and the machine that made it."""

import json
import os
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


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
