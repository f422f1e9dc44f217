"""Fertility: the number of tokens per word, and how the vocabulary is used."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.text import language
from bertsmith.text.tokenizer import Tokenizer

FERTILITY_CHARACTERS = 10_000_000  # characters that are measured
BATCH_TEXTS = 1_000  # texts encoded at a time
EXAMPLE_TOKENS = 8  # examples of the longest and of the rarest tokens


@dataclass(frozen=True, kw_only=True)
class Fertility:
    """Statistics of a tokenizer on a sample of text."""

    vocabulary: int  # size
    words: int  # of the sample, split at white space; characters in scripts without spaces
    bytes: int
    tokens: int
    unknown: int  # unknown tokens
    unused: int  # tokens of the vocabulary that do not occur
    longest: list[str]  # tokens
    rarest: list[tuple[str, int]]  # tokens that occur, with their counts
    units: str = "words"  # or characters

    @property
    def tokens_per_word(self) -> float:
        return self.tokens / max(self.words, 1)

    @property
    def unknown_rate(self) -> float:
        return self.unknown / max(self.tokens, 1)

    @property
    def bytes_per_token(self) -> float:
        return self.bytes / max(self.tokens, 1)

    def __str__(self) -> str:
        rows = {
            "vocabulary": f"{self.vocabulary:,} tokens",
            "measured on": f"{self.words:,} {self.units}, {self.bytes:,} bytes",
            f"tokens per {self.units[:-1]}": f"{self.tokens_per_word:.3f}",
            "bytes per token": f"{self.bytes_per_token:.2f}",
            "unknown": f"{self.unknown_rate:.4%} of tokens",
            "not in sample": f"{self.unused:,} tokens",
            "longest": "  ".join(self.longest),
            "rarest": "  ".join(f"{piece} ({count})" for piece, count in self.rarest),
        }
        return "\n".join(f"{name:<16} {value}" for name, value in rows.items())


def measure_fertility(tokenizer: Tokenizer, texts: Iterable[str], max_characters: int | None = None) -> Fertility:
    """The fertility on the first ten million characters of texts."""
    words = size = 0
    first = list[str]()  # texts by which the script is detected
    counts = np.zeros(tokenizer.vocabulary, np.int64)
    for batch in batches(texts, max_characters):
        first = first or batch
        words += sum(map(language.count_words, batch))
        size += sum(len(text.encode()) for text in batch)
        counts += token_counts(tokenizer, batch)
    plain = np.flatnonzero(~tokenizer.special_mask)
    used = plain[counts[plain] > 0]
    lengths = {number: len(tokenizer.piece(int(number)).removeprefix("##")) for number in plain}
    longest = sorted(plain, key=lambda number: (-lengths[number], number))[:EXAMPLE_TOKENS]
    rarest = sorted(used, key=lambda number: (counts[number], number))[:EXAMPLE_TOKENS]
    return Fertility(
        vocabulary=tokenizer.vocabulary,
        words=words,
        bytes=size,
        tokens=int(counts.sum()),
        unknown=int(counts[tokenizer.roles["unknown"]]) if "unknown" in tokenizer.roles else 0,
        unused=len(plain) - len(used),
        longest=[tokenizer.piece(int(number)) for number in longest],
        rarest=[(tokenizer.piece(int(number)), int(counts[number])) for number in rarest],
        units=language.detect_writing(first).units,
    )


def token_counts(tokenizer: Tokenizer, texts: Sequence[str]) -> NDArray[np.int64]:
    """How often each token occurs in texts."""
    ids = [number for row in tokenizer.encode(texts) for number in row]
    return np.bincount(np.array(ids, np.int64), minlength=tokenizer.vocabulary)


class Sample:
    """An iterator over texts that keeps a sample of them, so that one pass both trains and measures.

    At first every text is kept; whenever the sample grows too large, every second text is dropped.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.kept: list[str] = []
        self.characters = 0  # of all texts
        self._texts = texts

    def __iter__(self) -> Iterator[str]:
        step, size = 1, 0
        for number, text in enumerate(self._texts):
            self.characters += len(text)
            if number % step == 0:
                self.kept.append(text)
                size += len(text)
                if size > FERTILITY_CHARACTERS:
                    self.kept, step = self.kept[::2], 2 * step
                    size = sum(map(len, self.kept))
            yield text


def batches(texts: Iterable[str], max_characters: int | None = None) -> Iterator[list[str]]:
    """Batches of texts, up to a number of characters."""
    batch: list[str] = []
    size, max_characters = 0, FERTILITY_CHARACTERS if max_characters is None else max_characters
    for text in texts:
        batch.append(text[: max_characters - size])
        size += len(batch[-1])
        if len(batch) == BATCH_TEXTS or size >= max_characters:
            yield batch
            batch = []
        if size >= max_characters:
            return
    if batch:
        yield batch
