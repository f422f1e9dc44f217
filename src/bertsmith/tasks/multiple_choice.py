"""Multiple choice: which of several endings continues a context."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import LabelledBatch, Tokens
from bertsmith.data.labelled.examples import Example, Kind
from bertsmith.errors import TextError
from bertsmith.metrics import scores
from bertsmith.models.transformer import Transformer, make_pooler
from bertsmith.nn.heads import Classifier
from bertsmith.nn.pooling import first_positions
from bertsmith.objectives.base import Term
from bertsmith.tasks.base import Bucket, Item, Task, count_tokens, truncate, with_special_tokens
from bertsmith.text.tokenizer import Tokenizer


class MultipleChoice(Task):
    """A score for each ending, and a softmax over them. Devlin et al. 2018, section 4.4."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        pass

    def __init__(self, trunk: Transformer, config: Config, labels: tuple[str, ...]) -> None:
        super().__init__(trunk, config, labels)  # numbers of the endings; none: by example
        self.pooler = make_pooler(trunk.config)
        self.classifier = Classifier(trunk.config.width, 1, trunk.config.dropout)

    @classmethod
    def file_kind(cls, config: Config) -> Kind:
        return "choose"

    @classmethod
    def collect_labels(cls, examples: Iterable[Example]) -> tuple[str, ...]:
        return tuple(str(number) for number in range(len(next(iter(examples)).texts) - 1))

    def forward(self, batch: LabelledBatch) -> dict[str, Term]:
        logits = self._logits(batch.tokens)[: len(batch.labels) * len(self.labels)]
        logits = logits.view(len(batch.labels), len(self.labels))  # B endings
        return {"choice": Term(F.cross_entropy(logits, batch.labels, reduction="sum", ignore_index=-100), None)}

    def preprocess(self, examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> list[Item]:
        texts = list(dict.fromkeys(text for example in examples for text in example.texts))
        encoded = dict(zip(texts, tokenizer.encode(texts), strict=True))
        items = []
        for number, example in enumerate(examples):
            beginning, *endings = example.texts
            if self.labels and len(endings) != len(self.labels):
                fact = f"has {len(endings)} endings where others have {len(self.labels)}"
                raise TextError(example.location, fact, "Give every row as many")
            pairs = [
                truncate(encoded[beginning], encoded[ending], max_length - 2 - tokenizer.separator_count)
                for ending in endings
            ]
            rows = tuple(with_special_tokens(tokenizer, first, second) for first, second, _ in pairs)
            target = -100 if example.label is None else self._label_id(example)
            items.append(Item(rows=rows, example=number, target=target, truncated=max(cut for *_, cut in pairs)))
        return items

    def collate(self, items: Sequence[Item], bucket: Bucket) -> LabelledBatch:
        tokens = bucket.collate([row for item in items for row in item.rows], bucket.batch_size * len(self.labels))
        labels = torch.full((bucket.batch_size if bucket.pad_to_multiple_of else len(items),), -100)
        labels[: len(items)] = torch.tensor([item.target for item in items])
        counts = {"choice": max(1, int((labels != -100).sum())), **count_tokens(items)}
        return LabelledBatch(tokens=tokens, labels=labels, counts=counts)

    def outputs(self, tokens: Tokens) -> list[Tensor]:
        return list(self._logits(tokens))

    def postprocess(self, example: Example, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]) -> Any:
        logits = np.array(outputs, np.float64)
        exponentials = np.exp(logits - logits.max())
        best = int(logits.argmax())
        labels = self.labels or self.collect_labels([example])
        named = dict(zip(labels, (exponentials / exponentials.sum()).tolist(), strict=True))
        return {"label": labels[best], "ending": example.texts[1 + best], "probabilities": named}

    def score(self, examples: Sequence[Example], predictions: Sequence[Any]) -> dict[str, float]:
        gold = [str(example.label) for example in examples]
        return {"accuracy": scores.accuracy(gold, [prediction["label"] for prediction in predictions])}

    def _logits(self, tokens: Tokens) -> Tensor:
        starts = first_positions(tokens.bounds, len(tokens.ids))
        scored: Tensor = self.classifier(self.pooler(self.trunk(tokens, selected=starts))).float()
        return scored[:, 0]

    def _label_id(self, example: Example) -> int:
        label, labels = str(example.label), self.collect_labels([example])
        if label not in labels:
            raise TextError(example.location, f"there is no ending {label}", f"Number them 0 to {len(labels) - 1}")
        return labels.index(label)
