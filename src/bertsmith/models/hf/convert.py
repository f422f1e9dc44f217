"""Hugging Face's config.json as our configuration and back, and the renaming of every weight of a state dict."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from bertsmith.errors import FolderError, suggest
from bertsmith.files import short_repr
from bertsmith.models.hf import native
from bertsmith.models.hf.layout import HFLayout
from bertsmith.models.hf.layouts import GPT, GPT2, LAYOUTS, MARIAN, MODERNBERT, T5, T5_V1_1, layout_of
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.activations import Activation

# --------------------------------------------------------------------------------------------- configuration

BIASES = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")  # ModernBERT's switches; ours has one for all
FULL, SLIDING = "full_attention", "sliding_attention"  # ModernBERT's types of layers
ROTARY_BASES = (("rotary_base", FULL, "global_rope_theta"), ("window_rotary_base", SLIDING, "local_rope_theta"))
DECODER_SIZES = {  # Marian's decoder may differ from its encoder in size; ours may not
    "heads": "decoder_attention_heads",
    "feed_forward": "decoder_ffn_dim",
    "vocabulary": "decoder_vocab_size",
}
MAX_SIZE = 1 << 24  # of any number in a configuration, against files that name absurd sizes


def from_config_json(config_json: dict[str, Any], path: object) -> NetworkConfig:
    """Our configuration of a config.json. Keys that are left out have transformers' defaults."""
    if config_json.get("model_type") == native.MODEL_TYPE:
        return native.from_config_json(config_json, path)
    *most, last = (f"'{kind}'" for kind in LAYOUTS)
    known = f"{', '.join(most)} or {last}"
    if "model_type" not in config_json:
        raise FolderError(path, "names no model_type", f"Only folders of model_type {known} can be opened")
    layout = LAYOUTS.get(str(config_json["model_type"]))
    if layout is None:
        raise FolderError(path, f"model_type is {short_repr(config_json['model_type'])}", f"Only {known} can be opened")
    if layout is T5 and str(config_json.get("feed_forward_proj", "")).startswith("gated"):
        layout = T5_V1_1
    for theirs, only in layout.fixed.items():
        _require(config_json, theirs, only, path)
    values: dict[str, Any] = {"activation": _activation(config_json, layout, path)}
    for ours, theirs in layout.settings.items():
        if theirs in config_json:
            values[ours] = _number(config_json[theirs], theirs, TransformerConfig.__annotations__[ours] is int, path)
    if "max_length" in values:
        # transformers counts all rows of the table, we those of real positions.
        values["max_length"] -= layout.defaults.position_offset
    widths = [values.get(name, getattr(layout.defaults, name)) for name in ("embedding_width", "width")]
    if layout.tables == "either" and widths[0] == widths[1]:
        values["embedding_width"] = 0  # transformers always gives it, we only for a factorised embedding
    if layout is MODERNBERT:
        values |= _modernbert(config_json, path)
    elif layout in (GPT, GPT2):
        values["feed_forward"] = _feed_forward(config_json, layout, values.get("width", layout.defaults.width), path)
        dropout = layout.defaults.dropout
        _require({"embd_pdrop": dropout, **config_json}, "embd_pdrop", values.get("dropout", dropout), path)
    elif layout in (T5, T5_V1_1):
        values |= _t5(config_json, layout, values, path)
    elif layout is MARIAN:
        _require({"scale_embedding": False, **config_json}, "scale_embedding", True, path)
        for ours, theirs in DECODER_SIZES.items():
            _require(config_json, theirs, values.get(ours, getattr(layout.defaults, ours)), path)
    elif config_json.get("positions") == "sinusoidal":  # our own key: to transformers it is a table like any other
        values["positions"] = "sinusoidal"
    try:
        return replace(layout.defaults, **values)
    except ValueError as error:
        raise FolderError(path, str(error)) from None


def to_config_json(config: NetworkConfig, parts: Iterable[str]) -> dict[str, Any]:
    """The config.json of our configuration."""
    if not isinstance(config, TransformerConfig):
        return native.to_config_json(config)
    layout = layout_of(config)
    return {
        "architectures": [layout.architecture(parts)],
        "pad_token_id": 0,
        **layout.fixed,
        **{theirs: getattr(config, ours) for ours, theirs in layout.settings.items()},
        layout.settings["max_length"]: config.max_length + config.position_offset,
        **({layout.settings["embedding_width"]: config.table} if "embedding_width" in layout.settings else {}),
        **({"positions": config.positions} if config.positions == "sinusoidal" else {}),
        **(_modernbert_json(config) if layout is MODERNBERT else {}),
        **({"embd_pdrop": config.dropout} if layout in (GPT, GPT2) else {}),
        **({"n_inner": config.feed_forward} if layout is GPT2 else {}),
        **({"d_kv": config.head_size} if layout in (T5, T5_V1_1) else {}),
        **({theirs: getattr(config, ours) for ours, theirs in DECODER_SIZES.items()} if layout is MARIAN else {}),
        **dict.fromkeys(layout.activations, _activation_name(layout, config.activation)),
        "initializer_range": 0.02,
        "tie_word_embeddings": config.tie_embeddings,
    }


def _activation(config_json: dict[str, Any], layout: HFLayout, path: object) -> Activation:
    found = set()
    for key in layout.activations:
        name = config_json.get(key, _activation_name(layout, layout.defaults.activation))
        if not isinstance(name, str) or name not in layout.activation_names:
            raise FolderError(
                path, f"unknown {key} {short_repr(name)}", suggest(short_repr(name), layout.activation_names)
            )
        found.add(layout.activation_names[name])
    if len(found) > 1:
        fact = f"{' and '.join(layout.activations)} differ"
        raise FolderError(path, fact, "Only one activation for both can be opened")
    return found.pop()


def _activation_name(layout: HFLayout, activation: Activation) -> str:
    """transformers' name of an activation: of several the first."""
    return next(theirs for theirs, ours in layout.activation_names.items() if ours == activation)


def _feed_forward(config_json: dict[str, Any], layout: HFLayout, width: int, path: object) -> int:
    """The width of GPT's feed-forward network: four times the width, unless GPT-2 has n_inner."""
    inner = None if layout.fourfold_feed_forward else config_json.get("n_inner")
    return 4 * width if inner is None else int(_number(inner, "n_inner", True, path))


def _t5(config_json: dict[str, Any], layout: HFLayout, values: dict[str, Any], path: object) -> dict[str, Any]:
    """Settings with rules of T5's: by default its decoder has as many layers as its encoder."""
    # Recent versions of transformers write scale_decoder_outputs, and true for tie_word_embeddings in any case.
    tied = config_json.get("scale_decoder_outputs", config_json.get("tie_word_embeddings", True))
    if tied is not layout.defaults.tie_embeddings:
        remedy = "Such a T5 has a tied output layer" if layout.defaults.tie_embeddings else "T5 v1.1 has an untied one"
        raise FolderError(path, f"tie_word_embeddings is {short_repr(tied)}", remedy)
    sizes = {name: values.get(name, getattr(layout.defaults, name)) for name in ("layers", "width", "heads")}
    head_width = values.get("head_width", 64)
    return {
        "decoder_layers": values.get("decoder_layers", sizes["layers"]),
        "head_width": 0 if head_width * sizes["heads"] == sizes["width"] else head_width,
    }


def _modernbert(config_json: dict[str, Any], path: object) -> dict[str, Any]:
    """Settings with keys of ModernBERT's: biases, sliding windows, rotary bases."""
    biases = config_json.get("norm_bias", False)
    for name in BIASES:
        _require(config_json, name, biases, path)
    if not isinstance(biases, bool):
        raise FolderError(path, f"norm_bias is {short_repr(biases)}", "Give true or false")
    window = _window(config_json, path)
    bases = {}
    for ours, kind, legacy_key in ROTARY_BASES if window["window"] else ROTARY_BASES[:1]:
        base = _rotary_base(config_json, kind, legacy_key, getattr(MODERNBERT.defaults, ours), path)
        bases[ours] = _number(base, "rope_theta", False, path)
    return {"biases": biases, **bases, **window}


def _rotary_base(config_json: dict[str, Any], kind: str, legacy_key: str, default: float, path: object) -> Any:
    """Theta of the rotary positions in one type of layers."""
    parameters = config_json.get("rope_parameters")
    if not isinstance(parameters, dict) or not isinstance(parameters.get(kind), dict):
        return config_json.get(legacy_key, default)
    _require(parameters[kind], "rope_type", "default", path)
    return parameters[kind].get("rope_theta", default)


def _window(config_json: dict[str, Any], path: object) -> dict[str, int]:
    """The size of the sliding window, and which layers have it."""
    defaults, kinds = MODERNBERT.defaults, config_json.get("layer_types")
    key = "global_attn_every_n_layers"
    every = _number(config_json.get(key, defaults.global_every), key, True, path)
    if kinds is not None:
        layers = config_json.get("num_hidden_layers", defaults.layers)
        if not isinstance(kinds, list) or len(kinds) != layers or not set(map(str, kinds)) <= {FULL, SLIDING}:
            raise FolderError(
                path, f"layer_types is {short_repr(kinds)}", f"Give '{FULL}' or '{SLIDING}' for every layer"
            )
        global_layers = [number for number, kind in enumerate(kinds) if kind == FULL]
        every = global_layers[1] if len(global_layers) > 1 else len(kinds)
        if global_layers != list(range(0, len(kinds), every)):
            fact = f"the layers with {FULL} are not every n-th, from the first on"
            raise FolderError(path, fact, "Only such networks can be opened")
    if every < 1:
        raise FolderError(path, f"{key} is {every}", "Give at least 1")
    if every == 1:
        return {"window": 0}
    width = _number(config_json.get("local_attention", 2 * defaults.window), "local_attention", True, path)
    if width < 2:
        raise FolderError(path, f"local_attention is {width}", "Give at least 2")
    return {"window": int(width) // 2, "global_every": int(every)}


def _modernbert_json(config: TransformerConfig) -> dict[str, Any]:
    bases = {kind: getattr(config, ours if config.window else "rotary_base") for ours, kind, _ in ROTARY_BASES}
    return {
        **dict.fromkeys(BIASES, config.biases),
        "embedding_dropout": config.dropout,
        "classifier_dropout": config.dropout,
        "layer_types": [SLIDING if config.is_local(number) else FULL for number in range(config.layers)],
        "rope_parameters": {kind: {"rope_type": "default", "rope_theta": base} for kind, base in bases.items()},
        **({"local_attention": 2 * config.window} if config.window else {}),
        # The same for transformers before version 5, which knows only these keys.
        "global_attn_every_n_layers": config.global_every if config.window else 1,
        **{legacy_key: bases[kind] for _, kind, legacy_key in ROTARY_BASES},
    }


def _require(config_json: dict[str, Any], key: str, expected: Any, path: object) -> None:
    value = config_json.get(key, expected)
    if value != expected:
        raise FolderError(path, f"{key} is {short_repr(value)}", f"Only {short_repr(expected)} can be opened")


def _number(value: object, key: str, integer: bool, path: object) -> int | float:
    numeric = isinstance(value, int if integer else int | float) and not isinstance(value, bool)
    if not numeric or not 0 <= value <= MAX_SIZE:  # type: ignore[operator]
        raise FolderError(path, f"{key} is {short_repr(value)}", f"Give a {'whole ' if integer else ''}number")
    return value if integer else float(value)  # type: ignore[return-value,arg-type]


# ---------------------------------------------------------------------------------------------------- weights


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
    lines: list[tuple[str, str | tuple[str, ...]]] = [*layout.trunk.items()]
    for table, count in ((layout.layer, config.distinct), (layout.decoder, config.decoder_layers)):
        for n in range(count):
            for ours, theirs in table.items():
                names = (theirs,) if isinstance(theirs, str) else theirs
                lines.append((ours.format(n=n), tuple(name.format(n=n) for name in names)))
    for part, names_of_part in layout.parts.items():
        lines += names_of_part.items() if part in parts else ()
    rules = []
    for ours, theirs in lines:
        names = (theirs,) if isinstance(theirs, str) else theirs
        for suffix in ("",) if ours.endswith((".weight", ".bias")) else (".weight", ".bias"):
            full = ours + suffix
            matrix = full.startswith("trunk.layers.") and full.endswith(".weight") and "norm" not in full
            rules.append(WeightRule(full, tuple(name + suffix for name in names), layout.transposed and matrix))
    return rules
