"""Passages: the documents of a file, as sentences or paragraphs, gathered from its lines."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from bertsmith.data.corpus.lines import LineRun
from bertsmith.text.language import splitting_language, unwrap
from bertsmith.text.sentences import Layout, split_sentences

NEW_DOCUMENT_CHARACTERS = 1 << 16  # characters after which running text continues in a new document
MAX_DOCUMENT_CHARACTERS = 1 << 20  # characters after which any text does
NO_LIMIT = 1 << 60

MIN_LIST_LINES = 50  # lines from which a file without blank lines is a list of sentences, and not one document
LONG_LIST_LINES = 500  # lines without a blank one that are a list in any file


@dataclass(frozen=True)
class Found:
    """A document of a file: the line where it begins, and its sentences or paragraphs."""

    line: int
    texts: list[str]
    ends_at_blank: bool = False  # and not at the end of the file, or because it is long
    in_list: bool = False  # it is part of a list of sentences


@dataclass(frozen=True)
class Document:
    """A document as its sentences, with its location."""

    sentences: list[str]
    file: str
    line: int


@dataclass(frozen=True)
class Passage:
    """A document as its file has it: sentences, or paragraphs that are not yet split into them."""

    texts: list[str]
    file: str
    line: int
    layout: Layout
    in_list: bool = False  # part of a file without documents, whose lines do not belong together

    def sentences(self) -> list[str]:
        """Its sentences; splitting paragraphs takes longer than reading."""
        if self.layout == "lines":
            return self.texts
        language = splitting_language(self.texts)
        return [sentence for paragraph in self.texts for sentence in split_sentences(paragraph, language)]


def passages(
    runs: Iterable[LineRun], *, blanks: int, max_characters: int = MAX_DOCUMENT_CHARACTERS, join_lines: bool = False
) -> Iterator[Found]:
    """Lines gathered into documents, which end after `blanks` blank lines, or when they hold enough characters.

    With `join_lines` the lines up to a blank line are joined to one paragraph.
    """
    texts, paragraph = list[str](), list[str]()
    size = empty = first = 0
    for start, lines in runs:
        for number, line in enumerate(map(str.strip, lines), start):
            if line:
                first = first if size else number
                size, empty = size + len(line), 0
                (paragraph if join_lines else texts).append(line)
            else:
                empty += 1
                if paragraph:
                    texts.append(unwrap("\n".join(paragraph)))
                    paragraph = []
            if size >= MAX_DOCUMENT_CHARACTERS or (
                size and (empty >= blanks or (size >= max_characters and not paragraph))
            ):
                whole = [*texts, unwrap("\n".join(paragraph))] if paragraph else texts
                yield Found(first, whole, ends_at_blank=empty > 0)
                texts, paragraph, size = [], [], 0
    if size:
        yield Found(first, [*texts, unwrap("\n".join(paragraph))] if paragraph else texts)


def marked_lists(found: Iterable[Found]) -> Iterator[Found]:
    """The same documents of a file with a sentence a line; those of lists are marked.

    A list is a file in which no blank line stands between sentences, if it is long enough, and any very long run of
    lines, down to the blank line at its end.
    """
    found = iter(found)
    one, any_blank, in_list = next(found, None), False, False
    while one is not None:
        following = next(found, None)
        any_blank |= one.ends_at_blank and following is not None
        count = len(one.texts)
        in_list = in_list or count >= LONG_LIST_LINES or (count >= MIN_LIST_LINES and not any_blank)
        yield replace(one, in_list=in_list)
        in_list, one = in_list and not one.ends_at_blank, following
