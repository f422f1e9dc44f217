"""Masking: choose an exact share of a batch's tokens, and corrupt them so that they can be predicted.

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

SPAN_LENGTH_WEIGHTS = np.cumsum(0.2 * 0.8 ** np.arange(10))  # of spans of one token, of up to two, ... of up to ten
NGRAM_LENGTH_WEIGHTS = np.cumsum(1 / np.arange(1, 4))  # of one word, of up to two, of up to three


@dataclass(frozen=True, kw_only=True)
class MaskingConfig:
    """What is hidden, and how. Devlin et al. 2018, section 3.1; spans: Joshi et al. 2019; grams: Lan et al. 2019."""

    mask_rate: float = 0.15  # of all tokens
    keep_rate: float = 0.1  # of the chosen: left as they are
    random_rate: float = 0.1  # of the chosen: replaced by any token
    unit: Literal["token", "word", "span", "gram"] = "token"  # what is chosen as a whole; a gram is up to three words
    static_masks: int = 0  # 0: chosen anew at every visit; n: each text has n ways to be hidden, as in 2018 (n = 10)


@dataclass(frozen=True, kw_only=True)
class MaskingVocabulary:
    """What hiding must know of a vocabulary."""

    is_continuation: Bool[np.ndarray, "V"]  # the piece goes on with a word
    ordinary_ids: Int32[np.ndarray, "N"]  # ids that may replace others: all but the special ones
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
    """The ids with some covered, which positions were chosen, and the true tokens there. A pure function.

    A full batch has exactly round(rate * T) chosen positions, so that shapes never change.
    """
    text = np.flatnonzero(packed.corpus_positions >= 0)
    full = packed.real_tokens >= 0.98 * len(packed.ids)
    count = min(round(config.mask_rate * (len(packed.ids) if full else packed.real_tokens)), len(text))
    words = _random_bits(packed, config)[text]
    fates = words  # what becomes of each; the tokens of a span share theirs
    begins = np.diff(text, prepend=-2) > 1  # whether a token follows no other
    match config.unit:
        case "token":
            chosen = np.sort(_smallest_first(words, count))
        case "word":
            chosen = _choose_whole_words(
                words, np.flatnonzero(begins | ~vocabulary.is_continuation[packed.ids[text]]), count
            )
        case "span":
            chosen, fates = _choose_spans(words, begins, np.arange(len(words)), SPAN_LENGTH_WEIGHTS, count)
        case "gram":
            starts = np.flatnonzero(begins | ~vocabulary.is_continuation[packed.ids[text]])
            chosen, fates = _choose_spans(words, begins, starts, NGRAM_LENGTH_WEIGHTS, count)

    fate, word, chosen = uniform(fates[chosen], 1), words[chosen], text[chosen]
    masked = fate >= config.keep_rate + config.random_rate
    random = (fate >= config.keep_rate) & ~masked
    ids = packed.ids.copy()
    ids[chosen[masked]] = vocabulary.mask_id
    ids[chosen[random]] = vocabulary.ordinary_ids[
        (uniform(word[random], 2) * len(vocabulary.ordinary_ids)).astype(np.int64)
    ]
    return ids, chosen, packed.ids[chosen].astype(np.int64)


def _random_bits(packed: PackedBatch, config: MaskingConfig) -> UInt64[np.ndarray, "T"]:
    """Sixty-four random bits for each token, from which all else about it follows."""
    if config.static_masks == 0:
        return mix(packed.key, np.arange(len(packed.ids)))
    copy = np.repeat(packed.epochs % config.static_masks, np.diff(packed.bounds))
    return mix(packed.seed, TEXT, copy, packed.corpus_positions)


def _smallest_first(random_bits: UInt64[np.ndarray, "L"], count: int) -> Int64[np.ndarray, "N"]:
    """Where the smallest are, the smallest first. The low bits give way to the place, so that no two are equal."""
    low = np.uint64(0xFF_FFFF)
    keys = random_bits & ~low | np.arange(len(random_bits), dtype=np.uint64)
    few = np.partition(keys, count - 1)[:count] if count else keys[:0]
    return (np.sort(few) & low).astype(np.int64)


def _choose_whole_words(
    random_bits: UInt64[np.ndarray, "L"], begins: Int64[np.ndarray, "M"], count: int
) -> Int64[np.ndarray, "N"]:
    """Whole words in random order while they fit; one is cut only if none that is short enough is left."""
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
    """Spans in random order until they cover enough, the last cut short; and for each token the word of its span.

    `units` says where what is counted begins, `shares` how many there are of spans of one unit, of up to two and so on.
    A span ends where its text ends.
    """
    order = _smallest_first(random_bits[unit_starts], min(count, len(unit_starts)))  # as many as could be needed
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
    first[covered[::-1]] = np.arange(len(covered))[::-1]  # where each is first covered: what is written last stays
    last = np.partition(first, count - 1)[count - 1] if count else -1
    chosen = np.flatnonzero(first <= last)
    fates = random_bits.copy()
    fates[chosen] = np.repeat(random_bits[starts], lengths)[first[chosen]]
    return chosen, fates
