"""All dialects: tables of transformers' words for our networks, settings and weights, read both ways."""

from dataclasses import replace

from bertsmith.errors import RecipeError
from bertsmith.models import own
from bertsmith.models.dialect import CURVES, Dialect
from bertsmith.models.family import ALBERT_XXLARGE, ELECTRA_SMALL, MODERN_BERT, TRANSFORMER
from bertsmith.models.family import BERT as BERT_BASE
from bertsmith.models.family import DISTILBERT as DISTILBERT_BASE
from bertsmith.models.family import GPT as GPT_BASE
from bertsmith.models.family import GPT2 as GPT2_BASE
from bertsmith.models.family import MPNET as MPNET_BASE
from bertsmith.models.family import ROBERTA as ROBERTA_BASE
from bertsmith.models.family import T5 as T5_BASE
from bertsmith.models.family import T5_LATER as T5_LATER_BASE
from bertsmith.models.networks import NetworkConfig
from bertsmith.models.transformer import TransformerConfig

BERT = Dialect(
    standard=BERT_BASE,
    needs=("norm", "table_norm", "gated", "biases", "offset", "pooler", "local", "causal"),
    positions=("learned", "sinusoidal"),
    settings={
        "vocabulary": "vocab_size",
        "width": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "feed_forward": "intermediate_size",
        "length": "max_position_embeddings",
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
    classes={
        "trunk": "BertModel",
        "masked": "BertForMaskedLM",
        "next": "BertForNextSentencePrediction",
        "pretraining": "BertForPreTraining",
        "classify": "BertForSequenceClassification",
        "tag": "BertForTokenClassification",
        "answer": "BertForQuestionAnswering",
        "choose": "BertForMultipleChoice",
    },
    prefix="bert.",
    outside=("cls.", "classifier.", "qa_outputs."),
    trunk={
        "trunk.embedding.weight": "embeddings.word_embeddings.weight",
        "trunk.positions.weight": "embeddings.position_embeddings.weight",
        "trunk.segments.weight": "embeddings.token_type_embeddings.weight",
        "trunk.norm": "embeddings.LayerNorm",
    },
    layer={
        "trunk.layers.{n}.attention.project": (
            "encoder.layer.{n}.attention.self.query",
            "encoder.layer.{n}.attention.self.key",
            "encoder.layer.{n}.attention.self.value",
        ),
        "trunk.layers.{n}.attention.output": "encoder.layer.{n}.attention.output.dense",
        "trunk.layers.{n}.attention_norm": "encoder.layer.{n}.attention.output.LayerNorm",
        "trunk.layers.{n}.feed_forward.widen": "encoder.layer.{n}.intermediate.dense",
        "trunk.layers.{n}.feed_forward.narrow": "encoder.layer.{n}.output.dense",
        "trunk.layers.{n}.feed_forward_norm": "encoder.layer.{n}.output.LayerNorm",
    },
    parts={
        "pooler": {"pooler.dense": "pooler.dense"},
        "head": {
            "head.dense": "cls.predictions.transform.dense",
            "head.norm": "cls.predictions.transform.LayerNorm",
            "head.bias": "cls.predictions.bias",
        },
        "next": {"next.dense": "cls.seq_relationship"},
        "classifier": {"classifier.dense": "classifier"},
        "span": {"span.dense": "qa_outputs"},
    },
    pretrained=frozenset({"head", "pooler", "next"}),
    specials={"pad_token_id": "padding"},
    twins={
        "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "cls.predictions.decoder.bias": "cls.predictions.bias",
    },
    counters=frozenset({"embeddings.position_ids", "embeddings.token_type_ids"}),
    endings={".LayerNorm.gamma": ".LayerNorm.weight", ".LayerNorm.beta": ".LayerNorm.bias"},
)

ROBERTA = Dialect(
    standard=replace(ROBERTA_BASE, length=510, segments=2, norm_eps=1e-12),  # what is published says otherwise
    needs=BERT.needs,
    positions=("learned",),
    settings=BERT.settings,
    fixed={**BERT.fixed, "model_type": "roberta", "pad_token_id": ROBERTA_BASE.offset - 1},
    activations=BERT.activations,
    classes={
        "trunk": "RobertaModel",
        "masked": "RobertaForMaskedLM",
        "classify": "RobertaForSequenceClassification",
        "tag": "RobertaForTokenClassification",
        "answer": "RobertaForQuestionAnswering",
        "choose": "RobertaForMultipleChoice",
    },
    prefix="roberta.",
    outside=("lm_head.", "classifier.", "qa_outputs."),
    trunk=BERT.trunk,
    layer=BERT.layer,
    parts={
        "pooler": BERT.parts["pooler"],
        "head": {"head.dense": "lm_head.dense", "head.norm": "lm_head.layer_norm", "head.bias": "lm_head.bias"},
        "classifier": BERT.parts["classifier"],
        "span": BERT.parts["span"],
    },
    pretrained=frozenset({"head"}),
    specials={"pad_token_id": "padding", "bos_token_id": "start", "eos_token_id": "stop"},
    twins={
        "lm_head.decoder.weight": "embeddings.word_embeddings.weight",
        "lm_head.decoder.bias": "lm_head.bias",
    },
    counters=BERT.counters,
    endings=BERT.endings,
    classified={"pooler.dense.": "classifier.dense.", "classifier.": "classifier.out_proj."},
)

XLM_ROBERTA = replace(
    ROBERTA,
    standard=replace(ROBERTA.standard, vocabulary=30_522, alias="xlm-roberta"),
    fixed={**ROBERTA.fixed, "model_type": "xlm-roberta"},
    classes={task: f"XLM{name}" for task, name in ROBERTA.classes.items()},
)
CAMEMBERT = replace(
    ROBERTA,
    standard=replace(ROBERTA.standard, vocabulary=30_522, alias="camembert"),
    fixed={**ROBERTA.fixed, "model_type": "camembert"},
    classes={task: name.replace("Roberta", "Camembert") for task, name in ROBERTA.classes.items()},
)

DISTILBERT = Dialect(
    standard=DISTILBERT_BASE,
    needs=(*BERT.needs, "norm_eps"),
    positions=("learned",),
    settings={
        "vocabulary": "vocab_size",
        "width": "dim",
        "layers": "n_layers",
        "heads": "n_heads",
        "feed_forward": "hidden_dim",
        "length": "max_position_embeddings",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
    },
    fixed={"model_type": "distilbert"},
    activations=("activation",),
    classes={
        "trunk": "DistilBertModel",
        "masked": "DistilBertForMaskedLM",
        "classify": "DistilBertForSequenceClassification",
        "tag": "DistilBertForTokenClassification",
        "answer": "DistilBertForQuestionAnswering",
        "choose": "DistilBertForMultipleChoice",
    },
    prefix="distilbert.",
    outside=("vocab_", "pre_classifier.", "classifier.", "qa_outputs."),
    trunk={name: theirs for name, theirs in BERT.trunk.items() if name != "trunk.segments.weight"},
    layer={
        "trunk.layers.{n}.attention.project": (
            "transformer.layer.{n}.attention.q_lin",
            "transformer.layer.{n}.attention.k_lin",
            "transformer.layer.{n}.attention.v_lin",
        ),
        "trunk.layers.{n}.attention.output": "transformer.layer.{n}.attention.out_lin",
        "trunk.layers.{n}.attention_norm": "transformer.layer.{n}.sa_layer_norm",
        "trunk.layers.{n}.feed_forward.widen": "transformer.layer.{n}.ffn.lin1",
        "trunk.layers.{n}.feed_forward.narrow": "transformer.layer.{n}.ffn.lin2",
        "trunk.layers.{n}.feed_forward_norm": "transformer.layer.{n}.output_layer_norm",
    },
    parts={
        "pooler": {"pooler.dense": "pre_classifier"},
        "head": {
            "head.dense": "vocab_transform",
            "head.norm": "vocab_layer_norm",
            "head.bias": "vocab_projector.bias",
        },
        "classifier": BERT.parts["classifier"],
        "span": BERT.parts["span"],
    },
    pretrained=frozenset({"head"}),
    specials={"pad_token_id": "padding"},
    twins={"vocab_projector.weight": "embeddings.word_embeddings.weight"},
    counters=BERT.counters,
    endings=BERT.endings,
)

MPNET = Dialect(
    standard=replace(MPNET_BASE, length=510, norm_eps=1e-12),
    needs=(*BERT.needs, "buckets", "farthest"),
    positions=("learned_relative",),
    settings={ours: theirs for ours, theirs in BERT.settings.items() if ours != "segments"},
    fixed={"model_type": "mpnet", "pad_token_id": MPNET_BASE.offset - 1, "relative_attention_num_buckets": 32},
    activations=BERT.activations,
    classes={task: name.replace("Roberta", "MPNet") for task, name in ROBERTA.classes.items()},
    prefix="mpnet.",
    outside=ROBERTA.outside,
    trunk={
        **DISTILBERT.trunk,
        "trunk.relative.weight": "encoder.relative_attention_bias.weight",
    },
    layer={
        **BERT.layer,
        "trunk.layers.{n}.attention.project": (
            "encoder.layer.{n}.attention.attn.q",
            "encoder.layer.{n}.attention.attn.k",
            "encoder.layer.{n}.attention.attn.v",
        ),
        "trunk.layers.{n}.attention.output": "encoder.layer.{n}.attention.attn.o",
        "trunk.layers.{n}.attention_norm": "encoder.layer.{n}.attention.LayerNorm",
    },
    parts=ROBERTA.parts,
    pretrained=ROBERTA.pretrained,
    specials=ROBERTA.specials,
    twins=ROBERTA.twins,
    counters=BERT.counters,
    classified=ROBERTA.classified,
)

ALBERT = Dialect(
    standard=ALBERT_XXLARGE,
    needs=BERT.needs,
    positions=("learned",),
    tables="mapped",
    settings={**BERT.settings, "embedding": "embedding_size"},
    fixed={**BERT.fixed, "model_type": "albert", "num_hidden_groups": 1, "inner_group_num": 1},
    activations=BERT.activations,
    classes={
        "trunk": "AlbertModel",
        "masked": "AlbertForMaskedLM",
        "pretraining": "AlbertForPreTraining",
        "classify": "AlbertForSequenceClassification",
        "tag": "AlbertForTokenClassification",
        "answer": "AlbertForQuestionAnswering",
        "choose": "AlbertForMultipleChoice",
    },
    prefix="albert.",
    outside=("predictions.", "sop_classifier.", "classifier.", "qa_outputs."),
    trunk={**BERT.trunk, "trunk.mapping": "encoder.embedding_hidden_mapping_in"},
    layer={  # the one that there is
        "trunk.layers.{n}.attention.project": (
            "encoder.albert_layer_groups.{n}.albert_layers.0.attention.query",
            "encoder.albert_layer_groups.{n}.albert_layers.0.attention.key",
            "encoder.albert_layer_groups.{n}.albert_layers.0.attention.value",
        ),
        "trunk.layers.{n}.attention.output": "encoder.albert_layer_groups.{n}.albert_layers.0.attention.dense",
        "trunk.layers.{n}.attention_norm": "encoder.albert_layer_groups.{n}.albert_layers.0.attention.LayerNorm",
        "trunk.layers.{n}.feed_forward.widen": "encoder.albert_layer_groups.{n}.albert_layers.0.ffn",
        "trunk.layers.{n}.feed_forward.narrow": "encoder.albert_layer_groups.{n}.albert_layers.0.ffn_output",
        "trunk.layers.{n}.feed_forward_norm": "encoder.albert_layer_groups.{n}.albert_layers.0.full_layer_layer_norm",
    },
    parts={
        "pooler": {"pooler.dense": "pooler"},
        "head": {
            "head.dense": "predictions.dense",
            "head.norm": "predictions.LayerNorm",
            "head.bias": "predictions.bias",
        },
        "next": {"next.dense": "sop_classifier.classifier"},
        "classifier": BERT.parts["classifier"],
        "span": BERT.parts["span"],
    },
    pretrained=frozenset({"head", "pooler", "next"}),
    pairs="order",
    specials={"pad_token_id": "padding", "bos_token_id": "start", "eos_token_id": "stop"},
    twins={
        "predictions.decoder.weight": "embeddings.word_embeddings.weight",
        "predictions.decoder.bias": "predictions.bias",
    },
    counters=BERT.counters,
)

ELECTRA = Dialect(
    standard=ELECTRA_SMALL,
    needs=(*BERT.needs, "activation"),
    positions=("learned",),
    tables="either",
    settings={**BERT.settings, "embedding": "embedding_size"},
    fixed={
        **BERT.fixed,
        "model_type": "electra",
        "hidden_act": "gelu",  # its generator and its classifier bend so whatever is said
        "summary_type": "first",
        "summary_use_proj": True,
        "summary_activation": "gelu",
    },
    activations=BERT.activations,
    classes={
        "trunk": "ElectraModel",
        "masked": "ElectraForMaskedLM",
        "pretraining": "ElectraForPreTraining",
        "classify": "ElectraForSequenceClassification",
        "tag": "ElectraForTokenClassification",
        "answer": "ElectraForQuestionAnswering",
        "choose": "ElectraForMultipleChoice",
    },
    prefix="electra.",
    outside=(
        "discriminator_predictions.",
        "generator_predictions.",
        "generator_lm_head.",
        "sequence_summary.",
        "classifier.",
        "qa_outputs.",
    ),
    trunk={**BERT.trunk, "trunk.mapping": "embeddings_project"},
    layer=BERT.layer,
    parts={
        "pooler": {"pooler.dense": "sequence_summary.summary"},
        "head": {
            "head.dense": "generator_predictions.dense",
            "head.norm": "generator_predictions.LayerNorm",
            "head.bias": "generator_lm_head.bias",
        },
        "judge": {
            "judge.dense": "discriminator_predictions.dense",
            "judge.output": "discriminator_predictions.dense_prediction",
        },
        "classifier": BERT.parts["classifier"],
        "span": BERT.parts["span"],
    },
    pretrained=frozenset({"head", "judge"}),
    specials={"pad_token_id": "padding"},
    twins={"generator_lm_head.weight": "embeddings.word_embeddings.weight"},
    counters=BERT.counters,
    endings=BERT.endings,
    classified={"sequence_summary.summary.": "classifier.dense.", "classifier.": "classifier.out_proj."},
)

MODERN = Dialect(
    standard=MODERN_BERT,
    needs=("norm", "table_norm", "gated", "pooler", "causal"),
    positions=("rotary",),
    settings={
        "vocabulary": "vocab_size",
        "width": "hidden_size",
        "layers": "num_hidden_layers",
        "heads": "num_attention_heads",
        "feed_forward": "intermediate_size",
        "length": "max_position_embeddings",
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
    classes={
        "trunk": "ModernBertModel",
        "masked": "ModernBertForMaskedLM",
        "classify": "ModernBertForSequenceClassification",
        "tag": "ModernBertForTokenClassification",
        "answer": "ModernBertForQuestionAnswering",
        "choose": "ModernBertForMultipleChoice",
    },
    prefix="model.",
    outside=("head.", "decoder.", "classifier."),
    trunk={
        "trunk.embedding.weight": "embeddings.tok_embeddings.weight",
        "trunk.norm": "embeddings.norm",
        "trunk.last_norm": "final_norm",
    },
    layer={
        "trunk.layers.{n}.attention_norm": "layers.{n}.attn_norm",
        "trunk.layers.{n}.attention.project": "layers.{n}.attn.Wqkv",
        "trunk.layers.{n}.attention.output": "layers.{n}.attn.Wo",
        "trunk.layers.{n}.feed_forward_norm": "layers.{n}.mlp_norm",
        "trunk.layers.{n}.feed_forward.widen": "layers.{n}.mlp.Wi",
        "trunk.layers.{n}.feed_forward.narrow": "layers.{n}.mlp.Wo",
    },
    parts={
        "pooler": {"pooler.dense": "head.dense", "pooler.norm": "head.norm"},
        "head": {"head.dense": "head.dense", "head.norm": "head.norm", "head.bias": "decoder.bias"},
        "classifier": {"classifier.dense": "classifier"},
        "span": {"span.dense": "classifier"},
    },
    pretrained=frozenset({"head"}),
    specials={
        "pad_token_id": "padding",
        "cls_token_id": "start",
        "sep_token_id": "stop",
        "bos_token_id": "start",
        "eos_token_id": "stop",
    },
    poolings={"first": "cls", "mean": "mean"},
    twins={"decoder.weight": "embeddings.tok_embeddings.weight"},
)

GPT = Dialect(
    standard=GPT_BASE,
    needs=("norm", "table_norm", "gated", "biases", "offset", "pooler", "local", "causal", "activation"),
    positions=("learned",),
    settings={
        "vocabulary": "vocab_size",
        "width": "n_embd",
        "layers": "n_layer",
        "heads": "n_head",
        "length": "n_positions",
        "norm_eps": "layer_norm_epsilon",
        "dropout": "resid_pdrop",
        "attention_dropout": "attn_pdrop",
    },
    fixed={"model_type": "openai-gpt", "tie_word_embeddings": True},
    activations=("afn",),
    curves={"gelu": "gelu_tanh"},  # it was the first to have one, and means its own
    fourfold=True,
    classes={
        "trunk": "OpenAIGPTModel",
        "writing": "OpenAIGPTLMHeadModel",
        "classify": "OpenAIGPTForSequenceClassification",
    },
    prefix="transformer.",
    outside=("lm_head.", "score."),
    trunk={
        "trunk.embedding.weight": "tokens_embed.weight",
        "trunk.positions.weight": "positions_embed.weight",
    },
    layer={
        "trunk.layers.{n}.attention.project": "h.{n}.attn.c_attn",
        "trunk.layers.{n}.attention.output": "h.{n}.attn.c_proj",
        "trunk.layers.{n}.attention_norm": "h.{n}.ln_1",
        "trunk.layers.{n}.feed_forward.widen": "h.{n}.mlp.c_fc",
        "trunk.layers.{n}.feed_forward.narrow": "h.{n}.mlp.c_proj",
        "trunk.layers.{n}.feed_forward_norm": "h.{n}.ln_2",
    },
    transposed=True,
    parts={"classifier": {"classifier.dense": "classifier"}},
    pretrained=frozenset(),
    specials={"pad_token_id": "padding", "bos_token_id": "start", "eos_token_id": "stop"},
    twins={"lm_head.weight": "tokens_embed.weight"},
    counters=frozenset({"position_ids", "h.{n}.attn.bias"}),
    classified={"classifier.": "score."},
)

GPT2 = Dialect(
    standard=GPT2_BASE,
    needs=tuple(name for name in GPT.needs if name != "activation"),
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
    curves={"gelu_new": "gelu_tanh", **CURVES},
    classes={
        "trunk": "GPT2Model",
        "writing": "GPT2LMHeadModel",
        "classify": "GPT2ForSequenceClassification",
        "tag": "GPT2ForTokenClassification",
        "answer": "GPT2ForQuestionAnswering",
    },
    prefix="transformer.",
    outside=("lm_head.", "score.", "classifier.", "qa_outputs."),
    trunk={
        "trunk.embedding.weight": "wte.weight",
        "trunk.positions.weight": "wpe.weight",
        "trunk.last_norm": "ln_f",
    },
    layer=GPT.layer,
    transposed=True,
    parts={"classifier": {"classifier.dense": "classifier"}, "span": {"span.dense": "qa_outputs"}},
    pretrained=frozenset(),
    specials=GPT.specials,
    twins={"lm_head.weight": "wte.weight"},
    counters=frozenset({"h.{n}.attn.bias", "h.{n}.attn.masked_bias"}),
    classified=GPT.classified,
)

T5 = Dialect(
    standard=replace(T5_BASE, width=512, layers=6, decoder=6, heads=8, feed_forward=2048),
    needs=(*BERT.needs, "gated", "activation", "tied"),
    positions=("relative",),
    settings={
        "vocabulary": "vocab_size",
        "width": "d_model",
        "layers": "num_layers",
        "decoder": "num_decoder_layers",
        "heads": "num_heads",
        "head_width": "d_kv",
        "feed_forward": "d_ff",
        "length": "n_positions",
        "buckets": "relative_attention_num_buckets",
        "farthest": "relative_attention_max_distance",
        "norm_eps": "layer_norm_epsilon",
        "dropout": "dropout_rate",
        "attention_dropout": "dropout_rate",
    },
    fixed={"model_type": "t5", "is_encoder_decoder": True},
    activations=("feed_forward_proj",),
    curves={"relu": "relu"},
    classes={"trunk": "T5Model", "writing": "T5ForConditionalGeneration"},
    prefix="",
    outside=(),
    trunk={
        "trunk.encoder.embedding.weight": "shared.weight",
        "trunk.encoder.relative.weight": "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "trunk.encoder.last_norm": "encoder.final_layer_norm",
        "trunk.decoder.embedding.weight": "shared.weight",
        "trunk.decoder.relative.weight": "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight",
        "trunk.decoder.last_norm": "decoder.final_layer_norm",
        "trunk.words.weight": "lm_head.weight",
    },
    layer={
        "trunk.encoder.layers.{n}.attention.project": (
            "encoder.block.{n}.layer.0.SelfAttention.q",
            "encoder.block.{n}.layer.0.SelfAttention.k",
            "encoder.block.{n}.layer.0.SelfAttention.v",
        ),
        "trunk.encoder.layers.{n}.attention.output": "encoder.block.{n}.layer.0.SelfAttention.o",
        "trunk.encoder.layers.{n}.attention_norm": "encoder.block.{n}.layer.0.layer_norm",
        "trunk.encoder.layers.{n}.feed_forward.widen": "encoder.block.{n}.layer.1.DenseReluDense.wi",
        "trunk.encoder.layers.{n}.feed_forward.narrow": "encoder.block.{n}.layer.1.DenseReluDense.wo",
        "trunk.encoder.layers.{n}.feed_forward_norm": "encoder.block.{n}.layer.1.layer_norm",
    },
    decoder={
        "trunk.decoder.layers.{n}.attention.project": (
            "decoder.block.{n}.layer.0.SelfAttention.q",
            "decoder.block.{n}.layer.0.SelfAttention.k",
            "decoder.block.{n}.layer.0.SelfAttention.v",
        ),
        "trunk.decoder.layers.{n}.attention.output": "decoder.block.{n}.layer.0.SelfAttention.o",
        "trunk.decoder.layers.{n}.attention_norm": "decoder.block.{n}.layer.0.layer_norm",
        "trunk.decoder.layers.{n}.cross.query": "decoder.block.{n}.layer.1.EncDecAttention.q",
        "trunk.decoder.layers.{n}.cross.project": (
            "decoder.block.{n}.layer.1.EncDecAttention.k",
            "decoder.block.{n}.layer.1.EncDecAttention.v",
        ),
        "trunk.decoder.layers.{n}.cross.output": "decoder.block.{n}.layer.1.EncDecAttention.o",
        "trunk.decoder.layers.{n}.cross_norm": "decoder.block.{n}.layer.1.layer_norm",
        "trunk.decoder.layers.{n}.feed_forward.widen": "decoder.block.{n}.layer.2.DenseReluDense.wi",
        "trunk.decoder.layers.{n}.feed_forward.narrow": "decoder.block.{n}.layer.2.DenseReluDense.wo",
        "trunk.decoder.layers.{n}.feed_forward_norm": "decoder.block.{n}.layer.2.layer_norm",
    },
    parts={},
    pretrained=frozenset(),
    specials={"pad_token_id": "padding", "eos_token_id": "stop", "decoder_start_token_id": "padding"},
    twins={
        "encoder.embed_tokens.weight": "shared.weight",
        "decoder.embed_tokens.weight": "shared.weight",
        "lm_head.weight": "shared.weight",
    },
    counters=frozenset({"decoder.block.{n}.layer.1.EncDecAttention.relative_attention_bias.weight"}),
)

_GATE = ("DenseReluDense.wi_0", "DenseReluDense.wi_1")

T5_LATER = replace(
    T5,
    standard=replace(T5_LATER_BASE, width=512, layers=6, decoder=6, heads=8, feed_forward=2048, dropout=0.1),
    curves={"gated-gelu": "gelu_tanh"},
    layer={
        **T5.layer,
        "trunk.encoder.layers.{n}.feed_forward.widen": tuple(f"encoder.block.{{n}}.layer.1.{name}" for name in _GATE),
    },
    decoder={
        **T5.decoder,
        "trunk.decoder.layers.{n}.feed_forward.widen": tuple(f"decoder.block.{{n}}.layer.2.{name}" for name in _GATE),
    },
    twins={name: other for name, other in T5.twins.items() if name != "lm_head.weight"},
)

MARIAN = Dialect(
    standard=replace(
        TRANSFORMER,
        vocabulary=58_101,
        width=1024,
        layers=12,
        decoder=12,
        heads=16,
        feed_forward=4096,
        length=1024,
        activation="gelu",
        attention_dropout=0.0,
    ),
    needs=(*BERT.needs, "norm_eps"),
    positions=("sinusoidal",),
    settings={
        "vocabulary": "vocab_size",
        "width": "d_model",
        "layers": "encoder_layers",
        "decoder": "decoder_layers",
        "heads": "encoder_attention_heads",
        "feed_forward": "encoder_ffn_dim",
        "length": "max_position_embeddings",
        "dropout": "dropout",
        "attention_dropout": "attention_dropout",
    },
    fixed={
        "model_type": "marian",
        "is_encoder_decoder": True,
        "scale_embedding": True,  # though a file that says nothing means the contrary
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "activation_dropout": 0.0,
    },
    activations=("activation_function",),
    curves={"relu": "relu", **CURVES},
    classes={"trunk": "MarianModel", "writing": "MarianMTModel"},
    prefix="model.",
    outside=("lm_head.", "final_logits_bias"),
    trunk={
        "trunk.encoder.embedding.weight": "shared.weight",
        "trunk.encoder.positions.weight": "encoder.embed_positions.weight",
        "trunk.decoder.embedding.weight": "shared.weight",
        "trunk.decoder.positions.weight": "decoder.embed_positions.weight",
    },
    layer={
        "trunk.encoder.layers.{n}.attention.project": (
            "encoder.layers.{n}.self_attn.q_proj",
            "encoder.layers.{n}.self_attn.k_proj",
            "encoder.layers.{n}.self_attn.v_proj",
        ),
        "trunk.encoder.layers.{n}.attention.output": "encoder.layers.{n}.self_attn.out_proj",
        "trunk.encoder.layers.{n}.attention_norm": "encoder.layers.{n}.self_attn_layer_norm",
        "trunk.encoder.layers.{n}.feed_forward.widen": "encoder.layers.{n}.fc1",
        "trunk.encoder.layers.{n}.feed_forward.narrow": "encoder.layers.{n}.fc2",
        "trunk.encoder.layers.{n}.feed_forward_norm": "encoder.layers.{n}.final_layer_norm",
    },
    decoder={
        "trunk.decoder.layers.{n}.attention.project": (
            "decoder.layers.{n}.self_attn.q_proj",
            "decoder.layers.{n}.self_attn.k_proj",
            "decoder.layers.{n}.self_attn.v_proj",
        ),
        "trunk.decoder.layers.{n}.attention.output": "decoder.layers.{n}.self_attn.out_proj",
        "trunk.decoder.layers.{n}.attention_norm": "decoder.layers.{n}.self_attn_layer_norm",
        "trunk.decoder.layers.{n}.cross.query": "decoder.layers.{n}.encoder_attn.q_proj",
        "trunk.decoder.layers.{n}.cross.project": (
            "decoder.layers.{n}.encoder_attn.k_proj",
            "decoder.layers.{n}.encoder_attn.v_proj",
        ),
        "trunk.decoder.layers.{n}.cross.output": "decoder.layers.{n}.encoder_attn.out_proj",
        "trunk.decoder.layers.{n}.cross_norm": "decoder.layers.{n}.encoder_attn_layer_norm",
        "trunk.decoder.layers.{n}.feed_forward.widen": "decoder.layers.{n}.fc1",
        "trunk.decoder.layers.{n}.feed_forward.narrow": "decoder.layers.{n}.fc2",
        "trunk.decoder.layers.{n}.feed_forward_norm": "decoder.layers.{n}.final_layer_norm",
    },
    parts={},
    pretrained=frozenset(),
    specials={**T5.specials, "forced_eos_token_id": "stop"},
    twins=T5.twins,
    waves=frozenset({"encoder.embed_positions.weight", "decoder.embed_positions.weight"}),
    noughts=frozenset({"final_logits_bias"}),
)

# Networks that transformers has no class for: their folders hold our own names, of settings and of weights.
OWN = Dialect(
    standard=TransformerConfig(),
    needs=(),
    positions=(),
    settings={},
    fixed={"model_type": own.MODEL_TYPE},
    activations=(),
    classes={"trunk": own.MODEL_TYPE},
    prefix="",
    outside=(),
    trunk={},
    layer={},
    parts={},
    pretrained=frozenset(),
    twins={},
    specials=T5.specials,
)

DIALECTS = {
    dialect.fixed["model_type"]: dialect
    for dialect in (
        *(BERT, ROBERTA, XLM_ROBERTA, CAMEMBERT, DISTILBERT, MPNET),
        *(ALBERT, ELECTRA, MODERN, GPT, GPT2, T5, MARIAN),
    )
}
ALL = (*DIALECTS.values(), T5_LATER)  # T5's two have one name

COMMON = ("shared", "scaled", "root_norm", "crossed", "tied", "alias")  # as in the standard of every dialect
ASKED = ("norm", "table_norm", "gated", "biases", "positions", "offset", "segments", "embedding", "shared", "pooler",
         "local", "causal", "decoder", "dropout", "width", "feed_forward")  # fmt: skip


def dialect_of(config: NetworkConfig) -> Dialect:
    """The dialect that has words for a network."""
    if not isinstance(config, TransformerConfig):
        return OWN
    for dialect in ALL:
        standard = dialect.standard
        alike = all(getattr(config, name) == getattr(standard, name) for name in (*dialect.needs, *COMMON))
        whole = all(bool(getattr(config, name)) == bool(getattr(standard, name)) for name in ("segments", "decoder"))
        tables = {"wide": not config.embedding, "mapped": config.embedding, "either": config.embedding != config.width}
        if (
            alike
            and whole
            and tables[dialect.tables]
            and config.positions in dialect.positions
            and _fits(config, dialect)
        ):
            return dialect
    shown = ", ".join(f"{name} = {getattr(config, name)}" for name in ASKED)
    raise RecipeError("model", f"no class of transformers is a network with {shown}", "See bertsmith list for members")


def _fits(config: TransformerConfig, dialect: Dialect) -> bool:
    """Whether two settings of ours agree, where theirs has one word for both."""
    settings = dialect.settings
    one = settings["dropout"] != settings["attention_dropout"] or config.dropout == config.attention_dropout
    wide = not dialect.fourfold or config.feed_forward == 4 * config.width
    return one and wide and ("head_width" in settings or not config.head_width)
