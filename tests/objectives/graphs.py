"""Scripts that compile an objective; test_replaced_run.py runs them where no shapes are checked at run time."""

import sys
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from bertsmith.data.batch import Batch, Tokens
from bertsmith.models.family import ELECTRA_SMALL
from bertsmith.models.transformer import Transformer
from bertsmith.nn.init import initialise
from bertsmith.objectives.replaced import ReplacedTokenDetection
from bertsmith.train.forward import cast_weights

SHAPE = replace(
    ELECTRA_SMALL,
    vocabulary=300,
    width=128,
    embedding_width=32,
    heads=2,
    layers=2,
    feed_forward=96,
    max_length=24,
    dropout=0.0,
    attention_dropout=0.0,
)
EQUAL = [list(range(9)), list(range(9, 18))]
RAGGED = [[7, 8, 9], [1] * 24, list(range(20)), [5], [9, 8, 7, 6] * 5, [], []]


def objective(layers: int = 2, **config: Any) -> ReplacedTokenDetection:
    made = ReplacedTokenDetection(
        Transformer(replace(SHAPE, layers=layers)), ReplacedTokenDetection.Config(generator_size=0.5, **config)
    )
    initialise(made, 0, std=0.1)
    return made


def batch(rows: list[list[int]], seed: int = 1) -> Batch:
    dice, size = torch.Generator().manual_seed(seed), sum(map(len, rows))
    chosen = torch.randperm(size, generator=dice)[:6].sort().values
    return Batch(
        tokens=Tokens.from_rows(rows),
        target_positions=chosen,
        targets=torch.randint(300, (6,), generator=dice),
        random_bits=torch.randint(-(1 << 31), 1 << 31, (6, 2), generator=dice).int(),
        text_mask=torch.arange(size) < size - 2,
    )


def compare(made: ReplacedTokenDetection, given: Batch, compute: Any, exact: bool = True) -> None:
    """Losses and gradients of a compiled step against those of a plain one."""
    found = []
    for step in (made, compute):
        made.zero_grad()
        terms = step(given)
        sum(term.weight * term.total for term in terms.values()).backward()
        losses = torch.stack([term.total.detach().float() for term in terms.values()])
        slopes = torch.cat([weight.grad.flatten() for weight in made.parameters() if weight.grad is not None])
        found.append((losses, slopes, {name: term.weight for name, term in terms.items()}))
    (plain, slope, weights), (losses, other, again) = found
    assert weights == again
    if exact:
        torch.testing.assert_close(losses, plain, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(other, slope, rtol=1e-3, atol=1e-3)
    else:  # of half precision: a draw or two may be another word
        torch.testing.assert_close(losses, plain, rtol=0.1, atol=0.1)
        assert torch.nn.functional.cosine_similarity(other, slope, 0) > 0.9


def without_a_device() -> None:
    """Equal rows for real; ragged rows on the meta device, which tries the graph and its shapes."""
    how: dict[str, Any] = {"fullgraph": True, "dynamic": False, "backend": "aot_eager"}
    for judged, layers in (("all", 2), ("masked", 1), ("none", 1)):  # the last layer computes only discriminated tokens
        made = objective(layers, discriminator_loss=judged)
        compare(made, batch(EQUAL), torch.compile(made, **how))
    hollow = objective(layers=1).to("meta")
    hollow.trunk.kernel = hollow.generator.trunk.kernel = "varlen"
    terms = torch.compile(partial(cast_weights, hollow, torch.bfloat16), **how)(batch(RAGGED).to("meta"))
    sum(term.total for term in terms.values()).backward()


def on_a_device() -> None:
    """A step in pure half precision by the real compiler; the second batch must never wait for the device."""
    made = objective().cuda()
    compiled = torch.compile(partial(cast_weights, made, torch.bfloat16), fullgraph=True, dynamic=False)
    first, second = (batch(RAGGED, seed).to("cuda") for seed in (1, 2))
    compare(made, first, compiled, exact=False)
    torch.cuda.set_sync_debug_mode("error")
    sum(term.weight * term.total for term in compiled(second).values()).backward()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
