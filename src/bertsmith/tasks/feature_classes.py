"""Classes from features: what kind of text this is, read from the vectors of a network that stays as it is."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import Batch, Tokens
from bertsmith.data.examples import Example
from bertsmith.data.labelled import Kind
from bertsmith.data.rows import Row
from bertsmith.errors import RecipeError, TextError, nearest
from bertsmith.models.networks import Network
from bertsmith.nn.heads import Classifier
from bertsmith.nn.pooling import greatest, mean
from bertsmith.nn.recurrent import BiLSTM
from bertsmith.objectives.base import Term
from bertsmith.tasks import scores
from bertsmith.tasks.base import Item, Mould, Task, counted, fitted, framed, spelt
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.features import Choice, FeaturesConfig, freeze, frozen, letters_of, shortened
from bertsmith.text.spelling import edges, spelt_texts
from bertsmith.text.tokenizer import Tokenizer


class FeatureClassify(Task):
    """A class for each text or pair of texts, from frozen vectors through a Bi-LSTM.

    Peters et al. 2018, section 4, on SST-5. Departs from the paper, whose classifier is McCann et al.'s 2017: what the
    Bi-LSTM says of the words is pooled, and one more layer tells the class.
    """

    trunk: Network  # type: ignore[assignment]

    @dataclass(frozen=True, kw_only=True)
    class Config(FeaturesConfig):
        depth: int = 1
        pooling: Literal["max", "mean"] = "max"  # what stands for a text: of each number its largest, or its mean

    def __init__(self, trunk: Network, config: Config, labels: tuple[str, ...]) -> None:
        super().__init__(trunk, config, labels)
        if len(labels) < 2:
            raise RecipeError("task", f"there is but one class, {labels}", "Give examples of at least two")
        self.choice = Choice(trunk.config, config.layers)
        freeze(trunk)
        self.recurrent = BiLSTM(self.choice.width, config.hidden, config.depth, config.dropout)
        self.classifier = Classifier(self.recurrent.width, len(labels), config.dropout)

    @classmethod
    def reads(cls, config: Config) -> Kind:
        return "classify"

    @classmethod
    def classes(cls, examples: Iterable[Example]) -> tuple[str, ...]:
        return Classify.classes(examples)

    def train(self, mode: bool = True) -> "FeatureClassify":
        """Whatever the rest does, the trunk stays as in use: its vectors are the same in every epoch."""
        super().train(mode)
        self.trunk.eval()
        return self

    def logits(self, tokens: Tokens) -> Float[Tensor, "B C"]:
        read = self.recurrent(self.choice(frozen(self.trunk, tokens)), tokens.bounds, tokens.longest)
        pool = greatest if self.config.pooling == "max" else mean
        scored: Tensor = self.classifier(pool(read, tokens.bounds)).float()
        return scored

    def forward(self, batch: Batch) -> dict[str, Term]:
        assert batch.labels is not None
        logits = self.logits(batch.tokens)[: len(batch.labels)]
        return {"class": Term(F.cross_entropy(logits, batch.labels, reduction="sum", ignore_index=-100), None)}

    def items(self, examples: Sequence[Example], tokenizer: Tokenizer, length: int) -> list[Item]:
        rows = _rows(examples, tokenizer, length, letters_of(self.trunk))
        return [
            Item(rows=(row,), example=number, target=self._target(examples[number]), cut=cut)
            for number, (row, cut) in enumerate(rows)
        ]

    def collate(self, items: Sequence[Item], mould: Mould) -> Batch:
        tokens = shortened(mould, items).pour([item.rows[0] for item in items], mould.items)
        labels = torch.full((mould.items if mould.bucket else len(items),), -100)
        labels[: len(items)] = torch.tensor([item.target for item in items])
        counts = {"class": max(1, int((labels != -100).sum())), **counted(items)}
        return Batch(tokens=tokens, labels=labels, counts=counts)

    def outputs(self, tokens: Tokens) -> list[Tensor]:
        return list(self.logits(tokens))

    def read(self, example: Example, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]) -> Any:
        chances = np.exp(outputs[0].astype(np.float64) - outputs[0].max())
        chances /= chances.sum()
        named = dict(zip(self.labels, chances.tolist(), strict=True))
        return {"label": self.labels[int(chances.argmax())], "chances": named}

    def score(self, examples: Sequence[Example], predictions: Sequence[Any]) -> dict[str, float]:
        right = [self.labels.index(str(example.label)) for example in examples]
        said = [self.labels.index(prediction["label"]) for prediction in predictions]
        figures = scores.of_classes(right, said, len(self.labels))
        return {"accuracy": figures.pop("accuracy"), **figures}

    def _target(self, example: Example) -> int:
        if example.label is None:
            return -100
        label = str(example.label)
        if label not in self.labels:
            fact = f"the label '{label}' is not among those learnt"
            raise TextError(example.place, fact, nearest(label, self.labels))
        return self.labels.index(label)


def _rows(examples: Sequence[Example], tokenizer: Tokenizer, length: int, letters: int) -> list[tuple[Row, int]]:
    """Each example as a sequence, cut to the length there is, and how many tokens were cut off."""
    if letters:
        return _spelt(examples, tokenizer, length, letters)
    sides = [[example.texts[side] for example in examples if len(example.texts) > side] for side in (0, 1)]
    firsts, seconds = (iter(tokenizer.encode(texts)) for texts in sides)
    found = []
    for example in examples:
        second = next(seconds) if len(example.texts) > 1 else None
        room = length - 2 - (0 if second is None else tokenizer.between)
        first, second, cut = fitted(next(firsts), second, room)
        found.append((framed(tokenizer, first, second), cut))
    return found


def _spelt(examples: Sequence[Example], tokenizer: Tokenizer, length: int, letters: int) -> list[tuple[Row, int]]:
    """The same with each word spelt; a second text follows what ends the first."""
    texts = iter(spelt_texts(tokenizer, [text for example in examples for text in example.texts[:2]], letters))
    end, found = edges(letters)[1:], []
    for example in examples:
        ids, spelling = next(texts)
        if len(example.texts) > 1:
            more, others = next(texts)
            first, second, _ = fitted(list(range(len(ids))), list(range(len(more))), length - 3)
            cut = len(ids) + len(more) - len(first) - len(second or ())
            ids = [*ids[: len(first)], tokenizer.stop, *more[: len(second or ())]]
            spelling = np.concatenate([spelling[: len(first)], end, others[: len(second or ())]])
        else:
            cut = max(0, len(ids) - (length - 2))
        found.append((spelt(tokenizer, ids[: length - 2], spelling[: length - 2]), cut))
    return found
