"""Rows: sequences of any length, computed many at a time without padding, answered in the order they came in."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int16
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import Tokens

BATCH_TOKENS = 16_384  # tokens in one pass, unless told otherwise

R = TypeVar("R")


@dataclass(frozen=True)
class Row:
    """One sequence, special tokens included, and for each token whether it belongs to the second text."""

    ids: NDArray[np.int32]
    segments: NDArray[np.int32]
    character_ids: NDArray[np.int16] | None = None  # how each token is spelt, for networks that read letters

    def __len__(self) -> int:
        return len(self.ids)


def pack_rows(rows: Sequence[Row]) -> Tokens:
    """Rows end to end."""
    lengths = np.fromiter(map(len, rows), np.int32, len(rows))
    bounds = np.zeros(len(rows) + 1, np.int32)
    np.cumsum(lengths, out=bounds[1:])
    longest = int(lengths.max(initial=0))
    return Tokens(
        ids=torch.from_numpy(np.concatenate([row.ids for row in rows])),
        bounds=torch.from_numpy(bounds),
        positions=torch.from_numpy(np.arange(bounds[-1], dtype=np.int32) - np.repeat(bounds[:-1], lengths)),
        max_length=longest,
        segments=torch.from_numpy(np.concatenate([row.segments for row in rows])),
        equal_lengths=bool((lengths == longest).all()),
        character_ids=_character_ids(rows),
    )


def _character_ids(rows: Sequence[Row]) -> Int16[Tensor, "T C"] | None:
    """How all tokens are spelt; filler, which nobody reads, by nothing but noughts."""
    spelt = next((row.character_ids for row in rows if row.character_ids is not None), None)
    if spelt is None:
        return None
    empty = (
        np.zeros((len(row), spelt.shape[1]), np.int16) if row.character_ids is None else row.character_ids
        for row in rows
    )
    return torch.from_numpy(np.concatenate(list(empty)))


def batch_by_length(lengths: Sequence[int], batch_tokens: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """Which rows go together: the longest first, so that memory is known at once, none over the budget but alone."""
    order = np.argsort(-np.asarray(lengths, np.int64), kind="stable")
    ends = np.cumsum(np.asarray(lengths, np.int64)[order])
    start = taken = 0
    while start < len(order):
        stop = max(start + 1, int(np.searchsorted(ends, taken + batch_tokens, side="right")))
        yield order[start:stop].tolist()
        start, taken = stop, int(ends[stop - 1])


def map_rows(
    rows: Sequence[Row],
    compute: Callable[[Tokens], Sequence[R]],
    device: torch.device | str = "cpu",
    batch_tokens: int = BATCH_TOKENS,
) -> list[R]:
    """What `compute` says of each row, in the order of the rows."""
    found: list[R | None] = [None] * len(rows)
    for some in batch_by_length([len(row) for row in rows], batch_tokens):
        results = compute(pack_rows([rows[row] for row in some]).to(device))
        for row, result in zip(some, results, strict=True):
            found[row] = result
    return found  # type: ignore[return-value]
