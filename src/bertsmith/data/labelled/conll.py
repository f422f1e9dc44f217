"""CoNLL: one word a line with its tags in columns, a blank line after each sentence.

Tags come out as BIO (IOB2): B- begins a span, I- goes on with it, O is outside. What comes in as IOB1, where B- only
parts two spans of one kind (Ramshaw and Marcus 1995), or as IOBES, BILOU or BMEWO, is turned into it; tags that
are no spans, such as parts of speech, are left alone. A bad line costs its sentence, not the file.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise

from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled.examples import Sentence
from bertsmith.data.labelled.tables import BadRows, Table, read_lines
from bertsmith.errors import TextError

DOCSTART = "-DOCSTART-"
COMMENT = re.compile(r"#\s?(id\b|\w+\s*=)")
PEEK = 1000  # lines from which the number of columns is guessed
SPAN_TAG = re.compile("([BIMESLUW])-(.+)", re.DOTALL)
BEGINS, ENDS = frozenset("BSUW"), frozenset("SUWEL")
SCHEMES = {"BIO": frozenset("BI"), "IOBES": frozenset("BIES"), "BILOU": frozenset("BILU"), "BMEWO": frozenset("BMEWS")}
WORD_COLUMNS = ("tokens", "words", "token", "word")
TAG_COLUMNS = ("ner_tags", "tags", "labels", "ner", "entities", "pos_tags", "upos", "chunk_tags")

BROKEN = "sentences with a broken line"
UNEQUAL = "sentences with more words than tags, or fewer"
UNTAGGED = "rows without a label"
WORDLESS = "rows without text"

Found = tuple[list[Sentence], str]  # the sentences, and in words what was found


def read(source: Source, word: str | None, tag: str | None, dropped: BadRows) -> Found:
    """The sentences of a column file: words in the first column and tags in the last, unless it is said otherwise."""
    width = _width(source)
    words = _column_index(source, word, width, 0)
    tags = _column_index(source, tag, width, width - 1)
    exact = word is None or tag is None  # else the columns that are not asked for may be as many as they like
    found, documents = list[Sentence](), 0
    for place, rows, fault in _sentences(source, width):
        short = [row for row in rows if (len(row) != width if exact else len(row) <= max(words, tags))]
        if fault:
            dropped.drop(fault, place)
        elif short:
            fact = f"a line of the sentence that begins here has {len(short[0])} columns and not {width}"
            dropped.drop(BROKEN, place, fact)
        elif not rows:
            documents += 1
        elif not all(row[words] and row[tags] for row in rows):
            dropped.drop(BROKEN, place, "a line of the sentence that begins here has an empty column")
        else:
            held = tuple(row[words] for row in rows)
            found.append(Sentence(location=place, words=held, tags=tuple(row[tags] for row in rows)))
    said = f"words from column {words}, tags from column {tags}"
    found, scheme = normalise_tags(found)
    return found, said + scheme + (f", documents: {documents:,}" if documents else "")


def from_rows(table: Table, word: str | None, tag: str | None, dropped: BadRows) -> Found:
    """The sentences of a table whose cells are lists."""
    words = table.column(word) if word else _guess_column(table, WORD_COLUMNS, "words")
    tags = table.column(tag) if tag else _guess_column(table, TAG_COLUMNS, "tags")
    found = list[Sentence]()
    for place, row in table.rows((words, tags), dropped):
        held, said = row[words], row[tags]
        if not isinstance(held, list) or not held or not all(isinstance(one, str) and one.strip() for one in held):
            dropped.drop(WORDLESS, place, f"has no list of words in '{words}'")
        elif said is None or (isinstance(said, list) and None in said):
            dropped.drop(UNTAGGED, place, f"has no tags in '{tags}'")
        elif not isinstance(said, list) or not all(isinstance(one, str | int) and str(one).strip() for one in said):
            dropped.drop(UNTAGGED, place, f"has no list of tags in '{tags}'")
        elif len(said) != len(held):
            dropped.drop(UNEQUAL, place, f"has {len(held)} words and {len(said)} tags")
        else:
            found.append(Sentence(location=place, words=tuple(held), tags=tuple(str(one).strip() for one in said)))
    found, scheme = normalise_tags(found)
    return found, f"words from '{words}', tags from '{tags}'{scheme}"


def to_bio(tags: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """The same spans in BIO, and how many of them had begun with I-, or with what stands for it."""
    spans = [SPAN_TAG.fullmatch(tag) for tag in tags]
    marks = {span[1] for span in spans if span}
    if not any(marks <= scheme for scheme in SCHEMES.values()):
        return tuple(tags), 0
    found, repaired, before = list[str](), 0, ""
    for tag, span in zip(tags, spans, strict=True):
        mark, kind = span.groups() if span else ("", "")
        if not kind:
            found.append(tag)
        elif mark in BEGINS or kind != before:
            repaired += mark not in BEGINS
            found.append(f"B-{kind}")
        else:
            found.append(f"I-{kind}")
        before = "" if mark in ENDS else kind
    return tuple(found), repaired


def normalise_tags(sentences: list[Sentence]) -> tuple[list[Sentence], str]:
    """The sentences of a file with tags in BIO, and what was done to get them."""
    counts = Counter(tag for sentence in sentences for tag in sentence.tags or ())
    marks = {span[1] for tag in counts if (span := SPAN_TAG.fullmatch(tag))}
    scheme = next((name for name, known in SCHEMES.items() if marks and marks <= known), "")
    if not scheme:
        return sentences, ""
    turned, repaired = list[Sentence](), 0
    for sentence in sentences:
        tags, mended = to_bio(sentence.tags or ())
        turned.append(replace(sentence, tags=tags))
        repaired += mended
    if scheme != "BIO":
        said = f", {scheme} turned into BIO"
    elif repaired > sum(map(_begun, sentences)):  # in IOB1 next to none; the original files have a few
        return turned, ", IOB1 turned into BIO"
    else:
        said = ""
    return turned, said + (f", spans that began with I- repaired: {repaired:,}" if repaired else "")


def _begun(sentence: Sentence) -> int:
    """How many spans begin with B- though there is nothing to part them from."""
    tags = ("O", *(sentence.tags or ()))
    return sum(tag.startswith("B-") and before[1:] != tag[1:] for before, tag in pairwise(tags))


def _sentences(source: Source, width: int) -> Iterator[tuple[str, list[list[str]], str]]:
    """The rows between blank lines, where they begin, and what is wrong with one of them; none for a new document."""
    rows, place, wrong = list[list[str]](), "", ""
    for number, line, cells, fault in _rows(source):
        document = cells[:1] == [DOCSTART]
        if document or not (cells or fault):
            if rows:
                yield place, rows, wrong
            if document:
                yield place, [], fault
            rows, wrong = [], ""
        elif rows or fault or not _is_comment(line, cells, width):
            place = place if rows else f"{source.name}:{number}"
            rows.append(cells)
            wrong = wrong or fault
    if rows:
        yield place, rows, wrong


def _rows(source: Source) -> Iterator[tuple[int, str, list[str], str]]:
    """Lines cut by tabs where there is one, else by blanks."""
    for number, line, fault in read_lines(source):
        text = line.strip()
        yield number, line, [cell.strip() for cell in text.split("\t")] if "\t" in text else text.split(), fault


def _is_comment(line: str, cells: list[str], width: int) -> bool:
    return bool(COMMENT.match(line)) or (line.startswith("# ") and len(cells) != width)


def _width(source: Source) -> int:
    """The number of columns that most lines have."""
    counts = Counter[int]()
    for _, line, cells, fault in islice(_rows(source), PEEK):
        if cells and not fault and not COMMENT.match(line):
            counts[len(cells)] += 1
    if not counts:
        raise TextError(source.name, "holds no sentence" if source.size else "is empty", "Give it words and tags")
    width = max(counts, key=lambda cells: counts[cells])
    if width < 2:
        fact = "has one column and so no tags"
        raise TextError(source.name, fact, "Put a word, a tab and its tag on each line, a blank line after a sentence")
    return width


def _column_index(source: Source, name: str | None, width: int, otherwise: int) -> int:
    if name is None:
        return otherwise
    if name not in map(str, range(width)):
        raise TextError(source.name, f"has no column '{name}'", f"Columns are numbered from 0 to {width - 1}")
    return int(name)


def _guess_column(table: Table, known: Sequence[str], what: str) -> str:
    by_name = {name.casefold(): name for name in table.columns}
    for name in known:
        if name in by_name:
            return by_name[name]
    key = "data.texts" if what == "words" else "data.label"
    fact = f"which column holds the {what} cannot be guessed from {', '.join(table.columns) or 'none'}"
    raise TextError(table.name, fact, f"Name it with {key}=...")
