"""Words of a text without case and punctuation, and the hashes of its n-grams, which duplicates are found by.

In scripts without spaces every character counts as a word.
"""

import re
import zlib

import numpy as np
from numpy.typing import NDArray

from bertsmith.text.language import UNSPACED_LETTERS

Hashes = NDArray[np.uint64]

WORD = re.compile(r"[^\W_]+")
# Accents, and the vowels and points of Hebrew, Arabic and the scripts of India: parts of words, though no letters.
MARKS = "\u0300-\u036f\u0591-\u05bd\u064b-\u065f\u0670\u0900-\u0963\u0966-\u0dff"
WORD_OR_CHARACTER = re.compile(f"[{UNSPACED_LETTERS}]|(?:[^\\W_{UNSPACED_LETTERS}]|[{MARKS}])+")
MAX_CACHED_WORDS = 1 << 18  # hashes of words that are kept
_FACTOR = np.uint64(0x9E37_79B9_7F4A_7C15)
_FINAL = np.uint64(0xBF58_476D_1CE4_E5B9)


def normalised_words(text: str) -> list[str]:
    """The words of a text in lower case, without punctuation."""
    lower = text.lower()
    return WORD.findall(lower) if lower.isascii() else WORD_OR_CHARACTER.findall(lower)


class WordHashes:
    """Hashes of words, those of frequent words from a cache."""

    def __init__(self) -> None:
        self._cache = _Cache()

    def __call__(self, words: list[str]) -> Hashes:
        """A hash for each word: the same in every process."""
        if len(self._cache) > MAX_CACHED_WORDS:
            self._cache.clear()
        return np.fromiter(map(self._cache.__getitem__, words), np.uint64, len(words))


class _Cache(dict[str, int]):
    def __missing__(self, word: str) -> int:
        self[word] = found = zlib.crc32(word.encode("utf-8", "surrogatepass"))
        return found


def ngram_hashes(words: Hashes, length: int) -> Hashes:
    """The hash of every n-gram of `length` words, by position; none where there are fewer words."""
    count = len(words) - length + 1
    if count <= 0:
        return np.empty(0, np.uint64)
    hashes = np.zeros(count, np.uint64)
    for offset in range(length):
        hashes += words[offset : offset + count] + np.uint64(1)
        hashes *= _FACTOR
    hashes ^= hashes >> np.uint64(29)
    hashes *= _FINAL
    hashes ^= hashes >> np.uint64(32)
    return hashes
