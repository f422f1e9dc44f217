"""Pairs of texts for next-sentence prediction (NSP) and sentence-order prediction (SOP).

NSP (Devlin et al. 2018, section 3.1): half of the second texts come from another document. SOP (Lan et al. 2019,
section 3.1): half of the pairs are swapped.
"""

from typing import Literal

import numpy as np

from bertsmith.data.packing.sequences import Int32Array, Int64Array
from bertsmith.errors import TextError
from bertsmith.random_bits import RANDOM_SECOND, mix, uniform

Pairs = Literal["none", "nsp", "sop"]

RANDOM_SECOND_ATTEMPTS = 4  # to draw a random second text that fits


def no_pairs_error() -> TextError:
    """The error for a corpus whose documents are all of one sentence."""
    return TextError(
        "corpus",
        "no document has two sentences, but it takes two that follow each other to make a pair",
        'Put blank lines only between documents, or set pairs = "none"',
    )


def random_seconds(
    units: Int64Array,
    wanted: Int64Array,
    first_lengths: Int32Array,
    epochs: Int32Array,
    *,
    unit_starts: Int64Array,
    document_starts: Int64Array,
    true_lengths: Int64Array,
    max_text_tokens: int,
    seed: int,
) -> tuple[Int64Array, Int64Array]:
    """Random second texts of NSP, from other documents than the first texts' units: starts and lengths.

    Each is about as long as the true second text could have been (`wanted`), or, where 0 is wanted, as one of the
    lengths of true second texts, so that lengths do not give the label away.
    """
    key, room = mix(seed, RANDOM_SECOND, epochs), max_text_tokens - first_lengths.astype(np.int64)
    usual = true_lengths[(uniform(key, units) * len(true_lengths)).astype(np.int64)]
    wanted = np.where(wanted > 0, wanted, np.minimum(usual, room))
    home = np.searchsorted(document_starts, units, side="right")
    begin, own = document_starts[home - 1], document_starts[home] - document_starts[home - 1]
    other, rows = np.empty_like(units), np.arange(len(units))
    for attempt in range(
        RANDOM_SECOND_ATTEMPTS
    ):  # a unit too long for the room is drawn anew: cutting it would give the label away
        draw = (uniform(key[rows], units[rows], attempt) * (len(unit_starts) - 1 - own[rows])).astype(np.int64)
        other[rows] = draw + own[rows] * (draw >= begin[rows])  # any unit except the document's own
        rows = rows[unit_starts[other[rows] + 1] - unit_starts[other[rows]] > room[rows]]

    order = np.argsort(other)  # sorted indices are looked up ten times as fast
    other, wanted, room = other[order], wanted[order], room[order]
    home = np.searchsorted(document_starts, other, side="right")
    begin, stop = document_starts[home - 1], document_starts[home]
    late = np.flatnonzero(unit_starts[stop] - unit_starts[other] < wanted)  # begin earlier, or they would be shorter
    other[late] = np.clip(nearest_unit(unit_starts, unit_starts[stop[late]] - wanted[late]), begin[late], other[late])
    end = np.clip(nearest_unit(unit_starts, unit_starts[other] + wanted), other + 1, stop)
    end -= (unit_starts[end] - unit_starts[other] > room) & (end > other + 1)
    starts, lengths = np.empty_like(units), np.empty_like(units)
    starts[order] = unit_starts[other]
    lengths[order] = np.minimum(unit_starts[end] - unit_starts[other], room)
    return starts, lengths


def nearest_unit(unit_starts: Int64Array, positions: Int64Array) -> Int64Array:
    """The unit that begins nearest to each position."""
    after = np.clip(np.searchsorted(unit_starts, positions), 1, len(unit_starts) - 1)
    return np.asarray(after - (positions - unit_starts[after - 1] < unit_starts[after] - positions))
