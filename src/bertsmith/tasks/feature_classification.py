"""Text classification from features: a Bi-LSTM on the hidden states of a frozen network."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import LabelledBatch, Tokens
from bertsmith.data.labelled.examples import Example, Kind
from bertsmith.data.rows import Row
from bertsmith.errors import RecipeError, TextError, suggest
from bertsmith.metrics import scores
from bertsmith.models.networks import Network
from bertsmith.nn.heads import Classifier
from bertsmith.nn.pooling import maximum, mean
from bertsmith.nn.rnn.bilstm import BiLSTM
from bertsmith.objectives.base import Term
from bertsmith.tasks.base import Bucket, Item, Task, count_tokens, truncate, with_characters, with_special_tokens
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.feature_tagging import (
    FeaturesConfig,
    LayerSelection,
    characters_per_word,
    freeze,
    frozen_states,
    shorten_bucket,
)
from bertsmith.text.characters import boundary_characters, encode_with_characters
from bertsmith.text.tokenizer import Tokenizer


class FeatureClassification(Task):
    """A class for each text or pair of texts, by a Bi-LSTM on frozen features.

    Peters et al. 2018, section 4, on SST-5. Departs from the paper, whose classifier is McCann et al.'s 2017: here the
    Bi-LSTM's outputs are pooled, and a linear layer predicts the class.
    """

    trunk: Network  # type: ignore[assignment]

    @dataclass(frozen=True, kw_only=True)
    class Config(FeaturesConfig):
        lstm_layers: int = 1  # layers of the Bi-LSTM
        pooling: Literal["max", "mean"] = "max"  # pooling of the Bi-LSTM's outputs over the words

    def __init__(self, trunk: Network, config: Config, labels: tuple[str, ...]) -> None:
        super().__init__(trunk, config, labels)
        if len(labels) < 2:
            raise RecipeError("task", f"there is only one class, {labels}", "Give examples of at least two")
        self.layer_selection = LayerSelection(trunk.config, config.layers)
        freeze(trunk)
        self.recurrent = BiLSTM(self.layer_selection.width, config.hidden, config.lstm_layers, config.dropout)
        self.classifier = Classifier(self.recurrent.width, len(labels), config.dropout)

    @classmethod
    def file_kind(cls, config: Config) -> Kind:
        return "classify"

    @classmethod
    def collect_labels(cls, examples: Iterable[Example]) -> tuple[str, ...]:
        return SequenceClassification.collect_labels(examples)

    def train(self, mode: bool = True) -> "FeatureClassification":
        """The trunk stays in eval mode, so that its features are the same in every epoch."""
        super().train(mode)
        self.trunk.eval()
        return self

    def logits(self, tokens: Tokens) -> Float[Tensor, "B C"]:
        read = self.recurrent(self.layer_selection(frozen_states(self.trunk, tokens)), tokens.bounds, tokens.max_length)
        pool = maximum if self.config.pooling == "max" else mean
        scored: Tensor = self.classifier(pool(read, tokens.bounds)).float()
        return scored

    def forward(self, batch: LabelledBatch) -> dict[str, Term]:
        logits = self.logits(batch.tokens)[: len(batch.labels)]
        return {"class": Term(F.cross_entropy(logits, batch.labels, reduction="sum", ignore_index=-100), None)}

    def preprocess(self, examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> list[Item]:
        rows = _encode(examples, tokenizer, max_length, characters_per_word(self.trunk))
        return [
            Item(rows=(row,), example=number, target=self._target(examples[number]), truncated=cut)
            for number, (row, cut) in enumerate(rows)
        ]

    def collate(self, items: Sequence[Item], bucket: Bucket) -> LabelledBatch:
        tokens = shorten_bucket(bucket, items).collate([item.rows[0] for item in items], bucket.batch_size)
        labels = torch.full((bucket.batch_size if bucket.pad_to_multiple_of else len(items),), -100)
        labels[: len(items)] = torch.tensor([item.target for item in items])
        counts = {"class": max(1, int((labels != -100).sum())), **count_tokens(items)}
        return LabelledBatch(tokens=tokens, labels=labels, counts=counts)

    def outputs(self, tokens: Tokens) -> list[Tensor]:
        return list(self.logits(tokens))

    def postprocess(self, example: Example, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]) -> Any:
        probabilities = np.exp(outputs[0].astype(np.float64) - outputs[0].max())
        probabilities /= probabilities.sum()
        named = dict(zip(self.labels, probabilities.tolist(), strict=True))
        return {"label": self.labels[int(probabilities.argmax())], "probabilities": named}

    def score(self, examples: Sequence[Example], predictions: Sequence[Any]) -> dict[str, float]:
        true_ids = [self.labels.index(str(example.label)) for example in examples]
        predicted_ids = [self.labels.index(prediction["label"]) for prediction in predictions]
        metrics = scores.classification_scores(true_ids, predicted_ids, len(self.labels))
        return {"accuracy": metrics.pop("accuracy"), **metrics}

    def _target(self, example: Example) -> int:
        if example.label is None:
            return -100
        label = str(example.label)
        if label not in self.labels:
            fact = f"the label '{label}' is not among those learnt"
            raise TextError(example.location, fact, suggest(label, self.labels))
        return self.labels.index(label)


def _encode(examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, letters: int) -> list[tuple[Row, int]]:
    """Each example as a sequence of at most `max_length` tokens, and the number of tokens cut off."""
    if letters:
        return _encode_characters(examples, tokenizer, max_length, letters)
    sides = [[example.texts[side] for example in examples if len(example.texts) > side] for side in (0, 1)]
    firsts, seconds = (iter(tokenizer.encode(texts)) for texts in sides)
    found = []
    for example in examples:
        second = next(seconds) if len(example.texts) > 1 else None
        room = max_length - 2 - (0 if second is None else tokenizer.separator_count)
        first, second, cut = truncate(next(firsts), second, room)
        found.append((with_special_tokens(tokenizer, first, second), cut))
    return found


def _encode_characters(
    examples: Sequence[Example], tokenizer: Tokenizer, max_length: int, letters: int
) -> list[tuple[Row, int]]:
    """The same with the characters of each word; a second text follows the end token of the first."""
    texts = iter(
        encode_with_characters(tokenizer, [text for example in examples for text in example.texts[:2]], letters)
    )
    end, found = boundary_characters(letters)[1:], []
    for example in examples:
        ids, spelling = next(texts)
        if len(example.texts) > 1:
            more, others = next(texts)
            first, second, _ = truncate(list(range(len(ids))), list(range(len(more))), max_length - 3)
            cut = len(ids) + len(more) - len(first) - len(second or ())
            ids = [*ids[: len(first)], tokenizer.stop_id, *more[: len(second or ())]]
            spelling = np.concatenate([spelling[: len(first)], end, others[: len(second or ())]])
        else:
            cut = max(0, len(ids) - (max_length - 2))
        found.append((with_characters(tokenizer, ids[: max_length - 2], spelling[: max_length - 2]), cut))
    return found
