"""Dialects: the words that transformers has for a network, its settings and its weights. Tables, read both ways."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bertsmith.errors import RecipeError
from bertsmith.models.family import ALBERT_XXLARGE, ELECTRA_SMALL, MODERN_BERT
from bertsmith.models.family import BERT as BERT_BASE
from bertsmith.models.family import ROBERTA as ROBERTA_BASE
from bertsmith.models.transformer import Positions, TransformerConfig
from bertsmith.nn.pooling import Pooling

Names = str | tuple[str, ...]  # one weight of theirs, or several that stand one above the other in ours


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How one class of transformers' models is spelt. `{n}` is the number of a layer."""

    standard: TransformerConfig  # what is meant where a file says nothing
    needs: tuple[str, ...]  # settings that every network of this kind has in common
    positions: tuple[Positions, ...]  # the kinds it may have
    tables: Literal["wide", "mapped", "either"] = "wide"  # as wide as the network; mapped to it; mapped if they are not
    settings: Mapping[str, str]  # ours: theirs
    fixed: Mapping[str, Any]  # theirs: the only value this network has
    activations: tuple[str, ...]  # their names of it
    classes: Mapping[str, str]  # what a folder is for: their class
    prefix: str  # before the trunk's names, unless the folder is a bare trunk
    outside: tuple[str, ...]  # how names begin that never have the prefix
    # Each line stands for a weight, and for a bias where the network has them, unless it ends in one of the two.
    trunk: Mapping[str, str]
    layer: Mapping[str, Names]
    parts: Mapping[str, Mapping[str, str]]
    pretrained: frozenset[str]  # parts that a folder has room for after pretraining
    pairs: Literal["next", "order"] = "next"  # what its head for two texts tells, where it has one
    twins: Mapping[str, str]  # a second name of the same weight, in some files
    specials: Mapping[str, str]  # their names of the numbers of special pieces: the tokenizer's roles
    poolings: Mapping[Pooling, str] = field(default_factory=dict)  # their names of what a text's classifier reads
    counters: frozenset[str] = frozenset()  # 0, 1, 2 ... kept by older versions
    endings: Mapping[str, str] = field(default_factory=dict)  # older spellings
    classified: Mapping[str, str] = field(default_factory=dict)  # how a text's classifier spells what others call so

    def plain(self, name: str) -> str:
        """Their name of a weight without prefix and in today's spelling."""
        name = name.removeprefix(self.prefix)
        for usual, theirs in self.classified.items():
            name = usual + name.removeprefix(theirs) if name.startswith(theirs) else name
        for old, new in self.endings.items():
            name = name.removesuffix(old) + new if name.endswith(old) else name
        return name

    def full(self, name: str, named: str) -> str:
        """The name as this class of transformers spells it."""
        if named == self.classes["classify"]:
            for usual, theirs in self.classified.items():
                if name.startswith(usual):
                    return theirs + name.removeprefix(usual)
        return name if named == self.classes["trunk"] or name.startswith(self.outside) else self.prefix + name

    def architecture(self, parts: Iterable[str]) -> str:
        """The class of transformers that has these parts."""
        parts = set(parts)
        if "span" in parts:
            return self.classes["answer"]
        if "judge" in parts:
            return self.classes["pretraining"]
        if "classifier" in parts:
            return self.classes["classify" if "pooler" in parts else "tag"]
        match "head" in parts, "next" in parts:
            case True, True:
                return self.classes["pretraining"]
            case True, False:
                return self.classes["masked"]
            case False, True:
                return self.classes["next"]
        return self.classes["trunk"]

    def found(self, names: Iterable[str], architecture: str | None) -> frozenset[str]:
        """Which parts these weights of theirs belong to, in a folder that says it is of this class."""
        names = list(names)
        there = {
            part for part, table in self.parts.items() if any(name.startswith(tuple(table.values())) for name in names)
        }
        if self.shares:
            # One head for all: a vocabulary behind it makes it the masked-word head, and a classifier the task's own.
            there -= {"pooler"} if self.parts["head"]["head.bias"] in names else {"head"}
            there -= {"classifier"} if architecture == self.classes["answer"] else {"span"}
        return frozenset(there)

    @property
    def shares(self) -> bool:
        """Whether the masked-word head and the tasks' are one, so that a task begins with what guessing has learnt."""
        return self.parts["pooler"].items() <= {
            (ours.replace("head.", "pooler."), theirs) for ours, theirs in self.parts["head"].items()
        }


BERT = Dialect(
    standard=BERT_BASE,
    needs=("norm", "gated", "biases", "offset", "pooler", "local"),
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
    needs=("norm", "gated", "pooler"),
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

DIALECTS = {dialect.fixed["model_type"]: dialect for dialect in (BERT, ROBERTA, ALBERT, ELECTRA, MODERN)}


def dialect_of(config: TransformerConfig) -> Dialect:
    """The dialect that has words for a network."""
    for dialect in DIALECTS.values():
        standard = dialect.standard
        alike = all(getattr(config, name) == getattr(standard, name) for name in (*dialect.needs, "shared"))
        marked = bool(config.segments) == bool(standard.segments)
        tables = {"wide": not config.embedding, "mapped": config.embedding, "either": config.embedding != config.width}
        if alike and marked and tables[dialect.tables] and config.positions in dialect.positions:
            return dialect
    names = ("norm", "gated", "biases", "positions", "offset", "segments", "embedding", "shared", "pooler", "local")
    shown = ", ".join(f"{name} = {getattr(config, name)}" for name in names)
    raise RecipeError("model", f"no class of transformers is a network with {shown}", "See bertsmith list for members")
