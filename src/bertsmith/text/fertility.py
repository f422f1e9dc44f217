"""Fertility: how many tokens a vocabulary needs for a word of a text, and which words it cuts into many."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bertsmith.text import language
from bertsmith.text.tokenizer import Tokenizer

SAMPLE = 10_000_000  # characters that are measured at most
BATCH = 1_000  # texts encoded at a time
SHOWN = 8  # of the longest and of the rarest pieces


@dataclass(frozen=True, kw_only=True)
class Fertility:
    """What a tokenizer makes of a sample of text."""

    vocabulary: int  # pieces
    words: int  # of the sample, parted by white space; in scripts without spaces characters
    bytes: int
    tokens: int
    unknown: int  # tokens that stand for what no piece could spell
    unused: int  # pieces that the sample never needed
    longest: list[str]  # pieces
    rarest: list[tuple[str, int]]  # pieces that were needed, and how often
    units: str = "words"  # what is counted

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
            "vocabulary": f"{self.vocabulary:,} pieces",
            "measured on": f"{self.words:,} {self.units}, {self.bytes:,} bytes",
            f"tokens per {self.units[:-1]}": f"{self.tokens_per_word:.3f}",
            "bytes per token": f"{self.bytes_per_token:.2f}",
            "unknown": f"{self.unknown_rate:.4%} of tokens",
            "never used": f"{self.unused:,} pieces",
            "longest": "  ".join(self.longest),
            "rarest": "  ".join(f"{piece} ({count})" for piece, count in self.rarest),
        }
        return "\n".join(f"{name:<16} {value}" for name, value in rows.items())


def measure_fertility(tokenizer: Tokenizer, texts: Iterable[str], max_characters: int | None = None) -> Fertility:
    """Encode texts, the first ten million characters of them, and count."""
    words = size = 0
    start = list[str]()  # by which the script is known
    counts = np.zeros(tokenizer.vocabulary, np.int64)
    for batch in batches(texts, max_characters):
        start = start or batch
        words += sum(map(language.count_words, batch))
        size += sum(len(text.encode()) for text in batch)
        counts += token_counts(tokenizer, batch)
    plain = np.flatnonzero(~tokenizer.special_mask)
    used = plain[counts[plain] > 0]
    lengths = {number: len(tokenizer.piece(int(number)).removeprefix("##")) for number in plain}
    longest = sorted(plain, key=lambda number: (-lengths[number], number))[:SHOWN]
    rarest = sorted(used, key=lambda number: (counts[number], number))[:SHOWN]
    return Fertility(
        vocabulary=tokenizer.vocabulary,
        words=words,
        bytes=size,
        tokens=int(counts.sum()),
        unknown=int(counts[tokenizer.unknown_id]),
        unused=len(plain) - len(used),
        longest=[tokenizer.piece(int(number)) for number in longest],
        rarest=[(tokenizer.piece(int(number)), int(counts[number])) for number in rarest],
        units=language.detect_writing(start).units,
    )


def token_counts(tokenizer: Tokenizer, texts: Sequence[str]) -> NDArray[np.int64]:
    """How often texts need each piece."""
    ids = [number for row in tokenizer.encode(texts) for number in row]
    return np.bincount(np.array(ids, np.int64), minlength=tokenizer.vocabulary)


class Sample:
    """Texts on their way elsewhere, of which some are kept: one pass serves both to learn and to measure.

    At first every text is kept; whenever they grow too many, every second one is let go.
    """

    def __init__(self, texts: Iterable[str]) -> None:
        self.kept: list[str] = []
        self.characters = 0  # characters that went by
        self._texts = texts

    def __iter__(self) -> Iterator[str]:
        step, size = 1, 0
        for place, text in enumerate(self._texts):
            self.characters += len(text)
            if place % step == 0:
                self.kept.append(text)
                size += len(text)
                if size > SAMPLE:
                    self.kept, step = self.kept[::2], 2 * step
                    size = sum(map(len, self.kept))
            yield text


def batches(texts: Iterable[str], max_characters: int | None = None) -> Iterator[list[str]]:
    """Texts, up to the number of characters that are measured, so many at a time."""
    batch: list[str] = []
    size, max_characters = 0, SAMPLE if max_characters is None else max_characters
    for text in texts:
        batch.append(text[: max_characters - size])
        size += len(batch[-1])
        if len(batch) == BATCH or size >= max_characters:
            yield batch
            batch = []
        if size >= max_characters:
            return
    if batch:
        yield batch
