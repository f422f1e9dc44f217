"""Tagging from features: a Bi-LSTM on the hidden states of a frozen network, as in ELMo."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from bertsmith.data.batch import TargetBatch, Tokens
from bertsmith.data.labelled.examples import Kind, Sentence
from bertsmith.errors import RecipeError
from bertsmith.models.networks import Network, NetworkConfig
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.heads import Classifier
from bertsmith.nn.rnn.bilstm import BiLSTM
from bertsmith.nn.scalar_mix import ScalarMix
from bertsmith.objectives.base import Term
from bertsmith.tasks.base import Bucket, Item, Task
from bertsmith.tasks.tagging import (
    TokenClassification,
    collate_tags,
    decode_tags,
    make_windows,
    score_tags,
    tag_probabilities,
)
from bertsmith.text.tokenizer import Tokenizer

Layers = Literal["embeddings", "last", "second_to_last", "sum_last_four", "concatenate_last_four", "sum_all", "mix"]

MIN_LAYERS: dict[Layers, int] = {  # that a model needs; 1 where it is not named here
    "embeddings": 0,
    "mix": 0,
    "second_to_last": 2,
    "sum_last_four": 4,
    "concatenate_last_four": 4,
}


@dataclass(frozen=True, kw_only=True)
class FeaturesConfig:
    """Which layers are the features, and the Bi-LSTM on them."""

    layers: Layers | None = None  # None: the last four concatenated; of ELMo the scalar mix of all
    hidden: int = 768  # width of the Bi-LSTM in each direction; 384 if the paper's 768 means both together
    lstm_layers: int = 2  # layers of the Bi-LSTM
    dropout: float = 0.1  # between the layers of the Bi-LSTM, and before the classifier

    def __post_init__(self) -> None:
        if self.hidden < 1 or self.lstm_layers < 1:
            raise ValueError(f"hidden is {self.hidden} and lstm_layers {self.lstm_layers}. Give at least 1")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}. Give a share, at least 0 and below 1")


class LayerSelection(nn.Module):
    """The features of each token from the hidden states of all layers. Devlin et al. 2018, section 5.3, table 7; the
    scalar mix is that of Peters et al. 2018, and the only choice with learnt weights."""

    def __init__(self, shape: NetworkConfig, layers: Layers | None) -> None:
        super().__init__()
        default: Layers = "concatenate_last_four" if isinstance(shape, TransformerConfig) else "mix"
        self.layers: Layers = layers or default
        least = MIN_LAYERS.get(self.layers, 1)
        if shape.layers < least:
            fact = f"'{self.layers}' needs {least} layers, and the model has {shape.layers}"
            raise RecipeError("task.layers", fact, "Use last, sum_all or a deeper model")
        self.scalar_mix = ScalarMix(shape.layers + 1) if self.layers == "mix" else None
        self.width = shape.width * (4 if self.layers == "concatenate_last_four" else 1)

    def forward(self, states: list[Float[Tensor, "T D"]]) -> Float[Tensor, "T {self.width}"]:
        """From the embeddings and the hidden states of every layer."""
        if self.scalar_mix is not None:
            mixed: Tensor = self.scalar_mix(states)
            return mixed
        match self.layers:
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


class FeatureTagging(Task):
    """A tag for each word, by a Bi-LSTM on frozen features. Devlin et al. 2018, section 5.3, table 7.

    Layers as in the table's six rows, or the scalar mix of Peters et al. 2018. No gradient and no dropout in the trunk.
    Departs from the paper: its sums of layers are weighted, without saying how; here all layers weigh the same, except
    in the mix.
    """

    trunk: Network  # type: ignore[assignment]

    @dataclass(frozen=True, kw_only=True)
    class Config(FeaturesConfig):
        overlap: float = 0.5  # overlap of the windows of a long sentence, as a share of a window

        def __post_init__(self) -> None:
            super().__post_init__()
            if not 0 <= self.overlap < 1:
                raise ValueError(f"overlap is {self.overlap}. Give a share, at least 0 and below 1")

    def __init__(self, trunk: Network, config: Config, labels: tuple[str, ...]) -> None:
        super().__init__(trunk, config, labels)
        if len(labels) < 2:
            raise RecipeError("task", f"there is only one tag, {labels}", "Give examples of at least two")
        self.layer_selection = LayerSelection(trunk.config, config.layers)
        freeze(trunk)
        self.recurrent = BiLSTM(self.layer_selection.width, config.hidden, config.lstm_layers, config.dropout)
        self.classifier = Classifier(self.recurrent.width, len(labels), config.dropout)

    @classmethod
    def file_kind(cls, config: Config) -> Kind:
        return "tag"

    @classmethod
    def collect_labels(cls, examples: Iterable[Sentence]) -> tuple[str, ...]:
        return TokenClassification.collect_labels(examples)

    def train(self, mode: bool = True) -> "FeatureTagging":
        """The trunk stays in eval mode, so that its features are the same in every epoch."""
        super().train(mode)
        self.trunk.eval()
        return self

    def features(self, tokens: Tokens) -> Float[Tensor, "T _"]:
        """The features of each token."""
        chosen: Tensor = self.layer_selection(frozen_states(self.trunk, tokens))
        return chosen

    def logits(self, tokens: Tokens) -> Float[Tensor, "T C"]:
        read = self.recurrent(self.features(tokens), tokens.bounds, tokens.max_length)
        scores: Tensor = self.classifier(read).float()
        return scores

    def forward(self, batch: TargetBatch) -> dict[str, Term]:
        logits = self.logits(batch.tokens)
        return {"tag": Term(F.cross_entropy(logits, batch.targets, reduction="sum", ignore_index=-100), None)}

    def preprocess(self, examples: Sequence[Sentence], tokenizer: Tokenizer, max_length: int) -> list[Item]:
        return make_windows(
            examples, tokenizer, max_length, self.labels, self.config.overlap, characters_per_word(self.trunk)
        )

    def collate(self, items: Sequence[Item], bucket: Bucket) -> TargetBatch:
        return collate_tags(items, shorten_bucket(bucket, items))

    def outputs(self, tokens: Tokens) -> list[Tensor]:
        return list(torch.split(self.logits(tokens), tokens.bounds.diff().tolist()))

    def postprocess(self, example: Sentence, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]) -> Any:
        return decode_tags(example, items, outputs, self.labels)

    def postprocess_detailed(
        self, example: Sentence, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]
    ) -> Any:
        return self.postprocess(example, items, outputs) | {"probabilities": tag_probabilities(example, items, outputs)}

    def score(self, examples: Sequence[Sentence], predictions: Sequence[Any]) -> dict[str, float]:
        return score_tags(examples, predictions, self.labels)


# ----------------------------------------------------------------------- shared with classification from features


def freeze(trunk: Network) -> None:
    """No weight of the trunk is trained, and it runs without dropout."""
    if not hasattr(trunk, "hidden_states"):
        fact = "the network does not return the hidden states of its layers"
        raise RecipeError("task.kind", fact, "Use a network such as elmo or bert-base")
    trunk.requires_grad_(False)
    trunk.eval()


@torch.no_grad()
def frozen_states(trunk: Network, tokens: Tokens) -> list[Float[Tensor, "T D"]]:
    """The hidden states of each layer."""
    states: list[Tensor] = trunk.hidden_states(tokens)  # type: ignore[operator]
    return states


def characters_per_word(trunk: Network) -> int:
    """The characters per word of a network that reads them, else 0."""
    return int(getattr(trunk.config, "max_characters", 0))


def shorten_bucket(bucket: Bucket, items: Sequence[Item]) -> Bucket:
    """A shorter maximum, since an LSTM takes time for every position: a power of two, which keeps shapes few."""
    longest = max(len(item.rows[0]) for item in items)
    return replace(bucket, max_length=min(bucket.max_length, 1 << (longest - 1).bit_length()))
