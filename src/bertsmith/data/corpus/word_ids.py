"""Text by words: every word a number, the frequent ones first, the rare ones left out, sentences kept apart.

A word is a run of letters, digits and underscores, with apostrophes inside: `don't` is one, `state-of-the-art` four.
Punctuation is no word. The numbers are held in memory, four bytes for each word of the text; the text itself is not.
"""

import hashlib
import re
from array import array
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int32, Int64

from bertsmith.errors import TextError

WORD = re.compile(r"\w+(?:['’]\w+)*")


@dataclass(frozen=True)
class WordIds:
    """A text as the numbers of its words, sentence after sentence."""

    words: list[str]  # by their numbers: the most frequent first
    counts: Int64[np.ndarray, " V"]  # how often each stands in the text
    ids: Int32[np.ndarray, " T"]
    bounds: Int64[np.ndarray, " S"]  # where each sentence begins, and the last one ends
    total_words: int  # words of the text, the rare ones included

    @property
    def sentences(self) -> int:
        return len(self.bounds) - 1

    @cached_property
    def fingerprint(self) -> str:
        """A hash by which a run knows the text that it was begun with."""
        seen = hashlib.sha256("\n".join(self.words).encode())
        seen.update(self.ids.data)
        seen.update(self.bounds.data)
        return seen.hexdigest()


def split_words(sentence: str, *, lowercase: bool = True) -> list[str]:
    """The words of a sentence, in order."""
    return WORD.findall(sentence.lower() if lowercase else sentence)


def encode_words(sentences: Iterable[str], *, min_count: int = 5, lowercase: bool = True) -> WordIds:
    """Count and number the words of all sentences in one reading; those met fewer than `least` times are dropped."""
    met: defaultdict[str, int] = defaultdict()
    met.default_factory = met.__len__  # a new word gets the next number
    ids, lengths = array("i"), array("i")
    for sentence in sentences:
        found = split_words(sentence, lowercase=lowercase)
        ids.extend(map(met.__getitem__, found))
        lengths.append(len(found))
    return _by_frequency(list(met), np.array(ids, np.int32), np.array(lengths, np.int64), min_count)


def _by_frequency(
    met: list[str], ids: Int32[np.ndarray, " N"], lengths: Int64[np.ndarray, " L"], min_count: int
) -> WordIds:
    """The same text with its words numbered by how often they were met, and without the rare ones."""
    counts = np.bincount(ids, minlength=len(met))
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= min_count]
    if len(order) < 2:
        fact = f"{len(order)} of its {len(met):,} words are met {min_count} times"
        raise TextError("text", fact, "Give it more text, or lower --min-count")
    numbers = np.full(len(met), -1, np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    renumbered = numbers[ids]
    kept = renumbered >= 0
    before = np.concatenate(([0], np.cumsum(kept)))  # words kept before each
    bounds = np.unique(before[np.concatenate(([0], np.cumsum(lengths)))])  # of a sentence without words nothing is left
    return WordIds([met[place] for place in order], counts[order], renumbered[kept], bounds, len(ids))
