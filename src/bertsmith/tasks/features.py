"""Features: tags read from the vectors of a network that stays as it is."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import Batch, Tokens
from bertsmith.data.examples import Sentence
from bertsmith.data.labelled import Kind
from bertsmith.errors import RecipeError
from bertsmith.models.transformer import Transformer
from bertsmith.nn.heads import Classifier
from bertsmith.nn.recurrent import BiLSTM
from bertsmith.objectives.base import Term
from bertsmith.tasks.base import Item, Mould, Task
from bertsmith.tasks.tag import Tag, poured, scored, tagged, windowed
from bertsmith.text.tokenizer import Tokenizer

Layers = Literal["embeddings", "last", "second_to_last", "sum_last_four", "concatenate_last_four", "sum_all"]

LEAST: dict[Layers, int] = {
    "second_to_last": 2,
    "sum_last_four": 4,
    "concatenate_last_four": 4,
}  # layers needed; else 1


class FeatureTag(Task):
    """A tag for each word, from frozen vectors through a Bi-LSTM. Devlin et al. 2018, section 5.3, table 7.

    Layers as in the table's six rows. The trunk has no gradient and no dropout. Departs from the paper: its sums of
    layers are weighted, and it does not say by what; here every layer counts the same.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        layers: Layers = "concatenate_last_four"
        hidden: int = 768  # of the Bi-LSTM, in either direction; say 384 to read the paper's 768 as both together
        depth: int = 2  # layers of the Bi-LSTM
        dropout: float = 0.1  # between these, and before the classifier
        overlap: float = 0.5  # of neighbouring windows, as a share of a window

        def __post_init__(self) -> None:
            if self.hidden < 1 or self.depth < 1:
                raise ValueError(f"hidden is {self.hidden} and depth {self.depth}. Give at least 1")
            if not 0 <= self.dropout < 1:
                raise ValueError(f"dropout is {self.dropout}. Give a share, at least 0 and below 1")
            if not 0 <= self.overlap < 1:
                raise ValueError(f"an overlap of {self.overlap} is no share. Give at least 0 and below 1")

    def __init__(self, trunk: Transformer, config: Config, labels: tuple[str, ...]) -> None:
        super().__init__(trunk, config, labels)
        if len(labels) < 2:
            raise RecipeError("task", f"there is but one tag, {labels}", "Give examples of at least two")
        least, there = LEAST.get(config.layers, 1), trunk.config.layers
        if there < least:
            fact = f"'{config.layers}' needs {least} layers, and the model has {there}"
            raise RecipeError("task.layers", fact, "Use last, sum_all or a deeper model")
        trunk.requires_grad_(False)
        trunk.eval()
        width = trunk.config.width * (4 if config.layers == "concatenate_last_four" else 1)
        self.recurrent = BiLSTM(width, config.hidden, config.depth, config.dropout)
        self.classifier = Classifier(self.recurrent.width, len(labels), config.dropout)

    @classmethod
    def reads(cls, config: Config) -> Kind:
        return "tag"

    @classmethod
    def classes(cls, examples: Sequence[Sentence]) -> tuple[str, ...]:
        return Tag.classes(examples)

    def train(self, mode: bool = True) -> "FeatureTag":
        """Whatever the rest does, the trunk stays as in use: its vectors are the same in every epoch."""
        super().train(mode)
        self.trunk.eval()
        return self

    @torch.no_grad()
    def features(self, tokens: Tokens) -> Float[Tensor, "T _"]:
        """The frozen vectors, by the row of the table."""
        states = self.trunk.states(tokens)  # the embeddings first, then every layer
        match self.config.layers:
            case "embeddings":
                return states[0]
            case "second_to_last":
                return states[-2]
            case "sum_last_four":
                return torch.stack(states[-4:]).sum(0)
            case "concatenate_last_four":
                return torch.cat(states[-4:], -1)
            case "sum_all":
                return torch.stack(states[1:]).sum(0)
        return states[-1]

    def logits(self, tokens: Tokens) -> Float[Tensor, "T C"]:
        read = self.recurrent(self.features(tokens), tokens.bounds, tokens.longest)
        scores: Tensor = self.classifier(read).float()
        return scores

    def forward(self, batch: Batch) -> dict[str, Term]:
        assert batch.targets is not None
        logits = self.logits(batch.tokens)
        return {"tag": Term(F.cross_entropy(logits, batch.targets, reduction="sum", ignore_index=-100), None)}

    def items(self, examples: Sequence[Sentence], tokenizer: Tokenizer, length: int) -> list[Item]:
        return windowed(examples, tokenizer, length, self.labels, self.config.overlap)

    def collate(self, items: Sequence[Item], mould: Mould) -> Batch:
        # An LSTM takes time for every step up to the longest it may meet: a power of two keeps steps and shapes few.
        longest = max(len(item.rows[0]) for item in items)
        return poured(items, replace(mould, length=min(mould.length, 1 << (longest - 1).bit_length())))

    def outputs(self, tokens: Tokens) -> list[Tensor]:
        return list(torch.split(self.logits(tokens), tokens.bounds.diff().tolist()))

    def read(self, example: Sentence, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]) -> Any:
        return tagged(example, items, outputs, self.labels)

    def score(self, examples: Sequence[Sentence], predictions: Sequence[Any]) -> dict[str, float]:
        return scored(examples, predictions, self.labels)
