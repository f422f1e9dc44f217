"""The layouts of networks with an encoder and a decoder: T5 in both versions, and Marian for Vaswani's transformer."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from bertsmith.errors import FolderError
from bertsmith.files import short_repr
from bertsmith.models import family
from bertsmith.models.hf.layout import ACTIVATION_NAMES, HFLayout, Names
from bertsmith.models.hf.values import require
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.transformer_config import TransformerConfig


class T5(HFLayout):
    """T5. Version 1.1, of the same model type, has GELU with a gate, and an output layer that is not tied."""

    model_type = "t5"
    defaults = replace(family.T5, width=512, layers=6, decoder_layers=6, heads=8, feed_forward=2048)
    settings = {
        "vocabulary": "vocab_size",
        "width": "d_model",
        "layers": "num_layers",
        "decoder_layers": "num_decoder_layers",
        "heads": "num_heads",
        "head_width": "d_kv",
        "feed_forward": "d_ff",
        "max_length": "n_positions",
        "buckets": "relative_attention_num_buckets",
        "max_distance": "relative_attention_max_distance",
        "norm_eps": "layer_norm_epsilon",
        "dropout": "dropout_rate",
        "attention_dropout": "dropout_rate",
    }
    fixed = {"is_encoder_decoder": True}
    activations = ("feed_forward_proj",)
    activation_names = {"relu": "relu", "gated-gelu": "gelu_tanh"}
    architectures = {"trunk": "T5Model", "seq2seq_lm": "T5ForConditionalGeneration"}
    trunk = {
        "trunk.encoder.embedding.weight": "shared.weight",
        "trunk.encoder.relative.weight": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "trunk.encoder.final_norm": "encoder.final_layer_norm",
        "trunk.decoder.embedding.weight": "shared.weight",
        "trunk.decoder.relative.weight": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "trunk.decoder.final_norm": "decoder.final_layer_norm",
        "trunk.lm_head.weight": "lm_head.weight",
    }
    layer = {
        "trunk.encoder.layers.{n}.attention.qkv": (
            "encoder.block.{n}.layer.0.SelfAttention.q",
            "encoder.block.{n}.layer.0.SelfAttention.k",
            "encoder.block.{n}.layer.0.SelfAttention.v",
        ),
        "trunk.encoder.layers.{n}.attention.output": "encoder.block.{n}.layer.0.SelfAttention.o",
        "trunk.encoder.layers.{n}.attention_norm": "encoder.block.{n}.layer.0.layer_norm",
        "trunk.encoder.layers.{n}.feed_forward.up": "encoder.block.{n}.layer.1.DenseReluDense.wi",
        "trunk.encoder.layers.{n}.feed_forward.down": "encoder.block.{n}.layer.1.DenseReluDense.wo",
        "trunk.encoder.layers.{n}.feed_forward_norm": "encoder.block.{n}.layer.1.layer_norm",
    }
    decoder = {
        "trunk.decoder.layers.{n}.attention.qkv": (
            "decoder.block.{n}.layer.0.SelfAttention.q",
            "decoder.block.{n}.layer.0.SelfAttention.k",
            "decoder.block.{n}.layer.0.SelfAttention.v",
        ),
        "trunk.decoder.layers.{n}.attention.output": "decoder.block.{n}.layer.0.SelfAttention.o",
        "trunk.decoder.layers.{n}.attention_norm": "decoder.block.{n}.layer.0.layer_norm",
        "trunk.decoder.layers.{n}.cross_attention.query": "decoder.block.{n}.layer.1.EncDecAttention.q",
        "trunk.decoder.layers.{n}.cross_attention.kv": (
            "decoder.block.{n}.layer.1.EncDecAttention.k",
            "decoder.block.{n}.layer.1.EncDecAttention.v",
        ),
        "trunk.decoder.layers.{n}.cross_attention.output": "decoder.block.{n}.layer.1.EncDecAttention.o",
        "trunk.decoder.layers.{n}.cross_attention_norm": "decoder.block.{n}.layer.1.layer_norm",
        "trunk.decoder.layers.{n}.feed_forward.up": "decoder.block.{n}.layer.2.DenseReluDense.wi",
        "trunk.decoder.layers.{n}.feed_forward.down": "decoder.block.{n}.layer.2.DenseReluDense.wo",
        "trunk.decoder.layers.{n}.feed_forward_norm": "decoder.block.{n}.layer.2.layer_norm",
    }
    special_tokens = {"pad_token_id": "padding", "eos_token_id": "stop", "decoder_start_token_id": "padding"}
    tied_weights = {
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": "shared.weight",
    }
    ignored_buffers = frozenset({"decoder.block.{n}.layer.1.EncDecAttention.relative_attention_bias.weight"})

    def to_config_json(self, config: TransformerConfig) -> dict[str, Any]:
        version = {
            "feed_forward_proj": "gated-gelu" if config.gated else "relu",
            "tie_word_embeddings": not config.gated,
        }
        return {**super().to_config_json(config), **version}

    def settings_of(self, config_json: dict[str, Any], path: object) -> dict[str, Any]:
        layers = config_json.get("num_layers", self.defaults.layers)  # the decoder has as many by default
        settings = super().settings_of({"d_kv": 64, "num_decoder_layers": layers, **config_json}, path)
        if settings["head_width"] * settings["heads"] == settings["width"]:
            settings["head_width"] = 0
        gated = settings["activation"] == "gelu_tanh"
        # Recent versions of transformers write scale_decoder_outputs, and true for tie_word_embeddings in any case.
        tied = config_json.get("scale_decoder_outputs", config_json.get("tie_word_embeddings", True))
        if tied is gated or not isinstance(tied, bool):
            remedy = "T5 v1.1 has an untied one" if gated else "Such a T5 has a tied output layer"
            raise FolderError(path, f"tie_word_embeddings is {short_repr(tied)}", remedy)
        return {**settings, "gated": gated, "tie_embeddings": tied}

    def weight_names(self, config: TransformerConfig, parts: Iterable[str]) -> dict[str, Names]:
        names = super().weight_names(config, parts)
        if config.gated:  # two matrices, of the gate and of the values
            names |= {
                ours: (f"{theirs[0]}_0", f"{theirs[0]}_1") for ours, theirs in names.items() if ours.endswith(".up")
            }
        return names

    def second_names(self, config: NetworkConfig) -> dict[str, str]:
        untied = isinstance(config, TransformerConfig) and not config.tie_embeddings
        return {copy: name for copy, name in self.tied_weights.items() if not (untied and copy == "lm_head.weight")}


DECODER_SIZES = {  # Marian's decoder may differ from its encoder in size; ours may not
    "heads": "decoder_attention_heads",
    "feed_forward": "decoder_ffn_dim",
    "vocabulary": "decoder_vocab_size",
}


class Marian(HFLayout):
    """Marian: the transformer of 2017."""

    model_type = "marian"
    defaults = replace(
        family.TRANSFORMER,
        vocabulary=58_101,
        width=1024,
        layers=12,
        decoder_layers=12,
        heads=16,
        feed_forward=4096,
        max_length=1024,
        activation="gelu",
        attention_dropout=0.0,
    )
    settings = {
        "vocabulary": "vocab_size",
        "width": "d_model",
        "layers": "encoder_layers",
        "decoder_layers": "decoder_layers",
        "heads": "encoder_attention_heads",
        "feed_forward": "encoder_ffn_dim",
        "max_length": "max_position_embeddings",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
    }
    fixed = {
        "is_encoder_decoder": True,
        "scale_embedding": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "activation_dropout": 0.0,
    }
    activations = ("activation_function",)
    activation_names = {"relu": "relu", **ACTIVATION_NAMES}
    architectures = {"trunk": "MarianModel", "seq2seq_lm": "MarianMTModel"}
    prefix = "model."
    unprefixed = ("lm_head.", "final_logits_bias")
    trunk = {
        "trunk.encoder.embedding.weight": "shared.weight",
        "trunk.encoder.positions.weight": "encoder.embed_positions.weight",
        "trunk.decoder.embedding.weight": "shared.weight",
        "trunk.decoder.positions.weight": "decoder.embed_positions.weight",
    }
    layer = {
        "trunk.encoder.layers.{n}.attention.qkv": (
            "encoder.layers.{n}.self_attn.q_proj",
            "encoder.layers.{n}.self_attn.k_proj",
            "encoder.layers.{n}.self_attn.v_proj",
        ),
        "trunk.encoder.layers.{n}.attention.output": "encoder.layers.{n}.self_attn.out_proj",
        "trunk.encoder.layers.{n}.attention_norm": "encoder.layers.{n}.self_attn_layer_norm",
        "trunk.encoder.layers.{n}.feed_forward.up": "encoder.layers.{n}.fc1",
        "trunk.encoder.layers.{n}.feed_forward.down": "encoder.layers.{n}.fc2",
        "trunk.encoder.layers.{n}.feed_forward_norm": "encoder.layers.{n}.final_layer_norm",
    }
    decoder = {
        "trunk.decoder.layers.{n}.attention.qkv": (
            "decoder.layers.{n}.self_attn.q_proj",
            "decoder.layers.{n}.self_attn.k_proj",
            "decoder.layers.{n}.self_attn.v_proj",
        ),
        "trunk.decoder.layers.{n}.attention.output": "decoder.layers.{n}.self_attn.out_proj",
        "trunk.decoder.layers.{n}.attention_norm": "decoder.layers.{n}.self_attn_layer_norm",
        "trunk.decoder.layers.{n}.cross_attention.query": "decoder.layers.{n}.encoder_attn.q_proj",
        "trunk.decoder.layers.{n}.cross_attention.kv": (
            "decoder.layers.{n}.encoder_attn.k_proj",
            "decoder.layers.{n}.encoder_attn.v_proj",
        ),
        "trunk.decoder.layers.{n}.cross_attention.output": "decoder.layers.{n}.encoder_attn.out_proj",
        "trunk.decoder.layers.{n}.cross_attention_norm": "decoder.layers.{n}.encoder_attn_layer_norm",
        "trunk.decoder.layers.{n}.feed_forward.up": "decoder.layers.{n}.fc1",
        "trunk.decoder.layers.{n}.feed_forward.down": "decoder.layers.{n}.fc2",
        "trunk.decoder.layers.{n}.feed_forward_norm": "decoder.layers.{n}.final_layer_norm",
    }
    special_tokens = {**T5.special_tokens, "forced_eos_token_id": "stop"}
    tied_weights = T5.tied_weights
    sinusoids = frozenset({"encoder.embed_positions.weight", "decoder.embed_positions.weight"})
    zero_weights = frozenset({"final_logits_bias"})

    def to_config_json(self, config: TransformerConfig) -> dict[str, Any]:
        decoder = {theirs: getattr(config, ours) for ours, theirs in DECODER_SIZES.items()}
        return {**super().to_config_json(config), **decoder}

    def settings_of(self, config_json: dict[str, Any], path: object) -> dict[str, Any]:
        # A file that leaves out scale_embedding means False.
        settings = super().settings_of({"scale_embedding": False, **config_json}, path)
        for ours, theirs in DECODER_SIZES.items():
            require(config_json, theirs, settings[ours], path)
        return settings
