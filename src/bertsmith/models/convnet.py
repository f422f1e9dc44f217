"""A small convolutional network for images, fast to train: the teacher of a DeiT. Touvron et al. 2020, section 4.

    stem      a convolution
    stages    three times: a convolution that doubles the channels, half of the sides, and residual blocks
    pooled    the mean and the maximum of every channel over all positions

A residual network (He et al. 2015) cut down to ten convolutions. Its norms are over groups of channels of one image
(Wu and He 2018) and not over a batch, so that an image's neighbours do not change its prediction. Trained by Muon they
are as good as those over a batch.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bertsmith.models.counts import Counted
from bertsmith.models.vision_transformer import ImageLogits
from bertsmith.nn.heads import Classifier
from bertsmith.nn.init import CustomInit

GROUP = 16  # channels in a group of a norm
STAGES = 3
MIN_SIDE = 1 << STAGES  # pixels: halved by every stage, there is one left


@dataclass(frozen=True, kw_only=True)
class ConvNetConfig(Counted):
    """Sizes of a convolutional network."""

    channels: int = 3  # numbers of a pixel: red, green and blue; 1 for grey
    width: int = 32  # channels after the stem; each stage doubles them
    blocks: int = 1  # residual blocks of each stage

    def __post_init__(self) -> None:
        if self.blocks < 1:
            raise ValueError(f"blocks is {self.blocks}. Give at least one")
        if self.channels < 1 or self.width < GROUP or self.width % GROUP:
            fact = f"channels is {self.channels} and width {self.width}"
            raise ValueError(f"{fact}. Give at least one channel, and a width that is a multiple of {GROUP}")

    @property
    def output_width(self) -> int:
        """Numbers of an image's vector."""
        return 2 * (self.width << STAGES)

    @property
    def output_products(self) -> int:
        """Nothing is predicted over a vocabulary."""
        return 0

    def build(self) -> Any:
        """The network that it describes."""
        return ConvNet(self)


class ConvBlock(CustomInit):
    """A convolution of 3 x 3, perhaps half of the sides, the norm of its output, and the activation."""

    def __init__(self, channels: int, width: int, *, halves: bool = False) -> None:
        super().__init__()
        self.halves = halves
        self.convolution = nn.Conv2d(channels, width, 3, padding=1, bias=False)
        self.norm = nn.GroupNorm(width // GROUP, width)

    def forward(self, images: Float[Tensor, "B _ _ _"]) -> Float[Tensor, "B _ _ _"]:
        hidden = self.convolution(images)
        return F.gelu(self.norm(F.max_pool2d(hidden, 2) if self.halves else hidden))

    def init_weights(self, generator: torch.Generator) -> None:
        """He et al. 2015b: the variance of the output is that of the input."""
        weight = self.convolution.weight
        with torch.no_grad():
            weight.normal_(0.0, (2 / weight[0].numel()) ** 0.5, generator=generator)
            self.norm.weight.fill_(1.0)
            self.norm.bias.zero_()


class ResidualBlock(nn.Module):
    """Two convolutions, whose output is added to what they read."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = ConvBlock(width, width), ConvBlock(width, width)

    def forward(self, images: Float[Tensor, "B D H W"]) -> Float[Tensor, "B D H W"]:
        summed: Tensor = images + self.second(self.first(images))
        return summed


class Stage(nn.Module):
    """Twice the channels at half the sides, and residual blocks."""

    def __init__(self, channels: int, width: int, blocks: int) -> None:
        super().__init__()
        self.widen = ConvBlock(channels, width, halves=True)
        self.blocks = nn.ModuleList(ResidualBlock(width) for _ in range(blocks))

    def forward(self, images: Float[Tensor, "B _ _ _"]) -> Float[Tensor, "B _ _ _"]:
        hidden: Tensor = self.widen(images)
        for block in self.blocks:
            hidden = block(hidden)
        return hidden


class ConvNet(nn.Module):
    """The convolutional network: one vector for each image, of any size from 8 x 8 pixels."""

    def __init__(self, config: ConvNetConfig) -> None:
        super().__init__()
        self.config = config
        self.stem = ConvBlock(config.channels, config.width)
        widths = [config.width << number for number in range(STAGES + 1)]
        self.stages = nn.ModuleList(Stage(*pair, config.blocks) for pair in pairwise(widths))

    def forward(self, images: Float[Tensor, "B C H W"]) -> Float[Tensor, "B D"]:
        hidden = self.stem(images)
        for stage in self.stages:
            hidden = stage(hidden)
        return torch.cat([hidden.mean((2, 3)), hidden.amax((2, 3))], 1)

    def matrices(self) -> dict[str, int]:
        """The convolutions of the stages, each as one matrix."""
        return {name: 1 for name, weight in self.named_parameters() if name.startswith("stages.") and weight.ndim == 4}


class ConvNetClassifier(nn.Module):
    """The network with a linear classifier on its vector."""

    def __init__(self, trunk: ConvNet, classes: int) -> None:
        super().__init__()
        self.trunk = trunk
        self.classifier = Classifier(trunk.config.output_width, classes, 0.0)

    def forward(self, images: Float[Tensor, "B C H W"]) -> ImageLogits:
        # In bfloat16 where the weights are cast to it.
        return ImageLogits(self.classifier(self.trunk(images.to(self.classifier.dense.weight.dtype))), None)
