"""The scalar mix: a learned weighted sum of layers."""

import pytest
import torch
from torch import nn

from bertsmith.nn.init import initialise
from bertsmith.nn.scalar_mix import ScalarMix


def states(layers: int = 3) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(4, 5) for _ in range(layers)]


def test_at_first_it_is_the_mean() -> None:
    torch.testing.assert_close(ScalarMix(3)(states()), torch.stack(states()).mean(0))


def test_it_is_the_scale_times_the_softmax_weighted_sum() -> None:
    mix = ScalarMix(3)
    with torch.no_grad():
        mix.scores.copy_(torch.tensor([1.0, -2.0, 0.5]))
        mix.scale.fill_(3.0)
    weights = torch.tensor([1.0, -2.0, 0.5]).exp()
    weights /= weights.sum()
    assert mix.weights.sum().item() == pytest.approx(1.0)
    true = 3.0 * sum(weight * state for weight, state in zip(weights, states(), strict=True))
    torch.testing.assert_close(mix(states()), true)


def test_initialise_makes_it_the_mean() -> None:
    whole = nn.ModuleDict({"mix": ScalarMix(3), "dense": nn.Linear(5, 5)})
    with torch.no_grad():
        whole["mix"].scores.fill_(7.0)
    initialise(whole, 0)
    torch.testing.assert_close(whole["mix"](states()), torch.stack(states()).mean(0))
    assert whole["dense"].weight.std() < 0.1


def test_training_gives_the_useful_layer_the_largest_weight() -> None:
    mix, layers = ScalarMix(3), states()
    target = 2.0 * layers[1]
    optimizer = torch.optim.Adam(mix.parameters(), lr=0.1)
    for _ in range(60):
        optimizer.zero_grad()
        (mix(layers) - target).square().mean().backward()
        optimizer.step()
    assert mix.weights[1] > 0.9
    assert mix.scale.item() == pytest.approx(2.0, abs=0.2)
