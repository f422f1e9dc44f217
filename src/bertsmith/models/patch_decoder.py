"""The decoder of a masked autoencoder (MAE): it predicts the pixels of masked patches. He et al. 2021, section 3.

    projection of the encoder's vectors, a mask token for each masked patch, + fixed position
    N layers          of its own width: those of the one transformer
    output            a linear layer: the pixels of a patch

It is there for pretraining only. The last layer computes only the patches whose pixels are asked for.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.models.layer_stack import LayerStack
from bertsmith.models.layers import Layer, make_norm
from bertsmith.models.masked_patches import Masking
from bertsmith.models.patch_embedding import fix_positions, positions_on
from bertsmith.models.patches import Patches
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_transformer import attention_inputs
from bertsmith.nn.init import CustomInit
from bertsmith.nn.kernel_choice import KernelName


@dataclass(frozen=True, kw_only=True)
class PatchDecoderConfig:
    """Sizes of the decoder. The defaults are those of the paper, for an encoder of any size."""

    width: int = 512
    layers: int = 8
    heads: int = 16
    feed_forward: int = 2048  # inner width of the feed-forward network

    def of(self, encoder: VisionConfig) -> VisionConfig:
        """The vision transformer whose layers these are: as of the encoder, in all but their sizes."""
        sizes = {name: getattr(self, name) for name in ("width", "layers", "heads", "feed_forward")}
        return replace(encoder, **sizes, positions="sinusoidal")


class PatchDecoder(LayerStack, CustomInit):
    """Predicts the pixels of patches from the encoder's vectors of the visible ones."""

    def __init__(self, encoder: VisionConfig, config: PatchDecoderConfig) -> None:
        super().__init__()
        own = config.of(encoder)
        self.config, self.grid = own.layer_config, own.grid
        self.kernel: KernelName | None = None  # for every batch; None: the fastest for the batch and the device
        self.projection = nn.Linear(encoder.width, own.width)
        self.mask_token = nn.Parameter(torch.empty(1, own.width).normal_(std=0.02))
        self.positions = nn.Parameter(torch.empty(own.special_tokens + own.grid**2, own.width))
        fix_positions(self.positions, own.grid)
        self.layers = nn.ModuleList(Layer(self.config) for _ in range(own.layers))
        self.final_norm = make_norm(own.width, self.config)
        self.output = nn.Linear(own.width, own.patch_values)

    @property
    def _layer_config(self) -> TransformerConfig:
        """The configuration of the layers."""
        return self.config

    def forward(
        self,
        encoded: Float[Tensor, "S D"],
        patches: Patches,
        masking: Masking,
        selected: Int[Tensor, "N"] | None = None,
    ) -> Float[Tensor, "N V"]:
        """The pixels of the masked patches, or of the `selected` ones, from the encoder's vectors."""
        tokens = self.embed(encoded, patches, masking)
        slots = patches.slots.index_select(0, masking.masked if selected is None else selected)
        inputs = attention_inputs(patches, tokens, self.config, self.kernel)
        pixels: Tensor = self.output(self.run_layers(tokens, inputs, slots))
        return pixels

    def embed(self, encoded: Float[Tensor, "S D"], patches: Patches, masking: Masking) -> Float[Tensor, "T W"]:
        """The first layer's input: the encoder's vectors and mask tokens in their places, and positions."""
        projected = self.projection(encoded)
        slots = patches.slots.index_select(0, masking.masked)
        tokens = projected.new_empty((len(patches.position_rows), projected.shape[1]))
        tokens = tokens.index_copy(0, masking.visible_tokens, projected)
        tokens = tokens.index_copy(0, slots, self.mask_token.to(projected.dtype).expand(len(slots), -1))
        hidden: Tensor = tokens + F.embedding(
            patches.position_rows, positions_on(self.positions, self.grid, patches.grids)
        )
        return hidden

    def init_weights(self, generator: torch.Generator) -> None:
        """Positions are fixed waves."""
        fix_positions(self.positions, self.grid)
