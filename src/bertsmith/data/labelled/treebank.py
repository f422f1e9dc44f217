"""Treebanks: sentences with parse trees in the brackets of the Penn Treebank; a linearised tree is the target text.

Vinyals et al. 2015, "Grammar as a Foreign Language": closing brackets carry their category, and each word is replaced
by its part of speech. "Dogs chase cats" is (S (NP NNS )NP (VP VBP (NP NNS )NP )VP )S.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled.bad_rows import BadRows
from bertsmith.data.labelled.examples import Example
from bertsmith.data.labelled.lines import read_lines

TREEBANK_SUFFIX = ".mrg"
EMPTY_CATEGORY = "-NONE-"  # the part of speech of traces, which stand for no spoken word
BRACKETS, WORDLESS = "trees with a bracket too many", "trees without a word"
BRACKET_OR_WORD = re.compile(r"[()]|[^\s()]+")


@dataclass
class Tree:
    """A parse tree: a constituent with its children, or a part of speech with its word."""

    label: str = ""
    children: "list[Tree]" = field(default_factory=list)
    word: str = ""

    def words(self) -> list[str]:
        """The words of the sentence, without traces."""
        if self.word:
            return [] if self.label == EMPTY_CATEGORY else [self.word]
        return [word for part in self.children for word in part.words()]

    def linearise(self) -> list[str]:
        """Brackets and parts of speech in order, without traces."""
        if self.word:
            return [] if self.label == EMPTY_CATEGORY else [self.label]
        inside = [piece for part in self.children for piece in part.linearise()]
        return [f"({self.category}", *inside, f"){self.category}"] if self.label and inside else inside

    @property
    def category(self) -> str:
        """The label without its function tags: NP of NP-SBJ-1."""
        return re.split("[-=]", self.label)[0]


def read(source: Source, dropped: BadRows) -> tuple[list[Example], str]:
    """Each sentence with its linearised tree, and a description."""
    examples = []
    for number, tree in _trees(source, dropped):
        words, location = tree.words(), f"{source.name}:{number}"
        if words:
            examples.append(Example(location=location, texts=(" ".join(words),), label=" ".join(tree.linearise())))
        else:
            dropped.drop(WORDLESS, location, "has a tree without a word")
    return examples, "sentences of a treebank, and their linearised trees"


def _trees(source: Source, dropped: BadRows) -> Iterator[tuple[int, Tree]]:
    """The trees of a file, each with the number of its first line."""
    stack: list[Tree] = []
    began = 1
    for number, line, _ in read_lines(source):
        for piece in BRACKET_OR_WORD.findall(line):
            if piece == "(":
                began = began if stack else number
                stack.append(Tree())
            elif not stack:
                dropped.drop(BRACKETS, f"{source.name}:{number}", f"'{piece}' stands outside of all brackets")
            elif piece != ")" and not stack[-1].label and not stack[-1].children:
                stack[-1].label = piece
            elif piece != ")":
                stack[-1].word = piece
            else:
                whole = stack.pop()
                if stack:
                    stack[-1].children.append(whole)
                else:
                    yield began, whole
    if stack:
        dropped.drop(BRACKETS, f"{source.name}:{began}", "has a bracket that is never closed")
