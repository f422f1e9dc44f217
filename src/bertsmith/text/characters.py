"""Character ids: a word as the characters it is made of, so that one that was never met can be read, too.

Peters et al. 2018, in their code: a letter is a byte of UTF-8, a word stands between two marks of its own, and what is
shorter than fifty letters is filled up. The numbers are theirs; nought is for filler, which nobody reads.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int16

from bertsmith.text.tokenizer import Tokenizer

FIRST_BYTE = 1  # the number of byte 0
BEGIN_TEXT, END_TEXT, BEGIN_WORD, END_WORD, PADDING = range(FIRST_BYTE + 256, FIRST_BYTE + 261)
CHARACTER_VOCABULARY = PADDING + 1  # numbers in all


def encode_characters(words: Sequence[str], max_characters: int) -> Int16[np.ndarray, "W C"]:
    """The letters of each word between its two marks, in all `most` of them; what does not fit is cut off."""
    raw = [word.encode(errors="replace")[: max_characters - 2] for word in words]
    sizes = np.fromiter(map(len, raw), np.int64, len(raw))
    table = np.full((len(raw), max_characters), PADDING, np.int16)
    places = np.arange(1, max_characters + 1)
    table[places <= sizes[:, None]] = np.frombuffer(b"".join(raw), np.uint8).astype(np.int16) + FIRST_BYTE
    table[:, 1:] = table[:, :-1].copy()  # one place back, for the mark before
    table[:, 0] = BEGIN_WORD
    table[np.arange(len(raw)), sizes + 1] = END_WORD
    return table


def vocabulary_characters(tokenizer: Tokenizer, max_characters: int) -> Int16[np.ndarray, "V C"]:
    """The letters of every piece of a vocabulary. What begins a text and what ends it are letters of their own."""
    table = encode_characters([tokenizer.piece(number) for number in range(tokenizer.vocabulary)], max_characters)
    begin, end = boundary_characters(max_characters)
    table[tokenizer.stop_id] = end
    table[tokenizer.start_id] = begin  # of a vocabulary that has one piece for both, it is this one
    return table


def boundary_characters(max_characters: int) -> Int16[np.ndarray, "2 C"]:
    """How what begins a text is spelt, and what ends it."""
    marks = encode_characters(["", ""], max_characters)
    marks[:, 1:3] = [[BEGIN_TEXT, END_WORD], [END_TEXT, END_WORD]]
    return marks


def encode_with_characters(
    tokenizer: Tokenizer, texts: Sequence[str], max_characters: int
) -> list[tuple[list[int], Int16[np.ndarray, "_ C"]]]:
    """The pieces of each text, and the letters that each of them has in the text, be it known or not."""
    found = tokenizer.encode_with_offsets(texts)
    words = [tokenizer.normalise(text[a:b]) for text, (_, places) in zip(texts, found, strict=True) for a, b in places]
    ends = np.cumsum([len(ids) for ids, _ in found])
    letters = np.split(encode_characters(words, max_characters), ends[:-1]) if found else []
    return [(ids, one) for (ids, _), one in zip(found, letters, strict=True)]


def encode_words_with_characters(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], max_characters: int
) -> list[tuple[list[int], list[int], Int16[np.ndarray, "_ C"]]]:
    """The same of sentences whose words are known, with the number of the word that each piece belongs to."""
    different = list(dict.fromkeys(word for sentence in sentences for word in sentence))
    known = dict(zip(different, encode_with_characters(tokenizer, different, max_characters), strict=True))
    none = np.zeros((0, max_characters), np.int16)
    found = []
    for sentence in sentences:
        ids = [number for word in sentence for number in known[word][0]]
        owners = [place for place, word in enumerate(sentence) for _ in known[word][0]]
        found.append((ids, owners, np.concatenate([none, *(known[word][1] for word in sentence)])))
    return found
