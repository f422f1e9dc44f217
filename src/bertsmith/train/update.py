"""One optimizer update: gradient accumulation over micro-batches, one division by all counts, clipping, the step."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from bertsmith.data.batch import Batch
from bertsmith.objectives.base import Objective, Term
from bertsmith.random_bits import mix
from bertsmith.train.cuda_graphs import CudaGraphs
from bertsmith.train.forward import ForwardPass
from bertsmith.train.optimizers import Optimizer


class Update:
    """Forward, backward and optimizer step, seeded by (seed, step); on a GPU replayed from CUDA graphs if `capture`."""

    def __init__(
        self, objective: Objective, optimizer: Optimizer, forward: ForwardPass, *, seed: int, capture: bool
    ) -> None:
        self.optimizer, self.forward, self.seed = optimizer, forward, seed
        self.device = next(objective.parameters()).device
        self.graphs = CudaGraphs(self._captured_step, self.device) if capture and self.device.type == "cuda" else None
        self.loss_weights: dict[str, float] = {}  # of the loss terms by name, in the order of their values

    def __call__(self, batches: Sequence[Batch], counts: Mapping[str, Any], step: int) -> Tensor:
        """Update the weights. Returns each loss, the gradient norm, and 1 if the update was skipped, on the device."""
        if self.graphs is not None and len(batches) == 1:
            self._seed_dropout(step, 0)
            return self.graphs(batches[0])
        losses = []
        for index, batch in enumerate(batches):
            self._seed_dropout(step, index)
            losses.append(self.backward(self._terms(batch), counts))
        return self._optimizer_step(torch.stack(losses).sum(0))

    def backward(self, terms: Mapping[str, Term], counts: Mapping[str, Any]) -> Tensor:
        """Add the gradient of one micro-batch. Returns its share of each loss."""
        self.loss_weights = {name: term.weight for name, term in terms.items()}
        # A term may have no targets in this step (sentence order on single texts): its count is clamped to 1, so that
        # its loss is 0 and not 0/0.
        targets = {name: torch.as_tensor(counts[name]).clamp(min=1) for name in terms}
        losses = {name: term.total / targets[name] for name, term in terms.items()}
        weighted = torch.stack([self.loss_weights[name] * loss for name, loss in losses.items()])
        weighted.sum().backward()  # type: ignore[no-untyped-call]
        return torch.stack(list(losses.values())).detach()

    def warm_up(self, batch: Batch) -> None:
        """Compile the step, by one pass whose gradient is thrown away."""
        warnings.filterwarnings("ignore", module="torch._inductor")  # warnings for developers of the compiler
        sum(term.total for term in self._terms(batch).values()).backward()
        self.optimizer.zero_grad()
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def _captured_step(self, batch: Batch, counts: Mapping[str, Any]) -> Tensor:
        """A whole update by one batch that is on the device."""
        return self._optimizer_step(self.backward(self.forward(batch), counts))

    def _terms(self, batch: Batch) -> dict[str, Any]:
        # Without counts: they are plain numbers, and a compiled step would be compiled again for each.
        return self.forward(replace(batch.to(self.device), counts={}))

    def _optimizer_step(self, losses: Tensor) -> Tensor:
        norm, bad = self.optimizer.step()
        return torch.cat([losses, torch.stack([norm, bad.float()])])

    def _seed_dropout(self, step: int, index: int) -> None:
        seed = int(mix(self.seed, step, index)) >> 1
        if self.device.type == "cpu":  # torch.manual_seed would also queue a seed for CUDA, with a stack trace
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
