"""The layout of timm's ViT and DeiT: its config.json, and the names of its weights, as on Hugging Face's hub.

The architecture's name tells the sizes, `model_args` what differs from them, and `pretrained_cfg` how images are
prepared. timm keeps query, key and value in one matrix, as we do, and its norms have an epsilon of 1e-6.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bertsmith.errors import FolderError
from bertsmith.files import short_repr
from bertsmith.models.hf.convert import WeightRule
from bertsmith.models.hf.finetuned import MAX_LABELS
from bertsmith.models.hf.image_processor import RESAMPLES, ImageProcessor
from bertsmith.models.hf.values import number, require
from bertsmith.models.patch_decoder import PatchDecoderConfig
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_family import DEIT, DEIT_SMALL, DEIT_TINY, VIT, VIT_LARGE, VIT_SMALL, VIT_TINY
from bertsmith.nn.activations import ACTIVATIONS, Activation

NORM_EPS = 1e-6
ARCHITECTURE = re.compile(r"(vit|deit)_(tiny|small|base|large)(_distilled)?_patch(\d{1,3})_(\d{1,4})(\.|$)")
SIZES = {"tiny": VIT_TINY, "small": VIT_SMALL, "base": VIT, "large": VIT_LARGE}
DISTILLED = {"tiny": DEIT_TINY, "small": DEIT_SMALL, "base": DEIT}
SETTINGS = {  # of model_args: ours
    "img_size": "image_size",
    "patch_size": "patch_size",
    "in_chans": "channels",
    "embed_dim": "width",
    "depth": "layers",
    "num_heads": "heads",
}
LIMITS = {"image_size": 1 << 14, "patch_size": 1 << 12, "channels": 1 << 12}
IGNORED = {"num_classes", "global_pool", "mlp_ratio", "act_layer"}  # of model_args: read elsewhere
TOKENS = ("cls_token", "dist_token")
# Each entry stands for a weight and a bias.
TRUNK = {"trunk.embedding.projection": "patch_embed.proj", "trunk.final_norm": "norm"}
LAYER = {
    "attention_norm": "norm1",
    "attention.qkv": "attn.qkv",
    "attention.output": "attn.proj",
    "feed_forward_norm": "norm2",
    "feed_forward.up": "mlp.fc1",
    "feed_forward.down": "mlp.fc2",
}
HEADS = {"classifier": "head", "distillation_classifier": "head_dist"}


class TimmLayout:
    """What `vision_folder` asks of a layout, for timm's networks."""

    prefix = ""  # of the trunk's names

    def from_config_json(self, config_json: Mapping[str, Any], path: object) -> VisionConfig:
        """Our configuration: that of the architecture, with the differences that `model_args` name."""
        name = config_json.get("architecture")
        found = ARCHITECTURE.match(name) if isinstance(name, str) else None
        table = DISTILLED if found and found[3] else SIZES
        if not found or found[2] not in table:
            remedy = "Only those as vit_base_patch16_224 and deit_small_distilled_patch16_224 can be opened"
            raise FolderError(path, f"architecture is {short_repr(name)}", remedy)
        sizes = {"image_size": int(found[5]), "patch_size": int(found[4])}
        arguments = config_json.get("model_args", {})
        if not isinstance(arguments, dict):
            raise FolderError(path, f"model_args is {short_repr(arguments)}", "Give a table of arguments")
        require({**arguments, **config_json}, "global_pool", "token", path)
        settings: dict[str, Any] = {}
        for key, value in arguments.items():
            if key in SETTINGS:
                one = value[0] if isinstance(value, list) and value and value == value[:1] * 2 else value  # a square
                settings[SETTINGS[key]] = int(number(one, key, True, path))
            elif key not in IGNORED:
                raise FolderError(path, f"model_args has {short_repr(key)}", f"Only {', '.join(SETTINGS)} are known")
        if "img_size" not in arguments:
            sizes |= _image_size(config_json, path)
        for ours, most in LIMITS.items():
            if (sizes | settings).get(ours, 0) > most:
                raise FolderError(path, f"{ours} is {(sizes | settings)[ours]}", f"Give at most {most}")
        try:
            config = replace(table[found[2]], norm_eps=NORM_EPS, **(sizes | settings))
            ratio = number(arguments.get("mlp_ratio", 4), "mlp_ratio", False, path)
            return replace(config, feed_forward=int(config.width * ratio), activation=_activation(arguments, path))
        except ValueError as error:
            raise FolderError(path, str(error)) from None

    def to_config_json(
        self, config: VisionConfig, parts: Iterable[str], labels: Sequence[str], processor: ImageProcessor
    ) -> dict[str, Any]:
        """timm's config.json: the architecture of the same width or else of ViT-B, with what differs from it."""
        table = DISTILLED if config.distillation_token else SIZES
        size = next((size for size, one in table.items() if one.width == config.width), "base")
        beginning = f"deit_{size}_distilled" if config.distillation_token else f"vit_{size}"
        usual = table[size]
        arguments: dict[str, Any] = {
            theirs: value
            for theirs, ours in SETTINGS.items()
            if (value := getattr(config, ours)) != getattr(usual, ours)
        }
        if config.feed_forward != 4 * config.width:
            ratio = config.feed_forward / config.width  # which timm multiplies and rounds down again
            exact = int(config.width * ratio) == config.feed_forward
            arguments["mlp_ratio"] = ratio if exact else (config.feed_forward + 0.5) / config.width
        if config.activation != "gelu":
            arguments["act_layer"] = config.activation
        side = (processor.crop or processor.resize or (config.image_size,))[0]
        prepared = {
            "input_size": [config.channels, config.image_size, config.image_size],
            "fixed_input_size": True,
            "interpolation": processor.resample,
            "crop_pct": side / (processor.resize or (side,))[0],
            "crop_mode": "center",
            "mean": list(processor.mean),
            "std": list(processor.std),
            "num_classes": len(labels),
            "first_conv": TRUNK["trunk.embedding.projection"],
            "classifier": [*HEADS.values()] if config.distillation_token else HEADS["classifier"],
        }
        return {
            "architecture": f"{beginning}_patch16_224",
            "num_classes": len(labels),
            "num_features": config.width,
            "global_pool": "token",
            **({"label_names": list(labels)} if labels else {}),
            **({"model_args": arguments} if arguments else {}),
            "pretrained_cfg": prepared,
        }

    def parts(self, stored: Iterable[str]) -> frozenset[str]:
        """The heads that these weights belong to."""
        return frozenset(ours for ours, theirs in HEADS.items() if f"{theirs}.weight" in {*stored})

    def labels(self, config_json: Mapping[str, Any], path: object) -> tuple[str, ...]:
        """The names of the classes, or their numbers where there are none."""
        count = int(number(config_json.get("num_classes", 1000), "num_classes", True, path))
        if count > MAX_LABELS:
            raise FolderError(path, f"num_classes is {count}", f"Give at most {MAX_LABELS}")
        names = config_json.get("label_names")
        if isinstance(names, dict):
            names = [names.get(str(label)) for label in range(count)]
        if names is None:
            names = [f"LABEL_{label}" for label in range(count)]
        if not isinstance(names, list) or len(names) != count or not all(isinstance(one, str) for one in names):
            raise FolderError(path, f"label_names is {short_repr(names)}", f"Give {count} names")
        return tuple(names)

    def processor_of(self, config_json: Mapping[str, Any], config: VisionConfig, path: object) -> ImageProcessor:
        """How images are prepared. timm cuts a square out of an image; ours is first made as high as it is wide."""
        prepared = _prepared(config_json, path)
        side = config.image_size
        share = float(number(prepared.get("crop_pct", 0.9), "crop_pct", False, path))
        if not 0.1 <= share <= 1:
            raise FolderError(path, f"crop_pct is {share}", "Give a share of at least 0.1, and at most 1")
        name = prepared.get("interpolation", "bicubic")
        if name not in RESAMPLES:
            remedy = f"Only {' or '.join(RESAMPLES)} can be opened"
            raise FolderError(path, f"interpolation is {short_repr(name)}", remedy)
        whole = int(side / share)
        usual = ImageProcessor().for_network(side, config.channels)
        return replace(
            usual,
            resize=(whole, whole),
            crop=(side, side) if whole > side else None,
            resample=name,
            mean=_by_channel(prepared, "mean", usual.mean, path),
            std=_by_channel(prepared, "std", usual.std, path),
        )

    def weight_rules(
        self, config: VisionConfig, parts: Iterable[str], decoder: PatchDecoderConfig | None = None
    ) -> list[WeightRule]:
        """Our names of all weights of a network with these parts, and theirs."""
        names = dict(TRUNK)
        for n in range(config.layers):
            names |= {f"trunk.layers.{n}.{ours}": f"blocks.{n}.{theirs}" for ours, theirs in LAYER.items()}
        names |= {f"{part}.dense": theirs for part, theirs in HEADS.items() if part in {*parts}}
        rules = [
            WeightRule("trunk.embedding.special_tokens", TOKENS[: config.special_tokens]),
            WeightRule("trunk.embedding.positions", ("pos_embed",)),
        ]
        for ours, theirs in names.items():
            rules += [WeightRule(f"{ours}.{kind}", (f"{theirs}.{kind}",)) for kind in ("weight", "bias")]
        return rules


def is_timm(config_json: Mapping[str, Any]) -> bool:
    """Whether a config.json is one of timm's."""
    return "architecture" in config_json and "model_type" not in config_json


def _activation(arguments: Mapping[str, Any], path: object) -> Activation:
    name = arguments.get("act_layer", "gelu")
    if not isinstance(name, str) or name not in ACTIVATIONS:
        remedy = f"Only {', '.join(ACTIVATIONS)} can be opened"
        raise FolderError(path, f"act_layer is {short_repr(name)}", remedy)
    return name  # their names are ours


def _prepared(config_json: Mapping[str, Any], path: object) -> dict[str, Any]:
    """How the images of a pretrained network are prepared."""
    prepared = config_json.get("pretrained_cfg", {})
    if not isinstance(prepared, dict):
        raise FolderError(path, f"pretrained_cfg is {short_repr(prepared)}", "Give a table of settings")
    return prepared


def _image_size(config_json: Mapping[str, Any], path: object) -> dict[str, int]:
    """The side and the channels of the images that the network was trained on, where they are named."""
    size = _prepared(config_json, path).get("input_size")
    if size is None:
        return {}
    if not isinstance(size, list) or len(size) != 3 or size[1] != size[2]:
        raise FolderError(path, f"input_size is {short_repr(size)}", "Give channels, height and an equal width")
    return {
        name: int(number(value, "input_size", True, path))
        for name, value in zip(("channels", "image_size"), size, strict=False)
    }


def _by_channel(prepared: Mapping[str, Any], key: str, usual: tuple[float, ...], path: object) -> tuple[float, ...]:
    """A number for each channel."""
    values = prepared.get(key, usual)
    if not isinstance(values, list | tuple) or len(values) != len(usual):
        raise FolderError(path, f"{key} is {short_repr(values)}", f"Give a number for each of {len(usual)} channels")
    numbers = tuple(float(number(value, key, False, path)) for value in values)
    if key == "std" and min(numbers) <= 0:
        raise FolderError(path, f"std is {short_repr(numbers)}", "Give numbers above 0")
    return numbers


TIMM = TimmLayout()
