"""The decoder of a masked autoencoder in transformers' ViTMAE: its keys of config.json and the names of its weights."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from torch import Tensor

from bertsmith.models.hf.convert import WeightRule
from bertsmith.models.hf.layout import Names
from bertsmith.models.hf.values import number
from bertsmith.models.patch_decoder import PatchDecoderConfig
from bertsmith.models.vision_config import VisionConfig

SETTINGS = {  # ours: their key
    "width": "decoder_hidden_size",
    "layers": "decoder_num_hidden_layers",
    "heads": "decoder_num_attention_heads",
    "feed_forward": "decoder_intermediate_size",
}
MASK_TOKEN, POSITIONS, OUTPUT = "decoder.mask_token", "decoder.positions", "decoder.output."
TABLES = {MASK_TOKEN: "decoder.mask_token", POSITIONS: "decoder.decoder_pos_embed"}
# Each entry stands for a weight and a bias.
PARTS: dict[str, Names] = {
    "decoder.projection": "decoder.decoder_embed",
    "decoder.final_norm": "decoder.decoder_norm",
    "decoder.output": "decoder.decoder_pred",
}
LAYERS = "decoder.decoder_layers."
LAYERS_IN_5 = "decoder.decoder_encoder.layer."  # the name by which transformers 5 saves them; it opens both


def decoder_from_json(config_json: Mapping[str, Any], path: object) -> PatchDecoderConfig:
    """The sizes of the decoder. Keys that are left out have transformers' defaults, which are ours."""
    given = {ours: theirs for ours, theirs in SETTINGS.items() if theirs in config_json}
    sizes = {ours: int(number(config_json[theirs], theirs, True, path)) for ours, theirs in given.items()}
    return PatchDecoderConfig(**sizes)


def decoder_to_json(config: PatchDecoderConfig) -> dict[str, int]:
    """The keys of config.json that describe the decoder."""
    return {SETTINGS[part.name]: getattr(config, part.name) for part in fields(config)}


def decoder_rules(layer_names: Mapping[str, Names], layers: int) -> tuple[list[WeightRule], dict[str, Names]]:
    """Our names and theirs of the decoder's tables; and of its linear layers and norms, as `layer_names` has them."""
    names = dict(PARTS)
    for n in range(layers):
        for ours, theirs in layer_names.items():
            each = (theirs,) if isinstance(theirs, str) else theirs
            renamed = tuple(name.replace("encoder.layer.", LAYERS).format(n=n) for name in each)
            names[ours.replace("trunk.", "decoder.").format(n=n)] = renamed
    return [WeightRule(ours, (theirs,)) for ours, theirs in TABLES.items()], names


def output_to_theirs(weight: Tensor, config: VisionConfig) -> Tensor:
    """The rows of the output layer in their order: they have the channels of each pixel together, and we do not."""
    side, rest = config.patch_size, weight.shape[1:]
    return weight.view(config.channels, side, side, *rest).movedim(0, 2).reshape(-1, *rest)


def output_to_ours(weight: Tensor, config: VisionConfig) -> Tensor:
    """The same the other way."""
    side, rest = config.patch_size, weight.shape[1:]
    return weight.view(side, side, config.channels, *rest).movedim(2, 0).reshape(-1, *rest)
