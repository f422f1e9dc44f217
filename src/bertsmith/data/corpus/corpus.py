"""The corpus: the documents of text files, read one after the other in bounded memory.

There are two layouts. *lines*: one sentence a line, a blank line between documents, as the original BERT has it.
*running*: paragraphs, which are split into sentences; lines wrapped at a fixed width are joined first. There a blank
line only ends a paragraph; a document ends at two of them, at the end of the file, and after some 65,000 characters.
So a folder of articles gives a document a file, and a library in one file many. In JSON lines, Parquet and tables each
record is a document, whatever its blank lines. Markdown, HTML, PDF and Word files are running text, a document each.
"""

import hashlib
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from functools import cached_property
from itertools import chain, islice
from typing import Any, Literal, TypeVar, get_args

from bertsmith.data.corpus import documents, markup
from bertsmith.data.corpus.estimate import count_words_of
from bertsmith.data.corpus.folders import Skipped, skipped_summary
from bertsmith.data.corpus.html_page import html_page
from bertsmith.data.corpus.lines import Cleaner, LineRun, Policy, clean_lines, read_error
from bertsmith.data.corpus.markup import Paragraph
from bertsmith.data.corpus.passages import (
    NEW_DOCUMENT_CHARACTERS,
    NO_LIMIT,
    Document,
    Found,
    Passage,
    marked_lists,
    passages,
)
from bertsmith.data.corpus.records import Record, from_json, from_parquet, from_table, json_kind
from bertsmith.data.corpus.sources import STANDARD_INPUT, Source, find_sources
from bertsmith.errors import RecipeError, TextError, suggest
from bertsmith.text.sentences import RULES_NOTE, Layout, guess_layout, has_sentencex, is_wrapped

LAYOUT_LINES = 200  # lines from which a file's layout is guessed
LAYOUT_CHARACTERS = 1 << 20  # characters at the beginning of a file in which those lines are looked for
MAX_FILE_NOTES = 8  # lines about single files that are shown

T = TypeVar("T")


class Corpus:
    """Text files read as documents: any number, any size, any bytes. It can be read several times."""

    def __init__(
        self,
        sources: Sequence[str],
        *,
        field: str = "text",
        on_bad_line: Policy = "replace",
        layout: Layout | Literal["auto"] = "auto",
        max_line_length: int = 1_000_000,
        plain: bool = False,
    ) -> None:
        _check("on_bad_line", on_bad_line, get_args(Policy))
        _check("layout", layout, ("auto", *get_args(Layout)))
        self.field, self.on_bad_line, self.layout, self.max_line_length = field, on_bad_line, layout, max_line_length
        self.plain = plain  # every file is read as plain text
        self.skipped: Skipped = Counter()
        self._sources = find_sources(sources, plain=plain, skipped=self.skipped)
        self.max_characters: int | None = None  # characters that are read, where there is no time for all
        self._stdin_read = False  # standard input has been read
        self.files = [source.path for source in self._sources]
        self.bytes = sum(source.size for source in self._sources)  # on disk
        self.progress = 0.0  # the share of the bytes read so far
        self.tally = Counter[str]()  # bad lines in this pass over the text, by kind
        self.layouts: dict[str, Layout] = {}  # of each file read so far
        self._notes: dict[str, None] = dict.fromkeys(filter(None, [skipped_summary(self.skipped)]))
        self._notes_shown = 0

    def buffer_stdin(self) -> None:
        """Copy standard input to the disk, so that the corpus can be read again."""
        if any(source.is_stream for source in self._sources) and not self._stdin_read:
            self._sources = [source.buffered() for source in self._sources]
            for source in self._sources:
                if source.copy is not None:
                    weakref.finalize(self, source.copy.close)
            self.bytes = sum(source.size for source in self._sources)

    def stdin_digest(self) -> tuple[int, str]:
        """The size and the SHA-256 of standard input, which is copied to the disk: a resumed run knows it by them."""
        self.buffer_stdin()
        source = next((source for source in self._sources if source.copy is not None), None)
        if source is None:
            raise TextError("standard input", "can be read only once", "Write it to a file first")
        source.copy.seek(0)
        return source.size, hashlib.file_digest(source.copy, "sha256").hexdigest()

    def new_notes(self) -> list[str]:
        """The new notes on how the files were read (encodings, skipped files), as lines for the user."""
        lines = list(self._notes)[self._notes_shown :]
        self._notes_shown = len(self._notes)
        return [
            *lines[:MAX_FILE_NOTES],
            *([f"and {len(lines) - MAX_FILE_NOTES:,} more files"] if len(lines) > MAX_FILE_NOTES else []),
        ]

    def documents(self, skip: int = 0) -> Iterator[Document]:
        """All documents in order; the first `skip` are skipped without splitting them into sentences."""
        for passage in self.passages(skip):
            yield Document(self.sentences(passage), passage.file, passage.line)

    def passages(self, skip: int = 0) -> Iterator[Passage]:
        """All documents in order, as their files have them."""
        for file, found in islice(self._passages(), skip, None):
            yield Passage(found.texts, file, found.line, self.layouts[file], found.in_list)

    def sentences(self, passage: Passage) -> list[str]:
        """The sentences of a document; a note says how running text was split where sentencex is not installed."""
        if passage.layout == "running" and not has_sentencex():
            self._note(RULES_NOTE)
        return passage.sentences()

    def lines(self) -> Iterator[str]:
        """All sentences, or paragraphs of running text: the lines that a tokenizer is trained on."""
        for _, found in self._passages():
            yield from found.texts

    @cached_property
    def estimated_words(self) -> float:
        """The number of words, estimated from the first megabyte of some of the files."""
        step = max(len(self._sources) // 16, 1)
        samples = [count_words_of(source, self.field) for source in self._sources[::step]]
        read = sum(size for _, size in samples)
        return sum(words for words, _ in samples) * self.bytes / read if read else 0.0

    def sample(self, max_characters: int) -> list[str]:
        """Lines from the beginnings of some of the files, `max_characters` in all; none of standard input."""
        sources = [source for source in self._sources if not source.is_stream]
        sources = sources[:: max(len(sources) // 16, 1)]
        lines = list[str]()
        for source in sources:
            part, size, max_size = copy(self), 0, max_characters // len(sources)
            part._sources, part.tally, part.layouts = [source], Counter(), {}
            with suppress(TextError):  # reported when the whole corpus is read
                for line in part.lines():
                    lines.append(line[:max_size])
                    size += len(line)
                    if size >= max_size:
                        break
        return lines

    def _passages(self) -> Iterator[tuple[str, Found]]:
        self.tally.clear()
        self.layouts.clear()
        before, characters, any_text = 0, 0, False
        for source in self._sources:
            self.progress, has_text = before / max(self.bytes, 1), False
            for passage in self._read(source, before):
                any_text = has_text = True
                yield source.name, passage
                if self.max_characters is not None:
                    characters += sum(map(len, passage.texts))
                    if characters >= self.max_characters:
                        return
            if not has_text:
                self.tally["files without text"] += 1
            before += source.size
        self.progress = 1.0
        if not any_text:
            location = self._sources[0].name if len(self._sources) == 1 else f"{len(self._sources)} files"
            raise TextError(location, "there is no text in it", "Give it files with text")

    def _read(self, source: Source, before: int) -> Iterator[Found]:
        def progress(position: int) -> None:
            self.progress = (before + position) / max(self.bytes, 1)

        cleaner = Cleaner(self.on_bad_line, self.max_line_length, self.tally, guess_encoding=True)
        kind, blocks = source.kind, source.blocks(progress)
        if source.path == STANDARD_INPUT:
            kind, blocks = self._standard_input(blocks, source.is_stream)
        elif kind == ".json":
            kind = json_kind(source)
        match kind:
            case ".parquet":
                return self._records(source, from_parquet(source, self.field, cleaner, progress), cleaner)
            case ".csv" | ".tsv" | ".json":
                return self._records(source, from_table(source, self.field, cleaner, progress, self._note), cleaner)
            case ".jsonl":
                records = from_json(blocks, source.name, self.field, cleaner)
                return self._records(source, self._with_note(records, source, cleaner), cleaner)
            case ".pdf":
                return self._prose(source, self._repaired(documents.pages(source), source, cleaner), cleaner)
            case ".docx":
                return self._prose(source, self._repaired(documents.paragraphs(source), source, cleaner), cleaner)
        lines = self._with_note(clean_lines(blocks, source.name, cleaner), source, cleaner)
        match kind:
            case ".html" | ".htm" | ".xhtml":
                return self._prose(source, self._repaired(html_page(lines), source, cleaner), cleaner)
            case ".md" | ".markdown" | ".rst":
                return self._prose(source, markup.markdown(lines, rst=kind == ".rst"), cleaner)
        return self._text(source, lines)

    def _note(self, line: str) -> None:
        self._notes[line] = None

    def _with_note(self, items: Iterator[T], source: Source, cleaner: Cleaner) -> Iterator[T]:
        """The same items; then a note on the encoding where it is not UTF-8."""
        yield from items
        if cleaner.read_as:
            self._note(f"{source.name}: read as {cleaner.read_as}")

    def _repaired(self, paragraphs: Iterator[Paragraph], source: Source, cleaner: Cleaner) -> Iterator[Paragraph]:
        """Paragraphs without NUL and lone surrogates, from a file that its library may fail to read."""
        try:
            for number, text in paragraphs:
                if (clean := cleaner.clean(text, f"{source.name}:{number}")) is not None:
                    yield number, clean
        except TextError:
            raise
        except Exception as error:  # a library may raise anything for a damaged file
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            self._note(f"{source.name}: cannot be read ({reason[:100]}), left out from here on")
            cleaner.should_repair("unreadable files", source.name)

    def _prose(self, source: Source, paragraphs: Iterator[Paragraph], cleaner: Cleaner) -> Iterator[Found]:
        """Paragraphs of one document, which are split into sentences unless the layout is `lines`."""
        self.layouts[source.name] = "running" if self.layout == "auto" else self.layout
        lines = ((number, cleaner.split_long(text, f"{source.name}:{number}")) for number, text in paragraphs)
        yield from passages(lines, blanks=NO_LIMIT, max_characters=NEW_DOCUMENT_CHARACTERS)

    def _standard_input(self, blocks: Iterator[bytes], is_stream: bool) -> tuple[str, Iterator[bytes]]:
        """The kind of standard input, which has no ending: JSON lines if it begins with a brace."""
        if self._stdin_read and is_stream:
            raise TextError("standard input", "can be read only once", "Write it to a file first")
        self._stdin_read = is_stream
        try:
            first = next(blocks, b"")
        except OSError as error:
            raise read_error("standard input", error) from None
        return (".jsonl" if first.lstrip().startswith(b"{") else ".txt"), chain([first], blocks)

    def _text(self, source: Source, runs: Iterator[LineRun]) -> Iterator[Found]:
        lines, runs = _peek(runs, lambda run: run[1])
        layout = self._choose_layout(source, lines)
        if layout == "lines":
            yield from marked_lists(passages(runs, blanks=1))
        elif source.layout:  # its lines are whole, and its documents no longer than they were
            yield from passages(runs, blanks=2)
        else:
            yield from passages(runs, blanks=2, max_characters=NEW_DOCUMENT_CHARACTERS, join_lines=is_wrapped(lines))

    def _records(self, source: Source, records: Iterator[Record], cleaner: Cleaner) -> Iterator[Found]:
        lines, records = _peek(records, lambda record: record[1].splitlines())
        join_lines = self._choose_layout(source, lines) == "running" and is_wrapped(lines)
        for number, text in records:
            parts = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
            if len(text) > self.max_line_length:
                location = f"{source.name}:{number}"
                parts = [part for line in parts for part in cleaner.split_long(line, location)]
            for found in passages([(number, parts)], blanks=NO_LIMIT, join_lines=join_lines):
                yield Found(number, found.texts)

    def _choose_layout(self, source: Source, lines: list[str]) -> Layout:
        known: Any = self.layout if self.layout != "auto" else source.layout
        self.layouts[source.name] = known or guess_layout(lines)
        return self.layouts[source.name]


def _peek(items: Iterator[T], lines: Callable[[T], Iterable[str]]) -> tuple[list[str], Iterator[T]]:
    """The first lines, LAYOUT_LINES of which are not blank, and all items."""
    head, first_lines, filled, size = list[T](), list[str](), 0, 0
    for item in items:
        head.append(item)
        for line in lines(item):
            if filled < LAYOUT_LINES:
                first_lines.append(line)
                filled += bool(line.strip())
            size += len(line) + 1
        if filled >= LAYOUT_LINES or size >= LAYOUT_CHARACTERS:
            break
    return first_lines, chain(head, items)


def _check(name: str, value: str, known: Sequence[str]) -> None:
    if value not in known:
        raise RecipeError(name, f"unknown choice '{value}'", suggest(value, known))
