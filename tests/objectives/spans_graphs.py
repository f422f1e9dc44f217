"""Scripts that compile learning by spans; test_spans_run.py runs them where no shapes are checked at run time."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import T5
from bertsmith.nn.init import initialise
from bertsmith.objectives.spans import SpanBatch, SpanCorruption
from bertsmith.train.forward import cast_weights

SIZES = {"vocabulary": 300, "width": 128, "heads": 2, "layers": 2, "decoder_layers": 2, "feed_forward": 96}
# Gradients are looked at one by one: that of ReLU jumps where rounding changes a sign.
SHAPE = replace(T5, **SIZES, max_length=128, activation="gelu_tanh", dropout=0.0, attention_dropout=0.0)
NEAR = 0.1  # how far off a gradient may be, of its own length: rounding alone makes it 0.04


def objective() -> SpanCorruption:
    made = SpanCorruption(EncoderDecoder(SHAPE), SpanCorruption.Config())
    initialise(made, 0, std=0.05)
    with torch.no_grad():  # norms before make layers begin as if they were not there
        for name, weight in made.named_parameters():
            if name.endswith(("output.weight", "down.weight")):
                weight.normal_(0, 0.05)
    return made


def many(texts: int, seed: int = 3) -> SpanBatch:
    """As many tokens to a text, read and written, as a recipe's sequences of 128 have."""
    dice = torch.Generator().manual_seed(seed)
    sizes = [(int(read), int(read) // 5 + 2) for read in torch.randint(2, 117, (texts,), generator=dice)]
    read, written = (
        Tokens.from_rows([torch.randint(20, 300, (size,), generator=dice).tolist() for size in lengths] + [[], []])
        for lengths in zip(*sizes, strict=True)
    )
    targets = torch.randint(300, (len(written.ids),), generator=dice)
    return SpanBatch(tokens=read, decoder_tokens=written, targets=targets, text_mask=targets >= 20)


def slopes(made: SpanCorruption, given: SpanBatch, compute: Callable[[SpanBatch], Any]) -> dict[str, Tensor]:
    made.zero_grad()
    sum(term.weight * term.total for term in compute(given).values()).backward()
    return {name: weight.grad.double() for name, weight in made.named_parameters() if weight.grad is not None}


def every_gradient(device: str, texts: int, *, compiles: bool) -> None:
    """In half precision against the plain step in full, weight by weight: all in one, a table of distances, whose slope
    is a hundredth as long as the whole, could be wrong and nobody would see it."""
    made, given = objective().to(device), many(texts).to(device)
    rounded: Callable[[SpanBatch], Any] = partial(cast_weights, made, torch.bfloat16)
    step = torch.compile(rounded, fullgraph=True, dynamic=False) if compiles else rounded
    true, found = slopes(made, given, made), slopes(made, given, step)
    assert true.keys() == found.keys() == dict(made.named_parameters()).keys()
    off = {name: float((found[name] - slope).norm() / slope.norm()) for name, slope in true.items()}
    assert {"trunk.encoder.relative.weight", "trunk.decoder.relative.weight"} <= off.keys()
    assert max(off.values()) < NEAR, {name: share for name, share in off.items() if not share < NEAR}


def every_gradient_without_a_device() -> None:
    every_gradient("cpu", 2, compiles=False)  # half precision is slow on many processors


def every_gradient_on_a_device() -> None:
    every_gradient("cuda", 24, compiles=True)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
