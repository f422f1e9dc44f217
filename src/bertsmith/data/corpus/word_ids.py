"""Word ids for word2vec: every word of a text as its id, by frequency, without rare words, sentence by sentence.

A word is a run of letters, digits and underscores, with apostrophes inside: `don't` is one, `state-of-the-art` four.
Combining marks, as the vowels of Hindi, Tamil and Hebrew and decomposed accents, belong to the letter before them.
Punctuation is no word. The ids are held in memory, four bytes for each word of the text; the text itself is not.
"""

import hashlib
import re
import unicodedata
from array import array
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Int32, Int64

from bertsmith.errors import TextError

# `\w` has no combining marks; joiners stand inside words of Persian, Hindi and Sinhala.
MARKS = "".join(mark for mark in map(chr, range(0x300, 0xFFFF)) if unicodedata.category(mark) in ("Mn", "Mc"))
_RUN = rf"\w(?:[\w{MARKS}]|[\u200c\u200d](?=\w))*"
CORPUS_WORD = re.compile(rf"{_RUN}(?:['’]{_RUN})*")
ASCII_WORD = re.compile(r"\w+(?:'\w+)*")  # the same, faster


@dataclass(frozen=True)
class WordIds:
    """A text as the ids of its words, sentence after sentence."""

    words: list[str]  # by id: the most frequent first
    counts: Int64[np.ndarray, " V"]  # occurrences of each word
    ids: Int32[np.ndarray, " T"]
    bounds: Int64[np.ndarray, " S"]  # where each sentence begins, and the last one ends
    total_words: int  # words of the text, rare ones included

    @property
    def sentences(self) -> int:
        return len(self.bounds) - 1

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the text, by which a resumed run recognises it."""
        digest = hashlib.sha256("\n".join(self.words).encode())
        digest.update(self.ids.data)
        digest.update(self.bounds.data)
        return digest.hexdigest()


def split_words(sentence: str, *, lowercase: bool = True) -> list[str]:
    """The words of a sentence, in order."""
    return (ASCII_WORD if sentence.isascii() else CORPUS_WORD).findall(sentence.lower() if lowercase else sentence)


def encode_words(sentences: Iterable[str], *, min_count: int = 5, lowercase: bool = True) -> WordIds:
    """The word ids of all sentences, in one reading; words with fewer than `min_count` occurrences are dropped."""
    vocabulary: defaultdict[str, int] = defaultdict()
    vocabulary.default_factory = vocabulary.__len__  # a new word gets the next id
    ids, lengths = array("i"), array("i")
    for sentence in sentences:
        words = split_words(sentence, lowercase=lowercase)
        ids.extend(map(vocabulary.__getitem__, words))
        lengths.append(len(words))
    return _by_frequency(list(vocabulary), np.array(ids, np.int32), np.array(lengths, np.int64), min_count)


def _by_frequency(
    words: list[str], ids: Int32[np.ndarray, " N"], lengths: Int64[np.ndarray, " L"], min_count: int
) -> WordIds:
    """The same text with ids by frequency, without rare words."""
    counts = np.bincount(ids, minlength=len(words))
    order = np.argsort(-counts, kind="stable")
    order = order[counts[order] >= min_count]
    if len(order) < 2:
        fact = f"{len(order)} of its {len(words):,} words occur {min_count} times"
        raise TextError("text", fact, "Give it more text, or lower --min-count")
    new_ids = np.full(len(words), -1, np.int32)
    new_ids[order] = np.arange(len(order), dtype=np.int32)
    renumbered = new_ids[ids]
    frequent = renumbered >= 0
    before = np.concatenate(([0], np.cumsum(frequent)))  # frequent words before each word
    bounds = np.unique(before[np.concatenate(([0], np.cumsum(lengths)))])  # sentences without words vanish
    return WordIds([words[old] for old in order], counts[order], renumbered[frequent], bounds, len(ids))
