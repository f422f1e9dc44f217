"""The family of networks of images: vision transformers, every member as the difference from its parent; a teacher."""

from dataclasses import replace

from bertsmith.errors import RecipeError, suggest
from bertsmith.models.convnet import ConvNetConfig
from bertsmith.models.vision_config import VisionConfig

# Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words": BERT's sizes, on patches of images. The two small ones
# came with Touvron et al. 2020, whose networks without distillation are the same.
VIT = VisionConfig()
VIT_LARGE = replace(VIT, width=1024, layers=24, heads=16, feed_forward=4096)
VIT_SMALL = replace(VIT, width=384, heads=6, feed_forward=1536)
VIT_TINY = replace(VIT, width=192, heads=3, feed_forward=768)

# Touvron et al. 2020, "Training data-efficient image transformers & distillation through attention": a second special
# token learns the predictions of a teacher.
DEIT = replace(VIT, distillation_token=True)
DEIT_SMALL = replace(VIT_SMALL, distillation_token=True)
DEIT_TINY = replace(VIT_TINY, distillation_token=True)

# He et al. 2021, "Masked Autoencoders Are Scalable Vision Learners": positions are fixed waves. The decoder, which is
# there for pretraining only, belongs to the objective.
MAE = replace(VIT, positions="sinusoidal")
MAE_LARGE = replace(VIT_LARGE, positions="sinusoidal")
MAE_SMALL = replace(VIT_SMALL, positions="sinusoidal")
MAE_TINY = replace(VIT_TINY, positions="sinusoidal")

VISION_FAMILY: dict[str, VisionConfig] = {
    "vit-tiny": VIT_TINY,
    "vit-small": VIT_SMALL,
    "vit-base": VIT,
    "vit-large": VIT_LARGE,
    "deit-tiny": DEIT_TINY,
    "deit-small": DEIT_SMALL,
    "deit-base": DEIT,
    "mae-tiny": MAE_TINY,
    "mae-small": MAE_SMALL,
    "mae-base": MAE,
    "mae-large": MAE_LARGE,
}

# A small residual network (He et al. 2015) as the teacher of a DeiT.
CONVNET = ConvNetConfig()

IMAGE_FAMILY: dict[str, VisionConfig | ConvNetConfig] = {
    **VISION_FAMILY,
    "convnet-small": CONVNET,
    "convnet-base": replace(CONVNET, width=64),
}


def vision_member(name: str) -> VisionConfig:
    """The configuration of a vision transformer by its name."""
    if name not in VISION_FAMILY:
        raise RecipeError("model.kind", f"unknown member '{name}'", suggest(name, VISION_FAMILY))
    return VISION_FAMILY[name]
