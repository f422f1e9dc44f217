"""A batch: one flat run of tokens, with bounds that say where each sequence begins. Nothing is padded."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import torch
from jaxtyping import Bool, Int, Shaped
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Sequences laid end to end. Only attention, pooling and recurrence look at the bounds."""

    ids: Int[Tensor, "T"]
    bounds: Int[Tensor, "ends"]  # int32 [B + 1]: where each sequence begins, then the end; empty sequences may close it
    positions: Int[Tensor, "T"]  # each token's place in its own sequence
    max_length: int  # no sequence is longer than this
    segments: Int[Tensor, "T"] | None = None  # 0 in the first text of a pair, 1 in the second
    equal_lengths: bool = False  # every sequence has exactly `longest` tokens
    character_ids: Int[Tensor, "T C"] | None = (
        None  # how each is spelt, where a network is to read words it has never met
    )

    @classmethod
    def from_rows(cls, rows: Sequence[Sequence[int]], segments: Sequence[Sequence[int]] | None = None) -> "Tokens":
        """Lay rows of ids end to end."""
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int32)
        bounds = torch.zeros(len(rows) + 1, dtype=torch.int32)
        torch.cumsum(lengths, 0, out=bounds[1:])
        longest = int(lengths.max()) if len(rows) else 0
        return cls(
            ids=_flat(rows),
            bounds=bounds,
            positions=torch.cat([torch.arange(len(row), dtype=torch.int32) for row in rows]),
            max_length=longest,
            segments=None if segments is None else _flat(segments),
            equal_lengths=bool((lengths == longest).all()),
        )

    def to(self, device: torch.device | str) -> "Tokens":
        moved: Tokens = _to_device(self, device)
        return moved


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Tokens, what to guess about them, and how many guesses each loss is a sum of."""

    tokens: Tokens
    decoder_tokens: Tokens | None = (
        None  # what a second network is given to write, each token behind those it guesses from
    )
    target_positions: Int[Tensor, "N"] | None = None  # positions whose true token is to be guessed
    targets: Int[Tensor, "N"] | None = None  # the true tokens there; or a tag for every token, -100 where none is
    random_bits: Int[Tensor, "N 2"] | None = None  # chance: random bits for each chosen position, where words are drawn
    text_mask: Bool[Tensor, "T"] | None = None  # which tokens are text, where all of them are asked about
    negatives: Int[Tensor, "S"] | None = None  # words drawn to be told from the true ones, instead of all
    labels: Shaped[Tensor, "B ..."] | None = None  # one per sequence, or group of them; -100 or nan where there is none
    causal: "Batch | None" = None  # more text, which is read looking only back, where both ways are learnt
    counts: dict[str, int] = field(default_factory=dict)  # by the name of the loss term

    def to(self, device: torch.device | str) -> "Batch":
        moved: Batch = _to_device(self, device)
        return moved


def _flat(rows: Sequence[Sequence[int]]) -> Tensor:
    return torch.tensor([token for row in rows for token in row], dtype=torch.int32)


def _to_device(record: Any, device: torch.device | str) -> Any:
    """The same record with every tensor on the device; pinned tensors travel without waiting."""
    moved = {
        part.name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value.to(device)
        for part in fields(record)
        if isinstance(value := getattr(record, part.name), Tensor | Tokens | Batch)
    }
    return replace(record, **moved)
