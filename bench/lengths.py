"""BLEU by sentence length for several translation models: a single vector loses long sentences, and attention does not.

    python bench/lengths.py attention=runs/seq2seq/model plain=runs/seq2seq-plain/model
        --source multi30k/test_2016_flickr.en.xz --reference multi30k/test_2016_flickr.de.xz
        [--edges 9 11 13 16 20] [--beams 5] [--out bench/results/lengths.json] [--page lengths.html]

Cho et al. 2014, "On the Properties of Neural Machine Translation"; Bahdanau et al. 2015, figure 2. Sentences are
grouped by the number of words of the source, split at spaces: up to the first edge, above it up to the second, and so
on. Each group is scored as one corpus, with sacreBLEU's defaults, and so is the whole. The position of a group in the
chart is the mean length of its sentences.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from record import record
from rich.console import Console

import bertsmith
from bertsmith.data.labelled import parallel
from bertsmith.data.labelled.bad_rows import BadRows
from bertsmith.data.labelled.sources import find_source
from bertsmith.insight import table
from bertsmith.insight.charts import HorizontalAxis, Series, chart, format_integer, format_number
from bertsmith.insight.table import Results
from bertsmith.metrics.bleu import SIGNATURE, bleu
from bertsmith.train import hardware

WORDS = HorizontalAxis("words of the source", format_integer, lambda place: f"{place:.1f}", " words")


@dataclass(frozen=True)
class Group:
    """Sentences of similar length, with the BLEU of each model."""

    name: str
    sentences: int
    words: float  # in the mean
    bleu: dict[str, float]  # by translator


def numbers(lengths: Sequence[int], edges: Sequence[int]) -> dict[str, list[int]]:
    """Which sentences go together, by the name of their group; a group without any is left out."""
    bounds = [0, *sorted(edges), max(lengths, default=0)]
    found = {}
    for low, high in pairwise(bounds):
        some = [number for number, length in enumerate(lengths) if low < length <= high]
        if some:
            found[f"{low + 1} to {high}" if low + 1 < high else str(high)] = some
    return found


def grouped(
    sources: Sequence[str], gold: Sequence[str], said: Mapping[str, Sequence[str]], edges: Sequence[int]
) -> list[Group]:
    """The scores of each group, the shortest sentences first."""
    lengths = [len(source.split()) for source in sources]
    groups = []
    for name, some in numbers(lengths, edges).items():
        truth = [gold[number] for number in some]
        scores = {one: bleu([texts[number] for number in some], truth) for one, texts in said.items()}
        groups.append(Group(name, len(some), sum(lengths[number] for number in some) / len(some), scores))
    return groups


def results(groups: Sequence[Group], overall: Mapping[str, float], protocol: Mapping[str, str]) -> Results:
    """The table and the picture."""
    rows = [[one.name, f"{one.sentences:,}", *(f"{one.bleu[name]:.1f}" for name in overall)] for one in groups]
    every = sum(one.sentences for one in groups)
    rows.append(["all", f"{every:,}", *(f"{score:.1f}" for score in overall.values())])
    lines = [Series(name, [(one.words, one.bleu[name]) for one in groups]) for name in overall]
    return Results(
        title="BLEU by the length of a sentence",
        columns=["words", "sentences", *overall],
        rows=rows,
        protocol=protocol,
        chart=chart(
            "BLEU by the length of a sentence",
            lines,
            format_value=format_number,
            from_zero=True,
            wide=True,
            horizontal=WORDS,
        ),
    )


def named(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    return (name, Path(folder)) if equals else (Path(text).name, Path(text))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=named, help="NAME=FOLDER, as `bertsmith finetune` leaves it")
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--reference", type=Path, required=True)
    parser.add_argument("--edges", nargs="+", type=int, default=[9, 11, 13, 16, 20])
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--out", type=Path, default=Path("bench/results/lengths.json"))
    parser.add_argument("--page", type=Path, help="an HTML page with the chart; next to the JSON by default")
    options = parser.parse_args()
    where = hardware.select_device(options.device)
    examples, _ = parallel.read((find_source(options.source), find_source(options.reference)), BadRows("fail"))
    sources, gold = map(list, zip(*((one.texts[0], str(one.label)) for one in examples), strict=True))
    said = {}
    for name, folder in options.models:
        said[name] = bertsmith.load(folder, device=where.type).translate(sources, num_beams=options.beams)
    groups = grouped(sources, gold, said, options.edges)
    overall = {name: bleu(texts, gold) for name, texts in said.items()}
    models = {name: str(folder) for name, folder in options.models}
    protocol = {**models, "sentences": options.source.name, "beams": str(options.beams), "BLEU": SIGNATURE}
    found = results(groups, overall, protocol)
    Console().print(found.to_table())
    figures: dict[str, Any] = {"models": models, "beams": options.beams, "signature": SIGNATURE, "bleu": overall}
    record(options.out, figures | {"groups": [asdict(group) for group in groups]}, hardware.describe(where))
    page = options.page or options.out.with_suffix(".html")
    page.write_text(table.page(found), encoding="utf-8")


if __name__ == "__main__":
    main()
