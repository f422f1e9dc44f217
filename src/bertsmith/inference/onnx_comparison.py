"""A graph compared with the network that it was exported from: outputs on random texts, and speed."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.data.rows import Row, batch_by_length, map_rows, pack_rows
from bertsmith.inference.model import Model
from bertsmith.models.transformer import Transformer
from bertsmith.tasks.base import Task, with_special_tokens

SEED = 0
COMPARED_TEXTS, TIMED_TEXTS = 24, 64
MOST_TOKENS = 48  # of a random text; one of them is longer than any window of attention
LONG_TEXT = 200
COMPARED_TOKENS = 512  # tokens in a pass: logits over a large vocabulary take memory
TIMED_SECONDS = 1.0
TEXT_TOKENS = 32  # of the texts whose speed is measured, with the special ones


@dataclass(frozen=True)
class Difference:
    """How far the outputs of a graph are from those of the network."""

    largest: float  # difference of any two outputs
    cosine: float  # between all outputs of the one and of the other, laid end to end


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
    rows, largest = random_rows(ours, COMPARED_TEXTS), 0.0
    product = ours_square = theirs_square = 0.0
    for some in batch_by_length([len(row) for row in rows], COMPARED_TOKENS):
        tokens = pack_rows([rows[index] for index in some])
        one, other = (torch.cat([part.flatten() for part in _outputs(model, tokens)]) for model in (ours, theirs))
        one, other = one.double().cpu(), other.double()
        largest = max(largest, float((one - other).abs().max()))
        product += float(one @ other)
        ours_square += float(one @ one)
        theirs_square += float(other @ other)
    return Difference(largest, product / max((ours_square * theirs_square) ** 0.5, 1e-30))


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
