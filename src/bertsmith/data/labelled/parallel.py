"""Parallel text: two files, such as train.en and train.de, of which each line is the translation of the other's."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from bertsmith.data.corpus.sources import COMPRESSIONS, Source
from bertsmith.data.labelled.bad_rows import BadRows
from bertsmith.data.labelled.examples import Example
from bertsmith.data.labelled.lines import read_lines
from bertsmith.data.labelled.sources import find_source
from bertsmith.errors import TextError

EMPTY_SIDE = "pairs without text on one side"


def find_sides(stem: Path, texts: tuple[str, ...] | None, label: str | None) -> tuple[Source, Source] | None:
    """The files `stem.en` and `stem.de`, perhaps compressed, for columns named `en` and `de`; None without them."""
    if texts is None or len(texts) != 1 or label is None:
        return None
    source, target = (_side(stem, ending) for ending in (texts[0], label))
    return (find_source(source), find_source(target)) if source and target else None


def read(both: tuple[Source, Source], dropped: BadRows) -> tuple[Iterator[Example], str]:
    """Each line and its translation as an example, and a description. The files are read twice and not held."""
    first, second = both
    counts = [
        max((number for number, line, fault in read_lines(side) if line.strip() or fault), default=0) for side in both
    ]
    if counts[0] != counts[1]:
        fact = f"has {counts[0]:,} lines, and {second.name} has {counts[1]:,}"
        raise TextError(first.name, fact, "Line by line, both must say the same")
    description = f"source lines from {first.path.name}, target lines from {second.path.name}"
    return _pairs(both, counts[0], dropped), description


def _pairs(both: tuple[Source, Source], count: int, dropped: BadRows) -> Iterator[Example]:
    for (number, source, fault), (_, target, target_fault) in zip(
        *(islice(read_lines(side), count) for side in both), strict=True
    ):
        location = f"{both[0].name}:{number}"
        if fault or target_fault:
            dropped.drop(fault or target_fault, location)
        elif not (source.strip() and target.strip()):
            dropped.drop(EMPTY_SIDE, location, "has no text, or its translation has none")
        else:
            yield Example(location=location, texts=(source.strip(),), label=target.strip())


def _side(stem: Path, ending: str) -> Path | None:
    if not ending or "/" in ending:
        return None
    named = (stem.with_name(f"{stem.name}.{ending}{packing}") for packing in ("", *COMPRESSIONS))
    return next((path for path in named if path.is_file()), None)
