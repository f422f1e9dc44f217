"""The gradient of an update: the sum over its micro-batches, which several processes may share."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bertsmith.train.processes import Processes

MAX_BUCKET_BYTES = 1 << 26  # gradients that are sent at a time


class GradientSum:
    """Adds up gradients over micro-batches and processes: as they come, or in a fixed order.

    Adding numbers in another order gives other last bits. In the fixed order, that of a binary tree over all
    micro-batches of the update, the sum has the same bits whether one process adds up four micro-batches, two processes
    two each, or four processes one.
    """

    def __init__(self, parameters: Mapping[str, nn.Parameter], processes: Processes, *, in_order: bool) -> None:
        self.parameters, self.processes, self.in_order = parameters, processes, in_order
        self._subtrees: list[tuple[int, dict[str, Tensor]]] = []  # sums of 2**height micro-batches, the largest first
        self._losses: Tensor | None = None

    def add(self, losses: Tensor) -> None:
        """Take in a micro-batch after its backward pass, with its losses."""
        if not self.in_order:
            self._losses = losses if self._losses is None else self._losses + losses
            return
        found = {name: one.grad for name, one in self.parameters.items() if one.grad is not None} | {"": losses}
        for parameter in self.parameters.values():
            parameter.grad = None
        height = 0
        while self._subtrees and self._subtrees[-1][0] == height:
            _, left = self._subtrees.pop()
            found, height = _sum(left, found), height + 1
        self._subtrees.append((height, found))

    def finish(self) -> Tensor:
        """Set the gradients of the whole update, and return its losses."""
        if self.in_order:
            [(_, found)] = self._subtrees
            self._losses = found.pop("")
            for name, gradient in found.items():
                self.parameters[name].grad = gradient
        assert self._losses is not None, "an update has a micro-batch"
        losses, self._losses, self._subtrees = self._losses, None, []
        if self.processes.size > 1:
            self._add_up(losses)
        return losses

    def _add_up(self, losses: Tensor) -> None:
        """Over all processes. A parameter that has no gradient in one of them may have one in another."""
        names = list(self.parameters)
        given = {name: float(self.parameters[name].grad is not None) for name in names}
        total = self.processes.sum_numbers(given)
        for name in names:
            parameter = self.parameters[name]
            if total[name] and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [one.grad for one in self.parameters.values() if one.grad is not None]
        add = self.processes.sum_tensors_in_order if self.in_order else self.processes.sum_tensors
        for bucket in _buckets([losses, *gradients]):
            add(bucket)


def _sum(left: dict[str, Tensor], right: dict[str, Tensor]) -> dict[str, Tensor]:
    both = [name for name in left if name in right]
    torch._foreach_add_([left[name] for name in both], [right[name] for name in both])
    return right | left


def _buckets(tensors: list[Tensor]) -> list[list[Tensor]]:
    """Tensors in parts of limited size, so that no second copy of all of them is made."""
    buckets: list[list[Tensor]] = [[]]
    size = 0
    for tensor in tensors:
        if buckets[-1] and size + tensor.nbytes > MAX_BUCKET_BYTES:
            buckets.append([])
            size = 0
        buckets[-1].append(tensor)
        size += tensor.nbytes
    return buckets
