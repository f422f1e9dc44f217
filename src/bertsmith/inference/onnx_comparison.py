"""A graph compared with the network that it was exported from: outputs on random texts, and speed."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float64
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.data.rows import Row, batch_by_length, map_rows, pack_rows
from bertsmith.inference.model import Model
from bertsmith.models.transformer import Transformer
from bertsmith.tasks.base import Task, with_special_tokens
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.tagging import TokenClassification

SEED = 0
COMPARED_TEXTS, TIMED_TEXTS = 24, 64
MOST_TOKENS = 48  # of a random text; one of them is longer than any window of attention
LONG_TEXT = 200
COMPARED_TOKENS = 512  # tokens in a pass: logits over a large vocabulary take memory
TIMED_SECONDS = 1.0
TEXT_TOKENS = 32  # of the texts whose speed is measured, with the special ones
ROUNDING = 1e-10  # the variance of predictions that are all the same, as a share of their mean square


@dataclass(frozen=True)
class Difference:
    """How far the outputs of a graph are from those of the network."""

    largest: float  # difference of any two outputs
    cosine: float  # of hidden vectors the mean over tokens; of predictions a correlation, see `Sums`


@dataclass(frozen=True)
class Sums:
    """Sums over the rows of two tables of outputs, from which their cosine follows; a row is a text or a token.

    Of predictions, only what tells one text from another counts: the cosine is between the differences from the mean
    of each column (Pearson's correlation, over all columns), since an offset that all share makes any two tables
    parallel. Of logits that a softmax reads, the mean of the row is subtracted first, which changes no probability.
    """

    rows: int
    columns: Float64[Tensor, "2 C"]  # of ours and of theirs
    squares: Float64[Tensor, "2 C"]
    products: Float64[Tensor, "C"]

    @classmethod
    def of(cls, one: Float64[Tensor, "N C"], other: Float64[Tensor, "N C"]) -> "Sums":
        """The sums of a batch."""
        both = torch.stack([one, other])
        return cls(len(one), both.sum(1), both.square().sum(1), (one * other).sum(0))

    def __add__(self, more: "Sums") -> "Sums":
        columns, squares = self.columns + more.columns, self.squares + more.squares
        return Sums(self.rows + more.rows, columns, squares, self.products + more.products)

    def correlation(self) -> float:
        """The cosine without the mean of each column; predictions that are all the same have none, but a cosine."""
        squares = (self.squares - self.columns**2 / self.rows).sum(1)
        ours, theirs = (squares > ROUNDING * self.squares.sum(1)).tolist()
        if not ours:
            return self.cosine()
        product = (self.products - self.columns.prod(0) / self.rows).sum()
        return float(product / squares.prod().sqrt()) if theirs else 0.0

    def cosine(self) -> float:
        """The cosine of the tables as they are."""
        ours, theirs = self.squares.sum(1).tolist()
        return float(self.products.sum()) / (ours * theirs) ** 0.5 if ours and theirs else float(ours == theirs)


def random_rows(model: Model, count: int, least: int = 1, most: int = MOST_TOKENS) -> list[Row]:
    """Texts of random tokens, single ones and pairs by turns; the same for every call."""
    dice, tokenizer = np.random.default_rng(SEED), model.tokenizer
    words = np.flatnonzero(~tokenizer.special_mask)
    room = model.max_length - 2 - tokenizer.separator_count
    rows = []
    for number in range(count):
        size = min(LONG_TEXT if number == 0 and most == MOST_TOKENS else int(dice.integers(least, most + 1)), room)
        ids = dice.choice(words, size).tolist()
        cut = size // 2 if number % 2 else size
        rows.append(with_special_tokens(tokenizer, ids[:cut], ids[cut:] if cut < size else None))
    return rows


@torch.inference_mode()
def compare(ours: Model, theirs: Model) -> Difference:
    """The outputs of both on the same random texts, in batches with padding."""
    rows, largest, sums = random_rows(ours, COMPARED_TEXTS), 0.0, list[Sums]()
    predicts = isinstance(ours.objective, Task) or ours.has_lm_head
    for some in batch_by_length([len(row) for row in rows], COMPARED_TOKENS):
        tokens = pack_rows([rows[index] for index in some])
        one, other = (_table(_outputs(model, tokens)) for model in (ours, theirs))
        largest = max(largest, float((one - other).abs().max()))
        if not predicts:  # vectors, of which the direction counts
            one, other = F.normalize(one), F.normalize(other)
        elif _softmax_reads_rows(ours):
            one, other = (part - part.mean(1, keepdim=True) for part in (one, other))
        sums.append(Sums.of(one, other))
    total = sum(sums[1:], sums[0])
    return Difference(largest, total.correlation() if predicts else total.cosine())


def _table(outputs: list[Tensor]) -> Float64[Tensor, "N C"]:
    """A row for each text or token; the number for an ending is a row of one."""
    return torch.cat([part.reshape(-1, part.shape[-1] if part.ndim else 1) for part in outputs]).double().cpu()


def _softmax_reads_rows(model: Model) -> bool:
    """Whether each row of logits is read by a softmax: classes, tags or words, and not numbers or positions."""
    match model.objective:
        case SequenceClassification():
            return bool(model.objective.config.problem == "single_label")
        case Task():
            return isinstance(model.objective, TokenClassification)
    return True


def texts_per_second(model: Model) -> float:
    """The speed on texts of 32 tokens, as the calls of the model compute them: embed, predict, or fill."""
    size = min(TEXT_TOKENS, model.max_length) - 2 - model.tokenizer.separator_count
    rows = random_rows(model, TIMED_TEXTS, size, size)
    once = _timed_call(model, rows)
    once()  # the first call prepares the weights
    begin, passes = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - begin) < TIMED_SECONDS or not passes:
        once()
        passes += 1
    return len(rows) * passes / elapsed


def _timed_call(model: Model, rows: list[Row]) -> Any:
    if isinstance(model.objective, Task):
        return lambda: map_rows(rows, _inferred(model.task_outputs), model.device)
    if model.has_lm_head:
        predictor = model.mask_predictor()
        first = _inferred(lambda tokens: list(predictor(tokens, tokens.bounds[:-1].long())))
        return lambda: map_rows(rows, first, model.device)
    embedder = model.embedder()
    texts = [model.tokenizer.decode(row.ids.tolist()) for row in rows]
    return lambda: embedder(texts)


def _inferred(compute: Any) -> Any:
    return torch.inference_mode()(compute)


def _outputs(model: Model, tokens: Tokens) -> list[Tensor]:
    """Logits, or hidden vectors, of every sequence."""
    if isinstance(model.objective, Task):
        return model.task_outputs(tokens.to(model.device))
    tokens = tokens.to(model.device)
    if model.has_lm_head:
        return [model.mask_predictor()(tokens, torch.arange(len(tokens.ids), device=tokens.ids.device))]
    assert isinstance(model.trunk, Transformer)
    return [model.trunk(tokens)]
