"""Mixed objective: one network learns masked language modelling and causal language modelling."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from bertsmith.data.batch import SelectedBatch
from bertsmith.data.packing.pack import PackedBatch
from bertsmith.data.packing.pairs import Pairs
from bertsmith.objectives import causal
from bertsmith.objectives.base import Term
from bertsmith.objectives.masked import MaskedBatch, MaskedLM
from bertsmith.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class MixedBatch(MaskedBatch):
    """Masked tokens to predict, and further text for causal language modelling."""

    causal: SelectedBatch


class MixedLM(MaskedLM):
    """Next-token prediction with causal attention on a share of every batch, masked language modelling on the rest.

    Dong et al. 2019; Charpentier and Samuel 2024. One network and one head learn both, so that no weight is added. The
    exported model is a BERT, which transformers also opens as a decoder (`BertLMHeadModel`). Only the masked part has a
    loss on pairs of texts.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(MaskedLM.Config):
        pairs: Pairs = "none"  # loss on pairs of texts in the masked part: next sentence (nsp), sentence order (sop)
        causal_share: float = 0.5  # share of the tokens that are read with causal attention
        causal_weight: float = 1.0  # weight of next-token prediction; masked language modelling has 1

        def __post_init__(self) -> None:
            super().__post_init__()
            if not 0 < self.causal_share < 1:
                raise ValueError(f"causal_share is {self.causal_share}. Give a share, above 0 and below 1")
            if not 0 < self.causal_weight < np.inf:
                raise ValueError(f"causal_weight is {self.causal_weight}. Give more than 0, usually 1")

    config: Config

    def forward(self, batch: MixedBatch) -> dict[str, Term]:  # type: ignore[override]  # it has a causal part, too
        terms = super().forward(batch)
        hidden = self.trunk(batch.causal.tokens, selected=batch.causal.target_positions, causal=True)
        return terms | {"next_token": self.prediction_term(hidden, batch.causal.targets, self.config.causal_weight)}

    def collator(self, tokenizer: Tokenizer) -> Callable[[PackedBatch], MixedBatch]:
        return Collator(self.config.causal_share, super().collator(tokenizer))

    def validation_collator(self, tokenizer: Tokenizer) -> Callable[[PackedBatch], MixedBatch]:
        """The whole text is masked, as for other masked language models, and a share of it is read causally, too."""
        return Collator(self.config.causal_share, super().validation_collator(tokenizer), masks_all=True)

    @property
    def prediction_share(self) -> float:
        share = self.config.causal_share
        return share + (1 - share) * self.config.mask_rate

    def flops(self, attended: float) -> float:
        share, shape = self.config.causal_share, self.trunk.config
        back = replace(shape, causal=True).flops(attended, 1.0)
        return share * back + (1 - share) * shape.flops(attended, self.config.mask_rate)


@dataclass(frozen=True)
class Collator:
    """From packed text to a batch: the first tokens are the causal part, the rest is masked; in validation, all."""

    causal_share: float
    masked_collator: Callable[[PackedBatch], MaskedBatch]
    masks_all: bool = False

    def __call__(self, packed: PackedBatch) -> MixedBatch:
        first, rest = split(packed, round(self.causal_share * len(packed.ids)))
        back, batch = causal.collate(first), self.masked_collator(packed if self.masks_all else rest)
        counts = {name: back.counts.get(name, 0) + batch.counts.get(name, 0) for name in back.counts | batch.counts}
        return MixedBatch(
            tokens=batch.tokens,
            target_positions=batch.target_positions,
            targets=batch.targets,
            labels=batch.labels,
            causal=replace(back, counts={}),
            counts=counts,
        )


def split(packed: PackedBatch, size: int) -> tuple[PackedBatch, PackedBatch]:
    """The first `size` tokens, and the rest. A sequence that is cut continues in the second part as a separate one.

    It has lost its beginning there, and therefore its label.
    """
    return _slice(packed, 0, size), _slice(packed, size, len(packed.ids))


def _slice(packed: PackedBatch, begin: int, end: int) -> PackedBatch:
    bounds = packed.bounds
    first = int(np.searchsorted(bounds, begin, side="right")) - 1  # the sequence that the first token is in
    last = int(np.searchsorted(bounds, end))  # the one after that of the last token
    count = len(packed.epochs)
    cuts = np.full(count + 1, end - begin, np.int32)
    cuts[: last - first + 1] = np.clip(bounds[first : last + 1], begin, end) - begin
    empty = np.zeros(count - (last - first), np.int64)
    real = min(max(packed.real_tokens - begin, 0), end - begin)
    labels = np.concatenate((packed.labels[first:last], empty - 100))
    if bounds[first] < begin:
        labels[0] = -100
    return replace(
        packed,
        ids=packed.ids[begin:end],
        positions=packed.positions[begin:end],
        segments=packed.segments[begin:end],
        corpus_positions=packed.corpus_positions[begin:end],
        labels=labels,
        epochs=np.concatenate((packed.epochs[first:last], empty)),
        bounds=cuts,
        real_tokens=real,
        real_sequences=int(np.searchsorted(cuts, real)) if real else 0,
    )
