"""Scripts that compile learning by spans; test_spans_run.py runs them where no shapes are checked at run time."""

import sys
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from compiled import compare

from bertsmith.data.batch import Batch, Tokens
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import T5
from bertsmith.nn.init import initialise
from bertsmith.objectives.spans import SpanCorruption
from bertsmith.train.trainer import Trainer

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
    """Ragged rows, with empty ones at the end, as one graph; and in half precision on the meta device."""
    how: dict[str, Any] = {"fullgraph": True, "dynamic": False, "backend": "aot_eager"}
    made = objective()
    compare(made, batch(), torch.compile(made, **how), 1e-5)
    trainer = SimpleNamespace(objective=objective().to("meta"), precision=torch.bfloat16)
    terms = torch.compile(partial(Trainer._rounded, trainer), **how)(batch().to("meta"))
    sum(term.total for term in terms.values()).backward()


def on_a_device() -> None:
    """A step in half precision by the real compiler; the second batch must never wait for the device."""
    made = objective().cuda()
    trainer = SimpleNamespace(objective=made, precision=torch.bfloat16)
    compiled = torch.compile(partial(Trainer._rounded, trainer), fullgraph=True, dynamic=False)
    first, second = (batch(seed).to("cuda") for seed in (1, 2))
    compare(made, first, compiled, 2e-2)
    torch.cuda.set_sync_debug_mode("error")
    sum(term.weight * term.total for term in compiled(second).values()).backward()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
