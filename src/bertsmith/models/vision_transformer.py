"""The vision transformer (ViT): an image is a sequence of patches, read by the layers of the one transformer.

    patch embedding   patches + special tokens + learned positions: patch_embedding.py
    N layers          those of an encoder, pre-norm: layers.py

Dosovitskiy et al. 2020. DeiT (Touvron et al. 2020) is the same with a distillation token. Images of several sizes
are one flat batch: attention keeps within the bounds of each image, and nothing is padded.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.models.layer_stack import LayerStack
from bertsmith.models.layers import AttentionInputs, Layer, make_norm
from bertsmith.models.patch_embedding import PatchEmbedding
from bertsmith.models.patches import Patches
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.models.vision_config import VisionConfig
from bertsmith.nn.attention import Sequences
from bertsmith.nn.heads import Classifier
from bertsmith.nn.kernel_choice import KernelName, best_kernel, compute_dtype, self_attention


class VisionTransformer(LayerStack):
    """Patch embedding and a stack of layers: one hidden vector for each special token and each patch."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.config = config
        self.kernel: KernelName | None = None  # for every batch; None: the fastest for the batch and the device
        self.embedding = PatchEmbedding(config)
        self.layers = nn.ModuleList(Layer(self._layer_config) for _ in range(config.layers))
        self.final_norm = make_norm(config.width, self._layer_config)

    @property
    def _layer_config(self) -> TransformerConfig:
        """The configuration of the layers."""
        return self.config.layer_config

    def forward(
        self, patches: Patches, kernel: KernelName | None = None, *, selected: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        """The last layer's hidden vectors, of all tokens or of the `selected` ones only."""
        hidden = self.embed(patches)
        return self.run_layers(hidden, self.attention_inputs(patches, hidden, kernel), selected)

    def hidden_states(self, patches: Patches, kernel: KernelName | None = None) -> list[Float[Tensor, "T D"]]:
        """The hidden vectors after the patch embedding and after every layer."""
        hidden = self.embed(patches)
        return self.states_after_layers(hidden, self.attention_inputs(patches, hidden, kernel))

    def attention_maps(self, patches: Patches) -> list[list[Float[Tensor, "H _ _"]]]:
        """Attention weights by layer and image: from each token (row) to each (column)."""
        from bertsmith.models.recorded import record_layers  # which needs this class

        hidden = self.embed(patches)
        return record_layers(self, hidden, self.attention_inputs(patches, hidden, "eager")).attention

    def embed(self, patches: Patches) -> Float[Tensor, "T D"]:
        """What the first layer reads."""
        hidden: Tensor = self.embedding(patches)
        return hidden

    def attention_inputs(
        self, patches: Patches, hidden: Float[Tensor, "T D"], kernel: KernelName | None = None
    ) -> list[AttentionInputs]:
        """For every layer the kernel, which is the same for all."""
        return attention_inputs(patches, hidden, self._layer_config, kernel or self.kernel)


def attention_inputs(
    patches: Patches, hidden: Float[Tensor, "T D"], config: TransformerConfig, name: KernelName | None = None
) -> list[AttentionInputs]:
    """For every layer the kernel of this name, or the fastest one for the batch and the device."""
    if name is None:
        shape = patches.equal_lengths, patches.max_length
        name = best_kernel(*shape, hidden.device, compute_dtype(hidden), config.head_size)
    sequences = Sequences(patches.bounds, patches.max_length, len(patches.position_rows))
    return [AttentionInputs(self_attention(name, sequences))] * config.layers


class ImageLogits(NamedTuple):
    """Class logits of every image, by the class token and, with a teacher, by the distillation token."""

    classes: Float[Tensor, "B C"]
    distilled: Float[Tensor, "B C"] | None

    @property
    def mean(self) -> Float[Tensor, "B C"]:
        """What is predicted: with two classifiers the mean of both. Touvron et al. 2020, section 4."""
        return self.classes if self.distilled is None else (self.classes + self.distilled) / 2


class ImageClassifier(nn.Module):
    """A vision transformer with a classifier on its class token, and after distillation one on the other token."""

    distillation_classifier: Classifier | None

    def __init__(self, trunk: VisionTransformer, classes: int, *, distilled: bool = False) -> None:
        super().__init__()
        if distilled and not trunk.config.distillation_token:
            raise ValueError("the network has no distillation token. Take a DeiT, or one classifier")
        self.trunk = trunk
        self.classifier = Classifier(trunk.config.width, classes, 0.0)
        self.distillation_classifier = Classifier(trunk.config.width, classes, 0.0) if distilled else None

    def forward(self, patches: Patches, kernel: KernelName | None = None) -> ImageLogits:
        """The logits of every image. The last layer computes only the tokens that are read."""
        starts = patches.bounds[:-1].long()
        if self.distillation_classifier is None:
            return ImageLogits(self.classifier(self.trunk(patches, kernel, selected=starts)), None)
        selected = (starts[:, None] + torch.arange(2, device=starts.device)).flatten()
        first, second = self.trunk(patches, kernel, selected=selected).unflatten(0, (-1, 2)).unbind(1)
        return ImageLogits(self.classifier(first), self.distillation_classifier(second))
