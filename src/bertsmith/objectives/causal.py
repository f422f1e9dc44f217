"""Causal language modelling: every token is predicted from those before it. The objective of GPT."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int64
from torch import Tensor

from bertsmith.data.batch import Batch, Tokens
from bertsmith.data.packing.pack import PackedBatch
from bertsmith.data.packing.pairs import Pairs
from bertsmith.models.transformer import Transformer
from bertsmith.nn.heads import can_chunk_loss, chunked_cross_entropy, pad_vocabulary
from bertsmith.objectives.base import Pretraining, Term
from bertsmith.text.tokenizer import Tokenizer


class CausalLM(Pretraining):
    """Guess every token of a sequence but its first from those before it. Radford et al. 2018, section 3.1.

    One reading asks for all of them, since no token looks ahead; and no head stands between the last layer and the
    embedding table. A separator inside a sequence is a token like any other: so the end of a document is learnt. The
    one that ends a sequence is not guessed, for a sequence may end in the middle of a text.
    """

    causal = True
    trunk: Transformer

    @dataclass(frozen=True, kw_only=True)
    class Config:
        pass

    @property
    def pairs(self) -> Pairs:
        return "none"

    def forward(self, batch: Batch) -> dict[str, Term]:
        assert batch.target_positions is not None
        assert batch.targets is not None
        hidden = self.trunk(batch.tokens, selected=batch.target_positions)
        table = self.trunk.embedding.weight
        if self.training and can_chunk_loss(hidden, table):
            return {"next_token": Term(chunked_cross_entropy(hidden, table, None, batch.targets), None)}
        logits = self.logits(hidden)  # N V
        total = F.cross_entropy(logits.float(), batch.targets, reduction="sum", ignore_index=-100)
        return {"next_token": Term(total, None if self.training else (logits.argmax(-1) == batch.targets).sum())}

    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """The score of every piece to come next: the output layer is the embedding table itself."""
        return tied_logits(hidden, self.trunk.embedding.weight, self.training)

    def collator(self, tokenizer: Tokenizer) -> Callable[[PackedBatch], Batch]:
        return collate

    @property
    def prediction_share(self) -> float:
        return 1.0

    def flops(self, attended: float) -> float:
        shape = self.trunk.config
        return shape.flops(attended, self.prediction_share) - 6 * shape.width * shape.table  # there is no transform

    @property
    def exports(self) -> dict[str, Pretraining]:
        return {"model": self}


def tied_logits(
    hidden: Float[Tensor, "N D"], table: Float[Tensor, "V D"], training: bool = False
) -> Float[Tensor, "N W"]:
    """How well each piece of the table fits each vector; while a GPU trains, with filler up to a width it likes."""
    if training and hidden.is_cuda:
        return F.linear(hidden, *pad_vocabulary(table, table.new_zeros(len(table))))
    return F.linear(hidden, table)


def collate(packed: PackedBatch) -> Batch:
    """Packed text -> batch: nothing is corrupted, and what is to be guessed is the text itself."""
    chosen, targets = next_token_targets(packed)
    lengths = np.diff(packed.bounds[: packed.real_sequences + 1]).astype(np.int64)
    tokens = Tokens(
        ids=torch.from_numpy(packed.ids),
        bounds=torch.from_numpy(packed.bounds),
        positions=torch.from_numpy(packed.positions),
        max_length=packed.max_length,
    )
    counts = {"next_token": int((targets != -100).sum()), "tokens": packed.real_tokens}
    counts["squares"] = int((lengths * lengths).sum())
    return Batch(
        tokens=tokens, target_positions=torch.from_numpy(chosen), targets=torch.from_numpy(targets), counts=counts
    )


def next_token_targets(packed: PackedBatch) -> tuple[Int64[np.ndarray, "N"], Int64[np.ndarray, "N"]]:
    """The positions that have a token to guess, and which it is; filled up with -100, so that shapes never change."""
    size, ends = len(packed.ids), packed.bounds[1 : packed.real_sequences + 1]
    asks = np.arange(size) < packed.real_tokens
    asks[ends - 1] = asks[ends - 2] = False  # what comes next there is nothing, and the end of the sequence
    found = np.flatnonzero(asks)
    # Two tokens of every sequence ask nothing, and there are no fewer sequences than full ones would be.
    room = size - 2 * size // packed.max_length
    chosen, targets = np.zeros(room, np.int64), np.full(room, -100)
    chosen[: len(found)], targets[: len(found)] = found, packed.ids[found + 1]
    return chosen, targets
