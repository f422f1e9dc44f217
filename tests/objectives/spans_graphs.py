"""Scripts that compile learning by spans; test_spans_run.py runs them where no shapes are checked at run time."""

import sys
from dataclasses import replace
from importlib.util import find_spec

import compiled
import torch

from bertsmith.data.batch import Batch, Tokens
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import T5
from bertsmith.nn.attention import Kernel
from bertsmith.nn.init import initialise
from bertsmith.objectives.spans import SpanCorruption

SIZES = {"vocabulary": 300, "width": 128, "heads": 2, "layers": 2, "decoder": 2, "feed_forward": 96, "length": 24}
SHAPE = replace(T5, **SIZES, dropout=0.0, attention_dropout=0.0)
READ = [[7, 8, 9], [1] * 24, list(range(20)), [5], [9, 8, 7, 6] * 5, [], []]
WRITTEN = [[0, 5], [0, 3, 4, 4, 2], [0] * 6, [0], [0, 9], [], []]


def objective() -> SpanCorruption:
    made = SpanCorruption(EncoderDecoder(SHAPE), SpanCorruption.Config())
    initialise(made, 0, deviation=0.05)
    with torch.no_grad():  # norms before make layers begin as if they were not there
        for name, weight in made.named_parameters():
            if name.endswith(("output.weight", "narrow.weight")):
                weight.normal_(0, 0.05)
    return made


def batch(seed: int = 1) -> Batch:
    dice, size = torch.Generator().manual_seed(seed), sum(map(len, WRITTEN))
    targets = torch.randint(300, (size,), generator=dice)
    targets[-2:] = -100
    tokens, written = Tokens.of(READ), Tokens.of(WRITTEN)
    return Batch(tokens=tokens, written=written, targets=targets, real=targets >= 20)


def without_a_device() -> None:
    kernel: Kernel = "short" if find_spec("triton") else "padded"  # as a GPU chooses
    compiled.without_a_device(objective, batch(), batch(), kernel)


def on_a_device() -> None:
    compiled.on_a_device(objective, batch(1), batch(2))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
