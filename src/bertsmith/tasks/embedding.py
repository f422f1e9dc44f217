"""Sentence embeddings: one vector for a text, by contrastive learning, from scored pairs or from dropout (SimCSE)."""

from collections.abc import Sequence
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
from bertsmith.errors import RecipeError, TextError
from bertsmith.metrics import scores
from bertsmith.models.transformer import Transformer
from bertsmith.nn.pooling import Pooling, first_positions, last_positions, mean
from bertsmith.objectives.base import Term
from bertsmith.tasks.base import Bucket, Item, Task, count_tokens, with_special_tokens
from bertsmith.text.tokenizer import Tokenizer

EmbeddingLoss = Literal["pairs", "scores", "dropout"]


class SentenceEmbedding(Task):
    """Embeddings that are compared by cosine similarity. Reimers and Gurevych 2019; Gao et al. 2021 for `dropout`.

    pairs    contrastive, with in-batch negatives: the second text of a pair among all of the batch; a third is negative
    scores   squared error between the cosine of a pair and its score, divided by `max_score`
    dropout  SimCSE, without labels: contrastive between two passes of the same text with different dropout
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        loss: EmbeddingLoss = "pairs"  # contrastive on pairs, cosine on scored pairs, or SimCSE (dropout)
        pooling: Pooling = "mean"  # the vector of a text: the mean of its tokens, the first or the last
        scale: float = 20.0  # factor of cosines before the softmax: 1 / temperature
        max_score: float = 1.0  # the largest score in the data; 5 in STS-B

    def __init__(self, trunk: Transformer, config: Config, labels: tuple[str, ...] = ()) -> None:
        super().__init__(trunk, config, ())
        if config.loss == "dropout" and not (trunk.config.dropout or trunk.config.attention_dropout):
            fact = "the model has no dropout, so that both passes over a text are the same"
            raise RecipeError("task.loss", fact, "Add dropout=0.1")

    @classmethod
    def file_kind(cls, config: Config) -> Kind:
        return "pairs"

    def embeddings(self, tokens: Tokens) -> Float[Tensor, "B D"]:
        """Unit vectors."""
        if self.config.pooling == "mean":
            pooled = mean(self.trunk(tokens), tokens.bounds)
        else:
            first = self.config.pooling == "first"
            selected = first_positions(tokens.bounds, len(tokens.ids)) if first else last_positions(tokens.bounds)
            pooled = self.trunk(tokens, selected=selected)
        return F.normalize(pooled.float(), dim=-1)

    def forward(self, batch: LabelledBatch) -> dict[str, Term]:
        items, texts = batch.labels.shape[0], batch.labels.shape[1]
        found = self.embeddings(batch.tokens)[: items * texts].view(items, texts, -1)  # B texts D
        anchor, others = found[:, 0], found[:, 1:]
        labels = batch.labels[:, 0]
        if self.config.loss == "scores":
            cosine = (anchor * others[:, 0]).sum(-1)
            targets = torch.where(labels.isnan(), cosine.detach(), labels)
            return {"cosine": Term((cosine - targets).square().sum(), None)}
        # In-batch negatives: every other second text; padding items are masked.
        candidates = others.transpose(0, 1).flatten(0, 1)
        similarity = anchor @ candidates.T * self.config.scale
        missing = labels.isnan()
        similarity = similarity.masked_fill(missing.repeat(texts - 1), -1e30)
        targets = torch.where(missing, -100, torch.arange(items, device=similarity.device))
        return {"contrast": Term(F.cross_entropy(similarity, targets, reduction="sum", ignore_index=-100), None)}

    def preprocess(self, examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> list[Item]:
        texts = list(dict.fromkeys(text for example in examples for text in example.texts))
        encoded = dict(zip(texts, tokenizer.encode(texts), strict=True))
        count, items = self._texts_per_item(examples), []
        for number, example in enumerate(examples):
            named = example.texts * 2 if self.config.loss == "dropout" and len(example.texts) == 1 else example.texts
            if len(named) < count:
                raise TextError(example.location, "has no second text to compare with", "Give every row two")
            rows = tuple(with_special_tokens(tokenizer, encoded[text][: max_length - 2]) for text in named[:count])
            cut = max(max(0, len(encoded[text]) - max_length + 2) for text in named[:count])
            items.append(Item(rows=rows, example=number, target=self._target(example), truncated=cut))
        return items

    def collate(self, items: Sequence[Item], bucket: Bucket) -> LabelledBatch:
        texts = min(len(item.rows) for item in items)  # files with and without negatives may be mixed
        # With `dropout`, pairs are for evaluation, and training takes the first text only.
        rows = [item.rows[:1] * 2 if self.config.loss == "dropout" else item.rows[:texts] for item in items]
        tokens = bucket.collate([row for both in rows for row in both], bucket.batch_size * texts)
        labels = torch.full((bucket.batch_size if bucket.pad_to_multiple_of else len(items), texts), torch.nan)
        labels[: len(items), 0] = torch.tensor([item.target for item in items])
        name = "cosine" if self.config.loss == "scores" else "contrast"
        return LabelledBatch(tokens=tokens, labels=labels, counts={name: len(items), **count_tokens(items)})

    def outputs(self, tokens: Tokens) -> list[Tensor]:
        return list(self.embeddings(tokens))

    def postprocess(self, example: Example, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]) -> Any:
        one, other = outputs[0], outputs[min(1, len(outputs) - 1)]
        return {"cosine": float(one @ other), "vectors": [vector.tolist() for vector in outputs[: len(example.texts)]]}

    def score(self, examples: Sequence[Example], predictions: Sequence[Any]) -> dict[str, float]:
        """Rank correlation if pairs have scores, else retrieval accuracy; uniformity for single texts."""
        if all(isinstance(example.label, float) for example in examples):
            true = [float(example.label) for example in examples]  # type: ignore[arg-type]
            cosines = [prediction["cosine"] for prediction in predictions]
            return {"spearman": scores.spearman(true, cosines), "pearson": scores.pearson(true, cosines)}
        anchors = np.array([prediction["vectors"][0] for prediction in predictions])
        if all(len(example.texts) == 1 for example in examples):
            return {"uniformity": _uniformity(anchors)}
        partners = np.array([(prediction["vectors"] * 2)[1] for prediction in predictions])
        nearest = (anchors @ partners.T).argmax(-1)
        return {"accuracy": scores.accuracy(list(range(len(examples))), nearest.tolist())}

    def _texts_per_item(self, examples: Sequence[Example]) -> int:
        """The number of texts of an item: two, or three if every example has a hard negative."""
        fewest = min((len(example.texts) for example in examples), default=2)
        return 3 if fewest >= 3 and self.config.loss == "pairs" else 2

    def _target(self, example: Example) -> float:
        if self.config.loss != "scores":
            return 0.0
        if not isinstance(example.label, float):
            raise TextError(example.location, "has no score", "Give one, or use task.loss=pairs")
        return float(example.label / self.config.max_score)


def _uniformity(vectors: NDArray[np.float64]) -> float:
    """How evenly vectors are spread over the sphere; higher is better. Wang and Isola 2020, section 4.1.2."""
    some = vectors[:2048]
    squares = 2 - 2 * (some @ some.T)[np.triu_indices(len(some), 1)]
    return float(-np.log(np.exp(-2 * squares).mean())) if len(squares) else 0.0
