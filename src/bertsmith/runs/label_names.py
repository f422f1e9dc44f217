"""The names of labels: those of a file, by those that a model knows."""

from collections.abc import Sequence
from pathlib import Path

from bertsmith.errors import TextError


def match_labels(labels: Sequence[str], seen: Sequence[str]) -> dict[str, str] | None:
    """For each label of a file the model's: the same, the same in another case, or the one with that index.

    Published models often have names where files have indices: LABEL_0 or NEGATIVE is 0. None: there is no such way.
    """
    if not seen or any(label in labels for label in seen):
        return {label: label for label in seen}
    folded = {label.casefold(): label for label in labels}
    if len(folded) == len(labels) and any(label.casefold() in folded for label in seen):
        return {label: folded.get(label.casefold(), label) for label in seen}
    if all(label.isdecimal() and int(label) < len(labels) for label in seen):
        return {label: labels[int(label)] for label in seen}
    return None


def unknown_labels(labels: Sequence[str], seen: Sequence[str], path: Path) -> TextError:
    """The error for a file of which the model knows no label."""
    some, known = (", ".join(sorted(names)[:5]) for names in (seen, labels))
    fact = f"none of its labels ({some}) is one that the model knows ({known})"
    return TextError(path, fact, "Name the column of the label with data.label='...', or rename the labels")
