"""Masked language modelling (MLM): masked tokens are predicted from both sides. The objective of BERT.

On pairs of texts, next-sentence prediction (NSP) or sentence-order prediction (SOP) is a second loss.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.data.batch import SelectedBatch
from bertsmith.data.packing.pack import PackedBatch
from bertsmith.data.packing.pairs import Pairs
from bertsmith.models.hf.layouts import mlm_activation
from bertsmith.models.networks import Network
from bertsmith.models.transformer import Transformer
from bertsmith.nn.heads import MaskedLMHead, Pooler, SentencePairHead, can_chunk_loss
from bertsmith.nn.pooling import first_positions
from bertsmith.objectives.base import LanguageModel, Term, count_tokens, packed_tokens
from bertsmith.objectives.masking import VALIDATION_MASKING, MaskingConfig, MaskingVocabulary, mask_tokens
from bertsmith.text.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class MaskedBatch(SelectedBatch):
    """Masked tokens to predict, and whether the texts of each sequence belong together."""

    labels: Int[Tensor, "B"] | None = None  # of pairs of texts, -100 for none; None if the objective has no pairs


class MaskedLM(LanguageModel):
    """Masked language modelling, with next-sentence prediction by default. Devlin et al. 2018, section 3.1.

    `pairs = "none"` leaves out next-sentence prediction, as RoBERTa does; `"sop"` predicts instead whether two
    consecutive texts are swapped (Lan et al. 2019, section 3.1).
    """

    @dataclass(frozen=True, kw_only=True)
    class Config(MaskingConfig):
        pairs: Pairs = "nsp"  # second loss on pairs of texts: next sentence (nsp), sentence order (sop) or none
        pair_weight: float = 1.0  # weight of that loss; masked language modelling has 1

        def __post_init__(self) -> None:
            super().__post_init__()
            if not 0 < self.pair_weight < np.inf:
                raise ValueError(f"pair_weight is {self.pair_weight}. Give more than 0, usually 1")

    needs = "encoder"
    trunk: Transformer
    config: Config

    def __init__(self, trunk: Network, config: Config) -> None:
        super().__init__(trunk, config)
        shape = self.trunk.config
        options = (mlm_activation(shape), shape.norm_eps, shape.biases)
        self.mlm_head = MaskedLMHead(shape.width, shape.vocabulary, *options, shape.table)
        if config.pairs != "none":
            if not self._pools_with_head:
                self.pooler = Pooler(shape.width)
            self.sentence_pair = SentencePairHead(shape.width)

    @property
    def _pools_with_head(self) -> bool:
        """Whether the MLM head's transform takes the place of the pooler, as in ModernBERT's tasks."""
        return self.trunk.config.norm_position == "pre" and not self.trunk.config.embedding_width

    @property
    def pairs(self) -> Pairs:
        return self.config.pairs

    def forward(self, batch: MaskedBatch) -> dict[str, Term]:
        selected, guesses = batch.target_positions, len(batch.target_positions)
        if batch.labels is not None:
            selected = torch.cat((selected, first_positions(batch.tokens.bounds, len(batch.tokens.ids))))
        hidden = self.trunk(batch.tokens, selected=selected)  # the last layer computes only these
        terms = {"masked": self.prediction_term(hidden[:guesses], batch.targets)}  # and only the guesses a vocabulary
        if batch.labels is not None:
            pool = self.mlm_head.transform if self._pools_with_head else self.pooler
            logits = self.sentence_pair(pool(hidden[guesses:]))
            terms[self.config.pairs] = self.cross_entropy_term(logits, batch.labels, self.config.pair_weight)
        return terms

    def prediction_term(self, hidden: Float[Tensor, "N D"], targets: Int[Tensor, "N"], weight: float = 1.0) -> Term:
        """The loss of predicting the tokens at these positions."""
        table = self.trunk.embedding.weight
        if self.training and can_chunk_loss(hidden, table):
            return Term(self.mlm_head.loss(hidden, table, targets), None, weight)
        return self.cross_entropy_term(self.logits(hidden), targets, weight)  # N V

    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """The logits of every token at each position; weight tying: the output matrix is the embedding table."""
        scores: Tensor = self.mlm_head(hidden, self.trunk.embedding.weight)
        return scores

    def cross_entropy_term(self, logits: Float[Tensor, "N V"], targets: Int[Tensor, "N"], weight: float = 1.0) -> Term:
        """The cross-entropy of these logits, and the number of correct predictions in validation."""
        total = F.cross_entropy(logits.float(), targets, reduction="sum", ignore_index=-100)
        if self.training:  # no argmax over the vocabulary: accuracy is measured in validation only
            return Term(total, None, weight)
        return Term(total, (logits.argmax(-1) == targets).sum(), weight)

    def collator(self, tokenizer: Tokenizer) -> Callable[[PackedBatch], MaskedBatch]:
        return self._collator(self.config, tokenizer)

    def validation_collator(self, tokenizer: Tokenizer) -> Callable[[PackedBatch], MaskedBatch]:
        """15 % of the tokens are masked, all by [MASK]; pairs are those of the objective."""
        return self._collator(replace(self.config, **asdict(VALIDATION_MASKING)), tokenizer)

    def _collator(self, config: Config, tokenizer: Tokenizer) -> "Collator":
        special, continuation = tokenizer.special_mask, tokenizer.continuation_mask
        return Collator(config, MaskingVocabulary.of(continuation, special, tokenizer.mask_id))

    @property
    def prediction_share(self) -> float:
        return self.config.mask_rate


@dataclass(frozen=True)
class Collator:
    """The pure function from packed text to a batch with masked tokens."""

    config: MaskedLM.Config
    vocabulary: MaskingVocabulary

    def __call__(self, packed: PackedBatch) -> MaskedBatch:
        ids, chosen, targets = mask_tokens(packed, self.config, self.vocabulary)
        counts = {"masked": len(chosen), **count_tokens(packed)}
        labels = None
        if self.config.pairs != "none":
            labels = torch.from_numpy(packed.labels)
            counts[self.config.pairs] = int((packed.labels != -100).sum())
        return MaskedBatch(
            tokens=replace(packed_tokens(packed, ids), segments=torch.from_numpy(packed.segments)),
            target_positions=torch.from_numpy(chosen),
            targets=torch.from_numpy(targets),
            labels=labels,
            counts=counts,
        )
