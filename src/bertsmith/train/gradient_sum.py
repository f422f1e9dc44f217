"""The gradient of an update: the sum over its micro-batches, which several processes may share."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from bertsmith.train.gradient_buckets import GradientBuckets, divide
from bertsmith.train.processes import Processes


class GradientSum:
    """Adds up gradients over micro-batches and processes: as they come, or in a fixed order.

    As they come, several processes send them in buckets during the last backward pass of an update.

    Adding numbers in another order gives other last bits. In the fixed order, that of a binary tree over all
    micro-batches of the update, the sum has the same bits whether one process adds up four micro-batches, two processes
    two each, or four processes one.
    """

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        processes: Processes,
        *,
        in_order: bool,
        owners: Mapping[str, int] | None = None,  # the only process that needs the gradient of each parameter
    ) -> None:
        self.parameters, self.processes, self.in_order = parameters, processes, in_order
        self._subtrees: list[tuple[int, dict[str, Tensor]]] = []  # sums of 2**height micro-batches, the largest first
        self._losses: Tensor | None = None
        self._buckets = None if in_order or processes.size == 1 else GradientBuckets(parameters, processes, owners)

    def before_last(self) -> None:
        """The next backward pass is the last one of this process in the update."""
        if self._buckets is not None:
            self._buckets.send_when_complete()

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
        if self._buckets is not None:
            self._buckets.finish()
            self.processes.sum_tensors([losses])
        elif self.processes.size > 1:
            self._add_up_in_order(losses)
        return losses

    def _add_up_in_order(self, losses: Tensor) -> None:
        """Over all processes. A parameter that has no gradient in one of them may have one in another."""
        names = list(self.parameters)
        given = {name: float(self.parameters[name].grad is not None) for name in names}
        total = self.processes.sum_numbers(given)
        for name in names:
            parameter = self.parameters[name]
            if total[name] and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        gradients = [one.grad for one in self.parameters.values() if one.grad is not None]
        for bucket in divide([losses, *gradients]):
            self.processes.sum_tensors_in_order(bucket)


def _sum(left: dict[str, Tensor], right: dict[str, Tensor]) -> dict[str, Tensor]:
    both = [name for name in left if name in right]
    torch._foreach_add_([left[name] for name in both], [right[name] for name in both])
    return right | left
