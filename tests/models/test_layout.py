"""Which networks have a layout of transformers, and which of its settings are refused."""

from dataclasses import replace
from typing import Any

import pytest
import transformers
from tasks.small import shape

from bertsmith.errors import FolderError, RecipeError
from bertsmith.models.family import MODERN_BERT, SMITH
from bertsmith.models.hf import convert
from bertsmith.models.hf.bert_likes import Bert
from bertsmith.models.hf.finetuned import finetuned_task
from bertsmith.models.hf.layouts import LAYOUTS, layout_of
from bertsmith.models.hf.modernbert import ModernBert
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.tasks.classification import SequenceClassification


def test_each_layout_reads_and_writes_its_default_network() -> None:
    for kind, layout in LAYOUTS.items():
        assert layout_of(layout.defaults) is layout
        config_json = convert.to_config_json(layout.defaults, ())
        assert convert.from_config_json(config_json, "here") == layout.defaults
        extra = {"scale_embedding": True} if kind == "marian" else {}
        assert convert.from_config_json({"model_type": kind, **extra}, "here") == layout.defaults
        assert convert.from_config_json(transformers.CONFIG_MAPPING[kind](**extra).to_dict(), "here") == layout.defaults


@pytest.mark.parametrize(
    "changes",
    [
        {"norm_position": "pre"},
        {"gated": True},
        {"biases": False},
        {"positions": "rotary"},
        {"segments": 0},
        {"embedding_width": 16},
        {"share_layers": True},
        {"position_offset": 1},
        {"window": 4},
        {"pooler": "gelu", "embedding_width": 32},
        {"pooler": "gelu", "share_layers": True},
    ],
)
def test_a_network_that_transformers_has_no_class_for_is_refused(changes: dict[str, Any]) -> None:
    *_, (name, value) = changes.items()
    with pytest.raises(RecipeError) as caught:
        layout_of(shape(**changes))
    assert str(caught.value).startswith(
        f"model: no class of transformers is a network with {name} = {value}; the nearest, "
    )


def test_smith_with_segments_is_refused() -> None:
    with pytest.raises(RecipeError, match="segments = 2"):
        layout_of(replace(SMITH, segments=2))


@pytest.mark.parametrize(
    "config", [SMITH, MODERN_BERT, replace(MODERN_BERT, global_every=5, window=9, window_rotary_base=77.0)]
)
def test_older_versions_of_transformers_read_the_same_rotary_bases_and_windows(config: TransformerConfig) -> None:
    config_json = convert.to_config_json(config, ())
    assert convert.from_config_json(config_json, "here") == config
    for newer in ("rope_parameters", "layer_types"):
        del config_json[newer]
    assert convert.from_config_json(config_json, "here") == config


@pytest.mark.parametrize(
    ("config_json", "line"),
    [
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layer_types is ['full_attention', 'sliding_"),
        ({"layer_types": 7}, "layer_types is 7. Give 'full_attention' or 'sliding_attention' for every layer."),
        ({"layer_types": ["no"] * 22}, "layer_types is ['no', 'no', "),
        (
            {"num_hidden_layers": 3, "layer_types": ["sliding_attention", "full_attention", "full_attention"]},
            "the layers with full_attention are not every n-th, from the first on. Only such networks",
        ),
        ({"norm_bias": True}, "attention_bias is False. Only True can be opened."),
        ({"rope_parameters": {"full_attention": {"rope_type": "yarn"}}}, "rope_type is 'yarn'"),
        ({"rope_parameters": {"sliding_attention": {"rope_type": "yarn"}}}, "rope_type is 'yarn'"),
        ({"hidden_activation": "swish"}, "unknown hidden_activation 'swish'. Known: "),
        ({"hidden_activation": "gelu_new"}, "hidden_activation and classifier_activation differ."),
        ({"global_rope_theta": "far"}, "rope_theta is 'far'. Give a number."),
        ({"global_rope_theta": 0}, "rotary_base is 0.0. Give more than 1, usually 10000."),
        ({"local_rope_theta": 0.5}, "window_rotary_base is 0.5. Give more than 1, usually 10000."),
        ({"global_attn_every_n_layers": "often"}, "global_attn_every_n_layers is 'often'. Give a whole number."),
        ({"global_attn_every_n_layers": 0}, "global_attn_every_n_layers is 0. Give at least 1."),
        ({"local_attention": 1}, "local_attention is 1. Give at least 2."),
    ],
)
def test_settings_of_modernbert_that_are_not_supported_are_refused(config_json: dict[str, Any], line: str) -> None:
    biases = {"attention_bias": False} if "norm_bias" in config_json else {}
    with pytest.raises(FolderError) as caught:
        convert.from_config_json({"model_type": "modernbert", **biases, **config_json}, "here")
    assert str(caught.value).startswith(f"here: {line}")


def test_bert_classifies_by_its_first_token_only() -> None:
    with pytest.raises(RecipeError, match=r"^task.pooling: transformers' BERT classifies by the first token alone\."):
        SequenceClassification(Transformer(shape()), SequenceClassification.Config(pooling="mean"), ("no", "yes"))


@pytest.mark.parametrize(
    ("kind", "pooling", "line"),
    [
        ("classify", "last", "classifier_pooling is 'last'. Only 'cls' or 'mean' can be opened."),
        ("choose", "mean", "its multiple choice pools the mean of all tokens. Only first tokens can be read."),
    ],
)
def test_poolings_that_are_not_supported_are_refused(kind: str, pooling: str, line: str) -> None:
    config_json = {"architectures": [ModernBert.architectures[kind]], "classifier_pooling": pooling}
    with pytest.raises(FolderError) as caught:
        finetuned_task(config_json, ModernBert(), ("classifier", "pooler"), "here")
    assert str(caught.value) == f"here: {line}"


def test_later_networks_share_one_transform_between_mlm_and_tasks() -> None:
    assert not Bert().shares_head
    assert ModernBert().shares_head
