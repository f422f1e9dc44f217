"""A text that is judged: its words, n-grams, script and languages, each computed when a rule first asks for it."""

import re
from collections.abc import Sequence
from functools import cached_property
from itertools import chain

from bertsmith.data.cleaning.ngrams import Hashes, WordHashes, normalised_words
from bertsmith.text.language import (
    COMMON_WORD_SETS,
    SCRIPTS,
    UNSPACED_LETTERS,
    frequent_word_shares,
    is_code,
    main_script,
)
from bertsmith.text.sentences import Layout

EXAMINED_CHARACTERS, EXAMINED_WORDS = 1 << 12, 1 << 10  # by which script and language are recognised
CODE_CHARACTERS = 1 << 12  # by which source code is: a few signs per line
MIN_LANGUAGE_WORDS = 20  # words from which a language is recognised
MIN_LANGUAGE_SHARE, MIN_FREQUENT_WORDS = 0.1, 3  # of words that are frequent ones of a language; different ones of them
NEAR_LANGUAGES = 0.5  # of the best share: languages that may be meant, such as Danish and Norwegian
UNSPACED = re.compile(f"[{UNSPACED_LETTERS}]")
SCRIPT_NAMES = ("", *SCRIPTS)  # by number; the first for texts with few letters
LANGUAGES = {name: 1 << bit for bit, name in enumerate(COMMON_WORD_SETS)}  # as bits of a set


class Text:
    """A document, or a line of a file without documents, with the figures that rules judge."""

    def __init__(self, lines: Sequence[str], layout: Layout, hashes: WordHashes) -> None:
        self.lines, self.layout, self._hashes = lines, layout, hashes

    @cached_property
    def text(self) -> str:
        return "\n".join(self.lines)

    @cached_property
    def line_words(self) -> list[list[str]]:
        return list(map(normalised_words, self.lines))

    @cached_property
    def words(self) -> list[str]:
        return self.line_words[0] if len(self.line_words) == 1 else list(chain.from_iterable(self.line_words))

    @cached_property
    def numbers(self) -> list[str]:
        return list(filter(str.isdigit, self.words))

    @cached_property
    def mean_word_length(self) -> float:
        """Letters per word, numbers left out; where there is nothing else, that of ordinary text."""
        count = len(self.words) - len(self.numbers)
        return (sum(map(len, self.words)) - sum(map(len, self.numbers))) / count if count else 5.0

    @cached_property
    def hashes(self) -> Hashes:
        return self._hashes(self.words)

    @cached_property
    def spaced(self) -> bool:
        """Whether most of its words are separated by spaces."""
        return self.text.isascii() or 2 * len(UNSPACED.findall(self.text)) < len(self.words)

    @cached_property
    def characters(self) -> int:
        """Characters that are not spaces, about."""
        return max(len(self.text) - self.text.count(" "), 1)

    @cached_property
    def script(self) -> str | None:
        part = self.text[:EXAMINED_CHARACTERS]
        if part.isascii():
            return "Latin" if sum(map(len, self.words[:40])) >= 20 else None
        return main_script(part)

    @cached_property
    def shares(self) -> dict[str, float]:
        """The share of frequent words of each language; none for a text that is short or not in Latin script."""
        if len(self.words) < MIN_LANGUAGE_WORDS or self.script != "Latin":
            return {}
        # Single letters are words of many languages: "a" in English captions is not Portuguese.
        return frequent_word_shares([word for word in self.words[:EXAMINED_WORDS] if len(word) > 1])

    @cached_property
    def frequent_words(self) -> int:
        """The number of different frequent words of the language that has the largest share of them."""
        best = max(self.shares, key=lambda name: self.shares[name])
        return len(COMMON_WORD_SETS[best].intersection(self.words))

    @cached_property
    def languages(self) -> int:
        """The languages that the text may be in, as bits; 0 where that is unknown."""
        best = max(self.shares.values(), default=0.0)
        if best < MIN_LANGUAGE_SHARE or self.frequent_words < MIN_FREQUENT_WORDS:
            return 0
        return sum(LANGUAGES[name] for name, share in self.shares.items() if share >= NEAR_LANGUAGES * best)

    @property
    def languages_and_script(self) -> tuple[int, int]:
        """The languages as bits, and the number of the script."""
        return self.languages, SCRIPT_NAMES.index(self.script or "")

    @cached_property
    def code(self) -> bool:
        return is_code(self.text[:CODE_CHARACTERS])
