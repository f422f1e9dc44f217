"""Probing: how well a linear classifier can read a label off each layer. Alain and Bengio 2016.

The protocol, the same for every layer: frozen hidden vectors, standardised by the training examples; a logistic
regression with a small L2 penalty, initialised at zero, trained by 300 full-batch steps of Adam with a cosine learning
rate schedule, which end within a hundredth of the lowest loss; accuracy on the dev examples. Layer 0 is the embedding.
Only the sample of examples is random, where there are more than the limit.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from markupsafe import Markup
from numpy.typing import NDArray
from torch import Tensor

from bertsmith import files
from bertsmith.data.labelled.examples import Example, Sentence
from bertsmith.data.rows import Row, batch_by_length, pack_rows
from bertsmith.errors import TextError
from bertsmith.insight.layers import layer_chart, page
from bertsmith.models.transformer import Transformer
from bertsmith.nn import pooling as pools
from bertsmith.random_bits import permute, uniform
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.tagging import TokenClassification, make_windows
from bertsmith.text.tokenizer import Tokenizer

Kind = Literal["tag", "classify"]

STEPS, LEARNING_RATE, L2_PENALTY = 300, 0.1, 1e-3
BATCH_TOKENS = 4096  # tokens in one pass: the vectors of all layers are kept


@dataclass(frozen=True, kw_only=True)
class ProbeResults:
    """What was read off each layer."""

    kind: Kind
    labels: tuple[str, ...]
    accuracy: tuple[float, ...]  # on the dev examples, by layer; 0 is the embedding
    control: tuple[float, ...] | None  # the same where each word has a tag drawn at random. Hewitt and Liang 2019
    majority: float  # the accuracy of the commonest training label
    train_count: int  # words, or texts, that the probes were fitted to
    dev_count: int  # and those that they were judged by
    seed: int

    @property
    def best(self) -> int:
        """The layer that says most; of equals the lowest."""
        return self.accuracy.index(max(self.accuracy))

    @property
    def selectivity(self) -> tuple[float, ...] | None:
        """How far a layer goes beyond what a probe could have learnt by heart, word by word."""
        if self.control is None:
            return None
        return tuple(real - drawn for real, drawn in zip(self.accuracy, self.control, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """As values that JSON can hold."""
        protocol = {"steps": STEPS, "learning_rate": LEARNING_RATE, "l2_penalty": L2_PENALTY}
        return {**asdict(self), "selectivity": self.selectivity, "best": self.best, "protocol": protocol}


def probe(
    trunk: Transformer,
    tokenizer: Tokenizer,
    train_examples: Sequence[Any],
    dev_examples: Sequence[Any],
    kind: Kind,
    *,
    pooling: pools.Pooling = "mean",
    limit: int = 20_000,
    seed: int = 0,
) -> ProbeResults:
    """Read labels off every layer: of words by their first piece, of texts by their mean or first vector.

    `limit` is about the number of words or texts of either set; the vectors of all layers are kept in memory.
    """
    train, dev = (_sample(examples, kind, limit, seed) for examples in (train_examples, dev_examples))
    reader = TokenClassification if kind == "tag" else SequenceClassification
    labels = reader.collect_labels([*train, *dev])
    if len(labels) < 2:
        raise TextError("probe", f"there is but one label, {labels}", "Give examples of at least two")
    was_training = trunk.training
    trunk.eval()
    parts = [_labelled_vectors(trunk, tokenizer, examples, kind, labels, pooling) for examples in (train, dev)]
    trunk.train(was_training)
    (known, targets, words), (unknown, truth, unseen) = parts
    commonest = Counter(targets.tolist()).most_common(1)[0][0]
    questions, answers = [targets], [truth]
    if kind == "tag":
        shares = np.bincount(targets, minlength=len(labels)) / len(targets)
        questions.append(_control_labels(words, shares, seed))
        answers.append(_control_labels(unseen, shares, seed))
    found = probe_accuracy(known, np.stack(questions, 1), unknown, np.stack(answers, 1), len(labels))
    return ProbeResults(
        kind=kind,
        labels=labels,
        accuracy=tuple(found[0]),
        control=tuple(found[1]) if kind == "tag" else None,
        majority=float((truth == commonest).mean()),
        train_count=len(targets),
        dev_count=len(truth),
        seed=seed,
    )


def picture(probed: ProbeResults) -> Markup:
    """The curve over the layers as SVG."""
    of = "words" if probed.kind == "tag" else "texts"
    return layer_chart(
        "What a linear probe reads off each layer",
        f"{len(probed.labels)} labels · {probed.train_count:,} {of} learnt, {probed.dev_count:,} judged",
        f"dev {of} judged right",
        ("probe", probed.accuracy),
        reference=("always the commonest label", probed.majority),
        comparison=None if probed.control is None else ("control: for each word a tag drawn at random", probed.control),
    )


def draw(probed: ProbeResults, path: str | Path) -> None:
    """The curve over the layers: a picture if the name ends in .svg, else a page with the picture in it."""
    drawn, path = picture(probed), Path(path)
    files.write_atomic(path, (drawn if path.suffix.lower() == ".svg" else page(drawn)).encode())


def probe_accuracy(
    train_vectors: Float[Tensor, "layers N D"],
    train_targets: NDArray[np.int64],  # N questions
    dev_vectors: Float[Tensor, "layers M D"],
    dev_targets: NDArray[np.int64],  # M questions
    classes: int,
) -> list[list[float]]:
    """The accuracy of each question at each layer. All are fitted at once, and none has a part in another's fit."""
    mean, deviation = train_vectors.mean(1, keepdim=True), train_vectors.std(1, keepdim=True, correction=0)
    scale = 1 / deviation.clamp(min=1e-6)  # a number that never changes says nothing
    weight, bias = _fit(
        (train_vectors - mean) * scale, torch.from_numpy(train_targets).to(train_vectors.device), classes
    )
    logits = torch.baddbmm(bias, (dev_vectors - mean) * scale, weight)  # layers M QC
    right = logits.view(*logits.shape[:2], -1, classes).argmax(-1) == torch.from_numpy(dev_targets).to(
        train_vectors.device
    )
    accuracy: list[list[float]] = right.double().mean(1).T.tolist()
    return accuracy


def _fit(vectors: Tensor, targets: Int[Tensor, "N Q"], classes: int) -> tuple[Tensor, Tensor]:
    """Matrices of all layers and questions. Adam looks at every number alone, so that they do not touch each other."""
    layers, _, width = vectors.shape
    outputs = targets.shape[1] * classes
    weight = vectors.new_zeros(layers, width, outputs, requires_grad=True)
    bias = vectors.new_zeros(layers, 1, outputs, requires_grad=True)
    adam = torch.optim.Adam([weight, bias], betas=(0.9, 0.99))
    wanted = targets.expand(layers, -1, -1).flatten()
    for step in range(STEPS):
        adam.param_groups[0]["lr"] = LEARNING_RATE * (1 + math.cos(math.pi * step / STEPS)) / 2
        logits = torch.baddbmm(bias, vectors, weight)  # layers N QC
        loss = F.cross_entropy(logits.view(-1, classes), wanted, reduction="sum") / len(targets)
        adam.zero_grad()
        (loss + L2_PENALTY / 2 * weight.square().sum()).backward()  # type: ignore[no-untyped-call]
        adam.step()
    return weight.detach(), bias.detach()


# ------------------------------------------------------------------------------------------ examples to vectors


def _sample(examples: Sequence[Any], kind: Kind, limit: int, seed: int) -> list[Any]:
    """Labelled examples, at random, until there are enough."""
    labelled = [example for example in examples if (example.tags if kind == "tag" else example.label) is not None]
    if not labelled:
        raise TextError("probe", f"none of {len(examples):,} examples has a label", "Give examples with labels")
    taken: list[Any] = []
    count = 0
    for number in permute(np.arange(len(labelled)), len(labelled), seed):
        example = labelled[number]
        if isinstance(example, Example) and not isinstance(example.label, str):
            raise TextError(example.location, f"the label {example.label} is no class", "Probe for classes")
        taken.append(example)
        count += len(example.words) if isinstance(example, Sentence) else 1
        if count >= limit:
            break
    return taken


def _labelled_vectors(
    trunk: Transformer,
    tokenizer: Tokenizer,
    examples: Sequence[Any],
    kind: Kind,
    labels: tuple[str, ...],
    pooled: pools.Pooling,
) -> tuple[Tensor, NDArray[np.int64], list[str]]:
    """Vectors (layers N D), the numbers of their labels, and the words they stand for, if words."""
    length = trunk.config.max_length
    if kind == "tag":
        items = make_windows(examples, tokenizer, length, labels, 0.5)
        places = [item.notes[0] for item in items]
        targets = [item.target[where] for item, where in zip(items, places, strict=True)]
        words = [examples[item.example].words[word] for item in items for word in item.notes[1]]
        return _vectors(trunk, [item.rows[0] for item in items], places), np.concatenate(targets), words
    with torch.device("meta"):  # only asked how it reads texts: its own weights need neither memory nor chance
        task = SequenceClassification(trunk, SequenceClassification.Config(), labels)
    items = task.preprocess(examples, tokenizer, length)
    vectors = _vectors(trunk, [item.rows[0] for item in items], pooled)
    return vectors, np.array([item.target for item in items]), []


@torch.no_grad()
def _vectors(trunk: Transformer, rows: Sequence[Row], where: Sequence[NDArray[np.int64]] | pools.Pooling) -> Tensor:
    """The vectors of all layers at some places of each row, or one for the whole row; in the order of the rows."""
    device = trunk.embedding.weight.device
    found = [torch.empty(0)] * len(rows)
    for some in batch_by_length([len(row) for row in rows], BATCH_TOKENS):
        tokens = pack_rows([rows[row] for row in some]).to(device)
        states = torch.stack(trunk.hidden_states(tokens), 1).float()  # T layers D
        if isinstance(where, str):
            pooled = pools.POOLS[where](states.flatten(1), tokens.bounds)  # B layers * D
            parts = torch.split(pooled.view(-1, *states.shape[1:]), 1)
        else:
            begins = tokens.bounds.tolist()
            chosen = np.concatenate([where[row] + begin for row, begin in zip(some, begins, strict=False)])
            counts = [len(where[row]) for row in some]
            parts = torch.split(states[torch.from_numpy(chosen).to(device)], counts)
        for row, part in zip(some, parts, strict=True):
            found[row] = part
    return torch.cat(found).transpose(0, 1).contiguous()


def _control_labels(words: Sequence[str], shares: NDArray[np.float64], seed: int) -> NDArray[np.int64]:
    """A label for each word, always the same for the same word, drawn as often as real ones are."""
    keys = [int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "little") for word in words]
    chance = uniform(seed, np.array(keys, np.uint64))
    return np.searchsorted(np.cumsum(shares)[:-1], chance, side="right")
