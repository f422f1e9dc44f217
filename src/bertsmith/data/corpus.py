"""The corpus: the documents of some files, one after the other, in memory that does not grow with them.

Two layouts are known. *lines*: one sentence a line, a blank line between documents, as for the first BERT.
*running*: paragraphs, which are split into sentences; lines that were broken by hand are joined first.
There a blank line only ends a paragraph; a document ends at two of them, at the end of the file, and after
some 65,000 characters. So a folder of articles gives a document a file, and a library in one file many.
In JSON lines and in Parquet each record is a document, whatever its blank lines.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Literal, TypeVar, get_args

from bertsmith.data.lines import BROKEN, Cleaner, Policy, Run, runs, unreadable
from bertsmith.data.records import ROWS, Record, from_json, from_parquet
from bertsmith.data.sources import STANDARD_INPUT, Source, find
from bertsmith.errors import RecipeError, TextError, nearest
from bertsmith.text.sentences import Layout, guess, split, wrapped

PEEK = 200  # lines from which a file's layout is guessed, among its first
NEAR = 1 << 20  # characters
ENOUGH = 1 << 16  # characters after which running text goes on in a new document
LARGEST = 1 << 20  # characters after which any text does
NEVER = 1 << 60

T = TypeVar("T")
Found = tuple[int, list[str]]  # the line where a document begins; its sentences, or its paragraphs


@dataclass(frozen=True)
class Document:
    """Sentences that belong together, and where they stood."""

    sentences: list[str]
    file: str
    line: int


@dataclass(frozen=True)
class Passage:
    """A document as it stands in its file: sentences, or paragraphs that are not yet split into them."""

    texts: list[str]
    file: str
    line: int
    layout: Layout

    def sentences(self) -> list[str]:
        """Its sentences; to find them in paragraphs takes longer than reading."""
        if self.layout == "lines":
            return self.texts
        return [sentence for paragraph in self.texts for sentence in split(paragraph)]


class Corpus:
    """Text files read as documents: any number, any size, any bytes. It can be read again and again."""

    def __init__(
        self,
        sources: Sequence[str],
        *,
        field: str = "text",
        policy: Policy = "replace",
        layout: Layout | Literal["auto"] = "auto",
        longest: int = 1_000_000,
    ) -> None:
        _check("policy", policy, get_args(Policy))
        _check("layout", layout, ("auto", *get_args(Layout)))
        self.field, self.policy, self.layout, self.longest = field, policy, layout, longest
        self._sources = find(sources)
        self._spent = False  # standard input has been read
        self.files = [source.path for source in self._sources]
        self.bytes = sum(source.size for source in self._sources)  # on disk
        self.share = 0.0  # of them, what has been read
        self.tally = Counter[str]()  # bad lines in this pass over the text, by kind
        self.layouts: dict[str, Layout] = {}  # of each file read so far

    def keep(self) -> None:
        """Make sure that all of it can be read again: what comes through standard input is copied to the disk."""
        if any(source.passing for source in self._sources) and not self._spent:
            self._sources = [source.kept() for source in self._sources]
            for source in self._sources:
                if source.copy is not None:
                    weakref.finalize(self, source.copy.close)
            self.bytes = sum(source.size for source in self._sources)

    def documents(self, skip: int = 0) -> Iterator[Document]:
        """All documents in order; the first `skip` are passed over quickly."""
        for passage in self.passages(skip):
            yield Document(passage.sentences(), passage.file, passage.line)

    def passages(self, skip: int = 0) -> Iterator[Passage]:
        """The same documents as they stand in their files."""
        for file, (line, texts) in islice(self._passages(), skip, None):
            yield Passage(texts, file, line, self.layouts[file])

    def lines(self) -> Iterator[str]:
        """All sentences, or paragraphs where the text runs: what a vocabulary is learnt from."""
        for _, (_, texts) in self._passages():
            yield from texts

    @cached_property
    def words(self) -> float:
        """About how many words there are, from the first megabyte of some of the files."""
        step = max(len(self._sources) // 16, 1)
        samples = [_sample(source, self.field) for source in self._sources[::step]]
        read = sum(size for _, size in samples)
        return sum(words for words, _ in samples) * self.bytes / read if read else 0.0

    def _passages(self) -> Iterator[tuple[str, Found]]:
        self.tally.clear()
        self.layouts.clear()
        before, found = 0, False
        for source in self._sources:
            self.share, held = before / max(self.bytes, 1), False
            for passage in self._read(source, before):
                found = held = True
                yield source.name, passage
            if not held:
                self.tally["files without text"] += 1
            before += source.size
        self.share = 1.0
        if not found:
            place = self._sources[0].name if len(self._sources) == 1 else f"{len(self._sources)} files"
            raise TextError(place, "there is no text in it", "Give it files with text")

    def _read(self, source: Source, before: int) -> Iterator[Found]:
        def reached(position: int) -> None:
            self.share = (before + position) / max(self.bytes, 1)

        cleaner = Cleaner(self.policy, self.longest, self.tally)
        if source.kind == ".parquet":
            return self._records(source, from_parquet(source, self.field, cleaner, reached), cleaner)
        kind, blocks = source.kind, source.blocks(reached)
        if source.path == STANDARD_INPUT:
            kind, blocks = self._standard_input(blocks, source.passing)
        if kind == ".jsonl":
            return self._records(source, from_json(blocks, source.name, self.field, cleaner), cleaner)
        return self._text(source, runs(blocks, source.name, cleaner))

    def _standard_input(self, blocks: Iterator[bytes], passing: bool) -> tuple[str, Iterator[bytes]]:
        """It has no ending to go by: what begins with a brace is JSON lines."""
        if self._spent and passing:
            raise TextError("standard input", "can be read only once", "Write it to a file first")
        self._spent = passing
        try:
            first = next(blocks, b"")
        except OSError as error:
            raise unreadable("standard input", error) from None
        return (".jsonl" if first.lstrip().startswith(b"{") else ".txt"), chain([first], blocks)

    def _text(self, source: Source, found: Iterator[Run]) -> Iterator[Found]:
        lines, found = _peek(found, lambda run: run[1])
        if self._decide(source, lines) == "lines":
            yield from passages(found, blanks=1)
        else:
            yield from passages(found, blanks=2, enough=ENOUGH, broken=wrapped(lines))

    def _records(self, source: Source, found: Iterator[Record], cleaner: Cleaner) -> Iterator[Found]:
        lines, found = _peek(found, lambda record: record[1].splitlines())
        broken = self._decide(source, lines) == "running" and wrapped(lines)
        for number, text in found:
            parts = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            if len(text) > self.longest:
                place = f"{source.name}:{number}"
                parts = [part for line in parts for part in cleaner.fitted(line, place)]
            for _, texts in passages([(number, parts)], blanks=NEVER, broken=broken):
                yield number, texts

    def _decide(self, source: Source, lines: list[str]) -> Layout:
        self.layouts[source.name] = guess(lines) if self.layout == "auto" else self.layout
        return self.layouts[source.name]


def passages(found: Iterable[Run], *, blanks: int, enough: int = LARGEST, broken: bool = False) -> Iterator[Found]:
    """Lines gathered into documents, which end after so many blank lines, or when they hold enough.

    `broken` lines are those of a paragraph, to be joined until a blank line.
    """
    texts, paragraph = list[str](), list[str]()
    size = empty = first = 0
    for start, lines in found:
        for number, line in enumerate(map(str.strip, lines), start):
            if line:
                first = first if size else number
                size, empty = size + len(line), 0
                (paragraph if broken else texts).append(line)
            else:
                empty += 1
                if paragraph:
                    texts.append(" ".join(paragraph))
                    paragraph = []
            if size >= LARGEST or (size and (empty >= blanks or (size >= enough and not paragraph))):
                yield first, [*texts, " ".join(paragraph)] if paragraph else texts
                texts, paragraph, size = [], [], 0
    if size:
        yield first, [*texts, " ".join(paragraph)] if paragraph else texts


def _peek(items: Iterator[T], lines: Callable[[T], Iterable[str]]) -> tuple[list[str], Iterator[T]]:
    """The first lines that are not blank, and all items from the first one on."""
    head, seen, size = list[T](), list[str](), 0
    for item in items:
        head.append(item)
        found = list(lines(item))
        seen += islice((line for line in found if line and not line.isspace()), PEEK)
        size += sum(map(len, found)) + len(found)
        if len(seen) >= PEEK or size >= NEAR:
            break
    return seen[:PEEK], chain(head, items)


def _sample(source: Source, field: str) -> tuple[int, int]:
    """Words near the beginning of a file, and how many bytes on disk they took."""
    reached = [0]
    try:
        if source.kind == ".parquet":
            rows = from_parquet(source, field, Cleaner("skip", NEVER, Counter()), reached.append)
            return sum(len(text.split()) for _, text in islice(rows, ROWS + 1)), reached[-1]
        block = b"" if source.passing else next(source.blocks(reached.append), b"")
    except (*BROKEN, TextError):
        return 0, 0  # whoever reads it in earnest will hear of it
    return len(block.split()), reached[-1]


def _check(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise RecipeError(name, f"unknown choice '{value}'", nearest(value, known))
