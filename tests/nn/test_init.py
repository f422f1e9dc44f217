from dataclasses import replace

import torch
from torch import nn

from bertsmith.data.batch import Tokens
from bertsmith.models.family import SMITH
from bertsmith.models.transformer import Transformer
from bertsmith.nn.heads import MaskedLMHead
from bertsmith.nn.init import initialise
from bertsmith.nn.positions import LearnedPositions


def network() -> nn.Module:
    return nn.Sequential(
        nn.Embedding(500, 64),
        LearnedPositions(64, 64),
        nn.Linear(64, 256),
        nn.LayerNorm(64),
        MaskedLMHead(64, 500, "gelu", 1e-12),
    )


def test_tables_and_matrices_are_small_and_the_rest_zero_or_one() -> None:
    module = network()
    for parameter in module.parameters():
        nn.init.constant_(parameter, 7.0)
    initialise(module, 0)
    for name, parameter in module.named_parameters():
        if parameter.ndim == 2:
            assert abs(parameter.mean()) < 0.001, name
            assert abs(parameter.std() - 0.02) < 0.001, name
        else:
            norm = name in ("3.weight", "4.norm.weight")
            assert torch.equal(parameter, torch.full_like(parameter, 1.0 if norm else 0.0)), name


def test_the_same_seed_gives_the_same_weights() -> None:
    def weights(seed: int | torch.Generator) -> list[torch.Tensor]:
        torch.rand(3)  # torch's global generator does not matter
        module = network()
        initialise(module, seed)
        return list(module.parameters())

    assert all(map(torch.equal, weights(5), weights(5)))
    assert all(map(torch.equal, weights(5), weights(torch.Generator().manual_seed(5))))
    assert not torch.equal(weights(5)[0], weights(6)[0])


def test_pre_norm_layers_are_the_identity_at_first() -> None:
    trunk = Transformer(replace(SMITH, vocabulary=50, width=32, heads=4, feed_forward=48, layers=3))
    initialise(trunk, 0)
    states = trunk.hidden_states(Tokens.from_rows([[1, 2, 3], [4]]))
    assert all(torch.equal(state, states[0]) for state in states[1:-1])
    assert not torch.equal(states[0], torch.zeros_like(states[0]))
