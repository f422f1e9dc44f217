"""The layout of ModernBERT: rotary positions, sliding windows, and a network without biases."""

from typing import Any

from bertsmith.errors import FolderError
from bertsmith.files import short_repr
from bertsmith.models import family
from bertsmith.models.hf.layout import HFLayout, class_names
from bertsmith.models.hf.values import number, require
from bertsmith.models.transformer_config import TransformerConfig

BIASES = ("norm_bias", "attention_bias", "mlp_bias", "classifier_bias")  # its switches; ours has one for all
FULL, SLIDING = "full_attention", "sliding_attention"  # its types of layers
ROTARY_BASES = (("rotary_base", FULL, "global_rope_theta"), ("window_rotary_base", SLIDING, "local_rope_theta"))


class ModernBert(HFLayout):
    """ModernBERT."""

    model_type = "modernbert"
    defaults = family.MODERN_BERT
    settings = {
        "vocabulary": "vocab_size",
        "width": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "feed_forward": "intermediate_size",
        "max_length": "max_position_embeddings",
        "norm_eps": "norm_eps",
        "dropout": "mlp_dropout",
        "attention_dropout": "attention_dropout",
    }
    fixed = {"decoder_bias": True, "tie_word_embeddings": True}
    activations = ("hidden_activation", "classifier_activation")
    architectures = class_names("ModernBert", "masked_lm classify tag answer choose")
    prefix = "model."
    unprefixed = ("head.", "decoder.", "classifier.")
    trunk = {
        "trunk.embedding.weight": "embeddings.tok_embeddings.weight",
        "trunk.embedding_norm": "embeddings.norm",
        "trunk.final_norm": "final_norm",
    }
    layer = {
        "trunk.layers.{n}.attention_norm": "layers.{n}.attn_norm",
        "trunk.layers.{n}.attention.qkv": "layers.{n}.attn.Wqkv",
        "trunk.layers.{n}.attention.output": "layers.{n}.attn.Wo",
        "trunk.layers.{n}.feed_forward_norm": "layers.{n}.mlp_norm",
        "trunk.layers.{n}.feed_forward.up": "layers.{n}.mlp.Wi",
        "trunk.layers.{n}.feed_forward.down": "layers.{n}.mlp.Wo",
    }
    parts = {
        "pooler": {"pooler.dense": "head.dense", "pooler.norm": "head.norm"},
        "mlm_head": {"mlm_head.dense": "head.dense", "mlm_head.norm": "head.norm", "mlm_head.bias": "decoder.bias"},
        "classifier": {"classifier.dense": "classifier"},
        "span": {"span.dense": "classifier"},
    }
    pretrained = frozenset({"mlm_head"})
    special_tokens = {
        "pad_token_id": "padding",
        "cls_token_id": "start",
        "sep_token_id": "stop",
        "bos_token_id": "start",
        "eos_token_id": "stop",
    }
    poolings = {"first": "cls", "mean": "mean"}
    tied_weights = {"decoder.weight": "embeddings.tok_embeddings.weight"}

    def to_config_json(self, config: TransformerConfig) -> dict[str, Any]:
        bases = {kind: getattr(config, ours if config.window else "rotary_base") for ours, kind, _ in ROTARY_BASES}
        return {
            **super().to_config_json(config),
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

    def settings_of(self, config_json: dict[str, Any], path: object) -> dict[str, Any]:
        biases = config_json.get("norm_bias", False)
        for name in BIASES:
            require(config_json, name, biases, path)
        if not isinstance(biases, bool):
            raise FolderError(path, f"norm_bias is {short_repr(biases)}", "Give true or false")
        settings = {**super().settings_of(config_json, path), "biases": biases, **self._window(config_json, path)}
        for ours, kind, legacy_key in ROTARY_BASES if settings["window"] else ROTARY_BASES[:1]:
            base = self._rotary_base(config_json, kind, legacy_key, settings[ours], path)
            settings[ours] = number(base, "rope_theta", False, path)
        return settings

    def _rotary_base(
        self, config_json: dict[str, Any], kind: str, legacy_key: str, default: float, path: object
    ) -> Any:
        """Theta of the rotary positions in one type of layers."""
        parameters = config_json.get("rope_parameters")
        if not isinstance(parameters, dict) or not isinstance(parameters.get(kind), dict):
            return config_json.get(legacy_key, default)
        require(parameters[kind], "rope_type", "default", path)
        return parameters[kind].get("rope_theta", default)

    def _window(self, config_json: dict[str, Any], path: object) -> dict[str, int]:
        """The size of the sliding window, and which layers have it."""
        kinds = config_json.get("layer_types")
        key = "global_attn_every_n_layers"
        every = number(config_json.get(key, self.defaults.global_every), key, True, path)
        if kinds is not None:
            layers = config_json.get("num_hidden_layers", self.defaults.layers)
            if not isinstance(kinds, list) or len(kinds) != layers or not set(map(str, kinds)) <= {FULL, SLIDING}:
                raise FolderError(
                    path, f"layer_types is {short_repr(kinds)}", f"Give '{FULL}' or '{SLIDING}' for every layer"
                )
            global_layers = [number for number, kind in enumerate(kinds) if kind == FULL]
            if not every or global_layers != list(range(0, len(kinds), int(every))):  # the types count, not the key
                every = global_layers[1] if len(global_layers) > 1 else len(kinds)
            if global_layers != list(range(0, len(kinds), int(every))):
                fact = f"the layers with {FULL} are not every n-th, from the first on"
                raise FolderError(path, fact, "Only such networks can be opened")
        if every < 1:
            raise FolderError(path, f"{key} is {every}", "Give at least 1")
        if every == 1:
            return {"window": 0}
        width = number(config_json.get("local_attention", 2 * self.defaults.window), "local_attention", True, path)
        if width < 2:
            raise FolderError(path, f"local_attention is {width}", "Give at least 2")
        return {"window": int(width) // 2, "global_every": int(every)}
