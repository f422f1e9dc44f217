"""Hugging Face's config.json as our configuration and back, and the renaming of every weight of a state dict."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bertsmith.errors import FolderError
from bertsmith.files import short_repr
from bertsmith.models.hf import native
from bertsmith.models.hf.layouts import LAYOUTS, layout_of
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.transformer_config import TransformerConfig

WORD_VECTORS = "word2vec"  # the model_type of folders of word vectors, which models/word2vec.py opens
IMAGES = "or of images 'vit', 'deit', 'vit_mae'"  # those of vision_layout.py, which imports this file


def from_config_json(config_json: dict[str, Any], path: object) -> NetworkConfig:
    """Our configuration of a config.json. Keys that are left out have transformers' defaults."""
    if config_json.get("model_type") == native.MODEL_TYPE:
        return native.from_config_json(config_json, path)
    if config_json.get("model_type") == WORD_VECTORS:
        raise FolderError(path, "holds word vectors, and no network that reads texts", "Use similar, analogy or search")
    known = ", ".join(f"'{kind}'" for kind in LAYOUTS) + f", '{native.MODEL_TYPE}' (such as ELMo and LSTMs), {IMAGES}"
    if "model_type" not in config_json:
        raise FolderError(path, "names no model_type", f"Only folders of model_type {known} can be opened")
    layout = LAYOUTS.get(str(config_json["model_type"]))
    if layout is None:
        raise FolderError(path, f"model_type is {short_repr(config_json['model_type'])}", f"Only {known} can be opened")
    try:
        return TransformerConfig(**layout.settings_of(config_json, path))
    except ValueError as error:
        raise FolderError(path, str(error)) from None


def to_config_json(config: NetworkConfig, parts: Iterable[str]) -> dict[str, Any]:
    """The config.json of our configuration."""
    if not isinstance(config, TransformerConfig):
        return native.to_config_json(config)
    layout = layout_of(config)
    return {"architectures": [layout.architecture(parts)], **layout.to_config_json(config)}


@dataclass(frozen=True)
class WeightRule:
    """The name of one weight of ours, and of the weights in transformers that are stacked in it."""

    ours: str
    theirs: tuple[str, ...]
    transposed: bool = False  # theirs is the transpose (GPT's Conv1D)
    integer: bool = False


def weight_rules(config: TransformerConfig, parts: Iterable[str]) -> list[WeightRule]:
    """The rules for every weight that a network with these parts may have; without the prefix of the trunk."""
    layout = layout_of(config)
    rules = []
    for ours, theirs in layout.weight_names(config, parts).items():
        names = (theirs,) if isinstance(theirs, str) else theirs
        for suffix in ("",) if ours.endswith((".weight", ".bias")) else (".weight", ".bias"):
            full = ours + suffix
            matrix = full.startswith("trunk.layers.") and full.endswith(".weight") and "norm" not in full
            rules.append(WeightRule(full, tuple(name + suffix for name in names), layout.transposed and matrix))
    return rules
