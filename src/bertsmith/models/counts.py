"""Counts of a network: its parameters, and the floating-point operations (FLOPs) of its training.

Both are read off the network itself, built on the meta device, where a tensor has a shape and no memory.
"""

from abc import ABC, abstractmethod
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import init
from torch.overrides import TorchFunctionMode


class Counted(ABC):
    """A configuration that counts its network."""

    @property
    def parameter_count(self) -> int:
        """The number of parameters."""
        return _count(self).parameters

    def flops(self, mean_length: int | float, prediction_share: float) -> float:
        """Floating-point operations of training per token, forward and backward, as papers count them.

        A product of a token with a weight is a multiplication and an addition, and the backward pass has two products
        for each of the forward pass, hence six operations. `mean_length` is the mean number of tokens that a token can
        attend to, sum(length^2) / sum(length); `prediction_share` is the share of tokens that are predicted over the
        whole vocabulary.

        All of the last layer is counted, although only the selected positions are computed: with one token in seven
        selected, a twentieth of BERT-base is counted and not computed, and more of a smaller network.
        """
        products = _count(self).token_products + self.attention_products(mean_length)
        return 6 * (products + prediction_share * self.output_products)

    def attention_products(self, mean_length: int | float) -> float:
        """Products per token of queries with keys, and of attention weights with values; a network may have none."""
        return 0.0

    def build(self) -> Any:
        """The network that it describes."""
        from bertsmith.models import networks  # which import the configurations, and they this file

        return networks.build_network(self)  # type: ignore[arg-type]

    @property
    @abstractmethod
    def output_products(self) -> int:
        """Products of one prediction over the whole vocabulary."""


class _Counts(NamedTuple):
    parameters: int
    token_products: float


@cache
def _count(config: Counted) -> _Counts:
    """The counts of a configuration's network. Building one takes 10 to 40 ms, so they are kept."""
    from bertsmith.models import networks  # which import the configurations, and they this file

    with torch.device("meta"), _Uninitialised():
        network = config.build()
    return _Counts(sum(weight.numel() for weight in network.parameters()), networks.token_products(network))


class _Uninitialised(TorchFunctionMode):
    """Weights are not initialised: on the meta device the first random number imports sympy, which takes two seconds.

    So does the first range, which therefore stays on the CPU.
    """

    DRAWS = frozenset({Tensor.normal_, init.normal_, init.uniform_, init.kaiming_uniform_})

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in self.DRAWS:
            return kwargs["tensor"] if "tensor" in kwargs else args[0]
        if function is torch.arange:
            kwargs = {**kwargs, "device": "cpu"}
        return function(*args, **kwargs)
