"""Tiling: sequences of one length in runs whose tiles an attention kernel reads in place, without padding or a copy."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int
from torch import Tensor

from bertsmith.nn.attention import Kernel
from bertsmith.nn.window import FULL, Window

# Keys of a tile: what exceeds a multiple of a CPU's vectors is computed one number at a time, so that it can be faster
# to read some keys of the next sequence, too, and mask them. Of long sequences only where many are left over: 197
# tokens, as of an image in 14 x 14 patches, are fastest as they are. Measured by bench/images.py.
KEY_MULTIPLE = 32  # of tiles of up to twice as many keys
LONG_KEY_MULTIPLE = 16  # of longer ones, if more than half of it is left over


@dataclass(frozen=True)
class Run:
    """Consecutive sequences of one length, cut into tiles of one sequence, or of several short ones."""

    start: int  # its first token
    tiles: int
    sequences_per_tile: int
    length: int
    key_length: int  # keys that a tile reads from its own start on; those of the next sequence are masked

    def attend(self, query: Tensor, key: Tensor, value: Tensor, window: Window, dropout: float) -> Tensor:
        """Attention within each sequence of the run, of tokens that are sorted by length."""
        # A weight of 0 times any finite number is 0: only inf and nan of a sequence could reach the one before it.
        size = self.sequences_per_tile * self.length
        causal = window.causal and self.sequences_per_tile == 1  # keys after a sequence are masked as its future
        # Large masks are not cached.
        make = tile_mask if window.full or self.sequences_per_tile > 1 else tile_mask.__wrapped__
        mask = None if causal else make(self.sequences_per_tile, self.length, self.key_length, query.dtype, window)
        queries = strided_tiles(query, self, size)
        keys, values = (strided_tiles(part, self, self.key_length) for part in (key, value))
        attended = F.scaled_dot_product_attention(queries, keys, values, mask, dropout, is_causal=causal)
        return attended.transpose(1, 2).flatten(0, 1)


@dataclass(eq=False)
class Tiled(Kernel):
    """Torch's own attention on sequences where they lie: on a CPU, without gradients."""

    runs: tuple[Run, ...]
    tokens: Int[Tensor, "T"] | None = None  # the token at each position of the runs, unless they lie there already
    slots: Int[Tensor, "T"] | None = None  # the position in the runs of each token

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
        if not self.runs:
            return query  # every sequence is empty
        if self.tokens is not None:
            query, key, value = (part.index_select(0, self.tokens) for part in (query, key, value))
        attended = [run.attend(query, key, value, self.window, dropout) for run in self.runs]
        joined = attended[0] if len(attended) == 1 else torch.cat(attended)
        return joined if self.slots is None else joined.index_select(0, self.slots)


def tile_by_length(bounds: Tensor, window: Window = FULL) -> Tiled:
    """Sequences by length, the longest first, as callers that sort do; empty sequences are left out."""
    ends = bounds.numpy().astype(np.int64)
    starts, lengths = ends[:-1], np.diff(ends)
    total = int(ends[-1])
    order = np.argsort(-lengths, kind="stable")
    order = order[: np.count_nonzero(lengths)]
    sizes = lengths[order]
    sorted_starts = np.cumsum(sizes) - sizes
    runs: list[Run] = []
    edges = np.flatnonzero(np.diff(sizes, prepend=0, append=0)).tolist()  # where one run ends and the next begins
    for first, stop in pairwise(edges):
        length, start, rows = int(sizes[first]), int(sorted_starts[first]), stop - first
        per_tile = min(max(1, KEY_MULTIPLE // length), rows)
        size = per_tile * length
        key_length = padded_keys(size)
        # The keys of the last tiles might extend past the last token: their sequences become tiles of their own.
        tiles = max(0, min(rows // per_tile, (total - start - key_length) // size + 1))
        if tiles:
            runs.append(Run(start, tiles, per_tile, length, key_length))
        if rest := rows - tiles * per_tile:
            runs.append(Run(start + tiles * size, rest, 1, length, length))
    if (starts[order] == sorted_starts).all():
        return Tiled(tuple(runs), window=window)
    tokens = np.repeat(starts[order] - sorted_starts, sizes) + np.arange(total)
    slots = np.empty(total, np.int64)
    slots[tokens] = np.arange(total)
    return Tiled(tuple(runs), torch.from_numpy(tokens), torch.from_numpy(slots), window=window)


def padded_keys(size: int) -> int:
    """The keys that a tile of this size reads."""
    if size <= 2 * KEY_MULTIPLE:
        return -(-size // KEY_MULTIPLE) * KEY_MULTIPLE
    rest = size % LONG_KEY_MULTIPLE
    return size + LONG_KEY_MULTIPLE - rest if rest > LONG_KEY_MULTIPLE // 2 else size


def strided_tiles(part: Tensor, run: Run, length: int) -> Tensor:
    """The first `length` tokens from the start of each tile of a run: B H L K, without a copy."""
    token, head, number = part.stride()
    shape = (run.tiles, part.shape[1], length, part.shape[2])
    strides = (run.sequences_per_tile * run.length * token, head, token, number)
    return part.as_strided(shape, strides, part.storage_offset() + run.start * token)


@lru_cache(4096)
def tile_mask(
    sequences_per_tile: int, length: int, key_length: int, dtype: torch.dtype, window: Window
) -> Tensor | None:
    """The mask that is added to a tile's scores: 0 within each sequence and its window, minus infinity elsewhere."""
    if sequences_per_tile == 1 and length == key_length and window.full:
        return None
    with torch.inference_mode(False):
        one = sequences_per_tile == 1 and window.full  # the same row for all tokens
        rows = torch.arange(1 if one else sequences_per_tile * length)
        own = rows[:, None] // length == torch.arange(key_length) // length
        own = own & window.mask(len(rows), key_length)
        return torch.zeros(own.shape, dtype=dtype).masked_fill(~own, -torch.inf)
