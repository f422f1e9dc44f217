"""Rows: sequences of any length, batched by length without padding, with results in the order of the inputs."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Int16
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import Tokens

BATCH_TOKENS = 16_384  # tokens in one pass, by default

R = TypeVar("R")


@dataclass(frozen=True)
class Row:
    """One sequence with its special tokens, and the segment (first or second text) of each token."""

    ids: NDArray[np.int32]
    segments: NDArray[np.int32]
    character_ids: NDArray[np.int16] | None = None  # of each token, for networks that read characters

    def __len__(self) -> int:
        return len(self.ids)


def pack_rows(rows: Sequence[Row]) -> Tokens:
    """Rows laid end to end as a flat batch."""
    tokens = Tokens.from_rows([row.ids for row in rows], [row.segments for row in rows])
    return replace(tokens, character_ids=_character_ids(rows))


def _character_ids(rows: Sequence[Row]) -> Int16[Tensor, "T C"] | None:
    """The character ids of all tokens; zeros for filler."""
    first = next((row.character_ids for row in rows if row.character_ids is not None), None)
    if first is None:
        return None
    parts = [
        np.zeros((len(row), first.shape[1]), np.int16) if row.character_ids is None else row.character_ids
        for row in rows
    ]
    return torch.from_numpy(np.concatenate(parts))


def batch_by_length(lengths: Sequence[int], batch_tokens: int = BATCH_TOKENS) -> Iterator[list[int]]:
    """The rows of each batch: the longest first, so that peak memory comes first; a row over the budget is alone."""
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
    progress: Callable[[int], object] = lambda _: None,
) -> list[R]:
    """The results of `compute` for each row, in the order of the rows; `progress` gets the number of rows done."""
    results: list[R | None] = [None] * len(rows)
    done = 0
    for indices in batch_by_length([len(row) for row in rows], batch_tokens):
        batch = compute(pack_rows([rows[index] for index in indices]).to(device))
        for index, result in zip(indices, batch, strict=True):
            results[index] = result
        done += len(indices)
        progress(done)
    return results  # type: ignore[return-value]
