"""A batch: one flat sequence of tokens, with the bounds of the sequences in it. Nothing is padded.

Batches of images are in images/batch.py.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np
import torch
from jaxtyping import Int, Int32, Int64, Shaped
from numpy.typing import NDArray
from torch import Tensor

Ids = Sequence[int] | NDArray[np.int32]  # of the tokens of one sequence
R = TypeVar("R", bound="Record")


@dataclass(frozen=True, kw_only=True)
class Record:
    """Tensors that travel together: fields are tensors, records of tensors, and plain values."""

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Every tensor and plain value with its name, in records inside of this one as `tokens.ids`."""
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, Record):
                yield from ((f"{part.name}.{name}", leaf) for name, leaf in value.leaves())
            else:
                yield part.name, value

    def map_tensors(self: R, function: Callable[[Tensor], Tensor]) -> R:
        """The same record with `function` of every tensor in its place."""
        changed: dict[str, Any] = {}
        for part in fields(self):
            value = getattr(self, part.name)
            if isinstance(value, Tensor):
                changed[part.name] = function(value)
            elif isinstance(value, Record):
                changed[part.name] = value.map_tensors(function)
        return replace(self, **changed)

    def to(self: R, device: torch.device | str) -> R:
        """The same record on the device; pinned tensors travel without waiting."""
        return self.map_tensors(lambda tensor: tensor.to(device, non_blocking=True))


@dataclass(frozen=True, kw_only=True)
class Tokens(Record):
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


@dataclass(frozen=True, kw_only=True)
class Batch(Record):
    """The number of targets that each loss is summed over. Each kind adds what is read, and its targets."""

    counts: dict[str, int] = field(default_factory=dict)  # by the name of the loss term


@dataclass(frozen=True, kw_only=True)
class TokenBatch(Batch):
    """Text. Each kind below adds its targets."""

    tokens: Tokens


@dataclass(frozen=True, kw_only=True)
class TargetBatch(TokenBatch):
    """Targets that are token ids or tags: one for every token, unless a kind below says where."""

    targets: Int[Tensor, "N"]  # -100 for none


@dataclass(frozen=True, kw_only=True)
class SelectedBatch(TargetBatch):
    """Targets at selected positions only, so that logits over the vocabulary are computed there alone."""

    target_positions: Int[Tensor, "N"]


@dataclass(frozen=True, kw_only=True)
class LabelledBatch(TokenBatch):
    """A label for every sequence, or group of sequences."""

    labels: Shaped[Tensor, "B ..."]  # -100 or nan for none


@dataclass(frozen=True, kw_only=True)
class DecoderBatch(TargetBatch):
    """A target text for every sequence, for networks with a decoder: a target for every token of its input."""

    decoder_tokens: Tokens  # input of the decoder: the target text shifted right


def on_device(values: NDArray[Any], device: torch.device | str, dtype: torch.dtype | None = None) -> Tensor:
    """An array on the device. The host goes on at once: only from pinned memory does a copy wait for nothing."""
    tensor = torch.from_numpy(values).to(dtype)
    if torch.device(device).type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=True)


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
