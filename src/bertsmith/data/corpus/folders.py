"""Folders of text files: each is looked at once, by whatever links lead to it, and none that is a model or a run.

What is skipped in them is counted, and said in one line.
"""

from collections import Counter
from pathlib import Path
from typing import Any

Skipped = Counter[tuple[str, str]]  # number of files of a folder that are not read, by ending and reason
MODELS_AND_RUNS = (  # files and folders that mark them: their logs, reports and cards are no text to learn from
    ("recipe.toml", "log.jsonl"),
    ("recipe.toml", "data"),
    ("recipe.toml", "seed-0"),
    ("tokenizer.json",),
    ("config.json", "model.safetensors"),
    ("summary.json", "train"),
)
MAX_ENDINGS = 6  # endings that the summary of skipped files names
EMPTY_TABLES = (".csv", ".tsv")  # which have no columns if they are empty, as an export that failed


class Folders:
    """The folders that were looked at."""

    def __init__(self, skipped: Skipped) -> None:
        self._skipped, self._known = skipped, set[Path]()

    def enter(self, folder: Any) -> None:
        """Remember a folder that is looked at, so that no link leads back to it."""
        if isinstance(folder, Path):
            self._known.add(folder.resolve())

    def leave_out(self, child: Any) -> bool:
        """Whether a child of a folder is none of its text."""
        if not child.is_dir():
            empty = child.suffix.lower() in EMPTY_TABLES and child.is_file() and not child.stat().st_size
            self._skipped.update({(child.suffix.lower(), "empty"): 1} if empty else {})
            return empty
        if any(all((child / name).exists() for name in names) for names in MODELS_AND_RUNS):
            self._skipped["folder", "a model or a run"] += 1
            return True
        return isinstance(child, Path) and child.resolve() in self._known


def skipped_summary(skipped: Skipped) -> str:
    """The skipped files in one line: `skipped: 12 .py (not a text format: add --as text), 3 .png (not text)`."""
    ordered = sorted(skipped.items(), key=lambda item: (-item[1], item[0]))
    facts = [f"{count:,} {ending or 'without an ending'} ({reason})" for (ending, reason), count in ordered]
    rest = sum(count for _, count in ordered[MAX_ENDINGS:])
    return "skipped: " + ", ".join([*facts[:MAX_ENDINGS], *([f"{rest:,} others"] if rest else [])]) if facts else ""
