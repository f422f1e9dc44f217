"""Causal language modelling: every token is predicted from those before it. The objective of GPT."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from bertsmith.data.batch import SelectedBatch
from bertsmith.data.packing.pack import PackedBatch
from bertsmith.models.transformer import Transformer
from bertsmith.nn.heads import can_chunk_loss, chunked_cross_entropy, pad_vocabulary
from bertsmith.objectives.base import LanguageModel, Term, count_tokens, packed_tokens
from bertsmith.text.tokenizer import Tokenizer


class CausalLM(LanguageModel):
    """Next-token prediction at every position of a sequence. Radford et al. 2018, section 3.1.

    One forward pass predicts all of them, by causal attention; the output matrix is the embedding table, without a
    transform. A separator inside a sequence is a target like any other, so that the end of a document is learnt. The
    one that ends a sequence is no target, since a sequence may end in the middle of a text.
    """

    needs = "decoder"
    generates = True
    trunk: Transformer

    @dataclass(frozen=True, kw_only=True)
    class Config:
        pass

    def forward(self, batch: SelectedBatch) -> dict[str, Term]:
        hidden = self.trunk(batch.tokens, selected=batch.target_positions)
        table = self.trunk.embedding.weight
        if self.training and can_chunk_loss(hidden, table):
            return {"next_token": Term(chunked_cross_entropy(hidden, table, None, batch.targets), None)}
        logits = self.logits(hidden)  # N V
        total = F.cross_entropy(logits.float(), batch.targets, reduction="sum", ignore_index=-100)
        return {"next_token": Term(total, None if self.training else (logits.argmax(-1) == batch.targets).sum())}

    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """The logits of the next token; weight tying: the output matrix is the embedding table."""
        return tied_logits(hidden, self.trunk.embedding.weight, self.training)

    def collator(self, tokenizer: Tokenizer) -> Callable[[PackedBatch], SelectedBatch]:
        return collate

    def flops(self, attended: float) -> float:
        shape = self.trunk.config
        return shape.flops(attended, self.prediction_share) - 6 * shape.width * shape.table  # no transform


def tied_logits(
    hidden: Float[Tensor, "N D"], table: Float[Tensor, "V D"], training: bool = False
) -> Float[Tensor, "N W"]:
    """Logits by the embedding table; in training on a GPU, padded to a width that suits its matrix units."""
    if training and hidden.is_cuda:
        return F.linear(hidden, *pad_vocabulary(table, table.new_zeros(len(table))))
    return F.linear(hidden, table)


def collate(packed: PackedBatch) -> SelectedBatch:
    """From packed text to a batch: nothing is corrupted, and each position has the next token as its target."""
    chosen, targets = next_token_targets(packed)
    return SelectedBatch(
        tokens=packed_tokens(packed),
        target_positions=torch.from_numpy(chosen),
        targets=torch.from_numpy(targets),
        counts={"next_token": int((targets != -100).sum()), **count_tokens(packed)},
    )


def next_token_targets(packed: PackedBatch) -> tuple[Int64[np.ndarray, "N"], Int64[np.ndarray, "N"]]:
    """The positions that have a next token, and that token; filled up with -100, so that shapes never change."""
    size, ends = len(packed.ids), packed.bounds[1 : packed.real_sequences + 1]
    has_target = np.arange(size) < packed.real_tokens
    has_target[ends - 1] = has_target[ends - 2] = False  # the last token, and the one before it
    found = np.flatnonzero(has_target)
    # Two tokens of every sequence have no target, and there are at least size / max_length sequences.
    room = size - 2 * size // packed.max_length
    chosen, targets = np.zeros(room, np.int64), np.full(room, -100)
    chosen[: len(found)], targets[: len(found)] = found, packed.ids[found + 1]
    return chosen, targets
