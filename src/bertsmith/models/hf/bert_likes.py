"""The layouts of BERT and of its relatives, which have taken over most of its names."""

from dataclasses import replace
from typing import Any

from bertsmith.models import family
from bertsmith.models.hf.layout import HFLayout, class_names
from bertsmith.models.transformer_config import TransformerConfig

TASKS = "classify tag answer choose"


class BertLike(HFLayout):
    """The names that most relatives of BERT share."""

    settings = {
        "vocabulary": "vocab_size",
        "width": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "feed_forward": "intermediate_size",
        "max_length": "max_position_embeddings",
        "segments": "type_vocab_size",
        "norm_eps": "layer_norm_eps",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
    }
    fixed = {"position_embedding_type": "absolute", "is_decoder": False, "add_cross_attention": False}
    trunk = {
        "trunk.embedding.weight": "embeddings.word_embeddings.weight",
        "trunk.positions.weight": "embeddings.position_embeddings.weight",
        "trunk.segments.weight": "embeddings.token_type_embeddings.weight",
        "trunk.embedding_norm": "embeddings.LayerNorm",
    }
    layer = {
        "trunk.layers.{n}.attention.qkv": (
            "encoder.layer.{n}.attention.self.query",
            "encoder.layer.{n}.attention.self.key",
            "encoder.layer.{n}.attention.self.value",
        ),
        "trunk.layers.{n}.attention.output": "encoder.layer.{n}.attention.output.dense",
        "trunk.layers.{n}.attention_norm": "encoder.layer.{n}.attention.output.LayerNorm",
        "trunk.layers.{n}.feed_forward.up": "encoder.layer.{n}.intermediate.dense",
        "trunk.layers.{n}.feed_forward.down": "encoder.layer.{n}.output.dense",
        "trunk.layers.{n}.feed_forward_norm": "encoder.layer.{n}.output.LayerNorm",
    }
    ignored_buffers = frozenset({"embeddings.position_ids", "embeddings.token_type_ids"})
    legacy_suffixes = {".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"}


# Heads of every relative.
TASK_HEADS = {"classifier": {"classifier.dense": "classifier"}, "span": {"span.dense": "qa_outputs"}}


class Bert(BertLike):
    """BERT. With a key of our own its positions are sinusoidal: to transformers their table is a learned one."""

    model_type = "bert"
    defaults = family.BERT
    architectures = class_names("Bert", f"masked_lm sentence_pair pretraining {TASKS}")
    prefix = "bert."
    unprefixed = ("cls.", "classifier.", "qa_outputs.")
    parts = {
        "pooler": {"pooler.dense": "pooler.dense"},
        "mlm_head": {
            "mlm_head.dense": "cls.predictions.transform.dense",
            "mlm_head.norm": "cls.predictions.transform.LayerNorm",
            "mlm_head.bias": "cls.predictions.bias",
        },
        "sentence_pair": {"sentence_pair.dense": "cls.seq_relationship"},
        **TASK_HEADS,
    }
    pretrained = frozenset({"mlm_head", "pooler", "sentence_pair"})
    tied_weights = {
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    }

    def to_config_json(self, config: TransformerConfig) -> dict[str, Any]:
        own = {"positions": config.positions} if config.positions == "sinusoidal" else {}
        return {**super().to_config_json(config), **own}

    def settings_of(self, config_json: dict[str, Any], path: object) -> dict[str, Any]:
        own = {"positions": "sinusoidal"} if config_json.get("positions") == "sinusoidal" else {}
        return {**super().settings_of(config_json, path), **own}


class Roberta(BertLike):
    """RoBERTa, whose published files differ from transformers' defaults."""

    model_type = "roberta"
    defaults = replace(family.ROBERTA, max_length=510, segments=2, norm_eps=1e-12)
    fixed = {**BertLike.fixed, "pad_token_id": family.ROBERTA.position_offset - 1}
    architectures = class_names("Roberta", f"masked_lm {TASKS}")
    mlm_activation = "gelu"  # whatever hidden_act is
    prefix = "roberta."
    unprefixed = ("lm_head.", "classifier.", "qa_outputs.")
    parts = {
        "pooler": {"pooler.dense": "pooler.dense"},
        "mlm_head": {
            "mlm_head.dense": "lm_head.dense",
            "mlm_head.norm": "lm_head.layer_norm",
            "mlm_head.bias": "lm_head.bias",
        },
        **TASK_HEADS,
    }
    pretrained = frozenset({"mlm_head"})
    special_tokens = {"bos_token_id": "start", "eos_token_id": "stop"}  # positions begin after the fixed pad_token_id
    tied_weights = {
        "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    }
    classifier_names = {"pooler.dense.": "classifier.dense.", "classifier.": "classifier.out_proj."}


class XLMRoberta(Roberta):
    """XLM-R: RoBERTa's network."""

    model_type = "xlm-roberta"
    defaults = replace(Roberta.defaults, vocabulary=30_522, alias="xlm-roberta")
    architectures = class_names("XLMRoberta", f"masked_lm {TASKS}")


class Camembert(Roberta):
    """CamemBERT: RoBERTa's network."""

    model_type = "camembert"
    defaults = replace(Roberta.defaults, vocabulary=30_522, alias="camembert")
    architectures = class_names("Camembert", f"masked_lm {TASKS}")


class MPNet(Roberta):
    """MPNet: RoBERTa's heads."""

    model_type = "mpnet"
    defaults = replace(family.MPNET, max_length=510, norm_eps=1e-12)
    settings = {ours: theirs for ours, theirs in BertLike.settings.items() if ours != "segments"}
    fixed = {"pad_token_id": family.MPNET.position_offset - 1, "relative_attention_num_buckets": 32}
    architectures = class_names("MPNet", f"masked_lm {TASKS}")
    prefix = "mpnet."
    trunk = {
        "trunk.embedding.weight": "embeddings.word_embeddings.weight",
        "trunk.positions.weight": "embeddings.position_embeddings.weight",
        "trunk.embedding_norm": "embeddings.LayerNorm",
        "trunk.relative.weight": "encoder.relative_attention_bias.weight",
    }
    layer = {
        **BertLike.layer,
        "trunk.layers.{n}.attention.qkv": (
            "encoder.layer.{n}.attention.attn.q",
            "encoder.layer.{n}.attention.attn.k",
            "encoder.layer.{n}.attention.attn.v",
        ),
        "trunk.layers.{n}.attention.output": "encoder.layer.{n}.attention.attn.o",
        "trunk.layers.{n}.attention_norm": "encoder.layer.{n}.attention.LayerNorm",
    }


class DistilBert(BertLike):
    """DistilBERT."""

    model_type = "distilbert"
    defaults = family.DISTILBERT
    settings = {
        "vocabulary": "vocab_size",
        "width": "dim",
        "layers": "n_layers",
        "heads": "n_heads",
        "feed_forward": "hidden_dim",
        "max_length": "max_position_embeddings",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
    }
    fixed = {}
    activations = ("activation",)
    architectures = class_names("DistilBert", f"masked_lm {TASKS}")
    prefix = "distilbert."
    unprefixed = ("vocab_", "pre_classifier.", "classifier.", "qa_outputs.")
    trunk = {
        "trunk.embedding.weight": "embeddings.word_embeddings.weight",
        "trunk.positions.weight": "embeddings.position_embeddings.weight",
        "trunk.embedding_norm": "embeddings.LayerNorm",
    }
    layer = {
        "trunk.layers.{n}.attention.qkv": (
            "transformer.layer.{n}.attention.q_lin",
            "transformer.layer.{n}.attention.k_lin",
            "transformer.layer.{n}.attention.v_lin",
        ),
        "trunk.layers.{n}.attention.output": "transformer.layer.{n}.attention.out_lin",
        "trunk.layers.{n}.attention_norm": "transformer.layer.{n}.sa_layer_norm",
        "trunk.layers.{n}.feed_forward.up": "transformer.layer.{n}.ffn.lin1",
        "trunk.layers.{n}.feed_forward.down": "transformer.layer.{n}.ffn.lin2",
        "trunk.layers.{n}.feed_forward_norm": "transformer.layer.{n}.output_layer_norm",
    }
    parts = {
        "pooler": {"pooler.dense": "pre_classifier"},
        "mlm_head": {
            "mlm_head.dense": "vocab_transform",
            "mlm_head.norm": "vocab_layer_norm",
            "mlm_head.bias": "vocab_projector.bias",
        },
        **TASK_HEADS,
    }
    pretrained = frozenset({"mlm_head"})
    tied_weights = {"vocab_projector.weight": "embeddings.word_embeddings.weight"}


class Albert(BertLike):
    """ALBERT, whose layers share one set of weights, and whose embedding is always factorised."""

    model_type = "albert"
    defaults = family.ALBERT_XXLARGE
    settings = {**BertLike.settings, "embedding_width": "embedding_size"}
    fixed = {**BertLike.fixed, "num_hidden_groups": 1, "inner_group_num": 1}
    architectures = class_names("Albert", f"masked_lm pretraining {TASKS}")
    prefix = "albert."
    unprefixed = ("predictions.", "sop_classifier.", "classifier.", "qa_outputs.")
    trunk = {**BertLike.trunk, "trunk.embedding_projection": "encoder.embedding_hidden_mapping_in"}
    layer = {  # the shared one
        "trunk.layers.{n}.attention.qkv": (
            "encoder.albert_layer_groups.{n}.albert_layers.0.attention.query",
            "encoder.albert_layer_groups.{n}.albert_layers.0.attention.key",
            "encoder.albert_layer_groups.{n}.albert_layers.0.attention.value",
        ),
        "trunk.layers.{n}.attention.output": "encoder.albert_layer_groups.{n}.albert_layers.0.attention.dense",
        "trunk.layers.{n}.attention_norm": "encoder.albert_layer_groups.{n}.albert_layers.0.attention.LayerNorm",
        "trunk.layers.{n}.feed_forward.up": "encoder.albert_layer_groups.{n}.albert_layers.0.ffn",
        "trunk.layers.{n}.feed_forward.down": "encoder.albert_layer_groups.{n}.albert_layers.0.ffn_output",
        "trunk.layers.{n}.feed_forward_norm": "encoder.albert_layer_groups.{n}.albert_layers.0.full_layer_layer_norm",
    }
    parts = {
        "pooler": {"pooler.dense": "pooler"},
        "mlm_head": {
            "mlm_head.dense": "predictions.dense",
            "mlm_head.norm": "predictions.LayerNorm",
            "mlm_head.bias": "predictions.bias",
        },
        "sentence_pair": {"sentence_pair.dense": "sop_classifier.classifier"},
        **TASK_HEADS,
    }
    pretrained = frozenset({"mlm_head", "pooler", "sentence_pair"})
    pairs = "sop"
    special_tokens = {"pad_token_id": "padding", "bos_token_id": "start", "eos_token_id": "stop"}
    tied_weights = {
        "predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    }


class Electra(BertLike):
    """ELECTRA: its discriminator, and its generator. An embedding narrower or wider than the network is factorised."""

    model_type = "electra"
    defaults = family.ELECTRA_SMALL
    settings = {**BertLike.settings, "embedding_width": "embedding_size"}
    fixed = {
        **BertLike.fixed,
        "hidden_act": "gelu",  # the heads of its generator and classifier have GELU in any case
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
    }
    architectures = class_names("Electra", f"masked_lm pretraining {TASKS}")
    prefix = "electra."
    unprefixed = (
        "discriminator_predictions.",
        "generator_predictions.",
        "generator_lm_head.",
        "sequence_summary.",
        "classifier.",
        "qa_outputs.",
    )
    trunk = {**BertLike.trunk, "trunk.embedding_projection": "embeddings_project"}
    parts = {
        "pooler": {"pooler.dense": "sequence_summary.summary"},
        "mlm_head": {
            "mlm_head.dense": "generator_predictions.dense",
            "mlm_head.norm": "generator_predictions.LayerNorm",
            "mlm_head.bias": "generator_lm_head.bias",
        },
        "discriminator": {
            "discriminator.dense": "discriminator_predictions.dense",
            "discriminator.output": "discriminator_predictions.dense_prediction",
        },
        **TASK_HEADS,
    }
    pretrained = frozenset({"mlm_head", "discriminator"})
    tied_weights = {"generator_lm_head.weight": "embeddings.word_embeddings.weight"}
    classifier_names = {"sequence_summary.summary.": "classifier.dense.", "classifier.": "classifier.out_proj."}

    def settings_of(self, config_json: dict[str, Any], path: object) -> dict[str, Any]:
        settings = super().settings_of(config_json, path)
        factorised = settings["embedding_width"] != settings["width"]
        return settings if factorised else {**settings, "embedding_width": 0}
