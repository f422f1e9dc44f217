"""Weight averaging: an exponential moving average (EMA) of the weights over the last part of a run.

The average of the last weights lies in the middle of the region that their noise moves in, and is usually better than
the last of them: Polyak and Juditsky 1992; Izmailov et al. 2018. The network is trained on by its own weights; only
evaluations and the exported model use the average.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor, nn


def averaged_weights(module: nn.Module, tables: Mapping[str, Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The state of a module from the tables of a checkpoint, with its averaged weights if there are any."""
    return tied_alike(module, {**tables["model"], **tables.get("average", {})})


def tied_alike(module: nn.Module, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state with one tensor under all names of a tied parameter, as `state_dict` has it: that of the first name.

    An average knows that name alone, and loading a state would else overwrite it by what the others hold. Best weights
    in checkpoints of before are of that kind, too.
    """
    alike, first = dict(state), dict[nn.Parameter, str]()
    for name, parameter in module.named_parameters(remove_duplicate=False):
        if first.setdefault(parameter, name) in alike:
            alike[name] = alike[first[parameter]]
    return alike


class WeightAverage:
    """The average of a module's trained weights over the last `share` of a run; nothing is kept if the share is 0.

    It is the plain mean of the first 1 / (1 - decay) updates, so that it does not begin with a single one, and an
    exponential moving average from then on. The weights are read and written in place, since CUDA graphs hold their
    addresses.
    """

    def __init__(self, module: nn.Module, share: float, decay: float) -> None:
        self.module, self.share, self.decay = module, share, decay
        self.count = 0  # updates that are averaged
        self.weights: dict[str, Tensor] = {}  # the average by name; empty before it begins
        self._parameters = {name: one for name, one in module.named_parameters() if one.requires_grad}

    @torch.no_grad()
    def update(self, progress: float) -> None:
        """Take in the weights after an update, if this fraction of the run lies in the last part."""
        if not self.share or progress < 1 - self.share:
            self.count, self.weights = 0, {}  # a finished run that is made longer begins its average anew
            return
        self.count += 1
        if not self.weights:
            self.weights = {name: parameter.detach().clone() for name, parameter in self._parameters.items()}
            return
        weight = max(1 - self.decay, 1 / self.count)
        torch._foreach_lerp_(list(self.weights.values()), list(self._parameters.values()), weight)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """The module has the averaged weights inside this context, and its own again after it."""
        own = {name: self._parameters[name].detach().clone() for name in self.weights}
        self.apply()
        try:
            yield
        finally:
            self._set(own)

    def apply(self) -> None:
        """Give the module the averaged weights, if there are any."""
        self._set(self.weights)

    def state_dict(self) -> dict[str, Tensor]:
        """The state of the module with the averaged weights, if there are any, in the place of its own."""
        return tied_alike(self.module, {**self.module.state_dict(), **self.weights})

    def tables(self) -> dict[str, dict[str, Tensor]]:
        """The average as a table of a checkpoint; none before it begins."""
        return {"average": self.weights} if self.weights else {}

    def load(self, weights: Mapping[str, Tensor], count: int) -> None:
        """Go on from the average of a checkpoint."""
        self.count = count
        self.weights = {
            name: weights[name].to(parameter.device, copy=True)
            for name, parameter in self._parameters.items()
            if name in weights
        }

    @torch.no_grad()
    def _set(self, weights: Mapping[str, Tensor]) -> None:
        for name, weight in weights.items():
            self._parameters[name].copy_(weight)
