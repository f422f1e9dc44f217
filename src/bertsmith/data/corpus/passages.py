"""Passages: the documents of a file, as sentences or paragraphs, gathered from its lines."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from bertsmith.data.corpus.lines import LineRun
from bertsmith.text.language import splitting_language, unwrap
from bertsmith.text.sentences import Layout, split_sentences

NEW_DOCUMENT_CHARACTERS = 1 << 16  # characters after which running text continues in a new document
MAX_DOCUMENT_CHARACTERS = 1 << 20  # characters after which any text does
NO_LIMIT = 1 << 60

Found = tuple[int, list[str]]  # the line where a document begins; its sentences, or its paragraphs


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
                yield first, [*texts, unwrap("\n".join(paragraph))] if paragraph else texts
                texts, paragraph, size = [], [], 0
    if size:
        yield first, [*texts, unwrap("\n".join(paragraph))] if paragraph else texts
