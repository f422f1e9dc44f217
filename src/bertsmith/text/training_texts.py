"""The text that a tokenizer is trained on: its batches, its alphabet, and which characters and merges make words."""

import re
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import cache

import numpy as np

from bertsmith.errors import TextError
from bertsmith.text.language import SCRIPTS, UNSPACED, UNSPACED_LETTER

CHARACTER_COVERAGE = 0.9999  # share of the text that is covered by the alphabet, the most frequent characters
MAX_UNSPACED_TOKEN = 8  # characters of a token in a script without spaces, where merges go on to whole phrases
MAX_SYMBOLS_TOKEN = 4  # characters of a token without letters and digits: an emoji, and no rule of a table
LONGEST_WORD = 128  # characters; longer strings are cut, since they would swell the table of words
BATCH_CHARACTERS = 1 << 20  # characters given to the library at a time
FULLY_READ_CHARACTERS = 1 << 26  # of the next as many every second text is read, then every fourth, ...
PHRASED = [name for name in UNSPACED if name not in ("Chinese", "Japanese")]  # no Chinese characters between words


class TrainingTexts:
    """Texts for the library's trainers: normalised, in batches, without overlong words, and subsampled if very many."""

    def __init__(self, texts: Iterable[str], clean: Callable[[str], str]) -> None:
        self.characters = 0  # that were used
        self._texts, self._clean = texts, clean
        self._character_counts = np.zeros(sys.maxunicode + 1, np.int64)
        self._unassigned = categories() == "Cn"

    def batches(self) -> Iterator[list[str]]:
        batch: list[str] = []
        size = 0
        for text in self._chosen():
            batch.append(self._clean(text))
            size += len(text)
            if size >= BATCH_CHARACTERS:
                yield self._counted(batch)
                batch, size = [], 0
        if batch:
            yield self._counted(batch)
        if not self.characters:
            raise TextError("tokenizer", "there is no text to learn a vocabulary from")

    def alphabet(self, max_tokens: int, tokens_each: np.ndarray | None = None) -> list[str]:
        """The most frequent characters, in the order of Unicode; without white space and control characters.

        `tokens_each`: how many tokens of the vocabulary each character takes, one by default.
        """
        counts = np.where(np.isin(categories(), ["Cn", "Cc", "Zs", "Zl", "Zp"]), 0, self._character_counts)
        order = np.argsort(-counts, kind="stable")
        covered = np.cumsum(counts[order]) - counts[order]
        size = int(np.searchsorted(covered, CHARACTER_COVERAGE * counts.sum()))
        taken = np.cumsum(np.ones(len(order)) if tokens_each is None else tokens_each[order])
        room = int(np.searchsorted(taken, max_tokens, side="right"))
        return [chr(code) for code in sorted(order[: min(size, room)])]

    def occurring(self) -> np.ndarray:
        """Which characters the batches that were read have."""
        found: np.ndarray = self._character_counts > 0
        return found

    def unspaced_share(self) -> float:
        """The share of characters of scripts in which spaces stand between phrases only: Thai, Khmer and so on."""
        counts = self._character_counts
        found = sum(int(counts[first : last + 1].sum()) for name in PHRASED for first, last in SCRIPTS[name])
        return found / max(int(counts.sum()), 1)

    def _chosen(self) -> Iterator[str]:
        """A subsample that grows with the logarithm of the corpus, so that time and memory stay bounded."""
        for number, text in enumerate(self._texts):
            if number % (1 << self.characters // FULLY_READ_CHARACTERS) == 0 and not text.isspace():
                self.characters += len(text)
                yield from (text[start : start + BATCH_CHARACTERS] for start in range(0, len(text), BATCH_CHARACTERS))

    def _counted(self, batch: list[str]) -> list[str]:
        joined = "\n".join(batch)
        codes = np.frombuffer(joined.encode("utf-32-le"), np.uint32)
        if self._unassigned[codes].any():
            spaces = dict.fromkeys(codes[self._unassigned[codes]].tolist(), " ")
            batch = [text.translate(spaces) for text in batch]
        if max(map(len, joined.split()), default=0) > LONGEST_WORD:
            batch = [re.sub(rf"(\S{{{LONGEST_WORD}}})(?=\S)", r"\1 ", text) for text in batch]
        self._character_counts += np.bincount(codes, minlength=len(self._character_counts))
        return batch


def is_useful(text: str) -> bool:
    """Whether a merged token may be part of a word: no phrase of a script without spaces, and no long row of symbols.

    Japanese changes between its syllabaries and other letters where words begin and end, so a token has one of them.
    """
    if text.isascii():
        return True
    if not any(map(str.isalnum, text)):
        return len(text) <= MAX_SYMBOLS_TOKEN
    syllabaries = {_SYLLABARY.get(letter, "") for letter in text} - {"both"}
    return len(syllabaries) <= 1 and (len(text) <= MAX_UNSPACED_TOKEN or not UNSPACED_LETTER.search(text))


def may_join() -> np.ndarray:
    """Which characters can stand inside of a word: not white space, controls and most Chinese characters."""
    allowed: np.ndarray = np.isin(categories().astype("U1"), list("LMNSP")) | (categories() == "Cf")
    for first, last in (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0x20000, 0x2A6DF):
        allowed[first : last + 1] = False
    return allowed


# Hiragana and katakana; the sign of a long vowel is in both.
_SYLLABARY = (
    dict.fromkeys(map(chr, range(0x3041, 0x30A0)), "hiragana")
    | dict.fromkeys(map(chr, [*range(0x30A0, 0x3100), *range(0xFF66, 0xFF9E)]), "katakana")
    | {"ー": "both"}
)


@cache
def categories() -> np.ndarray:
    """The Unicode category of every character: "Ll" is a lowercase letter, "Cn" is not assigned."""
    return np.array([unicodedata.category(chr(code)) for code in range(sys.maxunicode + 1)])
