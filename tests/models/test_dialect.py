"""Which networks transformers has words for, and which words of its own are not understood."""

from dataclasses import replace
from typing import Any

import pytest
import transformers
from tasks.small import shape

from bertsmith.errors import FolderError, RecipeError
from bertsmith.models import foreign
from bertsmith.models.dialects import BERT, DIALECTS, MARIAN, MODERN, dialect_of
from bertsmith.models.family import MODERN_BERT, SMITH
from bertsmith.models.transformer import Transformer, TransformerConfig
from bertsmith.tasks.classify import Classify


def test_each_dialect_has_words_for_its_own_network() -> None:
    for dialect in DIALECTS.values():
        assert dialect_of(dialect.standard) is dialect
        words = foreign.words_of(dialect.standard, ())
        assert foreign.config_of(words, "here") == dialect.standard
        kind = dialect.fixed["model_type"]
        said = {"scale_embedding": True} if dialect is MARIAN else {}
        assert foreign.config_of({"model_type": kind, **said}, "here") == dialect.standard
        assert foreign.config_of(transformers.CONFIG_MAPPING[kind](**said).to_dict(), "here") == dialect.standard


@pytest.mark.parametrize(
    "changes",
    [
        {"norm": "before"},
        {"gated": True},
        {"biases": False},
        {"positions": "rotary"},
        {"segments": 0},
        {"embedding": 16},
        {"shared": True},
        {"offset": 1},
        {"local": 4},
        {"pooler": "gelu", "embedding": 32},
        {"pooler": "gelu", "shared": True},
    ],
)
def test_a_network_without_a_name_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(RecipeError, match=r"^model: no class of transformers is a network with norm = .*, segments = "):
        dialect_of(shape(**changes))


def test_a_network_of_our_own_marks_no_second_text() -> None:
    with pytest.raises(RecipeError, match="segments = 2"):
        dialect_of(replace(SMITH, segments=2))


@pytest.mark.parametrize("config", [SMITH, MODERN_BERT, replace(MODERN_BERT, every=5, local=9, local_base=77.0)])
def test_older_versions_of_transformers_are_told_the_same_angles_and_layers(config: TransformerConfig) -> None:
    words = foreign.words_of(config, ())
    assert foreign.config_of(words, "here") == config
    for newer in ("rope_parameters", "layer_types"):
        del words[newer]
    assert foreign.config_of(words, "here") == config


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types is ['full_attention', 'sliding_"),
        ({"layer_types": 7}, "layer_types is 7. Give 'full_attention' or 'sliding_attention' for every layer."),
        ({"layer_types": ["no"] * 22}, "layer_types is ['no', 'no', "),
        (
            {"num_hidden_layers": 3, "layer_types": ["sliding_attention", "full_attention", "full_attention"]},
            "the layers that look at all do not follow each other at one distance from the first. Only such networks",
        ),
        ({"norm_bias": True}, "attention_bias is False. Only True can be opened."),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type is 'yarn'"),
        ({"rope_parameters": {"sliding_attention": {"rope_type": "yarn"}}}, "rope_type is 'yarn'"),
        ({"hidden_activation": "swish"}, "unknown hidden_activation 'swish'. Known: "),
        ({"hidden_activation": "gelu_new"}, "hidden_activation and classifier_activation differ."),
        ({"global_rope_theta": "far"}, "rope_theta is 'far'. Give a number."),
        ({"global_rope_theta": 0}, "rotary_base is 0.0. Give more than 1, usually 10000."),
        ({"local_rope_theta": 0.5}, "local_base is 0.5. Give more than 1, usually 10000."),
        ({"global_attn_every_n_layers": "often"}, "global_attn_every_n_layers is 'often'. Give a whole number."),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers is 0. Give at least 1."),
        ({"local_attention": 1}, "local_attention is 1. Give at least 2."),
    ],
)
def test_words_of_modernbert_that_are_not_understood_are_refused(words: dict[str, Any], line: str) -> None:
    biases = {"attention_bias": False} if "norm_bias" in words else {}
    with pytest.raises(FolderError) as caught:
        foreign.config_of({"model_type": "modernbert", **biases, **words}, "here")
    assert str(caught.value).startswith(f"here: {line}")


def test_bert_classifies_by_its_first_token_alone() -> None:
    with pytest.raises(RecipeError, match=r"^task.pooling: transformers' BERT classifies by the first token alone\."):
        Classify(Transformer(shape()), Classify.Config(pooling="mean"), ("no", "yes"))


@pytest.mark.parametrize(
    ("kind", "said", "line"),
    [
        ("classify", "last", "classifier_pooling is 'last'. Only 'cls' or 'mean' can be opened."),
        ("choose", "mean", "endings are compared by their mean vectors. Only first tokens can be read."),
    ],
)
def test_poolings_that_are_not_understood_are_refused(kind: str, said: str, line: str) -> None:
    words = {"architectures": [MODERN.classes[kind]], "classifier_pooling": said}
    with pytest.raises(FolderError) as caught:
        foreign.learnt(words, MODERN, ("classifier", "pooler"), "here")
    assert str(caught.value) == f"here: {line}"


def test_later_networks_share_one_head_between_guessing_and_tasks() -> None:
    assert not BERT.shares
    assert MODERN.shares
