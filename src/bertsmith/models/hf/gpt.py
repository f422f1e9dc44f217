"""The layouts of GPT and GPT-2."""

from typing import Any

from bertsmith.models import family
from bertsmith.models.hf.layout import ACTIVATION_NAMES, HFLayout, class_names
from bertsmith.models.hf.values import number, require
from bertsmith.models.transformer_config import TransformerConfig


class OpenAIGPT(HFLayout):
    """The original GPT, whose feed-forward network is always four times as wide as the network."""

    model_type = "openai-gpt"
    defaults = family.GPT
    settings = {
        "vocabulary": "vocab_size",
        "width": "n_embd",
        "layers": "n_layer",
        "heads": "n_head",
        "max_length": "n_positions",
        "norm_eps": "layer_norm_epsilon",
        "dropout": "resid_pdrop",
        "attention_dropout": "attn_pdrop",
    }
    fixed = {"tie_word_embeddings": True}
    activations = ("afn",)
    activation_names = {"gelu": "gelu_tanh"}  # here "gelu" is the tanh approximation
    architectures = class_names("OpenAIGPT", "causal_lm classify")
    prefix = "transformer."
    unprefixed: tuple[str, ...] = ("lm_head.", "score.")
    trunk = {
        "trunk.embedding.weight": "tokens_embed.weight",
        "trunk.positions.weight": "positions_embed.weight",
    }
    layer = {
        "trunk.layers.{n}.attention.qkv": "h.{n}.attn.c_attn",
        "trunk.layers.{n}.attention.output": "h.{n}.attn.c_proj",
        "trunk.layers.{n}.attention_norm": "h.{n}.ln_1",
        "trunk.layers.{n}.feed_forward.up": "h.{n}.mlp.c_fc",
        "trunk.layers.{n}.feed_forward.down": "h.{n}.mlp.c_proj",
        "trunk.layers.{n}.feed_forward_norm": "h.{n}.ln_2",
    }
    transposed = True
    parts = {"classifier": {"classifier.dense": "classifier"}}
    special_tokens = {"pad_token_id": "padding", "bos_token_id": "start", "eos_token_id": "stop"}
    tied_weights = {"lm_head.weight": "tokens_embed.weight"}
    ignored_buffers = frozenset({"position_ids", "h.{n}.attn.bias"})
    classifier_names = {"classifier.": "score."}

    def to_config_json(self, config: TransformerConfig) -> dict[str, Any]:
        return {**super().to_config_json(config), "embd_pdrop": config.dropout}

    def settings_of(self, config_json: dict[str, Any], path: object) -> dict[str, Any]:
        settings = super().settings_of(config_json, path)
        require({"embd_pdrop": self.defaults.dropout, **config_json}, "embd_pdrop", settings["dropout"], path)
        return {**settings, "feed_forward": 4 * settings["width"]}


class GPT2(OpenAIGPT):
    """GPT-2."""

    model_type = "gpt2"
    defaults = family.GPT2
    fixed = {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    }
    activations = ("activation_function",)
    activation_names = {"gelu_new": "gelu_tanh", **ACTIVATION_NAMES}
    architectures = class_names("GPT2", "causal_lm classify tag answer")
    unprefixed = ("lm_head.", "score.", "classifier.", "qa_outputs.")
    trunk = {
        "trunk.embedding.weight": "wte.weight",
        "trunk.positions.weight": "wpe.weight",
        "trunk.final_norm": "ln_f",
    }
    parts = {"classifier": {"classifier.dense": "classifier"}, "span": {"span.dense": "qa_outputs"}}
    tied_weights = {"lm_head.weight": "wte.weight"}
    ignored_buffers = frozenset({"h.{n}.attn.bias", "h.{n}.attn.masked_bias"})

    def to_config_json(self, config: TransformerConfig) -> dict[str, Any]:
        return {**super().to_config_json(config), "n_inner": config.feed_forward}

    def settings_of(self, config_json: dict[str, Any], path: object) -> dict[str, Any]:
        settings, inner = super().settings_of(config_json, path), config_json.get("n_inner")
        return settings if inner is None else {**settings, "feed_forward": number(inner, "n_inner", True, path)}
