"""The layouts of all model types: tables of transformers' config keys, classes and weight names, used in both ways."""

from dataclasses import replace

from bertsmith.errors import RecipeError
from bertsmith.models.family import ALBERT_XXLARGE, ELECTRA_SMALL, MODERN_BERT, TRANSFORMER
from bertsmith.models.family import BERT as BERT_BASE
from bertsmith.models.family import DISTILBERT as DISTILBERT_BASE
from bertsmith.models.family import GPT as GPT_BASE
from bertsmith.models.family import GPT2 as GPT2_BASE
from bertsmith.models.family import MPNET as MPNET_BASE
from bertsmith.models.family import ROBERTA as ROBERTA_BASE
from bertsmith.models.family import T5 as T5_BASE
from bertsmith.models.family import T5_V1_1 as T5_LATER_BASE
from bertsmith.models.hf import native
from bertsmith.models.hf.layout import ACTIVATION_NAMES, HFLayout
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.transformer_config import TransformerConfig

BERT = HFLayout(
    defaults=BERT_BASE,
    required=("norm_position", "embedding_norm", "gated", "biases", "position_offset", "pooler", "window", "causal"),
    positions=("learned", "sinusoidal"),
    settings={
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
    },
    fixed={
        "model_type": "bert",
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    },
    activations=("hidden_act",),
    architectures={
        "trunk": "BertModel",
        "masked_lm": "BertForMaskedLM",
        "sentence_pair": "BertForNextSentencePrediction",
        "pretraining": "BertForPreTraining",
        "classify": "BertForSequenceClassification",
        "tag": "BertForTokenClassification",
        "answer": "BertForQuestionAnswering",
        "choose": "BertForMultipleChoice",
    },
    prefix="bert.",
    unprefixed=("cls.", "classifier.", "qa_outputs."),
    trunk={
        "trunk.embedding.weight": "embeddings.word_embeddings.weight",
        "trunk.positions.weight": "embeddings.position_embeddings.weight",
        "trunk.segments.weight": "embeddings.token_type_embeddings.weight",
        "trunk.embedding_norm": "embeddings.LayerNorm",
    },
    layer={
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
    },
    parts={
        "pooler": {"pooler.dense": "pooler.dense"},
        "mlm_head": {
            "mlm_head.dense": "cls.predictions.transform.dense",
            "mlm_head.norm": "cls.predictions.transform.LayerNorm",
            "mlm_head.bias": "cls.predictions.bias",
        },
        "sentence_pair": {"sentence_pair.dense": "cls.seq_relationship"},
        "classifier": {"classifier.dense": "classifier"},
        "span": {"span.dense": "qa_outputs"},
    },
    pretrained=frozenset({"mlm_head", "pooler", "sentence_pair"}),
    special_tokens={"pad_token_id": "padding"},
    tied_weights={
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    ignored_buffers=frozenset({"embeddings.position_ids", "embeddings.token_type_ids"}),
    legacy_suffixes={".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"},
)

ROBERTA = HFLayout(
    defaults=replace(ROBERTA_BASE, max_length=510, segments=2, norm_eps=1e-12),  # transformers'; published files differ
    required=BERT.required,
    positions=("learned",),
    settings=BERT.settings,
    fixed={**BERT.fixed, "model_type": "roberta", "pad_token_id": ROBERTA_BASE.position_offset - 1},
    activations=BERT.activations,
    architectures={
        "trunk": "RobertaModel",
        "masked_lm": "RobertaForMaskedLM",
        "classify": "RobertaForSequenceClassification",
        "tag": "RobertaForTokenClassification",
        "answer": "RobertaForQuestionAnswering",
        "choose": "RobertaForMultipleChoice",
    },
    prefix="roberta.",
    unprefixed=("lm_head.", "classifier.", "qa_outputs."),
    trunk=BERT.trunk,
    layer=BERT.layer,
    parts={
        "pooler": BERT.parts["pooler"],
        "mlm_head": {
            "mlm_head.dense": "lm_head.dense",
            "mlm_head.norm": "lm_head.layer_norm",
            "mlm_head.bias": "lm_head.bias",
        },
        "classifier": BERT.parts["classifier"],
        "span": BERT.parts["span"],
    },
    pretrained=frozenset({"mlm_head"}),
    special_tokens={"pad_token_id": "padding", "bos_token_id": "start", "eos_token_id": "stop"},
    tied_weights={
        "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    ignored_buffers=BERT.ignored_buffers,
    legacy_suffixes=BERT.legacy_suffixes,
    classifier_names={"pooler.dense.": "classifier.dense.", "classifier.": "classifier.out_proj."},
)

XLM_ROBERTA = replace(
    ROBERTA,
    defaults=replace(ROBERTA.defaults, vocabulary=30_522, alias="xlm-roberta"),
    fixed={**ROBERTA.fixed, "model_type": "xlm-roberta"},
    architectures={task: f"XLM{name}" for task, name in ROBERTA.architectures.items()},
)
CAMEMBERT = replace(
    ROBERTA,
    defaults=replace(ROBERTA.defaults, vocabulary=30_522, alias="camembert"),
    fixed={**ROBERTA.fixed, "model_type": "camembert"},
    architectures={task: name.replace("Roberta", "Camembert") for task, name in ROBERTA.architectures.items()},
)

DISTILBERT = HFLayout(
    defaults=DISTILBERT_BASE,
    required=(*BERT.required, "norm_eps"),
    positions=("learned",),
    settings={
        "vocabulary": "vocab_size",
        "width": "dim",
        "layers": "n_layers",
        "heads": "n_heads",
        "feed_forward": "hidden_dim",
        "max_length": "max_position_embeddings",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
    },
    fixed={"model_type": "distilbert"},
    activations=("activation",),
    architectures={
        "trunk": "DistilBertModel",
        "masked_lm": "DistilBertForMaskedLM",
        "classify": "DistilBertForSequenceClassification",
        "tag": "DistilBertForTokenClassification",
        "answer": "DistilBertForQuestionAnswering",
        "choose": "DistilBertForMultipleChoice",
    },
    prefix="distilbert.",
    unprefixed=("vocab_", "pre_classifier.", "classifier.", "qa_outputs."),
    trunk={name: theirs for name, theirs in BERT.trunk.items() if name != "trunk.segments.weight"},
    layer={
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
    },
    parts={
        "pooler": {"pooler.dense": "pre_classifier"},
        "mlm_head": {
            "mlm_head.dense": "vocab_transform",
            "mlm_head.norm": "vocab_layer_norm",
            "mlm_head.bias": "vocab_projector.bias",
        },
        "classifier": BERT.parts["classifier"],
        "span": BERT.parts["span"],
    },
    pretrained=frozenset({"mlm_head"}),
    special_tokens={"pad_token_id": "padding"},
    tied_weights={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
    ignored_buffers=BERT.ignored_buffers,
    legacy_suffixes=BERT.legacy_suffixes,
)

MPNET = HFLayout(
    defaults=replace(MPNET_BASE, max_length=510, norm_eps=1e-12),
    required=(*BERT.required, "buckets", "max_distance"),
    positions=("learned_relative",),
    settings={ours: theirs for ours, theirs in BERT.settings.items() if ours != "segments"},
    fixed={"model_type": "mpnet", "pad_token_id": MPNET_BASE.position_offset - 1, "relative_attention_num_buckets": 32},
    activations=BERT.activations,
    architectures={task: name.replace("Roberta", "MPNet") for task, name in ROBERTA.architectures.items()},
    prefix="mpnet.",
    unprefixed=ROBERTA.unprefixed,
    trunk={
        **DISTILBERT.trunk,
        "trunk.relative.weight": "encoder.relative_attention_bias.weight",
    },
    layer={
        **BERT.layer,
        "trunk.layers.{n}.attention.qkv": (
            "encoder.layer.{n}.attention.attn.q",
            "encoder.layer.{n}.attention.attn.k",
            "encoder.layer.{n}.attention.attn.v",
        ),
        "trunk.layers.{n}.attention.output": "encoder.layer.{n}.attention.attn.o",
        "trunk.layers.{n}.attention_norm": "encoder.layer.{n}.attention.LayerNorm",
    },
    parts=ROBERTA.parts,
    pretrained=ROBERTA.pretrained,
    special_tokens=ROBERTA.special_tokens,
    tied_weights=ROBERTA.tied_weights,
    ignored_buffers=BERT.ignored_buffers,
    classifier_names=ROBERTA.classifier_names,
)

ALBERT = HFLayout(
    defaults=ALBERT_XXLARGE,
    required=BERT.required,
    positions=("learned",),
    tables="factorised",
    settings={**BERT.settings, "embedding_width": "embedding_size"},
    fixed={**BERT.fixed, "model_type": "albert", "num_hidden_groups": 1, "inner_group_num": 1},
    activations=BERT.activations,
    architectures={
        "trunk": "AlbertModel",
        "masked_lm": "AlbertForMaskedLM",
        "pretraining": "AlbertForPreTraining",
        "classify": "AlbertForSequenceClassification",
        "tag": "AlbertForTokenClassification",
        "answer": "AlbertForQuestionAnswering",
        "choose": "AlbertForMultipleChoice",
    },
    prefix="albert.",
    unprefixed=("predictions.", "sop_classifier.", "classifier.", "qa_outputs."),
    trunk={**BERT.trunk, "trunk.embedding_projection": "encoder.embedding_hidden_mapping_in"},
    layer={  # the shared one
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
    },
    parts={
        "pooler": {"pooler.dense": "pooler"},
        "mlm_head": {
            "mlm_head.dense": "predictions.dense",
            "mlm_head.norm": "predictions.LayerNorm",
            "mlm_head.bias": "predictions.bias",
        },
        "sentence_pair": {"sentence_pair.dense": "sop_classifier.classifier"},
        "classifier": BERT.parts["classifier"],
        "span": BERT.parts["span"],
    },
    pretrained=frozenset({"mlm_head", "pooler", "sentence_pair"}),
    pairs="sop",
    special_tokens={"pad_token_id": "padding", "bos_token_id": "start", "eos_token_id": "stop"},
    tied_weights={
        "predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    ignored_buffers=BERT.ignored_buffers,
)

ELECTRA = HFLayout(
    defaults=ELECTRA_SMALL,
    required=(*BERT.required, "activation"),
    positions=("learned",),
    tables="either",
    settings={**BERT.settings, "embedding_width": "embedding_size"},
    fixed={
        **BERT.fixed,
        "model_type": "electra",
        "hidden_act": "gelu",  # the heads of its generator and classifier have GELU in any case
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
    },
    activations=BERT.activations,
    architectures={
        "trunk": "ElectraModel",
        "masked_lm": "ElectraForMaskedLM",
        "pretraining": "ElectraForPreTraining",
        "classify": "ElectraForSequenceClassification",
        "tag": "ElectraForTokenClassification",
        "answer": "ElectraForQuestionAnswering",
        "choose": "ElectraForMultipleChoice",
    },
    prefix="electra.",
    unprefixed=(
        "discriminator_predictions.",
        "generator_predictions.",
        "generator_lm_head.",
        "sequence_summary.",
        "classifier.",
        "qa_outputs.",
    ),
    trunk={**BERT.trunk, "trunk.embedding_projection": "embeddings_project"},
    layer=BERT.layer,
    parts={
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
        "classifier": BERT.parts["classifier"],
        "span": BERT.parts["span"],
    },
    pretrained=frozenset({"mlm_head", "discriminator"}),
    special_tokens={"pad_token_id": "padding"},
    tied_weights={"generator_lm_head.weight": "embeddings.word_embeddings.weight"},
    ignored_buffers=BERT.ignored_buffers,
    legacy_suffixes=BERT.legacy_suffixes,
    classifier_names={"sequence_summary.summary.": "classifier.dense.", "classifier.": "classifier.out_proj."},
)

MODERNBERT = HFLayout(
    defaults=MODERN_BERT,
    required=("norm_position", "embedding_norm", "gated", "pooler", "causal"),
    positions=("rotary",),
    settings={
        "vocabulary": "vocab_size",
        "width": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "feed_forward": "intermediate_size",
        "max_length": "max_position_embeddings",
        "norm_eps": "norm_eps",
        "dropout": "mlp_dropout",
        "attention_dropout": "attention_dropout",
    },
    fixed={
        "model_type": "modernbert",
        "decoder_bias": True,
        "tie_word_embeddings": True,
    },
    activations=("hidden_activation", "classifier_activation"),
    architectures={
        "trunk": "ModernBertModel",
        "masked_lm": "ModernBertForMaskedLM",
        "classify": "ModernBertForSequenceClassification",
        "tag": "ModernBertForTokenClassification",
        "answer": "ModernBertForQuestionAnswering",
        "choose": "ModernBertForMultipleChoice",
    },
    prefix="model.",
    unprefixed=("head.", "decoder.", "classifier."),
    trunk={
        "trunk.embedding.weight": "embeddings.tok_embeddings.weight",
        "trunk.embedding_norm": "embeddings.norm",
        "trunk.final_norm": "final_norm",
    },
    layer={
        "trunk.layers.{n}.attention_norm": "layers.{n}.attn_norm",
        "trunk.layers.{n}.attention.qkv": "layers.{n}.attn.Wqkv",
        "trunk.layers.{n}.attention.output": "layers.{n}.attn.Wo",
        "trunk.layers.{n}.feed_forward_norm": "layers.{n}.mlp_norm",
        "trunk.layers.{n}.feed_forward.up": "layers.{n}.mlp.Wi",
        "trunk.layers.{n}.feed_forward.down": "layers.{n}.mlp.Wo",
    },
    parts={
        "pooler": {"pooler.dense": "head.dense", "pooler.norm": "head.norm"},
        "mlm_head": {"mlm_head.dense": "head.dense", "mlm_head.norm": "head.norm", "mlm_head.bias": "decoder.bias"},
        "classifier": {"classifier.dense": "classifier"},
        "span": {"span.dense": "classifier"},
    },
    pretrained=frozenset({"mlm_head"}),
    special_tokens={
        "pad_token_id": "padding",
        "cls_token_id": "start",
        "sep_token_id": "stop",
        "bos_token_id": "start",
        "eos_token_id": "stop",
    },
    poolings={"first": "cls", "mean": "mean"},
    tied_weights={"decoder.weight": "embeddings.tok_embeddings.weight"},
)

GPT = HFLayout(
    defaults=GPT_BASE,
    required=(
        "norm_position",
        "embedding_norm",
        "gated",
        "biases",
        "position_offset",
        "pooler",
        "window",
        "causal",
        "activation",
    ),
    positions=("learned",),
    settings={
        "vocabulary": "vocab_size",
        "width": "n_embd",
        "layers": "n_layer",
        "heads": "n_head",
        "max_length": "n_positions",
        "norm_eps": "layer_norm_epsilon",
        "dropout": "resid_pdrop",
        "attention_dropout": "attn_pdrop",
    },
    fixed={"model_type": "openai-gpt", "tie_word_embeddings": True},
    activations=("afn",),
    activation_names={"gelu": "gelu_tanh"},  # the original GPT calls the tanh approximation "gelu"
    fourfold_feed_forward=True,
    architectures={
        "trunk": "OpenAIGPTModel",
        "causal_lm": "OpenAIGPTLMHeadModel",
        "classify": "OpenAIGPTForSequenceClassification",
    },
    prefix="transformer.",
    unprefixed=("lm_head.", "score."),
    trunk={
        "trunk.embedding.weight": "tokens_embed.weight",
        "trunk.positions.weight": "positions_embed.weight",
    },
    layer={
        "trunk.layers.{n}.attention.qkv": "h.{n}.attn.c_attn",
        "trunk.layers.{n}.attention.output": "h.{n}.attn.c_proj",
        "trunk.layers.{n}.attention_norm": "h.{n}.ln_1",
        "trunk.layers.{n}.feed_forward.up": "h.{n}.mlp.c_fc",
        "trunk.layers.{n}.feed_forward.down": "h.{n}.mlp.c_proj",
        "trunk.layers.{n}.feed_forward_norm": "h.{n}.ln_2",
    },
    transposed=True,
    parts={"classifier": {"classifier.dense": "classifier"}},
    pretrained=frozenset(),
    special_tokens={"pad_token_id": "padding", "bos_token_id": "start", "eos_token_id": "stop"},
    tied_weights={"lm_head.weight": "tokens_embed.weight"},
    ignored_buffers=frozenset({"position_ids", "h.{n}.attn.bias"}),
    classifier_names={"classifier.": "score."},
)

GPT2 = HFLayout(
    defaults=GPT2_BASE,
    required=tuple(name for name in GPT.required if name != "activation"),
    positions=("learned",),
    settings=GPT.settings,
    fixed={
        "model_type": "gpt2",
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
    },
    activations=("activation_function",),
    activation_names={"gelu_new": "gelu_tanh", **ACTIVATION_NAMES},
    architectures={
        "trunk": "GPT2Model",
        "causal_lm": "GPT2LMHeadModel",
        "classify": "GPT2ForSequenceClassification",
        "tag": "GPT2ForTokenClassification",
        "answer": "GPT2ForQuestionAnswering",
    },
    prefix="transformer.",
    unprefixed=("lm_head.", "score.", "classifier.", "qa_outputs."),
    trunk={
        "trunk.embedding.weight": "wte.weight",
        "trunk.positions.weight": "wpe.weight",
        "trunk.final_norm": "ln_f",
    },
    layer=GPT.layer,
    transposed=True,
    parts={"classifier": {"classifier.dense": "classifier"}, "span": {"span.dense": "qa_outputs"}},
    pretrained=frozenset(),
    special_tokens=GPT.special_tokens,
    tied_weights={"lm_head.weight": "wte.weight"},
    ignored_buffers=frozenset({"h.{n}.attn.bias", "h.{n}.attn.masked_bias"}),
    classifier_names=GPT.classifier_names,
)

T5 = HFLayout(
    defaults=replace(T5_BASE, width=512, layers=6, decoder_layers=6, heads=8, feed_forward=2048),
    required=(*BERT.required, "gated", "activation", "tie_embeddings"),
    positions=("relative",),
    settings={
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
    },
    fixed={"model_type": "t5", "is_encoder_decoder": True},
    activations=("feed_forward_proj",),
    activation_names={"relu": "relu"},
    architectures={"trunk": "T5Model", "seq2seq_lm": "T5ForConditionalGeneration"},
    prefix="",
    unprefixed=(),
    trunk={
        "trunk.encoder.embedding.weight": "shared.weight",
        "trunk.encoder.relative.weight": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "trunk.encoder.final_norm": "encoder.final_layer_norm",
        "trunk.decoder.embedding.weight": "shared.weight",
        "trunk.decoder.relative.weight": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "trunk.decoder.final_norm": "decoder.final_layer_norm",
        "trunk.lm_head.weight": "lm_head.weight",
    },
    layer={
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
    },
    decoder={
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
    },
    parts={},
    pretrained=frozenset(),
    special_tokens={"pad_token_id": "padding", "eos_token_id": "stop", "decoder_start_token_id": "padding"},
    tied_weights={
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": "shared.weight",
    },
    ignored_buffers=frozenset({"decoder.block.{n}.layer.1.EncDecAttention.relative_attention_bias.weight"}),
)

_GATE = ("DenseReluDense.wi_0", "DenseReluDense.wi_1")

T5_V1_1 = replace(
    T5,
    defaults=replace(T5_LATER_BASE, width=512, layers=6, decoder_layers=6, heads=8, feed_forward=2048, dropout=0.1),
    activation_names={"gated-gelu": "gelu_tanh"},
    layer={
        **T5.layer,
        "trunk.encoder.layers.{n}.feed_forward.up": tuple(f"encoder.block.{{n}}.layer.1.{name}" for name in _GATE),
    },
    decoder={
        **T5.decoder,
        "trunk.decoder.layers.{n}.feed_forward.up": tuple(f"decoder.block.{{n}}.layer.2.{name}" for name in _GATE),
    },
    tied_weights={name: other for name, other in T5.tied_weights.items() if name != "lm_head.weight"},
)

MARIAN = HFLayout(
    defaults=replace(
        TRANSFORMER,
        vocabulary=58_101,
        width=1024,
        layers=12,
        decoder_layers=12,
        heads=16,
        feed_forward=4096,
        max_length=1024,
        activation="gelu",
        attention_dropout=0.0,
    ),
    required=(*BERT.required, "norm_eps"),
    positions=("sinusoidal",),
    settings={
        "vocabulary": "vocab_size",
        "width": "d_model",
        "layers": "encoder_layers",
        "decoder_layers": "decoder_layers",
        "heads": "encoder_attention_heads",
        "feed_forward": "encoder_ffn_dim",
        "max_length": "max_position_embeddings",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
    },
    fixed={
        "model_type": "marian",
        "is_encoder_decoder": True,
        "scale_embedding": True,  # a file that leaves it out means False
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "activation_dropout": 0.0,
    },
    activations=("activation_function",),
    activation_names={"relu": "relu", **ACTIVATION_NAMES},
    architectures={"trunk": "MarianModel", "seq2seq_lm": "MarianMTModel"},
    prefix="model.",
    unprefixed=("lm_head.", "final_logits_bias"),
    trunk={
        "trunk.encoder.embedding.weight": "shared.weight",
        "trunk.encoder.positions.weight": "encoder.embed_positions.weight",
        "trunk.decoder.embedding.weight": "shared.weight",
        "trunk.decoder.positions.weight": "decoder.embed_positions.weight",
    },
    layer={
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
    },
    decoder={
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
    },
    parts={},
    pretrained=frozenset(),
    special_tokens={**T5.special_tokens, "forced_eos_token_id": "stop"},
    tied_weights=T5.tied_weights,
    sinusoids=frozenset({"encoder.embed_positions.weight", "decoder.embed_positions.weight"}),
    zero_weights=frozenset({"final_logits_bias"}),
)

# Networks that transformers has no class for: their folders have our own names of settings and weights.
NATIVE = HFLayout(
    defaults=TransformerConfig(),
    required=(),
    positions=(),
    settings={},
    fixed={"model_type": native.MODEL_TYPE},
    activations=(),
    architectures={"trunk": native.MODEL_TYPE},
    prefix="",
    unprefixed=(),
    trunk={},
    layer={},
    parts={},
    pretrained=frozenset(),
    tied_weights={},
    special_tokens=T5.special_tokens,
)

LAYOUTS = {
    layout.fixed["model_type"]: layout
    for layout in (
        *(BERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, DISTILBERT, MPNET),
        *(ALBERT, ELECTRA, MODERNBERT, GPT, GPT2, T5, MARIAN),
    )
}
ALL_LAYOUTS = (*LAYOUTS.values(), T5_V1_1)  # both versions of T5 have one model_type

# Settings that are the defaults' in every network of any layout.
COMMON_SETTINGS = ("share_layers", "scale_scores", "norm", "cross_attention", "tie_embeddings", "alias")
SHOWN_SETTINGS = (
    *("norm_position", "embedding_norm", "gated", "biases", "positions", "position_offset", "segments"),
    *("embedding_width", "share_layers", "pooler", "window", "causal", "decoder_layers", "dropout", "width"),
    "feed_forward",
)


def layout_of(config: NetworkConfig) -> HFLayout:
    """The layout of a network."""
    if not isinstance(config, TransformerConfig):
        return NATIVE
    tables = {
        "full": not config.embedding_width,
        "factorised": config.embedding_width > 0,
        "either": config.embedding_width != config.width,
    }
    for layout in ALL_LAYOUTS:
        defaults = layout.defaults
        equal = all(getattr(config, name) == getattr(defaults, name) for name in (*layout.required, *COMMON_SETTINGS))
        parts = all(
            bool(getattr(config, name)) == bool(getattr(defaults, name)) for name in ("segments", "decoder_layers")
        )
        positions = config.positions in layout.positions
        if equal and parts and positions and tables[layout.tables] and _fits(config, layout):
            return layout
    shown = ", ".join(f"{name} = {getattr(config, name)}" for name in SHOWN_SETTINGS)
    raise RecipeError("model", f"no class of transformers is a network with {shown}", "See bertsmith list for members")


def _fits(config: TransformerConfig, layout: HFLayout) -> bool:
    """Whether two of our settings agree where config.json has one key for both, and others are as it implies."""
    settings = layout.settings
    dropout = settings["dropout"] != settings["attention_dropout"] or config.dropout == config.attention_dropout
    feed_forward = not layout.fourfold_feed_forward or config.feed_forward == 4 * config.width
    return dropout and feed_forward and ("head_width" in settings or not config.head_width)
