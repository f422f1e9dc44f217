"""The corpus: the documents of some files, one after the other, in memory that does not grow with them.

Two layouts are known. *lines*: one sentence a line, a blank line between documents, as for the first BERT.
*running*: paragraphs, which are split into sentences; lines that were broken by hand are joined first.
There a blank line only ends a paragraph; a document ends at two of them, at the end of the file, and after
some 65,000 characters. So a folder of articles gives a document a file, and a library in one file many.
In JSON lines, Parquet and tables each record is a document, whatever its blank lines. Markdown, HTML, PDF and Word
files are running text of paragraphs, and a document each.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import Literal, TypeVar, get_args

from bertsmith.data.corpus import documents, markup
from bertsmith.data.corpus.encoding import UTF8
from bertsmith.data.corpus.lines import Cleaner, LineRun, Policy, clean_lines, read_error
from bertsmith.data.corpus.markup import Paragraph
from bertsmith.data.corpus.records import ROWS, Record, from_json, from_parquet, from_table
from bertsmith.data.corpus.sources import DOCUMENTS, STANDARD_INPUT, Skipped, Source, find_sources, skipped_summary
from bertsmith.errors import RecipeError, TextError, suggest
from bertsmith.text.language import count_words
from bertsmith.text.sentences import Layout, guess_layout, is_wrapped, split_sentences

PEEK = 200  # lines from which a file's layout is guessed, among its first
NEAR = 1 << 20  # characters
ENOUGH = 1 << 16  # characters after which running text goes on in a new document
LARGEST = 1 << 20  # characters after which any text does
NEVER = 1 << 60
NOTES = 8  # lines about single files that are shown

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
        return [sentence for paragraph in self.texts for sentence in split_sentences(paragraph)]


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
        plain: bool = False,
    ) -> None:
        _check("policy", policy, get_args(Policy))
        _check("layout", layout, ("auto", *get_args(Layout)))
        self.field, self.policy, self.layout, self.longest = field, policy, layout, longest
        self.plain = plain  # any file is read as plain text
        self.skipped: Skipped = Counter()
        self._sources = find_sources(sources, plain=plain, skipped=self.skipped)
        self.max_characters: int | None = None  # characters that are read at most, where there is no time for all
        self._stdin_read = False  # standard input has been read
        self.files = [source.path for source in self._sources]
        self.bytes = sum(source.size for source in self._sources)  # on disk
        self.progress = 0.0  # of them, what has been read
        self.tally = Counter[str]()  # bad lines in this pass over the text, by kind
        self.layouts: dict[str, Layout] = {}  # of each file read so far
        self._notes: dict[str, None] = dict.fromkeys(filter(None, [skipped_summary(self.skipped)]))
        self._notes_shown = 0  # of them

    def buffer_stdin(self) -> None:
        """Make sure that all of it can be read again: what comes through standard input is copied to the disk."""
        if any(source.is_stream for source in self._sources) and not self._stdin_read:
            self._sources = [source.buffered() for source in self._sources]
            for source in self._sources:
                if source.copy is not None:
                    weakref.finalize(self, source.copy.close)
            self.bytes = sum(source.size for source in self._sources)

    def new_notes(self) -> list[str]:
        """What a person should know of how the files were read, in lines, those that were not yet asked for."""
        lines = list(self._notes)[self._notes_shown :]
        self._notes_shown = len(self._notes)
        return [*lines[:NOTES], *([f"and {len(lines) - NOTES:,} more files"] if len(lines) > NOTES else [])]

    def documents(self, skip: int = 0) -> Iterator[Document]:
        """All documents in order; the first `skip` are passed over quickly."""
        for file, (line, texts) in islice(self._passages(), skip, None):
            if self.layouts[file] == "running":
                texts = [sentence for paragraph in texts for sentence in split_sentences(paragraph)]
            yield Document(texts, file, line)

    def passages(self, skip: int = 0) -> Iterator[Passage]:
        """The same documents as they stand in their files."""
        for file, (line, texts) in islice(self._passages(), skip, None):
            yield Passage(texts, file, line, self.layouts[file])

    def lines(self) -> Iterator[str]:
        """All sentences, or paragraphs where the text runs: what a vocabulary is learnt from."""
        for _, (_, texts) in self._passages():
            yield from texts

    @cached_property
    def estimated_words(self) -> float:
        """About how many words there are, from the first megabyte of some of the files."""
        step = max(len(self._sources) // 16, 1)
        samples = [_sample(source, self.field) for source in self._sources[::step]]
        read = sum(size for _, size in samples)
        return sum(words for words, _ in samples) * self.bytes / read if read else 0.0

    def sample(self, max_characters: int) -> list[str]:
        """Lines near the beginnings of some of the files, at most so many characters; none of a pipe."""
        some = [source for source in self._sources if not source.is_stream]
        some = some[:: max(len(some) // 16, 1)]
        found = list[str]()
        for source in some:
            part, size = copy(self), 0
            part._sources, part.tally, part.layouts = [source], Counter(), {}
            with suppress(TextError):  # whoever reads it in earnest will hear of it
                for line in part.lines():
                    found.append(line[: max_characters // len(some)])
                    size += len(line)
                    if size >= max_characters // len(some):
                        break
        return found

    def _passages(self) -> Iterator[tuple[str, Found]]:
        self.tally.clear()
        self.layouts.clear()
        before, found, taken = 0, False, 0
        for source in self._sources:
            self.progress, held = before / max(self.bytes, 1), False
            for passage in self._read(source, before):
                found = held = True
                yield source.name, passage
                if self.max_characters is not None:
                    taken += sum(map(len, passage[1]))
                    if taken >= self.max_characters:
                        return
            if not held:
                self.tally["files without text"] += 1
            before += source.size
        self.progress = 1.0
        if not found:
            place = self._sources[0].name if len(self._sources) == 1 else f"{len(self._sources)} files"
            raise TextError(place, "there is no text in it", "Give it files with text")

    def _read(self, source: Source, before: int) -> Iterator[Found]:
        def reached(position: int) -> None:
            self.progress = (before + position) / max(self.bytes, 1)

        cleaner = Cleaner(self.policy, self.longest, self.tally, guess_encoding=True)
        kind, blocks = source.kind, source.blocks(reached)
        if source.path == STANDARD_INPUT:
            kind, blocks = self._standard_input(blocks, source.is_stream)
        match kind:
            case ".parquet":
                return self._records(source, from_parquet(source, self.field, cleaner, reached), cleaner)
            case ".csv" | ".tsv":
                return self._records(source, from_table(source, self.field, cleaner, reached, self._note), cleaner)
            case ".jsonl":
                found = from_json(blocks, source.name, self.field, cleaner)
                return self._records(source, self._noted(found, source, cleaner), cleaner)
            case ".pdf":
                return self._prose(source, self._repaired(documents.pages(source), source, cleaner), cleaner)
            case ".docx":
                return self._prose(source, self._repaired(documents.paragraphs(source), source, cleaner), cleaner)
        lines = self._noted(clean_lines(blocks, source.name, cleaner), source, cleaner)
        match kind:
            case ".html" | ".htm" | ".xhtml":
                return self._prose(source, markup.html_page(lines, source.name), cleaner)
            case ".md" | ".markdown" | ".rst":
                return self._prose(source, markup.markdown(lines, rst=kind == ".rst"), cleaner)
        return self._text(source, lines)

    def _note(self, line: str) -> None:
        self._notes[line] = None

    def _noted(self, found: Iterator[T], source: Source, cleaner: Cleaner) -> Iterator[T]:
        """The same, and a line about the encoding where it is not UTF-8."""
        yield from found
        if cleaner.bom_encoding or cleaner.encoding != UTF8:
            self._note(f"{source.name}: read as {cleaner.bom_encoding or cleaner.encoding}, not UTF-8")

    def _repaired(self, found: Iterator[Paragraph], source: Source, cleaner: Cleaner) -> Iterator[Paragraph]:
        """Paragraphs without NUL and half characters, from a file that a library may give up on."""
        try:
            for number, text in found:
                if (clean := cleaner.clean(text, f"{source.name}:{number}")) is not None:
                    yield number, clean
        except TextError:
            raise
        except Exception as error:  # whatever a library throws at a damaged file
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            self._note(f"{source.name}: cannot be read ({reason[:100]}), left out from here on")
            cleaner.should_repair("unreadable files", source.name)

    def _prose(self, source: Source, found: Iterator[Paragraph], cleaner: Cleaner) -> Iterator[Found]:
        """Paragraphs of one document, which are split into sentences unless it was said that they are lines."""
        self.layouts[source.name] = "running" if self.layout == "auto" else self.layout
        lines = ((number, cleaner.split_long(text, f"{source.name}:{number}")) for number, text in found)
        yield from passages(lines, blanks=NEVER, max_characters=ENOUGH)

    def _standard_input(self, blocks: Iterator[bytes], passing: bool) -> tuple[str, Iterator[bytes]]:
        """It has no ending to go by: what begins with a brace is JSON lines."""
        if self._stdin_read and passing:
            raise TextError("standard input", "can be read only once", "Write it to a file first")
        self._stdin_read = passing
        try:
            first = next(blocks, b"")
        except OSError as error:
            raise read_error("standard input", error) from None
        return (".jsonl" if first.lstrip().startswith(b"{") else ".txt"), chain([first], blocks)

    def _text(self, source: Source, found: Iterator[LineRun]) -> Iterator[Found]:
        lines, found = _peek(found, lambda run: run[1])
        if self._decide(source, lines) == "lines":
            yield from passages(found, blanks=1)
        else:
            yield from passages(found, blanks=2, max_characters=ENOUGH, join_lines=is_wrapped(lines))

    def _records(self, source: Source, found: Iterator[Record], cleaner: Cleaner) -> Iterator[Found]:
        lines, found = _peek(found, lambda record: record[1].splitlines())
        broken = self._decide(source, lines) == "running" and is_wrapped(lines)
        for number, text in found:
            parts = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            if len(text) > self.longest:
                place = f"{source.name}:{number}"
                parts = [part for line in parts for part in cleaner.split_long(line, place)]
            for _, texts in passages([(number, parts)], blanks=NEVER, join_lines=broken):
                yield number, texts

    def _decide(self, source: Source, lines: list[str]) -> Layout:
        self.layouts[source.name] = guess_layout(lines) if self.layout == "auto" else self.layout
        return self.layouts[source.name]


def passages(
    found: Iterable[LineRun], *, blanks: int, max_characters: int = LARGEST, join_lines: bool = False
) -> Iterator[Found]:
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
                (paragraph if join_lines else texts).append(line)
            else:
                empty += 1
                if paragraph:
                    texts.append(" ".join(paragraph))
                    paragraph = []
            if size >= LARGEST or (size and (empty >= blanks or (size >= max_characters and not paragraph))):
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
            return sum(count_words(text) for _, text in islice(rows, ROWS + 1)), reached[-1]
        if source.kind in DOCUMENTS:
            found = documents.pages(source) if source.kind == ".pdf" else documents.paragraphs(source)
            return sum(count_words(text) for _, text in found), source.size
        block = b"" if source.is_stream else next(source.blocks(reached.append), b"")
    except Exception:  # of the disk, the unpacker, or a library that reads documents
        return 0, 0  # whoever reads it in earnest will hear of it
    return count_words(block.decode(errors="ignore")), reached[-1]


def _check(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise RecipeError(name, f"unknown choice '{value}'", suggest(value, known))
