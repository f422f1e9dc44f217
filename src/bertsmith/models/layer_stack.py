"""A stack of transformer layers and its final norm: what networks of text and of images have in common."""

from abc import ABC, abstractmethod
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.models.layers import AttentionInputs
from bertsmith.models.transformer_config import TransformerConfig


class LayerStack(nn.Module, ABC):
    """A network whose hidden vectors go through `layers` and `final_norm`."""

    layers: nn.ModuleList
    final_norm: nn.Module

    @property
    @abstractmethod
    def _layer_config(self) -> TransformerConfig:
        """The configuration of the layers."""

    def layer_sequence(self) -> list[Any]:
        """The layers in the order of computation; a shared layer is applied again and again."""
        return list(self.layers) * (self._layer_config.layers // self._layer_config.distinct)

    def run_layers(
        self, hidden: Float[Tensor, "T D"], inputs: list[AttentionInputs], selected: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        """All layers and the final norm; the last layer computes only the `selected` positions."""
        *before, (last, last_inputs) = zip(self.layer_sequence(), inputs, strict=True)
        for layer, each in before:
            hidden = layer(hidden, each)
        vectors: Tensor = self.final_norm(last(hidden, last_inputs, selected))
        return vectors

    def states_after_layers(
        self, hidden: Float[Tensor, "T D"], inputs: list[AttentionInputs]
    ) -> list[Float[Tensor, "T D"]]:
        """The hidden vectors before the first layer and after every layer; the last with the final norm."""
        states = [hidden]
        for layer, each in zip(self.layer_sequence(), inputs, strict=True):
            states.append(layer(states[-1], each))
        return [*states[:-1], self.final_norm(states[-1])]

    def matrices(self) -> dict[str, int]:
        """The names of all matrices inside the layers, and how many matrices are stacked in each."""
        stacked = {"attention.qkv.weight": 3, "cross_attention.kv.weight": 2}
        stacked["feed_forward.up.weight"] = 2 if self._layer_config.gated else 1
        return {
            f"layers.{number}.{name}": stacked.get(name, 1)
            for number, layer in enumerate(self.layers)
            for name, parameter in layer.named_parameters()
            if parameter.ndim == 2
        }
