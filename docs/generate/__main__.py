"""`python docs/generate` writes the pages of docs/reference."""

import sys
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(DOCS), str(DOCS.parent / "src")]

from generate import pages  # noqa: E402

for name, text in pages().items():
    (DOCS / "reference" / name).write_text(text, encoding="utf-8")
