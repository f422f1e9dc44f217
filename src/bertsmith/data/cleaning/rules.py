"""Quality rules: one figure per document and its limit, after Gopher, C4 and FineWeb.

Rae et al. 2021 (Gopher, appendix A), Raffel et al. 2020 (C4), Penedo et al. 2024 (FineWeb). Their limits are for web
pages. Here they are wider, and a rule judges only documents that it suits: those with enough words and lines, in
scripts with spaces, in running text. Captions, verses and files of one sentence a line are then kept.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from bertsmith.data.cleaning.ngrams import ngram_hashes
from bertsmith.data.cleaning.text import Text
from bertsmith.text.sentences import SENTENCE_END

SHORT_LINE = 30  # characters
NGRAM = 5  # words of an n-gram that counts as repeated; characters count half

SYMBOLS = "#*|\\^~`@<>=+_{}$"
# Arrows, mathematical operators, boxes, private use, emoji.
WIDE_SYMBOL = re.compile("[\u2190-\u2bff\ue000-\uf8ff\U0001f000-\U0001faff]")
GARBLED = re.compile("\ufffd|Ã[\x80-\xbf]|â€")
BULLET = re.compile(r"[•●▪◦‣∙·*]\s?\S|- (?!.*[.!?…]$)")
LOREM_IPSUM = ("orem ipsum dolor", "OREM IPSUM DOLOR")


@dataclass(frozen=True)
class Rule:
    """A quality rule: documents whose figure is beyond the limit are dropped."""

    name: str
    what: str  # the documents that it drops, in words
    figure: Callable[[Text], float]
    above: float | None = None
    below: float | None = None
    min_words: int = 20
    min_lines: int = 1
    spaced: bool = False  # only for scripts with spaces between words
    running: bool = False  # only for running text
    code: bool = True  # also where the text is source code

    def suits(self, text: Text) -> bool:
        return (
            len(text.lines) >= self.min_lines
            and len(text.words) >= self.min_words
            and (not self.running or text.layout == "running")
            and (not self.spaced or text.spaced)
        )

    def drops(self, figure: float) -> bool:
        return (self.above is not None and figure > self.above) or (self.below is not None and figure < self.below)

    def margin(self, figure: float) -> float:
        """How far a figure is from the limit, relative to it."""
        limit = self.above if self.above is not None else self.below
        assert limit is not None
        return abs(figure - limit) / limit

    def describe(self, figure: float) -> str:
        limit = f"limit {self.above:g}" if self.above is not None else f"at least {self.below:g}"
        return f"{figure:.3g}, {limit}"


def failed(text: Text, skip: Sequence[str] = ()) -> tuple[int, dict[str, float]]:
    """The rules that drop a text, as bits by their number in the table; and the figures of all rules that suit it."""
    bits, figures = 0, {}
    for number, rule in enumerate(RULES):
        if rule.name not in skip and rule.suits(text):
            figures[rule.name] = figure = rule.figure(text)
            bits |= rule.drops(figure) << number
    return bits, figures


def _mean_word_length(text: Text) -> float:
    return text.mean_word_length


def _longest_words(text: Text) -> float:
    """Share of characters in words of more than 40 characters: base64, keys, text whose spaces are lost."""
    if max(map(len, text.words)) <= 40:
        return 0.0
    return sum(len(word) for word in text.words if len(word) > 40) / text.characters


def _numbers(text: Text) -> float:
    return len(text.numbers) / len(text.words)


def _symbols(text: Text) -> float:
    found = sum(map(text.text.count, SYMBOLS))
    if not text.text.isascii():
        found += len(WIDE_SYMBOL.findall(text.text))
    return found / text.characters


def _bullets(text: Text) -> float:
    return sum(bool(BULLET.match(line)) for line in text.lines) / len(text.lines)


def _ellipses(text: Text) -> float:
    return sum(line.endswith(("...", "…", ". . .")) for line in text.lines) / len(text.lines)


def _frequent_words(text: Text) -> float:
    """Different frequent words of the language that has most of them; enough where no list is for the script."""
    return float(text.frequent_words) if text.shares else 2.0


def _lorem_ipsum(text: Text) -> float:
    return float(any(filler in text.text for filler in LOREM_IPSUM))


def _braces(text: Text) -> float:
    return (text.text.count("{") + text.text.count("}")) / len(text.words)


def _garbled(text: Text) -> float:
    return 0.0 if text.text.isascii() else len(GARBLED.findall(text.text)) / len(text.words)


def _repeated_lines(text: Text) -> float:
    """Share of characters in lines that stand in the document before."""
    return 1 - sum(map(len, set(text.lines))) / max(sum(map(len, text.lines)), 1)


def _repeated_ngrams(text: Text) -> float:
    """Share of n-grams that occurred before in the document."""
    ngrams = np.sort(ngram_hashes(text.hashes, NGRAM if text.spaced else 2 * NGRAM))  # faster than np.unique
    return int(np.count_nonzero(ngrams[1:] == ngrams[:-1])) / len(ngrams)


def _most_frequent_ngram(text: Text) -> float:
    """Share of words that belong to the most frequent 3-gram."""
    ngrams = np.sort(ngram_hashes(text.hashes, 3))
    ends = np.flatnonzero(np.append(ngrams[1:] != ngrams[:-1], True))
    return 3 * int(np.diff(ends, prepend=-1).max()) / len(text.hashes)


def _menus(text: Text) -> float:
    short = sum(len(line) < SHORT_LINE and not SENTENCE_END.search(line) for line in text.lines)
    return short / len(text.lines)


RULES = (
    Rule("short-words", "words of fewer than 2.2 letters on average", _mean_word_length, below=2.2, spaced=True),
    Rule("long-words", "words of more than 12 letters on average", _mean_word_length, above=12, spaced=True),
    Rule(
        "letter-runs",
        "a tenth of the text in words of more than 40 characters",
        _longest_words,
        above=0.1,
        min_words=1,
        spaced=True,
    ),
    Rule("numbers", "more than 40 % of the words are numbers", _numbers, above=0.4),
    Rule("symbols", "more than 15 % of the characters are symbols", _symbols, above=0.15, code=False),
    Rule("braces", "more than 10 braces per 100 words: program text in pages", _braces, above=0.1, code=False),
    Rule("bullets", "more than 90 % of the lines are bullet points", _bullets, above=0.9, min_lines=8),
    Rule("ellipses", "more than 30 % of the lines end in an ellipsis", _ellipses, above=0.3, min_lines=8),
    Rule(
        "frequent-words",
        "50 words or more, with fewer than 2 different frequent words (stop words) of any language",
        _frequent_words,
        below=2,
        min_words=50,
        code=False,
    ),
    Rule("lorem-ipsum", "filler text: lorem ipsum dolor", _lorem_ipsum, above=0.5, min_words=3),
    Rule("garbled", "more than 1 damaged character per 50 words: wrong encoding", _garbled, above=0.02, min_words=8),
    Rule(
        "repeats",
        "more than half of the text is lines that stand in the document before",
        _repeated_lines,
        above=0.5,
        min_lines=8,
    ),
    Rule(
        "repeated-n-grams",
        "more than 40 % of the 5-grams of words occurred before in the document",
        _repeated_ngrams,
        above=0.4,
        min_words=50,
        code=False,
    ),
    Rule(
        "one-n-gram",
        "more than 20 % of the words belong to one 3-gram",
        _most_frequent_ngram,
        above=0.2,
        min_words=50,
        code=False,
    ),
    Rule(
        "menus",
        "running text most of whose lines are short and end no sentence: menus and lists of links",
        _menus,
        above=0.67,
        min_lines=10,
        running=True,
        code=False,
    ),
)
