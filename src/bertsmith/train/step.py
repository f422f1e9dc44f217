"""A step of training: gradient accumulation over micro-batches, one division by all counts, clipping, the optimizer.

It owns all that touches weights: mixed precision, compilation, CUDA graphs and the average of the weights. The loop in
`trainer` only gives it batches.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bertsmith.data.batch import Batch
from bertsmith.objectives.base import Objective, Term
from bertsmith.random_bits import mix
from bertsmith.train.average import WeightAverage
from bertsmith.train.cuda_graphs import CudaGraphs
from bertsmith.train.forward import ForwardPass
from bertsmith.train.gradient_sum import GradientSum
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.processes import ALONE, Processes
from bertsmith.train.train_config import TrainConfig


@dataclass(frozen=True)
class StepResult:
    """What a step has computed. The values stay on the device, so that the host need not wait for them."""

    values: Tensor  # each loss, the gradient norm, and 1 if the update was skipped
    loss_weights: Mapping[str, float]  # of the loss terms by name, in the order of their values
    learning_rate: float
    counts: Mapping[str, int]  # of all micro-batches: tokens, and the targets of each loss term


class Step:
    """Forward, backward and optimizer step: plain, compiled, or replayed from CUDA graphs if the optimizer allows it.

    Losses are sums over targets, divided once by the counts of all micro-batches. Several processes compute some of the
    micro-batches each (data parallelism): counts are added up before the first `backward`, gradients during the last
    one or after it, and all processes have the same weights after the update.
    """

    def __init__(
        self,
        objective: Objective,
        optimizer: Optimizer,
        config: TrainConfig,
        precision: torch.dtype,
        processes: Processes = ALONE,
    ) -> None:
        self.objective, self.optimizer, self.seed, self.processes = objective, optimizer, config.seed, processes
        self.part = processes.part(config.gradient_accumulation)  # its micro-batches of each update
        self.device = next(objective.parameters()).device
        self.forward = ForwardPass(objective, config, precision)
        self.average = WeightAverage(objective, config.average, config.average_decay)
        in_order, shards = config.deterministic, optimizer.shards
        owners = shards.owners if shards.processes.size > 1 else None
        self.gradient = GradientSum(optimizer.parameters, processes, in_order=in_order, owners=owners)
        shards.has_own_gradients_only = owners is not None and not in_order
        self.divided_tables = {"optimizer"} if owners else set[str]()  # of which each process has a part
        captures = optimizer.capturable and self.device.type == "cuda" and processes.size == 1
        self.graphs = CudaGraphs(self._captured_step, self.device) if captures else None
        self.loss_weights: dict[str, float] = {}  # of the newest forward pass

    def __call__(self, batches: Sequence[Batch], step: int, rate_factor: float) -> StepResult:
        """Update the weights by the micro-batches of this process, at this factor of the peak learning rate."""
        own: Counter[str] = Counter()
        for batch in batches:
            own.update(batch.counts)
        counts = {name: round(count) for name, count in self.processes.sum_numbers(own).items()}
        self.optimizer.set_learning_rate(rate_factor)
        if self.graphs is not None and len(batches) == 1:
            self._seed_dropout(step, 0)
            values = self.graphs(self.objective.prepare(batches[0], self.device))
        else:
            for index, batch in zip(self.part, batches, strict=True):
                self._seed_dropout(step, index)
                if index == self.part[-1]:
                    self.gradient.before_last()
                self.gradient.add(self.backward(self._terms(batch), counts))
            values = self._optimizer_step(self.gradient.finish())
        return StepResult(values, self.loss_weights, self.optimizer.config.learning_rate * rate_factor, counts)

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

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """The objective in evaluation mode, with the averaged weights once the average has begun."""
        was_training = self.objective.training
        self.objective.eval()
        with self.average.applied(), torch.inference_mode(), self.forward.autocast():
            yield
        self.objective.train(was_training)

    def state_dict(self) -> dict[str, dict[str, Tensor]]:
        """The tables of a checkpoint: weights, the optimizer's state, and the average once it has begun."""
        tables = {"model": dict(self.objective.state_dict()), "optimizer": self.optimizer.state_dict()}
        return tables | self.average.tables()

    def load_state_dict(self, tables: Mapping[str, dict[str, Tensor]], averaged_updates: int) -> None:
        self.objective.load_state_dict(tables["model"])
        self.optimizer.load_state_dict(tables["optimizer"])
        self.average.load(tables.get("average", {}), averaged_updates)

    def _captured_step(self, batch: Batch, counts: Mapping[str, Any]) -> Tensor:
        """A whole update by one batch that is on the device."""
        return self._optimizer_step(self.backward(self.forward(batch), counts))

    def _terms(self, batch: Batch) -> dict[str, Any]:
        # Without counts: they are plain numbers, and a compiled step would be compiled again for each.
        return self.forward(replace(self.objective.prepare(batch, self.device).to(self.device), counts={}))

    def _optimizer_step(self, losses: Tensor) -> Tensor:
        norm, bad = self.optimizer.step()
        return torch.cat([losses, torch.stack([norm, bad.float()])])

    def _seed_dropout(self, step: int, index: int) -> None:
        seed = int(mix(self.seed, step, index)) >> 1
        if self.device.type == "cpu":  # torch.manual_seed would also queue a seed for CUDA, with a stack trace
            torch.default_generator.manual_seed(seed)
        else:
            torch.manual_seed(seed)
