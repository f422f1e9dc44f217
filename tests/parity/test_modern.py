"""ModernBERT's network, with full attention in every layer and with local layers, against transformers."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from parity.members import KINDS, assert_masked_words, assert_task
from tasks.small import shape, stirred, tokenizer

from bertsmith.data.batch import Tokens
from bertsmith.models.hf.modernbert import ModernBert
from bertsmith.models.recorded import record
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig

NAMES = (
    "norm_position",
    "gated",
    "biases",
    "positions",
    "segments",
    "rotary_base",
    "norm_eps",
    "dropout",
    "attention_dropout",
)
NEW: dict[str, Any] = {name: getattr(ModernBert.defaults, name) for name in NAMES}


def modern(**changes: Any) -> TransformerConfig:
    return shape(**{**NEW, **changes})


@pytest.mark.parametrize("biases", [False, True])
def test_masked_words_both_ways(biases: bool, tmp_path: Path) -> None:
    assert_masked_words(modern(biases=biases, rotary_base=500.0), tmp_path)


@pytest.mark.parametrize(("local", "every"), [(4, 3), (1, 2), (9, 4)])
def test_masked_words_of_local_layers_both_ways(local: int, every: int, tmp_path: Path) -> None:
    assert_masked_words(modern(layers=4, window=local, global_every=every, window_rotary_base=50.0), tmp_path)


@pytest.mark.parametrize("name", KINDS)
def test_tasks_both_ways(name: str, tmp_path: Path) -> None:
    assert_task(name, modern(), tokenizer(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_tasks_of_local_layers_both_ways(name: str, tmp_path: Path) -> None:
    assert_task(name, modern(layers=3, window=3), tokenizer(), tmp_path)


def test_local_layers_look_no_further_than_they_reach() -> None:
    trunk = stirred(Transformer(modern(layers=3, window=2)))
    weights = record(trunk, Tokens.from_rows([list(range(5, 25))])).attention
    places = torch.arange(20)
    far = (places[:, None] - places).abs() > 2
    assert weights[0][0][:, far].min() > 0
    assert all(weights[layer][0][:, far].count_nonzero() == 0 for layer in (1, 2))
    assert all(weights[layer][0][:, ~far].min() > 0 for layer in (1, 2))


def test_classes_by_the_mean_of_a_text_both_ways(tmp_path: Path) -> None:
    assert_task("class", modern(), tokenizer(), tmp_path, pooling="mean")


def test_the_published_size_counts_as_many_parameters_as_in_transformers() -> None:
    with torch.device("meta"):
        reference = transformers.ModernBertModel(transformers.ModernBertConfig())
    assert ModernBert.defaults.parameter_count == sum(part.numel() for part in reference.parameters())


@pytest.mark.parametrize("changes", [{}, {"biases": True}, {"layers": 1}])
def test_a_network_counts_its_own_parameters(changes: dict[str, Any]) -> None:
    config = modern(**changes)
    assert config.parameter_count == sum(part.numel() for part in Transformer(config).parameters())


def test_only_distances_tell() -> None:
    trunk = stirred(Transformer(modern()))
    rows = Tokens.from_rows([[5, 6, 7, 8]])
    moved = replace(rows, positions=rows.positions + 20)
    torch.testing.assert_close(trunk(moved), trunk(rows), rtol=0, atol=1e-4)
    assert not torch.allclose(trunk(replace(rows, positions=rows.positions * 3)), trunk(rows), atol=1e-2)
