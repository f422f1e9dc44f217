"""Masking: choose an exact share of a batch's tokens as targets, and corrupt them.

BERT's 80/10/10 masking: of the chosen tokens 80 % become [MASK], 10 % a random token and 10 % stay as they are. Units
are single tokens, whole words (whole-word masking), spans (span masking, SpanBERT) or up to three words (n-gram
masking, ALBERT).
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from jaxtyping import Bool, Float64, Int32, Int64, UInt64

from bertsmith.data.packing.pack import PackedBatch
from bertsmith.random_bits import TEXT, mix, uniform

SPAN_LENGTH_WEIGHTS = np.cumsum(0.2 * 0.8 ** np.arange(10))  # spans of 1 to 10 tokens: geometric, p = 0.2
NGRAM_LENGTH_WEIGHTS = np.cumsum(1 / np.arange(1, 4))  # cumulative, of n-grams of 1 to 3 words: as 1/n


@dataclass(frozen=True, kw_only=True)
class MaskingConfig:
    """How tokens are masked. Devlin et al. 2018, section 3.1; spans: Joshi et al. 2019; n-grams: Lan et al. 2019."""

    mask_rate: float = 0.15  # share of all tokens that are predicted
    keep_rate: float = 0.1  # share of the predicted tokens that stay as they are
    random_rate: float = 0.1  # share of the predicted tokens that become a random token; the rest: [MASK]
    unit: Literal["token", "word", "span", "gram"] = "token"  # masked as a whole; a gram is up to three words
    static_masks: int = 0  # 0: dynamic masking, anew in every epoch; n: each text has n fixed masks (BERT: 10)

    def __post_init__(self) -> None:
        if not 0 < self.mask_rate < 1:
            raise ValueError(f"mask_rate is {self.mask_rate}. Give a share above 0 and below 1, usually 0.15")
        if not (self.keep_rate >= 0 and self.random_rate >= 0 and self.keep_rate + self.random_rate <= 1):
            fact = f"keep_rate is {self.keep_rate} and random_rate {self.random_rate}"
            raise ValueError(f"{fact}. Give two shares of at most 1 together, usually 0.1 each")
        if self.static_masks < 0:
            raise ValueError(f"static_masks is {self.static_masks}. Give at least 0, usually 0 or 10")


# Validation masks alike whatever a recipe trains with, so that losses compare. All chosen tokens become [MASK]: if some
# stayed as they are, a model that repeats its input would seem better than it is.
VALIDATION_MASKING = MaskingConfig(mask_rate=0.15, keep_rate=0.0, random_rate=0.0)


@dataclass(frozen=True, kw_only=True)
class MaskingVocabulary:
    """The parts of a vocabulary that masking needs."""

    is_continuation: Bool[np.ndarray, "V"]  # whether the token continues a word
    ordinary_ids: Int32[np.ndarray, "N"]  # ids of random replacements: all except special tokens
    mask_id: int

    @classmethod
    def of(
        cls, is_continuation: Bool[np.ndarray, "V"], is_special: Bool[np.ndarray, "V"], mask_id: int
    ) -> "MaskingVocabulary":
        return cls(
            is_continuation=is_continuation, ordinary_ids=np.flatnonzero(~is_special).astype(np.int32), mask_id=mask_id
        )


def mask_tokens(
    packed: PackedBatch, config: MaskingConfig, vocabulary: MaskingVocabulary
) -> tuple[Int32[np.ndarray, "T"], Int64[np.ndarray, "N"], Int64[np.ndarray, "N"]]:
    """The corrupted ids, the chosen positions, and the true tokens there. A pure function.

    A full batch has exactly round(mask_rate * T) chosen positions, so that shapes never change.
    """
    text = np.flatnonzero(packed.corpus_positions >= 0)
    full = packed.real_tokens >= 0.98 * len(packed.ids)
    count = min(round(config.mask_rate * (len(packed.ids) if full else packed.real_tokens)), len(text))
    bits = _random_bits(packed, config)[text]
    fates = bits  # which decide on [MASK], random or kept; the tokens of a span share theirs
    begins = np.diff(text, prepend=-2) > 1  # whether a token is the first of its text
    match config.unit:
        case "token":
            chosen = np.sort(_smallest_first(bits, count))
        case "word":
            chosen = _choose_whole_words(
                bits, np.flatnonzero(begins | ~vocabulary.is_continuation[packed.ids[text]]), count
            )
        case "span":
            chosen, fates = _choose_spans(bits, begins, np.arange(len(bits)), SPAN_LENGTH_WEIGHTS, count)
        case "gram":
            starts = np.flatnonzero(begins | ~vocabulary.is_continuation[packed.ids[text]])
            chosen, fates = _choose_spans(bits, begins, starts, NGRAM_LENGTH_WEIGHTS, count)

    fate, own_bits, chosen = uniform(fates[chosen], 1), bits[chosen], text[chosen]
    masked = fate >= config.keep_rate + config.random_rate
    random = (fate >= config.keep_rate) & ~masked
    ids = packed.ids.copy()
    ids[chosen[masked]] = vocabulary.mask_id
    ids[chosen[random]] = vocabulary.ordinary_ids[
        (uniform(own_bits[random], 2) * len(vocabulary.ordinary_ids)).astype(np.int64)
    ]
    return ids, chosen, packed.ids[chosen].astype(np.int64)


def _random_bits(packed: PackedBatch, config: MaskingConfig) -> UInt64[np.ndarray, "T"]:
    """Sixty-four random bits for each token, from which every random choice about it is derived."""
    if config.static_masks == 0:
        return mix(packed.key, np.arange(len(packed.ids)))
    copy = np.repeat(packed.epochs % config.static_masks, np.diff(packed.bounds))
    return mix(packed.seed, TEXT, copy, packed.corpus_positions)


def _smallest_first(random_bits: UInt64[np.ndarray, "L"], count: int) -> Int64[np.ndarray, "N"]:
    """Positions of the smallest numbers, in order. The low bits become the position: no two are equal."""
    low = np.uint64(0xFF_FFFF)
    keys = random_bits & ~low | np.arange(len(random_bits), dtype=np.uint64)
    few = np.partition(keys, count - 1)[:count] if count else keys[:0]
    return (np.sort(few) & low).astype(np.int64)


def _choose_whole_words(
    random_bits: UInt64[np.ndarray, "L"], begins: Int64[np.ndarray, "M"], count: int
) -> Int64[np.ndarray, "N"]:
    """Whole words in random order while they fit. A word is cut only if none of the others is short enough."""
    lengths, random_bits = np.diff(begins, append=len(random_bits)), random_bits[begins]
    order = _smallest_first(random_bits, min(count, len(begins)))
    fit = int(np.searchsorted(np.cumsum(lengths[order]), count, side="right"))
    taken = np.zeros_like(lengths)
    taken[order[:fit]] = lengths[order[:fit]]
    while left := count - int(taken.sum()):
        short = np.flatnonzero((taken == 0) & (lengths <= left))
        if len(short):
            one = short[np.argmin(random_bits[short])]
            taken[one] = lengths[one]
        else:
            taken[order[fit]] = left
    return np.asarray(np.arange(count) + np.repeat(begins - (np.cumsum(taken) - taken), taken))


def _choose_spans(
    random_bits: UInt64[np.ndarray, "L"],
    starts_text: Bool[np.ndarray, "L"],
    unit_starts: Int64[np.ndarray, "M"],
    cumulative_weights: Float64[np.ndarray, "S"],
    count: int,
) -> tuple[Int64[np.ndarray, "N"], UInt64[np.ndarray, "L"]]:
    """Spans in random order until they cover `count` tokens, the last cut short; and random bits by span.

    A span is a number of units (tokens or words), drawn by `cumulative_weights`: of one unit, of up to two, and so on.
    It ends where its text ends at the latest.
    """
    order = _smallest_first(random_bits[unit_starts], min(count, len(unit_starts)))  # enough even if each is one token
    numbers = 1 + np.searchsorted(
        cumulative_weights[:-1] / cumulative_weights[-1], uniform(random_bits[unit_starts[order]], 3), side="right"
    )
    texts = np.append(np.flatnonzero(starts_text)[1:], len(random_bits))  # where each text ends
    starts, stops = (
        unit_starts[order],
        np.append(unit_starts, len(random_bits))[np.minimum(order + numbers, len(unit_starts))],
    )
    lengths = np.minimum(stops, texts[np.searchsorted(texts, starts, side="right")]) - starts
    covered = np.arange(lengths.sum()) + np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
    first = np.full(len(random_bits), len(covered))
    first[covered[::-1]] = np.arange(len(covered))[::-1]  # its first cover: the last assignment wins
    last = np.partition(first, count - 1)[count - 1] if count else -1
    chosen = np.flatnonzero(first <= last)
    fates = random_bits.copy()
    fates[chosen] = np.repeat(random_bits[starts], lengths)[first[chosen]]
    return chosen, fates
