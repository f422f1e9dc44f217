"""The optimizer's state, divided among processes: ZeRO, stage 1. Rajbhandari et al. 2020, section 5.1.

Each process owns some parameters, whole ones, so that LAMB has their norms and Muon their matrices. It alone has their
state, updates them, and sends the new weights to all others (broadcast). Gradients are added up at the owner (reduce):
the two are as many bytes as gradients that are added up everywhere (all-reduce).
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor, nn

from bertsmith.train.gradient_buckets import divide, flatten
from bertsmith.train.processes import ALONE, Processes


class OptimizerShards:
    """Which process owns each parameter: neighbours, with about as much work for each. A single process owns all.

    `costs` are what an update of each parameter costs.
    """

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], costs: Mapping[str, float], processes: Processes = ALONE
    ) -> None:
        self.processes, self._parameters = processes, dict(parameters)
        self.owners = dict(zip(parameters, processes.divide([costs[name] for name in parameters]), strict=True))
        self.own = {name: one for name, one in parameters.items() if self.owners[name] == processes.rank}
        # Whether a process has the gradients of its own parameters only, or all have all, as in a fixed order of sums.
        self.has_own_gradients_only = processes.size > 1
        self._buckets = [
            (owner, bucket)
            for owner in range(processes.size)
            for bucket in divide([one for name, one in parameters.items() if self.owners[name] == owner])
        ]

    @torch.no_grad()
    def clip_gradients(self, max_norm: float) -> Float[Tensor, ""]:
        """Scale the gradients of this process so that the norm of all is at most this. Returns the norm before."""
        if not self.has_own_gradients_only:
            return nn.utils.clip_grad_norm_(list(self._parameters.values()), max_norm)
        gradients = [parameter.grad for parameter in self.own.values() if parameter.grad is not None]
        device = next(iter(self._parameters.values())).device
        norms = torch.stack(torch._foreach_norm(gradients)) if gradients else torch.zeros(1, device=device)
        square = norms.float().square().sum()
        self.processes.sum_tensors([square])
        norm = square.sqrt()
        nn.utils.clip_grads_with_norm_(list(self.own.values()), max_norm, norm)
        return norm

    @torch.no_grad()
    def send_weights(self) -> None:
        """Give all processes the weights of each owner."""
        if self.processes.size == 1:
            return
        sent = [self.processes.start_broadcast(flatten(bucket), owner) for owner, bucket in self._buckets]
        for (owner, bucket), pending in zip(self._buckets, sent, strict=True):
            parts = torch.split(pending.wait(), [parameter.numel() for parameter in bucket])
            if owner != self.processes.rank:
                torch._foreach_copy_(
                    bucket, [part.view_as(parameter) for part, parameter in zip(parts, bucket, strict=True)]
                )
