"""Attributions by integrated gradients: how much each token contributed to a prediction. Sundararajan et al. 2017.

The gradient of an output is integrated along the straight line from a baseline, a text of [PAD] or [MASK] alone, to the
text. The attributions of all tokens then sum to the difference of the two outputs (completeness); the gap that the
numerical integral leaves is printed with them.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.data.rows import Row, pack_rows
from bertsmith.insight.inspection.attribution_targets import AttributionTarget, find_targets
from bertsmith.models.elmo import Elmo
from bertsmith.objectives.base import Objective
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.tokenizer import Tokenizer

MIN_STEPS, MAX_STEPS = 16, 512  # points of the path; doubled until the gap is small
MAX_GAP = 0.01  # of the difference of the outputs
PATH_TOKENS = 1024  # tokens in one pass, which keeps the activations of all layers for its gradient
SMALLEST = 1e-6  # difference of outputs that a gap is measured against


@dataclass(frozen=True, repr=False)
class Attribution:
    """The contribution of every token, and of every word, to one output."""

    name: str  # the output, such as "label: positive (0.97)"
    target: dict[str, Any]  # the same as JSON values
    scores: list[float]  # one for each token; special tokens have 0
    words: list[tuple[str, float]]  # the sums over the tokens of each word
    output: float  # of the text
    baseline: float  # of the baseline
    gap: float  # by how much the sum of the scores misses `output - baseline`, as a share of it
    steps: int  # points of the path

    def figures(self) -> dict[str, Any]:
        """The fields as JSON values."""
        return asdict(self) | {"words": [list(pair) for pair in self.words]}

    def __repr__(self) -> str:
        largest = sorted(self.words, key=lambda pair: -abs(pair[1]))[:5]
        scores = ", ".join(f"{word} {score:+.2f}" for word, score in largest)
        return f"Attribution({self.name!r}, {scores}, gap {self.gap:.1%})"


def attribute(
    objective: Objective, tokenizer: Tokenizer, row: Row, words: Sequence[int], shown: Sequence[str]
) -> list[Attribution]:
    """The attributions of the model's predictions for a text; empty if it predicts nothing of one text.

    `words` are the numbers of the words of all tokens, -1 of special tokens; `shown` are the tokens as people read
    them, which joined spell the words.
    """
    if isinstance(objective.trunk, Elmo):  # it reads characters, and has no embeddings of words
        return []
    special = np.array(words) < 0
    was_training = objective.training
    objective.eval()
    try:
        with torch.inference_mode(False):
            targets = find_targets(objective, tokenizer, row, words, shown)
            return [_attribute(objective, tokenizer, row, target, special, words, shown) for target in targets]
    finally:
        objective.train(was_training)


def _attribute(
    objective: Objective,
    tokenizer: Tokenizer,
    row: Row,
    target: AttributionTarget,
    special: Bool[np.ndarray, "T"],
    words: Sequence[int],
    shown: Sequence[str],
) -> Attribution:
    embedding: nn.Module = objective.trunk.embedding
    device = objective.trunk.embedding.weight.device
    with torch.no_grad():
        embedded = embedding(torch.from_numpy(row.ids).to(device)).double()
        baseline = embedded.clone()
        uninformative = baseline_id(objective, tokenizer)
        vector = 0.0 if uninformative is None else embedding(torch.tensor([uninformative], device=device)).double()[0]
        baseline[torch.from_numpy(~special).to(device)] = vector

    def outputs(points: Float[Tensor, "S T D"]) -> Float[Tensor, "S"]:
        tokens = pack_rows([row] * len(points)).to(device)
        with replaced_embeddings(embedding, tokens, points.flatten(0, 1)):
            return target.output(tokens).double()

    with torch.no_grad():
        whole, nothing = outputs(torch.stack([embedded, baseline]).float()).tolist()
    steps = MIN_STEPS
    while True:
        scores = integrate(outputs, baseline, embedded, steps)
        gap = abs(float(scores.sum()) - (whole - nothing)) / max(abs(whole - nothing), SMALLEST)
        if gap <= MAX_GAP or steps >= MAX_STEPS:
            break
        steps *= 2
    values = scores.tolist()
    return Attribution(
        target.name, target.details, values, word_scores(values, words, shown), whole, nothing, gap, steps
    )


def integrate(
    outputs: Any, baseline: Float[Tensor, "T D"], embedded: Float[Tensor, "T D"], steps: int
) -> Float64[np.ndarray, "T"]:
    """Integrated gradients of each token by Gauss-Legendre quadrature, whose error falls faster than a Riemann sum's.

    Sundararajan et al. 2017, equation 1: the difference to the baseline, times the mean gradient along the path.
    """
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    shares, weights = (nodes + 1) / 2, weights / 2  # from [-1, 1] to [0, 1]
    difference, total = embedded - baseline, torch.zeros_like(embedded)
    chunk = max(1, PATH_TOKENS // len(embedded))
    for start in range(0, steps, chunk):
        part = torch.from_numpy(shares[start : start + chunk]).to(embedded.device)[:, None, None]
        weight = torch.from_numpy(weights[start : start + chunk]).to(embedded.device)[:, None, None]
        with torch.enable_grad():
            points = (baseline + part * difference).float().requires_grad_()
            (gradient,) = torch.autograd.grad(outputs(points).sum(), points)
        total += (weight * gradient.double()).sum(0)
    return np.asarray((total * difference).sum(-1).cpu().numpy())


@contextmanager
def replaced_embeddings(embedding: nn.Module, tokens: Tokens, vectors: Float[Tensor, "T D"]) -> Iterator[None]:
    """Let a network read these vectors in place of the embeddings of these tokens.

    A decoder that shares the table looks up other tokens, and so keeps its own embeddings; so does a tied output layer.
    """

    def replace_output(_: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        return vectors.to(output.dtype) if inputs[0] is tokens.ids else output

    handle = embedding.register_forward_hook(replace_output)
    try:
        yield
    finally:
        handle.remove()


def baseline_id(objective: Objective, tokenizer: Tokenizer) -> int | None:
    """The token that stands for no information: [MASK] before fine-tuning, else [PAD]; None: a vector of zeros."""
    roles = ("mask", "padding") if isinstance(objective, MaskedLM) else ("padding", "mask")
    return next((tokenizer.roles[role] for role in (*roles, "unknown") if role in tokenizer.roles), None)


def word_scores(scores: Sequence[float], words: Sequence[int], shown: Sequence[str]) -> list[tuple[str, float]]:
    """The words, each with the sum over its tokens, in the order of the text."""
    spelt, sums = dict[int, str](), dict[int, float]()
    for score, word, piece in zip(scores, words, shown, strict=True):
        if word >= 0:
            spelt[word] = spelt.get(word, "") + piece
            sums[word] = sums.get(word, 0.0) + score
    return [(spelt[word], sums[word]) for word in spelt]
