"""Bin packing: sequences into batches of a fixed number of tokens, with hardly a gap left at the end of each."""

from itertools import product

import numpy as np

from bertsmith.data.packing.sequences import Int64Array

# How many of a batch's last sequences may be swapped, and with how many of the next: a quick look, then a search.
SWAP_WINDOWS = ((1, 128), (16, 256))


def pack_by_splitting(
    lengths: Int64Array, tokens: int, max_sequences: int, min_tokens: int = 1
) -> tuple[Int64Array, Int64Array]:
    """Batches by splitting: the sequence that does not fit any more is cut in two, each half a sequence.

    Returns the first sequence of each batch, and how many of its text tokens are in the batch before; one entry more
    than there are batches. No batch has more than `max_sequences` sequences, and no cut leaves fewer than `min_tokens`
    text tokens before it. The gap of the last batch is spread over all batches.
    """
    ends = np.cumsum(lengths)
    count, total = len(lengths), int(ends[-1])
    batches = -(-total // (tokens - 2))  # a cut costs two special tokens
    begins, offsets = [0], [0]
    row, offset = 0, 0
    while row < count:
        done = (int(ends[row - 1]) if row else 0) + offset
        share = -(-(total - done) // max(1, batches + 1 - len(begins)))
        room = min(tokens, max(share, min_tokens) + 2)
        after = min(int(ends.searchsorted(done + room, side="right")), row + max_sequences)
        gap = done + room - (int(ends[after - 1]) if after > row else done)
        cuttable = after < count and after < row + max_sequences and gap >= min_tokens + 2
        offset = (offset if after == row else 0) + gap - 2 if cuttable else 0
        row = after
        begins.append(row)
        offsets.append(offset)
    return np.array(begins), np.array(offsets)


def pack_by_swapping(
    lengths: Int64Array, slack: Int64Array, tokens: int, max_sequences: int
) -> tuple[Int64Array, Int64Array]:
    """Batches of whole sequences: one of a batch's last is swapped with a later one, so that the lengths add up.

    Returns the order of the sequences, and the index in it where each batch begins; one entry more than there are
    batches. A batch may be too long by the slack of its sequences, and has at most `max_sequences` of them.
    """
    order, lengths, least = np.arange(len(lengths)), lengths.copy(), lengths - slack
    ends, least_ends = np.cumsum(lengths), np.cumsum(least)
    count, total = len(lengths), int(ends[-1])
    good = max(1, tokens // 1024)
    batches = -(-total // (tokens - good))
    begins = [0]
    row = 0
    while row < count:
        done, least_done = (int(ends[row - 1]), int(least_ends[row - 1])) if row else (0, 0)
        want = done + -(-(total - done) // max(1, batches + 1 - len(begins)))
        over = min(int(ends.searchsorted(want)) + 1, row + max_sequences, count)
        fits = min(int(least_ends.searchsorted(least_done + tokens, side="right")), over)
        best = (abs(int(ends[fits - 1]) - want), fits, fits, fits)
        for (back, ahead), after in product(SWAP_WINDOWS, (over, max(over - 1, row + 1))):
            if best[0] <= good or after == count:
                break
            near, far = slice(max(row, after - back), after), slice(after, after + ahead)
            misses = np.abs(lengths[far] - (lengths[near, None] + (want - ends[after - 1])))
            misses[least[far] - least[near, None] > least_done + tokens - least_ends[after - 1]] = total
            one, other = divmod(int(misses.argmin()), misses.shape[1])
            best = min(best, (int(misses[one, other]), after, near.start + one, after + other))
        _, row, left, right = best
        if left < right:
            ends[left:right] += lengths[right] - lengths[left]
            least_ends[left:right] += least[right] - least[left]
            _swap(left, right, order, lengths, least)
        begins.append(row)
    _balance(order, lengths, least, np.array(begins), tokens)
    return order, np.array(begins)


def _balance(
    order: Int64Array, lengths: Int64Array, least: Int64Array, begins: Int64Array, tokens: int, last: int = 32
) -> None:
    """Swap sequences among the last batches, which had few to choose from, until all are near the mean."""
    begins = begins[-last - 1 :]
    rows = np.arange(begins[0], begins[-1])
    owner = np.repeat(np.arange(len(begins) - 1), np.diff(begins))
    for _ in range(4 * last):
        off = np.bincount(owner, lengths[rows])
        off -= off.mean()
        room = tokens - np.bincount(owner, least[rows])
        worst = int(np.argmax(np.abs(off)))
        mine = rows[owner == worst][: SWAP_WINDOWS[-1][0], None]
        change, least_change = lengths[rows] - lengths[mine], least[rows] - least[mine]
        gain = change * (off[owner] - off[worst] - change)
        gain[(least_change > room[worst]) | (-least_change > room[owner])] = 0
        one, other = divmod(int(np.argmax(gain)), len(rows))
        if abs(off[worst]) <= tokens // 1024 or gain[one, other] <= 0:
            break
        _swap(int(mine[one, 0]), int(rows[other]), order, lengths, least)


def _swap(one: int, other: int, *columns: Int64Array) -> None:
    for column in columns:
        column[one], column[other] = column[other], column[one]
