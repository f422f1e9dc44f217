"""Text classification: single label, multi-label or regression, of one text or a pair; with class weights."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int, Shaped
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import LabelledBatch, Tokens
from bertsmith.data.labelled.examples import Example, Kind
from bertsmith.errors import RecipeError, TextError, suggest
from bertsmith.metrics import scores
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.transformer import Transformer, make_pooler
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.heads import Classifier
from bertsmith.nn.pooling import Pooling, first_positions, last_positions, mean
from bertsmith.objectives.base import Term
from bertsmith.objectives.causal import tied_logits
from bertsmith.tasks.base import Bucket, Item, Task, count_tokens, truncate, with_special_tokens
from bertsmith.text.tokenizer import Tokenizer

Problem = Literal["single_label", "regression", "multi_label"]
Metric = Literal["accuracy", "f1", "accuracy_f1", "matthews", "macro_f1"]


@dataclass(frozen=True, kw_only=True)
class ClassificationBatch(LabelledBatch):
    """A class, a number or several labels for every sequence."""

    next_tokens: Int[Tensor, "T"] | None = None  # targets of the auxiliary next-token loss; None without one


class SequenceClassification(Task):
    """Sequence classification: one class, several labels, or a number, for a text or a pair.

    Devlin et al. 2018, section 4.1. The pooled vector, of the first token or the mean of all, goes through the pooler
    and a linear layer. Losses: cross-entropy, binary cross-entropy for each label, or mean squared error.

    Causal networks use the last token, which attends to all others: Radford et al. 2018, section 3.2, who also keep
    next-token prediction as an auxiliary loss, at half the weight.
    """

    @dataclass(frozen=True, kw_only=True)
    class Config:
        problem: Problem = "single_label"  # one class, several labels (multi_label), or a number (regression)
        metric: Metric = "accuracy"  # the headline of single_label; the other metrics are reported, too
        threshold: float = 0.5  # probability from which multi_label predicts a label
        pooling: Pooling | None = None  # the vector of a text: its first token, its last, or the mean of all
        class_weights: Literal["none", "balanced"] = "none"  # balanced: rare classes weigh more, all the same in total
        lm_weight: float = 0.0  # weight of an auxiliary next-token loss; Radford et al. 2018: 0.5

        def __post_init__(self) -> None:
            if self.class_weights == "balanced" and self.problem == "regression":
                raise ValueError("class_weights are balanced, and numbers have no classes. Leave them out")
            if not 0 <= self.lm_weight < np.inf:
                raise ValueError(f"lm_weight is {self.lm_weight}. Give at least 0, usually 0.5")

    def __init__(self, trunk: Transformer, config: Config, labels: tuple[str, ...]) -> None:
        super().__init__(trunk, config, ("number",) if config.problem == "regression" else labels)
        if config.problem == "single_label":
            self.check_classes()
        if config.problem == "single_label" and config.metric not in ("accuracy", "macro_f1") and len(labels) != 2:
            raise RecipeError("task.metric", f"'{config.metric}' needs two classes", "Use accuracy or macro_f1")
        if config.pooling is not None:
            _check_pooling(config.pooling, trunk.config)
        if config.lm_weight and not trunk.config.causal:
            fact = "the network is not causal, and would see the tokens that it has to predict"
            raise RecipeError("task.lm_weight", fact, "Set it to 0, or use a network such as gpt2")
        self.pooler = make_pooler(trunk.config)
        bias = not trunk.config.causal  # as in transformers
        self.classifier = Classifier(trunk.config.width, len(self.labels), trunk.config.dropout, bias)
        self.mean, self.deviation = 0.0, 1.0  # of the numbers, by which outputs of the head are standardised
        self.class_weights: Tensor | None  # None: all the same
        self.register_buffer("class_weights", None, persistent=False)

    def check_classes(self) -> None:
        """Refuse fewer than two classes. A trained multi-label model may have one, with a sigmoid of its own."""
        if self.config.problem != "regression" and len(self.labels) < 2:
            raise RecipeError("task", f"there is only one class, {self.labels}", "Give examples of at least two")

    def set_class_weights(self, labels: Iterable[Any]) -> None:
        """Set class weights by the frequency of these labels.

        As in scikit-learn: examples / (classes x examples of the class), so that the mean weight is 1. In multi-label
        problems, the positive examples of a label weigh negatives / positives.
        """
        counts, total = Counter[str](), 0
        for label in labels:
            if label is not None:
                counts.update(label if isinstance(label, tuple) else [str(label)])
                total += 1
        seen = torch.tensor([max(1, counts[name]) for name in self.labels], dtype=torch.float32)
        self.class_weights = (
            (total - seen).clamp(min=1) / seen if self.config.problem == "multi_label" else total / len(seen) / seen
        )

    def standardise(self, mean: float, deviation: float) -> None:
        """Standardise the targets of regression: in their own unit, such as prices in thousands, the head would need
        thousands of steps to reach them. `fold_standardisation` undoes it. A head without bias stays as it is."""
        if self.config.problem == "regression" and self.classifier.dense.bias is not None:
            self.mean, self.deviation = mean, deviation or 1.0

    def fold_standardisation(self) -> None:
        """Fold mean and deviation into the head's weights: the same predictions by a plain linear layer."""
        if self.config.problem == "regression" and self.classifier.dense.bias is not None:
            with torch.no_grad():
                self.classifier.dense.weight.mul_(self.deviation)
                self.classifier.dense.bias.mul_(self.deviation).add_(self.mean)
            self.mean, self.deviation = 0.0, 1.0

    @property
    def pooling(self) -> Pooling:
        """The configured pooling, or that of transformers."""
        configured: Pooling | None = self.config.pooling
        return configured or ("last" if self.trunk.config.causal else "first")

    @classmethod
    def file_kind(cls, config: Config) -> Kind:
        kinds: dict[Problem, Kind] = {"single_label": "classify", "regression": "number", "multi_label": "labels"}
        return kinds[config.problem]

    @classmethod
    def collect_labels(cls, examples: Iterable[Example]) -> tuple[str, ...]:
        """Numbers in numerical order, names in alphabetical order."""
        named: set[str] = set()
        for example in examples:
            if example.label is not None:
                named.update(example.label if isinstance(example.label, tuple) else [str(example.label)])
        if all(name.removeprefix("-").isdecimal() for name in named):
            return tuple(sorted(named, key=lambda name: (int(name), name)))
        return tuple(sorted(named))

    def logits(self, tokens: Tokens) -> Float[Tensor, "B C"]:
        match self.pooling:
            case "mean":
                return self._classify(mean(self.trunk(tokens), tokens.bounds))
            case "first":
                return self._classify(self.trunk(tokens, selected=first_positions(tokens.bounds, len(tokens.ids))))
            case "last":
                return self._classify(self.trunk(tokens, selected=last_positions(tokens.bounds)))

    def forward(self, batch: ClassificationBatch) -> dict[str, Term]:
        if batch.next_tokens is None:
            return {"class": self._classification_term(self.logits(batch.tokens), batch.labels)}
        hidden = self.trunk(batch.tokens)
        logits = tied_logits(hidden, self.trunk.embedding.weight, self.training).float()  # T V
        total = F.cross_entropy(logits, batch.next_tokens, reduction="sum", ignore_index=-100)
        read = self._classify(hidden.index_select(0, last_positions(batch.tokens.bounds)))
        return {
            "class": self._classification_term(read, batch.labels),
            "language": Term(total, None, self.config.lm_weight),
        }

    def _classify(self, vectors: Float[Tensor, "B D"]) -> Float[Tensor, "B C"]:
        scored: Tensor = self.classifier(self.pooler(vectors)).float()
        return scored if self.config.problem != "regression" else scored * self.deviation + self.mean

    def _classification_term(self, scored: Float[Tensor, "S C"], labels: Shaped[Tensor, "B ..."]) -> Term:
        logits = scored[: len(labels)]
        match self.config.problem:
            case "single_label":
                total = F.cross_entropy(logits, labels, self.class_weights, reduction="sum", ignore_index=-100)
            case "regression":
                predicted = logits[:, 0]
                errors = (predicted - torch.where(labels.isnan(), predicted.detach(), labels)) / self.deviation
                total = errors.square().sum()
            case "multi_label":
                known = labels >= 0
                given = labels.clamp(min=0)
                losses = F.binary_cross_entropy_with_logits(
                    logits, given, reduction="none", pos_weight=self.class_weights
                )
                total = torch.where(known, losses, 0.0).sum() / len(self.labels)
        return Term(total, None)

    def preprocess(self, examples: Sequence[Example], tokenizer: Tokenizer, max_length: int) -> list[Item]:
        firsts = tokenizer.encode([example.texts[0] for example in examples])
        pairs = [number for number, example in enumerate(examples) if len(example.texts) > 1]
        seconds = dict(zip(pairs, tokenizer.encode([examples[number].texts[1] for number in pairs]), strict=True))
        items = []
        for number, example in enumerate(examples):
            second = seconds.get(number)
            room = max_length - 2 - (0 if second is None else tokenizer.separator_count)
            first, second, cut = truncate(firsts[number], second, room)
            row = with_special_tokens(tokenizer, first, second)
            items.append(Item(rows=(row,), example=number, target=self._target(example), truncated=cut))
        return items

    def collate(self, items: Sequence[Item], bucket: Bucket) -> ClassificationBatch:
        tokens = bucket.collate([item.rows[0] for item in items], bucket.batch_size)
        targets = [item.target for item in items]
        room = bucket.batch_size if bucket.pad_to_multiple_of else len(items)
        labels: Tensor
        match self.config.problem:
            case "single_label":
                labels = torch.full((room,), -100)
            case "regression":
                labels = torch.full((room,), torch.nan)
            case "multi_label":
                labels = torch.full((room, len(self.labels)), -1.0)
        nothing = labels.flatten()[0].item()
        labels[: len(items)] = torch.from_numpy(np.array(targets))
        known = ~(labels.isnan() | (labels == nothing)).view(room, -1)[:, 0]
        counts = {"class": max(1, int(known.sum())), **count_tokens(items)}
        if not self.config.lm_weight:
            return ClassificationBatch(tokens=tokens, labels=labels, counts=counts)
        following = torch.full((len(tokens.ids),), -100)
        ends = tokens.bounds[1 : len(items) + 1].long()
        following[: ends[-1] - 1] = tokens.ids[1 : ends[-1]]
        following[ends - 1] = -100  # the last token has no next one
        counts["language"] = max(1, int((following != -100).sum()))
        return ClassificationBatch(tokens=tokens, labels=labels, next_tokens=following, counts=counts)

    def outputs(self, tokens: Tokens) -> list[Tensor]:
        return list(self.logits(tokens))

    def postprocess(self, example: Example, items: Sequence[Item], outputs: Sequence[NDArray[np.float32]]) -> Any:
        logits = outputs[0].astype(np.float64)
        match self.config.problem:
            case "regression":
                return {"number": float(logits[0])}
            case "multi_label":
                probabilities = (1 + np.tanh(logits / 2)) / 2  # the sigmoid, without overflow
                named = dict(zip(self.labels, probabilities.tolist(), strict=True))
                given = [label for label, probability in named.items() if probability >= self.config.threshold]
                return {"labels": given, "probabilities": named}
        probabilities = np.exp(logits - logits.max())
        probabilities /= probabilities.sum()
        named = dict(zip(self.labels, probabilities.tolist(), strict=True))
        return {"label": self.labels[int(logits.argmax())], "probabilities": named}

    def score(self, examples: Sequence[Example], predictions: Sequence[Any]) -> dict[str, float]:
        gold = [example.label for example in examples]
        match self.config.problem:
            case "regression":
                true, predicted = [float(label) for label in gold], [one["number"] for one in predictions]  # type: ignore[arg-type]
                return {"spearman": scores.spearman(true, predicted), "pearson": scores.pearson(true, predicted)}
            case "multi_label":
                sets, found = [set(label) for label in gold], [set(one["labels"]) for one in predictions]  # type: ignore[arg-type]
                exact = float(np.mean([one == other for one, other in zip(sets, found, strict=True)]))
                return {"micro_f1": scores.micro_f1(sets, found), "accuracy": exact}
        true_ids = [self.labels.index(str(label)) for label in gold]
        predicted_ids = [self.labels.index(prediction["label"]) for prediction in predictions]
        metrics = scores.classification_scores(true_ids, predicted_ids, len(self.labels))
        return {self.config.metric: metrics.pop(self.config.metric), **metrics}

    def _target(self, example: Example) -> Any:
        """The label as numbers; -100, NaN or -1 without a label."""
        label = example.label
        match self.config.problem:
            case "regression":
                return np.float32(label if isinstance(label, float) else np.nan)
            case "multi_label":
                if label is None:
                    return np.full(len(self.labels), -1, np.float32)
                named = [self._label_id(name, example.location) for name in label]  # type: ignore[union-attr]
                return np.isin(np.arange(len(self.labels)), named).astype(np.float32)
        return -100 if label is None else self._label_id(str(label), example.location)

    def _label_id(self, label: str, location: str) -> int:
        if label not in self.labels:
            raise TextError(location, f"the label '{label}' is not among those learnt", suggest(label, self.labels))
        return self.labels.index(label)


def _check_pooling(pooling: Pooling, shape: TransformerConfig) -> None:
    """Refuse a pooling that transformers' config cannot express, before training."""
    default: Pooling = "last" if shape.causal else "first"
    if pooling == default:
        return
    known = layout_of(shape).poolings
    if not known:
        kind, other = ("GPT", "") if shape.causal else ("BERT", ", or a network such as smith-base")
        fact = f"transformers' {kind} classifies by the {default} token alone"
        raise RecipeError("task.pooling", fact, f"Use '{default}'{other}")
    if pooling not in known:
        fact = f"transformers has no '{pooling}' pooling with this network"
        raise RecipeError("task.pooling", fact, f"Use {' or '.join(known)}")
