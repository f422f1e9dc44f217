"""Decontamination: text that shares n-grams with evaluation sets is removed, so that scores measure no memory.

Brown et al. 2020 (GPT-3, appendix C): a run of 13 equal words, whatever their case and punctuation. Evaluation texts of
8 to 12 words are looked for as a whole; shorter ones are phrases of the language and are not looked for.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith import files
from bertsmith.data.cleaning.ngrams import Hashes, WordHashes, ngram_hashes, normalised_words
from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled import conll, squad, treebank
from bertsmith.data.labelled.bad_rows import BadRows
from bertsmith.data.labelled.inputs import CONLL_PEEK_LINES, is_conll
from bertsmith.data.labelled.lines import first_line, read_lines
from bertsmith.data.labelled.sources import find_sources
from bertsmith.data.labelled.tables import open_table
from bertsmith.errors import TextError

NGRAM, MIN_WORDS = 13, 8
TABLES = (".tsv", ".csv", ".jsonl", ".ndjson", ".json", ".parquet")
PART = 1 << 22  # n-grams that are gathered before those that recur are dropped


def evaluation_texts(path: str) -> Iterator[str]:
    """All texts of an evaluation file: of a table every cell, of SQuAD contexts and questions, of CoNLL sentences.

    A file without any text that is long enough to be looked for is refused: it would have no effect.
    """
    any_long = False
    for source in find_sources(path):
        for text in _texts(source if source.kind == ".parquet" else replace(source, plain=True)):  # not binary data
            any_long = any_long or len(normalised_words(text)) >= MIN_WORDS
            yield text
    if not any_long:
        fact = f"holds no text of {MIN_WORDS} words or more, and shorter ones are not looked for"
        raise TextError(path, fact, "Leave it out, or name the file with the texts")


def _texts(source: Source) -> Iterator[str]:
    bad = BadRows("skip")
    if source.kind == treebank.TREEBANK_SUFFIX:
        for example in treebank.read(source, bad)[0]:
            yield from example.texts
    elif source.kind == ".json" and _is_squad(first_line(source).strip()):
        context = ""
        for question in squad.read(source, bad)[0]:
            yield question.question
            if question.context != context:  # a context has several questions
                yield (context := question.context)
    elif source.kind in TABLES and not (source.kind == ".tsv" and _is_conll(source)):
        table = open_table(source)
        yield from table.columns  # a first row that was taken for names may be a text
        for _, row in table.rows(table.columns, bad):
            yield from _strings(row)
    elif _is_conll(source):
        for sentence in conll.read(source, None, None, bad)[0]:
            yield " ".join(sentence.words)
    else:
        yield from (line for _, line, _ in read_lines(source))


def _is_conll(source: Source) -> bool:
    """Whether a file has a word a line, with or without tags beside it."""
    head = [line for _, line, _ in islice(read_lines(source), CONLL_PEEK_LINES)]
    cells = [cell for line in head for cell in line.split("\t")]
    sentences = any(not line.strip() for line in head[:-1])  # separated by blank lines, which a table has not
    words = source.kind == ".tsv" and sentences and all(" " not in cell.strip() for cell in cells)
    return words or is_conll(head, frozenset())


def _is_squad(first: str) -> bool:
    """Whether a file that begins with this line is one object, as SQuAD's; otherwise it is a list or JSON lines."""
    try:
        return first.startswith("{") and "data" in json.loads(first)
    except ValueError:  # an object of several lines
        return True


def _strings(value: Any) -> Iterator[str]:
    """All texts in a value; a list of single words is one text."""
    match value:
        case str():
            yield value
        case dict():
            for one in value.values():
                yield from _strings(one)
        case list():
            if value and all(isinstance(one, str) and " " not in one for one in value):
                yield " ".join(value)
            else:
                for one in value:
                    yield from _strings(one)


def write_ngrams(texts: Iterable[str], folder: Path) -> dict[str, int]:
    """Write the n-grams of evaluation texts as sorted arrays, a file for each length; returns the counts."""
    hashes, parts, held = WordHashes(), defaultdict[int, list[Hashes]](list), Counter[int]()
    count = short = 0
    for text in texts:
        words = normalised_words(text)
        if len(words) >= MIN_WORDS:
            length = min(len(words), NGRAM)
            parts[length].append(ngram_hashes(hashes(words), length))
            count += 1
            held[length] += len(parts[length][-1])
            if held[length] > PART:  # n-grams of contexts and headings recur
                parts[length], held[length] = [np.unique(np.concatenate(parts[length]))], 0
        elif len(words) > 2:  # the others are labels
            short += 1
    total = 0
    for length, found in parts.items():
        once = np.unique(np.concatenate(found))
        total += len(once)
        files.write(folder / f"evaluation-{length:02}.bin", once.tobytes())
    return {"texts": count, "short_texts": short, "n_grams": total}


class EvaluationNgrams:
    """The n-grams of evaluation texts, mapped from the files that `write_ngrams` wrote."""

    def __init__(self, folder: Path) -> None:
        self._sets = {
            int(path.stem.rpartition("-")[2]): np.memmap(path, "<u8", "r")
            for path in sorted(folder.glob("evaluation-*.bin"))
            if path.stat().st_size
        }

    def __bool__(self) -> bool:
        return bool(self._sets)

    def lines_with(self, lines: Sequence[Hashes]) -> set[int]:
        """The numbers of the lines, given the hashes of their words, that share an n-gram; it may span lines."""
        words = np.concatenate(lines) if lines else np.empty(0, np.uint64)
        covered = np.zeros(len(words) + 1, np.int64)
        for length, wanted in self._sets.items():
            starts = _members(ngram_hashes(words, length), wanted)
            np.add.at(covered, starts, 1)
            np.add.at(covered, starts + length, -1)
        positions = np.flatnonzero(np.cumsum(covered)[:-1])
        if not len(positions):
            return set()
        ends = np.cumsum([len(line) for line in lines])
        return set(np.searchsorted(ends, positions, side="right").tolist())


def _members(found: Hashes, wanted: NDArray[np.uint64]) -> NDArray[np.int64]:
    """The positions of the hashes that are in a sorted array."""
    rows = np.minimum(np.searchsorted(wanted, found), len(wanted) - 1)
    return np.flatnonzero(wanted[rows] == found)
