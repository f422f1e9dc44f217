"""A batch: one flat sequence of tokens, with the bounds of the sequences in it. Nothing is padded."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Int, Int32, Int64, Shaped
from numpy.typing import NDArray
from torch import Tensor

Ids = Sequence[int] | NDArray[np.int32]  # of the tokens of one sequence


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Sequences laid end to end. Only attention, pooling and recurrence use the bounds."""

    ids: Int[Tensor, "T"]
    bounds: Int[Tensor, "ends"]  # int32 [B + 1]: where each sequence begins, and the end; the last ones may be empty
    positions: Int[Tensor, "T"]  # each token's position in its sequence
    max_length: int  # no sequence is longer than this
    segments: Int[Tensor, "T"] | None = None  # 0 in the first text of a pair, 1 in the second
    equal_lengths: bool = False  # every sequence has exactly `max_length` tokens
    character_ids: Int[Tensor, "T C"] | None = None  # of each token, for networks that read characters (ELMo)

    @classmethod
    def from_rows(cls, rows: Sequence[Ids], segments: Sequence[Ids] | None = None) -> "Tokens":
        """Rows of ids laid end to end."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        bounds, positions = end_to_end(lengths)
        longest = int(lengths.max(initial=0))
        return cls(
            ids=_flat(rows),
            bounds=torch.from_numpy(bounds),
            positions=torch.from_numpy(positions),
            max_length=longest,
            segments=None if segments is None else _flat(segments),
            equal_lengths=bool((lengths == longest).all()),
        )

    def to(self, device: torch.device | str) -> "Tokens":
        moved: Tokens = _to_device(self, device)
        return moved


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Tokens, their targets, and the number of targets that each loss is summed over."""

    tokens: Tokens
    decoder_tokens: Tokens | None = None  # input of the decoder: the target text shifted right
    target_positions: Int[Tensor, "N"] | None = None  # positions whose true token is predicted
    targets: Int[Tensor, "N"] | None = None  # the true tokens there; or a tag for every token, -100 for none
    random_bits: Int[Tensor, "N 2"] | None = None  # for each target position, where tokens are sampled (ELECTRA)
    text_mask: Bool[Tensor, "T"] | None = None  # which tokens are text, where all of them are classified (ELECTRA)
    negatives: Int[Tensor, "S"] | None = None  # sampled words of a sampled softmax
    labels: Shaped[Tensor, "B ..."] | None = None  # of each sequence, or group of sequences; -100 or nan for none
    causal: "Batch | None" = None  # further text for causal language modelling, where it is mixed with masked
    counts: dict[str, int] = field(default_factory=dict)  # by the name of the loss term

    def to(self, device: torch.device | str) -> "Batch":
        moved: Batch = _to_device(self, device)
        return moved


def end_to_end(lengths: Int64[np.ndarray, "B"]) -> tuple[Int32[np.ndarray, "B+1"], Int32[np.ndarray, "T"]]:
    """The bounds of sequences of these lengths laid end to end, and each token's position in its sequence."""
    bounds = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(lengths, out=bounds[1:])
    return bounds, np.arange(bounds[-1], dtype=np.int32) - np.repeat(bounds[:-1], lengths)


def with_filler(
    lengths: Int64[np.ndarray, "B"], *, tokens: int, max_length: int, sequences: int
) -> Int64[np.ndarray, "S"]:
    """The lengths in a batch of fixed shape: those given, then filler up to `tokens`, then empty sequences."""
    filler = np.diff(np.append(np.arange(lengths.sum(), tokens, max_length), tokens))
    empty = np.zeros(sequences - len(lengths) - len(filler), np.int64)
    return np.concatenate([lengths, filler, empty])


def _flat(rows: Sequence[Ids]) -> Tensor:
    return torch.from_numpy(np.concatenate([np.asarray(row, np.int32) for row in rows]))


def _to_device(record: Any, device: torch.device | str) -> Any:
    """The same record with every tensor on the device; pinned tensors travel without waiting."""
    moved = {
        part.name: value.to(device, non_blocking=True) if isinstance(value, Tensor) else value.to(device)
        for part in fields(record)
        if isinstance(value := getattr(record, part.name), Tensor | Tokens | Batch)
    }
    return replace(record, **moved)
