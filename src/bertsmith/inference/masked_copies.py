"""Masked copies: a copy of a text for each of its tokens, by which a masked language model scores the text.

Salazar et al. 2020 mask one token in each copy ("original"); Kauf and Ivanova 2023 mask the later tokens of its word,
too ("within_word"), since they would give it away.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Int32, Int64
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import SelectedBatch, Tokens, end_to_end
from bertsmith.text.tokenizer import Tokenizer

PllForm = Literal["within_word", "original"]


@dataclass(frozen=True)
class MaskedCopies:
    """A masked copy of a sequence for each of its tokens, with that token and the rest of its word masked.

    Copies are made batch by batch, so that a text of L tokens does not take L squared of memory.
    """

    ids: Int32[np.ndarray, "T"]  # the sequences end to end, special tokens included
    starts: Int64[np.ndarray, "B"]  # the index where each begins
    lengths: Int64[np.ndarray, "B"]
    sequence_numbers: Int64[np.ndarray, "N"]  # the sequence of each copy,
    positions: Int64[np.ndarray, "N"]  # the index in `ids` of the token to predict,
    visible_from: Int64[np.ndarray, "N"]  # and the first index after it that is not masked
    mask_id: int

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]], tokenizer: Tokenizer, pll_form: PllForm) -> "MaskedCopies":
        """A copy for each token, in order."""
        sizes = np.fromiter(map(len, sequences), np.int64, len(sequences))
        lengths = sizes + 2
        ends = np.cumsum(lengths)
        starts = ends - lengths
        text = np.ones(int(lengths.sum()), np.bool_)
        text[starts] = text[ends - 1] = False
        ids = np.full(len(text), tokenizer.start_id, np.int32)
        ids[ends - 1] = tokenizer.stop_id
        ids[text] = np.fromiter((piece for sequence in sequences for piece in sequence), np.int32, int(sizes.sum()))
        positions = np.flatnonzero(text)
        visible_from = positions + 1
        if pll_form == "within_word":
            begins = ~tokenizer.continuation_mask[ids] | ~text
            begins[starts + 1] = True  # the first token of a text always begins a word
            word_starts = np.flatnonzero(begins)
            visible_from = word_starts[np.searchsorted(word_starts, positions, side="right")]
        numbers = np.repeat(np.arange(len(sizes)), sizes)
        return cls(ids, starts, lengths, numbers, positions, visible_from, tokenizer.mask_id)

    def collate(self, rows: Sequence[int], device: torch.device) -> SelectedBatch:
        """A flat batch of some copies, with their targets; a GPU copies them from pinned memory as it computes."""

        def to_device(array: NDArray[Any]) -> Tensor:
            tensor = torch.from_numpy(array)
            return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)

        numbers = np.asarray(rows, np.int64)
        owners, targets_at = self.sequence_numbers[numbers], self.positions[numbers]
        lengths = self.lengths[owners]
        bounds, positions = end_to_end(lengths)
        sources = positions + np.repeat(self.starts[owners], lengths)
        ids = self.ids[sources]
        hidden = (sources >= np.repeat(targets_at, lengths)) & (
            sources < np.repeat(self.visible_from[numbers], lengths)
        )
        ids[hidden] = self.mask_id
        longest = int(lengths.max())
        tokens = Tokens(
            ids=to_device(ids),
            bounds=to_device(bounds),
            positions=to_device(positions),
            max_length=longest,
            equal_lengths=bool((lengths == longest).all()),
        )
        target_positions = bounds[:-1] + targets_at - self.starts[owners]
        targets = self.ids[targets_at].astype(np.int64)
        return SelectedBatch(tokens=tokens, target_positions=to_device(target_positions), targets=to_device(targets))
