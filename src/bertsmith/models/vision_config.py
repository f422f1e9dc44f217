"""The configuration of a vision transformer: the sizes of its images and patches, and of its layers."""

from dataclasses import dataclass
from typing import Any, Literal

from bertsmith.models.counts import Counted
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.activations import Activation


@dataclass(frozen=True, kw_only=True)
class VisionConfig(Counted):
    """Sizes and choices of a vision transformer. The defaults are ViT-B/16 on images of 224 x 224."""

    image_size: int = 224  # pixels on each side of the images that the table of positions is for
    patch_size: int = 16  # pixels on each side of a patch
    channels: int = 3  # numbers of a pixel: red, green and blue; 1 for grey
    distillation_token: bool = False  # DeiT: a second special token, which learns from a teacher
    positions: Literal["learned", "sinusoidal"] = "learned"  # MAE's are fixed waves of the row and the column
    width: int = 768  # of the hidden vector of a patch
    layers: int = 12
    heads: int = 12
    feed_forward: int = 3072  # inner width of the feed-forward network
    activation: Activation = "gelu"
    norm_eps: float = 1e-12
    dropout: float = 0.0  # of the embeddings and of each sublayer's output
    attention_dropout: float = 0.0  # of the attention weights

    def __post_init__(self) -> None:
        for name in ("image_size", "patch_size", "channels", "width", "layers", "heads", "feed_forward"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}. Give at least 1")
        if self.image_size < self.patch_size:
            fact = f"images of {self.image_size} pixels have no patch of {self.patch_size}"
            raise ValueError(f"{fact}. Take a smaller patch_size")
        if self.positions == "sinusoidal" and self.width % 4:
            raise ValueError(f"a width of {self.width} cannot be shared by four waves. Take a multiple of 4")
        self.layer_config  # noqa: B018 (which refuses impossible sizes of layers)

    @property
    def layer_config(self) -> TransformerConfig:
        """Its layers are those of the one transformer: pre-norm, with biases, without a vocabulary."""
        return TransformerConfig(
            vocabulary=1,
            segments=0,
            width=self.width,
            layers=self.layers,
            heads=self.heads,
            feed_forward=self.feed_forward,
            max_length=self.special_tokens + self.grid**2,
            activation=self.activation,
            norm_position="pre",
            embedding_norm=False,
            norm_eps=self.norm_eps,
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
        )

    @property
    def grid(self) -> int:
        """Patches on each side of an image of `image_size`."""
        return self.image_size // self.patch_size

    @property
    def patch_values(self) -> int:
        """Numbers in a patch."""
        return self.channels * self.patch_size**2

    @property
    def special_tokens(self) -> int:
        """Tokens before the patches: the class token, and DeiT's distillation token."""
        return 2 if self.distillation_token else 1

    @property
    def output_products(self) -> int:
        """Nothing is predicted over a vocabulary."""
        return 0

    def attention_products(self, mean_length: int | float) -> float:
        """Products per token of queries with keys, and of attention weights with values."""
        return self.layer_config.attention_products(mean_length)

    def build(self) -> Any:
        """The network that it describes."""
        from bertsmith.models.vision_transformer import VisionTransformer  # which imports this file

        return VisionTransformer(self)
