"""What scripts that compile an objective have in common."""

from typing import Any

import torch

from bertsmith.data.batch import Batch
from bertsmith.objectives.base import Objective


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
