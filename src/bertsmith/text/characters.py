"""Character ids of words for a character CNN, so that words out of the vocabulary have vectors, too.

The ids of Peters et al. 2018, in their code: a character is a byte of UTF-8, a word has a begin and an end marker, and
short words are padded to fifty characters. Id 0 is for padding of whole words.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Int16

from bertsmith.text.tokenizer import Tokenizer

FIRST_BYTE = 1  # the id of byte 0
BEGIN_TEXT, END_TEXT, BEGIN_WORD, END_WORD, PADDING = range(FIRST_BYTE + 256, FIRST_BYTE + 261)
CHARACTER_VOCABULARY = PADDING + 1


def encode_characters(words: Sequence[str], max_characters: int) -> Int16[np.ndarray, "W C"]:
    """The character ids of each word between its two markers, truncated and padded to `max_characters`."""
    raw = [word.encode(errors="replace")[: max_characters - 2] for word in words]
    sizes = np.fromiter(map(len, raw), np.int64, len(raw))
    table = np.full((len(raw), max_characters), PADDING, np.int16)
    columns = np.arange(1, max_characters + 1)
    table[columns <= sizes[:, None]] = np.frombuffer(b"".join(raw), np.uint8).astype(np.int16) + FIRST_BYTE
    table[:, 1:] = table[:, :-1].copy()  # one to the right, for the begin marker
    table[:, 0] = BEGIN_WORD
    table[np.arange(len(raw)), sizes + 1] = END_WORD
    return table


def vocabulary_characters(tokenizer: Tokenizer, max_characters: int) -> Int16[np.ndarray, "V C"]:
    """The character ids of every token of a vocabulary; the start and the stop token have characters of their own."""
    table = encode_characters([tokenizer.piece(number) for number in range(tokenizer.vocabulary)], max_characters)
    begin, end = boundary_characters(max_characters)
    table[tokenizer.stop_id] = end
    table[tokenizer.start_id] = begin  # also if start and stop are one token
    return table


def boundary_characters(max_characters: int) -> Int16[np.ndarray, "2 C"]:
    """The character ids of the start and of the stop token."""
    table = encode_characters(["", ""], max_characters)
    table[:, 1:3] = [[BEGIN_TEXT, END_WORD], [END_TEXT, END_WORD]]
    return table


def encode_with_characters(
    tokenizer: Tokenizer, texts: Sequence[str], max_characters: int
) -> list[tuple[list[int], Int16[np.ndarray, "_ C"]]]:
    """The token ids of each text, and the character ids of each token as it stands in the text, known or unknown."""
    found = tokenizer.encode_with_offsets(texts)
    words = [
        tokenizer.normalise(text[start:stop])
        for text, (_, offsets) in zip(texts, found, strict=True)
        for start, stop in offsets
    ]
    ends = np.cumsum([len(ids) for ids, _ in found])
    characters = np.split(encode_characters(words, max_characters), ends[:-1]) if found else []
    return [(ids, table) for (ids, _), table in zip(found, characters, strict=True)]


def encode_words_with_characters(
    tokenizer: Tokenizer, sentences: Sequence[Sequence[str]], max_characters: int
) -> list[tuple[list[int], list[int], Int16[np.ndarray, "_ C"]]]:
    """The same of sentences that are split into words, with the number of each token's word."""
    distinct = list(dict.fromkeys(word for sentence in sentences for word in sentence))
    encoded = dict(zip(distinct, encode_with_characters(tokenizer, distinct, max_characters), strict=True))
    empty = np.zeros((0, max_characters), np.int16)
    rows = []
    for sentence in sentences:
        ids = [number for word in sentence for number in encoded[word][0]]
        word_ids = [number for number, word in enumerate(sentence) for _ in encoded[word][0]]
        rows.append((ids, word_ids, np.concatenate([empty, *(encoded[word][1] for word in sentence)])))
    return rows
