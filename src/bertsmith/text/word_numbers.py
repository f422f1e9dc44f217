"""Which word of a text each token belongs to, and which characters: for merging tokens into words on a page."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from bertsmith.errors import TextError
from bertsmith.text.library_errors import wrap_library_errors
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.word_marks import SPACE, shows_word_starts


class NumberedTokens(NamedTuple):
    """The tokens of a text without special tokens around it."""

    ids: list[int]
    spans: list[tuple[int, int]]  # each token's first character, and the first after it
    words: list[int]  # the number of each token's word, from 0


def encode_with_words(tokenizer: Tokenizer, text: str) -> NumberedTokens:
    """The tokens of a text; a word is what the tokenizer splits into tokens."""
    with wrap_library_errors("text", TextError):
        found = tokenizer._inner.encode(text, add_special_tokens=False)
    # A tokenizer that does not split at spaces has one word only: there the tokens show where words begin.
    marked = shows_word_starts(tokenizer._inner)
    begins = ~tokenizer.continuation_mask if marked else np.zeros(tokenizer.vocabulary, np.bool_)
    words: list[int] = []
    for number, (before, word) in zip(found.ids, pairwise([-1, *found.word_ids]), strict=True):
        words.append(words[-1] + int(word != before or begins[number]) if words else 0)
    # The library lets a space that is a token of its own stand for the character after it.
    spans = (
        (start, start if piece == SPACE else end)
        for (start, end), piece in zip(found.offsets, found.tokens, strict=True)
    )
    return NumberedTokens(found.ids, [_without_space(text, *span) for span in spans], words)


def _without_space(text: str, start: int, end: int) -> tuple[int, int]:
    """A span without the space that byte-level BPE and Unigram count as part of a word."""
    while start < end and text[start].isspace():
        start += 1
    return start, end
