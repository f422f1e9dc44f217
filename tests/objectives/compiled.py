"""What scripts that compile an objective have in common."""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from bertsmith.data.batch import Batch
from bertsmith.models.transformer import Transformer
from bertsmith.nn.layout import Kernel
from bertsmith.objectives.base import Objective
from bertsmith.train.forward import cast_weights


def compare(made: Objective, given: Batch, compute: Any, most: float) -> None:
    """The loss and gradients of a compiled step against those of a plain one."""
    found = []
    for step in (made, compute):
        made.zero_grad()
        total = sum(term.weight * term.total for term in step(given).values())
        total.backward()
        slopes = torch.cat([weight.grad.flatten().float() for weight in made.parameters() if weight.grad is not None])
        found.append((total.detach().float(), slopes))
    (plain, slope), (loss, other) = found
    assert (loss - plain).abs() <= most * plain.abs(), (loss, plain)
    assert (other - slope).norm() <= 10 * most * slope.norm(), ((other - slope).norm(), slope.norm())


def without_a_device(
    make: Callable[[int], Objective], some: Batch, ragged: Batch, kernel: Kernel | None = None
) -> None:
    """A batch for real by two layers; and ragged rows by one on the meta device in half precision, which tries the
    graph and its shapes."""
    how: dict[str, Any] = {"fullgraph": True, "dynamic": False, "backend": "aot_eager"}
    made, hollow = make(2), make(1).to("meta")
    compare(made, some, torch.compile(made, **how), 1e-5)
    for part in hollow.modules():
        if isinstance(part, Transformer):
            part.kernel = kernel
    terms = torch.compile(partial(cast_weights, hollow, torch.bfloat16), **how)(ragged.to("meta"))
    sum(term.total for term in terms.values()).backward()


def on_a_device(make: Callable[[int], Objective], first: Batch, second: Batch) -> None:
    """A step in half precision by the real compiler; the second batch must never wait for the device."""
    made = make(2).cuda()
    compiled = torch.compile(partial(cast_weights, made, torch.bfloat16), fullgraph=True, dynamic=False)
    compare(made, first.to("cuda"), compiled, 2e-2)
    there = second.to("cuda")
    torch.cuda.set_sync_debug_mode("error")
    sum(term.weight * term.total for term in compiled(there).values()).backward()
