"""BERT's members against transformers. The large ones are thinner here: all layers are alike."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from parity.parity import assert_parity
from transformers import BertConfig, BertModel

from bertsmith.models.family import FAMILY, member
from bertsmith.models.hf import convert

MEMBERS = {name for name in FAMILY if name.startswith("bert-")}


@pytest.mark.slow
def test_bert_tiny(tmp_path: Path) -> None:
    assert_parity(member("bert-tiny"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(MEMBERS - {"bert-tiny"}))
def test_bert(name: str, tmp_path: Path) -> None:
    assert_parity(replace(member(name), vocabulary=500, layers=2, max_length=64), tmp_path)


def test_the_tanh_gelu(tmp_path: Path) -> None:
    assert_parity(replace(member("bert-tiny"), vocabulary=500, activation="gelu_tanh"), tmp_path)


@pytest.mark.parametrize("name", sorted(MEMBERS))
def test_a_member_counts_as_many_parameters_as_in_transformers(name: str) -> None:
    with torch.device("meta"):
        reference = BertModel(BertConfig(**convert.to_config_json(member(name), ())))
    assert sum(part.numel() for part in reference.parameters()) == member(name).parameter_count
