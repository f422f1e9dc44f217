"""Long texts in parts: the tokenizer library takes 280 bytes per character, so long texts are encoded part by part."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from tokenizers import Tokenizer

MAX_TEXT_CHARACTERS = 16_384  # characters of a text that the library encodes at once
BATCH_PARTS = 16  # parts that are encoded in one batch


def encode(tokenizer: Tokenizer, text: str) -> list[int]:
    """The token ids of a text of any length, without special tokens around it."""
    ids: list[int] = []
    for batch in batches([text]):
        for found in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
            ids += found.ids
    return ids


def encode_with_offsets(tokenizer: Tokenizer, texts: Sequence[str]) -> list[tuple[list[int], list[tuple[int, int]]]]:
    """The token ids of each text, of any length, and the start and end of each token in it."""
    if max(map(len, texts), default=0) > MAX_TEXT_CHARACTERS:
        return [_encode_parts_with_offsets(tokenizer, text) for text in texts]
    return [(one.ids, one.offsets) for one in tokenizer.encode_batch(list(texts), add_special_tokens=False)]


def _encode_parts_with_offsets(tokenizer: Tokenizer, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    ids: list[int] = []
    offsets: list[tuple[int, int]] = []
    before = 0
    for batch in batches([text]):
        found = tokenizer.encode_batch(batch, add_special_tokens=False)
        for part, encoding in zip(batch, found, strict=True):
            ids += encoding.ids
            offsets += [(before + start, before + stop) for start, stop in encoding.offsets]
            before += len(part)
    return ids, offsets


def batches(texts: Iterable[str]) -> Iterator[list[str]]:
    """The parts of texts, in order, a few at a time."""
    parts = (part for text in texts for part in split(text))
    while batch := list(islice(parts, BATCH_PARTS)):
        yield batch


def split(text: str) -> Iterator[str]:
    """Parts of at most MAX_TEXT_CHARACTERS, cut before a single space, where a cut changes no token."""
    start = 0
    while len(text) - start > MAX_TEXT_CHARACTERS:
        stop = start + MAX_TEXT_CHARACTERS
        space = text.rfind(" ", start + 1, stop)
        while space > start and (text[space - 1].isspace() or text[space + 1].isspace()):
            space = text.rfind(" ", start + 1, space)
        stop = space if space > start else stop
        yield text[start:stop]
        start = stop
    yield text[start:]
