import math

import torch

from bertsmith.nn.positions import Learned, Sinusoidal, waves


def test_waves_follow_the_formula_of_2017() -> None:
    table = waves(50, 8)
    for place in (0, 1, 7, 49):
        for pair in range(4):
            angle = place / 10_000 ** (2 * pair / 8)
            assert math.isclose(table[place, 2 * pair], math.sin(angle), abs_tol=1e-6)
            assert math.isclose(table[place, 2 * pair + 1], math.cos(angle), abs_tol=1e-6)


def test_an_odd_width_loses_only_its_last_cosine() -> None:
    assert torch.equal(waves(6, 5)[:, 4], (torch.arange(6, dtype=torch.float64) / 10_000 ** (4 / 5)).sin().float())


def test_sinusoidal_positions_are_looked_up_and_never_learned() -> None:
    module = Sinusoidal(10, 4)
    places = torch.tensor([3, 0, 3], dtype=torch.int32)
    assert torch.equal(module(places), waves(10, 4)[[3, 0, 3]])
    assert not list(module.parameters())


def test_learned_positions_are_looked_up_and_learned() -> None:
    module = Learned(10, 4)
    places = torch.tensor([3, 0, 3], dtype=torch.int32)
    assert torch.equal(module(places), module.weight[[3, 0, 3]])
    module(places).sum().backward()
    assert module.weight.grad is not None
    assert module.weight.grad.sum(1).tolist() == [4, 0, 0, 8, 0, 0, 0, 0, 0, 0]
