"""CoNLL's column format: one word a line with its tags in columns, a blank line after each sentence.

Tags are converted to BIO (IOB2): B- begins a span, I- continues it, O is outside. Known are IOB1, where B- only
separates two spans of one type (Ramshaw and Marcus 1995), IOBES, BILOU and BMEWO; tags that are no spans, such as parts
of speech, are left alone. A bad line costs its sentence, not the file.

CoNLL-U (Universal Dependencies) and CoNLL-X have ten columns that begin with the number of the word; words are in
column 1, universal parts of speech in column 3. Lines of several words (1-2) and of empty nodes (1.1) are no words.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice, pairwise

from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled.bad_rows import BadRows
from bertsmith.data.labelled.column_names import find_column
from bertsmith.data.labelled.examples import Sentence
from bertsmith.data.labelled.lines import read_lines
from bertsmith.data.labelled.tables import Table
from bertsmith.errors import TextError

CONLL_SUFFIXES = (".conll", ".conll2003", ".conllu", ".bio", ".iob", ".iob2", ".iobes", ".bioes", ".bmes", ".ner")
DOCSTART = "-DOCSTART-"
CONLLU_COLUMNS, CONLLU_WORDS, CONLLU_TAGS = 10, 1, 3
WORD_NUMBER, NO_WORD = re.compile(r"\d+([-.]\d+)?"), re.compile(r"\d+[-.]\d+")
SPACES = re.compile(" +")
COMMENT = re.compile(r"#\s?(id\b|\w+\s*=)")
COLUMN_GUESS_LINES = 1000  # lines from which the number of columns is guessed
SPAN_TAG = re.compile("([BIMESLUW])-(.+)", re.DOTALL)
BEGIN_TAGS, END_TAGS = frozenset("BSUW"), frozenset("SUWEL")
SCHEMES = {"BIO": frozenset("BI"), "IOBES": frozenset("BIES"), "BILOU": frozenset("BILU"), "BMEWO": frozenset("BMEWS")}
WORD_COLUMNS = ("tokens", "words", "token", "word")
TAG_COLUMNS = ("ner_tags", "tags", "labels", "ner", "entities", "pos_tags", "upos", "chunk_tags")
NUMBERED = " (numbers without names, in which no entities can be seen: scored by accuracy)"

BROKEN_LINE = "sentences with a broken line"
UNEQUAL = "sentences with more words than tags, or fewer"
UNTAGGED = "rows without a label"
WORDLESS = "rows without text"

Tagged = tuple[list[Sentence], str]  # the sentences, and a description


def read(source: Source, word: str | None, tag: str | None, dropped: BadRows) -> Tagged:
    """The sentences of a column file, by the columns that are named.

    By default words are in the first column and tags in the last; in CoNLL-U they are in columns 1 and 3.
    """
    width, conllu = _width(source), is_conllu(row for _, _, row, _ in islice(_rows(source), COLUMN_GUESS_LINES))
    words = _column_index(source, word, width, CONLLU_WORDS if conllu else 0)
    tags = _column_index(source, tag, width, CONLLU_TAGS if conllu else width - 1)
    exact = word is None or tag is None  # with both columns named, lines may differ in the number of other columns
    sentences, documents = list[Sentence](), 0
    for location, lines, fault in _sentences(source, width):
        rows = [row for row in lines if not (conllu and row and NO_WORD.fullmatch(row[0]))]
        short = [row for row in rows if (len(row) != width if exact else len(row) <= max(words, tags))]
        if fault:
            dropped.drop(fault, location)
        elif short:
            fact = f"a line of the sentence that begins here has {len(short[0])} columns and not {width}"
            dropped.drop(BROKEN_LINE, location, fact)
        elif not rows:
            documents += not lines
        elif not all(row[words] and row[tags] for row in rows):
            dropped.drop(BROKEN_LINE, location, "a line of the sentence that begins here has an empty column")
        else:
            columns = (tuple(row[column] for row in rows) for column in (words, tags))
            sentences.append(Sentence(location=location, words=next(columns), tags=next(columns)))
    sentences, scheme = normalise_tags(sentences)
    description = f"words from column {words}, tags from column {tags}{' (CoNLL-U)' * conllu}{scheme}"
    return sentences, description + (f", documents: {documents:,}" if documents else "")


def from_rows(table: Table, word: str | None, tag: str | None, dropped: BadRows) -> Tagged:
    """The sentences of a table whose cells are lists."""
    word_column = table.column(word) if word else _guess_column(table, WORD_COLUMNS, "words")
    tag_column = table.column(tag) if tag else _guess_column(table, TAG_COLUMNS, "tags")
    sentences = list[Sentence]()
    for location, row in table.rows((word_column, tag_column), dropped):
        words, tags = row[word_column], row[tag_column]
        if not isinstance(words, list) or not words or not all(isinstance(one, str) and one.strip() for one in words):
            dropped.drop(WORDLESS, location, f"has no list of words in '{word_column}'")
        elif tags is None or (isinstance(tags, list) and None in tags):
            dropped.drop(UNTAGGED, location, f"has no tags in '{tag_column}'")
        elif not isinstance(tags, list) or not all(isinstance(one, str | int) and str(one).strip() for one in tags):
            dropped.drop(UNTAGGED, location, f"has no list of tags in '{tag_column}'")
        elif len(tags) != len(words):
            dropped.drop(UNEQUAL, location, f"has {len(words)} words and {len(tags)} tags")
        else:
            names = tuple(str(one).strip() for one in tags)
            sentences.append(Sentence(location=location, words=tuple(words), tags=names))
    sentences, scheme = normalise_tags(sentences)
    return sentences, f"words from '{word_column}', tags from '{tag_column}'{scheme}"


def to_bio(tags: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """The same spans in BIO, and how many of them did not begin with a tag for beginnings (as I- in IOB1)."""
    spans = [SPAN_TAG.fullmatch(tag) for tag in tags]
    prefixes = {span[1] for span in spans if span}
    if not any(prefixes <= scheme for scheme in SCHEMES.values()):
        return tuple(tags), 0
    bio, repaired, before = list[str](), 0, ""
    for tag, span in zip(tags, spans, strict=True):
        prefix, kind = span.groups() if span else ("", "")
        if not kind:
            bio.append(tag)
        elif prefix in BEGIN_TAGS or kind != before:
            repaired += prefix not in BEGIN_TAGS
            bio.append(f"B-{kind}")
        else:
            bio.append(f"I-{kind}")
        before = "" if prefix in END_TAGS else kind
    return tuple(bio), repaired


def normalise_tags(sentences: list[Sentence]) -> tuple[list[Sentence], str]:
    """The sentences of a file with tags in BIO, and a description of the conversion."""
    counts = Counter(tag for sentence in sentences for tag in sentence.tags or ())
    prefixes = {span[1] for tag in counts if (span := SPAN_TAG.fullmatch(tag))}
    scheme = next((name for name, known in SCHEMES.items() if prefixes and prefixes <= known), "")
    if not scheme:
        return sentences, NUMBERED if counts and all(map(str.isdecimal, counts)) else ""
    converted, repaired = list[Sentence](), 0
    for sentence in sentences:
        tags, count = to_bio(sentence.tags or ())
        converted.append(replace(sentence, tags=tags))
        repaired += count
    if scheme != "BIO":
        description = f", {scheme} turned into BIO"
    elif repaired > sum(map(_needless_begins, sentences)):  # in IOB1 next to none; the original files have a few
        return converted, ", IOB1 turned into BIO"
    else:
        description = ""
    return converted, description + (f", spans that began with I- repaired: {repaired:,}" if repaired else "")


def _needless_begins(sentence: Sentence) -> int:
    """How many spans begin with B- though IOB1 would have I-: no span of the same type stands right before."""
    tags = ("O", *(sentence.tags or ()))
    return sum(tag.startswith("B-") and before[1:] != tag[1:] for before, tag in pairwise(tags))


def _sentences(source: Source, width: int) -> Iterator[tuple[str, list[list[str]], str]]:
    """For each sentence its location, its rows and the fault of one of them, if any; no rows for a new document."""
    rows, location, sentence_fault = list[list[str]](), "", ""
    for number, line, cells, fault in _rows(source):
        document = cells[:1] == [DOCSTART]
        if document or not (cells or fault):
            if rows:
                yield location, rows, sentence_fault
            if document:
                yield location, [], fault
            rows, sentence_fault = [], ""
        elif rows or fault or not _is_comment(line, cells, width):
            location = location if rows else f"{source.name}:{number}"
            rows.append(cells)
            sentence_fault = sentence_fault or fault
    if rows:
        yield location, rows, sentence_fault


def _rows(source: Source) -> Iterator[tuple[int, str, list[str], str]]:
    for number, line, fault in read_lines(source):
        yield number, line, split_line(line), fault


def split_line(line: str) -> list[str]:
    """The columns of a line, split at tabs where there is one, else at spaces; a no-break space is part of a word."""
    text = line.strip()
    return [cell.strip() for cell in (text.split("\t") if "\t" in text else SPACES.split(text)) if text]


def is_conllu(rows: Iterable[list[str]]) -> bool:
    """Whether lines are CoNLL-U's: most have ten columns, the first of which numbers the words."""
    words = [row for row in rows if row and not row[0].startswith("#")]
    numbered = sum(len(row) == CONLLU_COLUMNS and bool(WORD_NUMBER.fullmatch(row[0])) for row in words)
    return 2 * numbered > len(words)


def _is_comment(line: str, cells: list[str], width: int) -> bool:
    return bool(COMMENT.match(line)) or (line.startswith("# ") and len(cells) != width)


def _width(source: Source) -> int:
    """The number of columns that most lines have."""
    counts = Counter[int]()
    for _, line, cells, fault in islice(_rows(source), COLUMN_GUESS_LINES):
        if cells and not fault and not COMMENT.match(line):
            counts[len(cells)] += 1
    if not counts:
        raise TextError(source.name, "holds no sentence" if source.size else "is empty", "Give it words and tags")
    width = max(counts, key=lambda cells: counts[cells])
    if width < 2:
        fact = "has one column and so no tags"
        raise TextError(source.name, fact, "Put a word, a tab and its tag on each line, a blank line after a sentence")
    return width


def _column_index(source: Source, name: str | None, width: int, default: int) -> int:
    if name is None:
        return default
    if name not in map(str, range(width)):
        raise TextError(source.name, f"has no column '{name}'", f"Columns are numbered from 0 to {width - 1}")
    return int(name)


def _guess_column(table: Table, known: Sequence[str], role: str) -> str:
    if found := find_column(known, table.columns):
        return found
    key = "data.texts" if role == "words" else "data.label"
    fact = f"which column holds the {role} cannot be guessed from {', '.join(table.columns) or 'none'}"
    raise TextError(table.name, fact, f"Name it with {key}=...")
