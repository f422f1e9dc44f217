"""Parallel text: two files side by side, in which each line of one says what the same line of the other says."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bertsmith.data.corpus.sources import COMPRESSIONS, Source
from bertsmith.data.labelled.examples import Example
from bertsmith.data.labelled.tables import BadRows, find_source, read_lines
from bertsmith.errors import TextError

EMPTY = "pairs without text on one side"


def find_sides(stem: Path, texts: tuple[str, ...] | None, label: str | None) -> tuple[Source, Source] | None:
    """The files `stem.en` and `stem.de`, perhaps packed, where columns are named `en` and `de`; None without them."""
    if texts is None or len(texts) != 1 or label is None:
        return None
    found = [_side(stem, ending) for ending in (texts[0], label)]
    return (find_source(found[0]), find_source(found[1])) if found[0] and found[1] else None


def read(both: tuple[Source, Source], dropped: BadRows) -> tuple[Iterator[Example], str]:
    """Each line and its translation as an example, and what was read in words. The files are read twice, not held."""
    first, second = both
    counts = [
        max((number for number, line, fault in read_lines(side) if line.strip() or fault), default=0) for side in both
    ]
    if counts[0] != counts[1]:
        fact = f"has {counts[0]:,} lines, and {second.name} has {counts[1]:,}"
        raise TextError(first.name, fact, "Line by line, both must say the same")
    found = f"lines of {first.path.name}, and what is to be written from {second.path.name}"
    return _pairs(both, counts[0], dropped), found


def _pairs(both: tuple[Source, Source], count: int, dropped: BadRows) -> Iterator[Example]:
    for (number, text, fault), (_, said, other) in zip(
        *(islice(read_lines(side), count) for side in both), strict=True
    ):
        place = f"{both[0].name}:{number}"
        if fault or other:
            dropped.drop(fault or other, place)
        elif not (text.strip() and said.strip()):
            dropped.drop(EMPTY, place, "has no text, or its translation has none")
        else:
            yield Example(location=place, texts=(text.strip(),), label=said.strip())


def _side(stem: Path, ending: str) -> Path | None:
    if not ending or "/" in ending:
        return None
    named = (stem.with_name(f"{stem.name}.{ending}{packing}") for packing in ("", *COMPRESSIONS))
    return next((path for path in named if path.is_file()), None)
