"""A compiled step of an objective; test_one_graph.py runs this where no shapes are checked at run time."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from laws.objectives import CHOSEN, FIRST, Case, halves, part, positions
from tiny import prepared

from bertsmith.data.batch import Batch
from bertsmith.models.layers import Attention, CrossAttention
from bertsmith.models.transformer import Transformer
from bertsmith.nn.kernel_choice import KernelName
from bertsmith.objectives.base import Pretraining
from bertsmith.objectives.replaced import ReplacedBatch
from bertsmith.train.forward import cast_weights

SIZES = {"width": 128, "heads": 2}  # of the heads of our kernels
GRAPHS = ("discriminator_loss",)  # choices that change the graph; others change what is in a batch


def cases(objective: str) -> list[Case]:
    chosen = [case for case in CHOSEN if any(name in GRAPHS for name in case.changes)]
    return [case for case in FIRST + chosen if case.objective == objective]


def compare(objective: Pretraining, batch: Batch, step: Callable[[Batch], Any], tolerance: float) -> None:
    """Losses and gradients of a compiled step against those of a plain one."""
    found = []
    for compute in (objective, step):
        objective.zero_grad()
        terms = compute(batch)
        sum(term.weight * term.total for term in terms.values()).backward()
        losses = torch.stack([term.total.detach().float() for term in terms.values()])
        gradients = {name: one.grad.float() for name, one in objective.named_parameters() if one.grad is not None}
        found.append((losses, gradients, {name: term.weight for name, term in terms.items()}))
    (true, gradient, names), (losses, other, again) = found
    assert names == again
    # In half precision a word or two may be sampled differently, where words are sampled (ELECTRA).
    samples = isinstance(batch, ReplacedBatch) and tolerance > 1e-3
    torch.testing.assert_close(losses, true, rtol=0.1 if samples else tolerance, atol=0)
    off = {name: float((other[name] - one).norm()) for name, one in gradient.items()}
    length = torch.cat([one.flatten() for one in gradient.values()]).norm()
    worst = max(off, key=off.__getitem__)
    whole = sum(one * one for one in off.values()) ** 0.5
    assert whole < (0.45 if samples else 10 * tolerance) * length, f"{worst}: {off[worst]} of {whole}, {length}"


def without_a_device(case: Case, data: Path) -> None:
    """Sequences of equal length for real; a ragged batch in half precision by one layer on the meta device, which tries
    the graph and its shapes."""
    how: dict[str, Any] = {"fullgraph": True, "dynamic": False, "backend": "aot_eager"}
    objective, feed = case.built(data, **SIZES)
    batch = next(one for one in map(feed, positions(feed)) if len(equal(one)) > 1)
    objective = objective.float().train()
    compare(objective, part(batch, equal(batch)), torch.compile(objective, **how), 1e-5)
    if case.changes:
        return
    layers = {name: 1 for name in ("layers", "decoder_layers") if getattr(case.config, name)}
    hollow = case.built(data, **SIZES, **layers)[0].float().train().to("meta")
    for module in hollow.modules():
        if isinstance(module, Transformer):  # the kernel that a GPU chooses
            relative: KernelName = "short" if find_spec("triton") else "padded"
            module.kernel = relative if module.config.relative else "varlen"
    terms = torch.compile(partial(cast_weights, hollow, torch.bfloat16), **how)(replace(batch, counts={}).to("meta"))
    sum(term.total for term in terms.values()).backward()


def equal(batch: Batch) -> list[int]:
    """The sequences of the greatest length, both in a batch and in its causal part: together they need no mask."""
    longest = torch.stack([one.tokens.bounds.diff() for one in halves(batch)]).amin(0)
    chosen: list[int] = (longest == batch.tokens.max_length).nonzero()[:, 0].tolist()
    return chosen


@torch.no_grad()
def shrink_queries(objective: Pretraining) -> None:
    """Queries as small as those that T5 begins with, since it does not divide its scores. With greater ones a softmax
    picks one key, and gradients in half precision are off by more than their norm, compiled or not.
    """
    for module in objective.modules():
        if isinstance(module, CrossAttention):
            module.query.weight /= module.query_scale
        elif isinstance(module, Attention):
            module.qkv.weight[: len(module.qkv.weight) // 3] /= module.query_scale


def on_a_device(case: Case, data: Path) -> None:
    """A step in half precision by the real compiler; the second batch must never wait for the device."""
    objective, feed = case.built(data, **SIZES)
    shrink_queries(objective)
    objective = objective.float().train().cuda()
    compiled = torch.compile(partial(cast_weights, objective, torch.bfloat16), fullgraph=True, dynamic=False)
    places = positions(feed)
    first, second = (replace(feed(next(places)), counts={}).to("cuda") for _ in range(2))
    compare(objective, first, compiled, 2e-2)
    torch.cuda.set_sync_debug_mode("error")
    sum(term.weight * term.total for term in compiled(second).values()).backward()
    torch.cuda.set_sync_debug_mode("default")


if __name__ == "__main__":
    name, device = sys.argv[1].split(":")
    with TemporaryDirectory() as folder:
        for case in cases(name):
            torch._dynamo.reset()
            (on_a_device if device == "cuda" else without_a_device)(case, prepared(Path(folder), case.kind))
