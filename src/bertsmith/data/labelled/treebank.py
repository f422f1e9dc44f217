"""Treebanks: sentences with their trees, as the Penn Treebank brackets them; a tree becomes a text to be written.

Vinyals et al. 2015, "Grammar as a Foreign Language": brackets that say what they close, and in the place of each word
its kind. "Dogs chase cats" is (S (NP NNS )NP (VP VBP (NP NNS )NP )VP )S.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled.examples import Example
from bertsmith.data.labelled.tables import BadRows, read_lines

ENDING = ".mrg"
EMPTY_CATEGORY = "-NONE-"  # the kind of what was not said
BRACKETS, WORDLESS = "trees with a bracket too many", "trees without a word"
PIECE = re.compile(r"[()]|[^\s()]+")


@dataclass
class Tree:
    """A constituent: its name, and what it is made of; or the kind of a word, and the word."""

    label: str = ""
    children: "list[Tree]" = field(default_factory=list)
    word: str = ""

    def words(self) -> list[str]:
        """What was said."""
        if self.word:
            return [] if self.label == EMPTY_CATEGORY else [self.word]
        return [word for part in self.children for word in part.words()]

    def linearise(self) -> list[str]:
        """Brackets and kinds of words one after the other, without what was not said."""
        if self.word:
            return [] if self.label == EMPTY_CATEGORY else [self.label]
        inside = [piece for part in self.children for piece in part.linearise()]
        return [f"({self.category}", *inside, f"){self.category}"] if self.label and inside else inside

    @property
    def category(self) -> str:
        """The name without what it is for: NP of NP-SBJ-1."""
        return re.split("[-=]", self.label)[0]


def read(found: Source, dropped: BadRows) -> tuple[list[Example], str]:
    """Each sentence, and its tree as a text; and what was read in words."""
    examples = []
    for number, tree in _trees(found, dropped):
        words = tree.words()
        if words:
            place = f"{found.name}:{number}"
            examples.append(Example(location=place, texts=(" ".join(words),), label=" ".join(tree.linearise())))
        else:
            dropped.drop(WORDLESS, f"{found.name}:{number}", "has a tree without a word")
    return examples, "sentences of trees, and the brackets that are to be written"


def _trees(found: Source, dropped: BadRows) -> Iterator[tuple[int, Tree]]:
    """The trees of a file, and the lines where they begin."""
    open_ones: list[Tree] = []
    began = 1
    for number, line, _ in read_lines(found):
        for piece in PIECE.findall(line):
            if piece == "(":
                began = began if open_ones else number
                open_ones.append(Tree())
            elif not open_ones:
                dropped.drop(BRACKETS, f"{found.name}:{number}", f"'{piece}' stands outside of all brackets")
            elif piece != ")" and not open_ones[-1].label and not open_ones[-1].children:
                open_ones[-1].label = piece
            elif piece != ")":
                open_ones[-1].word = piece
            else:
                whole = open_ones.pop()
                if open_ones:
                    open_ones[-1].children.append(whole)
                else:
                    yield began, whole
    if open_ones:
        dropped.drop(BRACKETS, f"{found.name}:{began}", "has a bracket that is never closed")
