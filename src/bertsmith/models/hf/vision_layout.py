"""The layouts of transformers' ViT, DeiT and ViTMAE: keys of their config.json, their classes, the names of weights."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from torch import Tensor

from bertsmith.errors import FolderError, suggest
from bertsmith.files import short_repr
from bertsmith.models.hf.convert import WeightRule
from bertsmith.models.hf.finetuned import labels_of
from bertsmith.models.hf.image_processor import ImageProcessor
from bertsmith.models.hf.layout import ACTIVATION_NAMES, Names
from bertsmith.models.hf.mae_layout import (
    MASK_TOKEN,
    OUTPUT,
    decoder_rules,
    decoder_to_json,
    output_to_ours,
    output_to_theirs,
)
from bertsmith.models.hf.mae_layout import POSITIONS as DECODER_POSITIONS
from bertsmith.models.hf.values import number, require
from bertsmith.models.patch_decoder import PatchDecoderConfig
from bertsmith.models.vision_config import VisionConfig

SETTINGS = {  # ours: their key
    "image_size": "image_size",
    "patch_size": "patch_size",
    "channels": "num_channels",
    "width": "hidden_size",
    "layers": "num_hidden_layers",
    "heads": "num_attention_heads",
    "feed_forward": "intermediate_size",
    "norm_eps": "layer_norm_eps",
    "dropout": "hidden_dropout_prob",
    "attention_dropout": "attention_probs_dropout_prob",
}
LIMITS = {"image_size": 1 << 14, "patch_size": 1 << 12, "channels": 1 << 12}  # against files that name absurd sizes
FIXED = {"qkv_bias": True, "pooler_act": "tanh"}  # the only values that can be opened
POOLED = ("pooler_act", "encoder_stride")  # keys that ViTMAE does not have

SPECIAL_TOKENS, POSITIONS = "trunk.embedding.special_tokens", "trunk.embedding.positions"  # of ours, tables of vectors
SPECIAL_NAMES = ("embeddings.cls_token", "embeddings.distillation_token")
# Each entry stands for a weight and a bias.
TRUNK: dict[str, Names] = {
    "trunk.embedding.projection": "embeddings.patch_embeddings.projection",
    "trunk.final_norm": "layernorm",
    "pooler.dense": "pooler.dense",
}
LAYER: dict[str, Names] = {
    "trunk.layers.{n}.attention_norm": "encoder.layer.{n}.layernorm_before",
    "trunk.layers.{n}.attention.qkv": (
        "encoder.layer.{n}.attention.attention.query",
        "encoder.layer.{n}.attention.attention.key",
        "encoder.layer.{n}.attention.attention.value",
    ),
    "trunk.layers.{n}.attention.output": "encoder.layer.{n}.attention.output.dense",
    "trunk.layers.{n}.feed_forward_norm": "encoder.layer.{n}.layernorm_after",
    "trunk.layers.{n}.feed_forward.up": "encoder.layer.{n}.intermediate.dense",
    "trunk.layers.{n}.feed_forward.down": "encoder.layer.{n}.output.dense",
}
PARTS = ("pooler", "classifier", "distillation_classifier", "decoder")  # what a folder may hold besides the trunk


@dataclass(frozen=True)
class VisionLayout:
    """The layout of one model type of transformers."""

    model_type: str
    beginning: str  # of the names of its classes
    processor: ImageProcessor  # how images are prepared where no file says it
    processor_beginning: str  # of the name of the class that prepares them
    distillation_token: bool = False
    masked: bool = False  # a masked autoencoder: fixed positions, and a decoder in pretraining

    @property
    def prefix(self) -> str:
        """The beginning of the trunk's names, unless the folder is a bare trunk."""
        return "vit." if self.masked else f"{self.model_type}."

    def architecture(self, parts: Iterable[str]) -> str:
        """The class of transformers that has these parts."""
        if "decoder" in parts:
            return f"{self.beginning}ForPreTraining"
        if "distillation_classifier" in parts:
            return f"{self.beginning}ForImageClassificationWithTeacher"
        return f"{self.beginning}{'ForImageClassification' if 'classifier' in parts else 'Model'}"

    def to_config_json(
        self, config: VisionConfig, parts: Iterable[str], decoder: PatchDecoderConfig | None = None
    ) -> dict[str, Any]:
        """The config.json of a network with these parts."""
        names = {ours: theirs for theirs, ours in reversed([*ACTIVATION_NAMES.items()])}
        keys = {
            "architectures": [self.architecture(parts)],
            "model_type": self.model_type,
            "initializer_range": 0.02,
            "encoder_stride": config.patch_size,
            "hidden_act": names.get(config.activation, config.activation),
            **{theirs: getattr(config, ours) for ours, theirs in SETTINGS.items()},
            **FIXED,
            **({} if decoder is None else decoder_to_json(decoder)),
        }
        return {key: value for key, value in keys.items() if not (self.masked and key in POOLED)}

    def from_config_json(self, config_json: dict[str, Any], path: object) -> VisionConfig:
        """Our configuration of a config.json. Keys that are left out have transformers' defaults."""
        for key, only in FIXED.items():
            require(config_json, key, only, path)
        name = config_json.get("hidden_act", "gelu")
        activations = {**ACTIVATION_NAMES, "relu": "relu"}
        if not isinstance(name, str) or name not in activations:
            raise FolderError(path, f"unknown hidden_act {short_repr(name)}", suggest(short_repr(name), activations))
        settings: dict[str, Any] = {
            "activation": activations[name],
            "distillation_token": self.distillation_token,
            "positions": "sinusoidal" if self.masked else "learned",
        }
        kinds = {field.name: field.type for field in fields(VisionConfig)}
        for ours, theirs in SETTINGS.items():
            if theirs in config_json:
                settings[ours] = number(config_json[theirs], theirs, kinds[ours] is int, path)
                if settings[ours] > LIMITS.get(ours, settings[ours]):
                    raise FolderError(path, f"{theirs} is {settings[ours]}", f"Give at most {LIMITS[ours]}")
        width = config_json.get("hidden_size", VisionConfig.width)
        if config_json.get("pooler_output_size") is not None:
            require(config_json, "pooler_output_size", width, path)
        try:
            return VisionConfig(**settings)
        except ValueError as error:
            raise FolderError(path, str(error)) from None

    def parts(self, stored: Iterable[str]) -> frozenset[str]:
        """The heads that these weights belong to; without a teacher the one classifier has another name."""
        names = {*stored}
        found = {part for part in PARTS if names & {f"{part}.weight", f"{part}.dense.weight", f"{part}.mask_token"}}
        return frozenset(found | ({"classifier"} if "distillation_classifier" in found else set()))

    def labels(self, config_json: dict[str, Any], path: object) -> tuple[str, ...]:
        """The labels of the classifier, by id."""
        return labels_of(config_json, path)

    def processor_of(self, config_json: dict[str, Any], config: VisionConfig, path: object) -> ImageProcessor:
        """How images are prepared where no file says it."""
        return self.processor.for_network(config.image_size, config.channels)

    def weight_rules(
        self, config: VisionConfig, parts: Iterable[str], decoder: PatchDecoderConfig | None = None
    ) -> list[WeightRule]:
        """Our names of all weights of a network with these parts, and theirs without the prefix."""
        parts = set(parts)
        names = {ours: theirs for ours, theirs in TRUNK.items() if ours.startswith("trunk.") or "pooler" in parts}
        for n in range(config.layers):
            for ours, theirs in LAYER.items():
                each = (theirs,) if isinstance(theirs, str) else theirs
                names[ours.format(n=n)] = tuple(name.format(n=n) for name in each)
        if "classifier" in parts:
            names["classifier.dense"] = "cls_classifier" if "distillation_classifier" in parts else "classifier"
        if "distillation_classifier" in parts:
            names["distillation_classifier.dense"] = "distillation_classifier"
        rules = [
            WeightRule(SPECIAL_TOKENS, SPECIAL_NAMES[: config.special_tokens]),
            WeightRule(POSITIONS, ("embeddings.position_embeddings",)),
        ]
        if decoder is not None:
            tables, linear = decoder_rules(LAYER, decoder.layers)
            rules += tables
            names |= linear
        for ours, theirs in names.items():
            each = (theirs,) if isinstance(theirs, str) else theirs
            rules += [
                WeightRule(f"{ours}.{kind}", tuple(f"{name}.{kind}" for name in each)) for kind in ("weight", "bias")
            ]
        return rules

    def full_name(self, name: str, parts: Iterable[str]) -> str:
        """The name of a weight in the class of transformers that has these parts."""
        bare = not {"classifier", "decoder"} & {*parts}
        return name if bare or "classifier." in name or name.startswith("decoder.") else self.prefix + name


def their_shape(ours: str, shape: tuple[int, ...], config: VisionConfig) -> tuple[int, ...]:
    """Their shape of a weight: the patch embedding is a convolution, and tables have a dimension for the batch."""
    if ours == "trunk.embedding.projection.weight":
        return (shape[0], config.channels, config.patch_size, config.patch_size)
    return (1, *shape) if ours in (SPECIAL_TOKENS, POSITIONS, MASK_TOKEN, DECODER_POSITIONS) else shape


def their_form(ours: str, weight: Tensor, config: VisionConfig) -> Tensor:
    """A weight of ours in the form that it has in transformers."""
    ordered = output_to_theirs(weight, config) if ours.startswith(OUTPUT) else weight
    return ordered.reshape(their_shape(ours, tuple(weight.shape), config))


def our_form(ours: str, weight: Tensor, config: VisionConfig) -> Tensor:
    """The same the other way, for a weight that has our shape already."""
    return output_to_ours(weight, config) if ours.startswith(OUTPUT) else weight


IMAGENET = ImageProcessor(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))  # of the colours in its images
VISION_LAYOUTS = {
    layout.model_type: layout
    for layout in (
        VisionLayout("vit", "ViT", ImageProcessor(), "ViT"),
        VisionLayout(
            "deit",
            "DeiT",
            ImageProcessor(resize=(256, 256), crop=(224, 224), resample="bicubic"),
            "DeiT",
            distillation_token=True,
        ),
        VisionLayout("vit_mae", "ViTMAE", IMAGENET, "ViT", masked=True),
    )
}


def vision_layout_of(config: VisionConfig) -> VisionLayout:
    """The layout of a network: DeiT has a distillation token, and a masked autoencoder fixed positions."""
    masked = config.positions == "sinusoidal"
    return VISION_LAYOUTS["deit" if config.distillation_token else "vit_mae" if masked else "vit"]
