"""Word vectors as a network without layers."""

from pathlib import Path

import pytest
import torch

from bertsmith.data.batch import Tokens
from bertsmith.errors import FolderError
from bertsmith.inference.load import load
from bertsmith.models.hf import folder as folders
from bertsmith.models.networks import build_network
from bertsmith.models.static import Static, StaticConfig
from bertsmith.text.tokenizer import TokenizerConfig, train

SMALL = StaticConfig(vocabulary=10, width=4)


def test_the_vector_of_a_word_does_not_depend_on_its_context() -> None:
    made = build_network(SMALL)
    assert isinstance(made, Static)
    [state] = made.hidden_states(Tokens.from_rows([[3, 1], [1]]))
    assert torch.equal(state, made.embedding.weight[[3, 1, 1]])
    assert sum(weight.numel() for weight in made.parameters()) == SMALL.parameter_count == 40
    assert SMALL.flops(5.0, 0.0) == 0


@pytest.mark.parametrize("wrong", ["vocabulary", "width", "max_length"])
def test_impossible_sizes_are_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=f"{wrong} is 0. Give at least 1"):
        StaticConfig(**{"vocabulary": 10, "width": 4, wrong: 0})


def test_a_folder_of_vectors_cannot_be_loaded_as_a_model(tmp_path: Path) -> None:
    folders.write(tmp_path, SMALL, {"trunk.embedding.weight": torch.randn(10, 4)})
    train(["a b"] * 2, TokenizerConfig(kind="words", vocabulary=10, min_frequency=1)).save(tmp_path)
    with pytest.raises(FolderError) as caught:
        load(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path / 'config.json'}: holds word vectors and nothing that uses them. "
        "They are features: bertsmith finetune FOLDER DATA --task features --out runs/tuned."
    )
