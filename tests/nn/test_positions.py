import math

import torch

from bertsmith.nn.positions import LearnedPositions, RotaryPositions, SinusoidalPositions, apply_rotary, sinusoids


def test_sinusoids_follow_the_formula_of_2017() -> None:
    table = sinusoids(50, 8)
    for position in (0, 1, 7, 49):
        for pair in range(4):
            angle = position / 10_000 ** (2 * pair / 8)
            assert math.isclose(table[position, 2 * pair], math.sin(angle), abs_tol=1e-6)
            assert math.isclose(table[position, 2 * pair + 1], math.cos(angle), abs_tol=1e-6)


def test_an_odd_width_loses_only_its_last_cosine() -> None:
    assert torch.equal(sinusoids(6, 5)[:, 4], (torch.arange(6, dtype=torch.float64) / 10_000 ** (4 / 5)).sin().float())


def test_sinusoidal_positions_are_looked_up_and_never_learned() -> None:
    module = SinusoidalPositions(10, 4)
    positions = torch.tensor([3, 0, 3], dtype=torch.int32)
    assert torch.equal(module(positions), sinusoids(10, 4)[[3, 0, 3]])
    assert not list(module.parameters())


def test_learned_positions_are_looked_up_and_learned() -> None:
    module = LearnedPositions(10, 4)
    positions = torch.tensor([3, 0, 3], dtype=torch.int32)
    assert torch.equal(module(positions), module.weight[[3, 0, 3]])
    module(positions).sum().backward()
    assert module.weight.grad is not None
    assert module.weight.grad.sum(1).tolist() == [4, 0, 0, 8, 0, 0, 0, 0, 0, 0]


def test_queries_and_keys_are_rotated_and_values_are_not() -> None:
    qkv, positions = torch.randn(5, 3, 2, 8), torch.tensor([0, 1, 2, 7, 500], dtype=torch.int32)
    query, key, value = apply_rotary(qkv, RotaryPositions(8, 100.0)(positions)).unbind(1)
    assert torch.equal(value, qkv[:, 2])
    for part, found in enumerate((query, key)):
        pairs = torch.complex(*qkv[:, part].double().chunk(2, -1))
        angles = positions[:, None].double() * 100.0 ** (-torch.arange(4, dtype=torch.float64) / 4)
        true = torch.polar(torch.ones_like(angles), angles)[:, None] * pairs
        torch.testing.assert_close(found.double(), torch.cat((true.real, true.imag), -1), rtol=0, atol=1e-4)


def test_rotated_scores_depend_on_the_distance_only() -> None:
    query, key = torch.randn(2, 1, 1, 16, dtype=torch.float64)
    qkv = torch.stack((query, key, key), 1).expand(4, 3, 1, 16)
    rotated = apply_rotary(
        qkv, tuple(part.double() for part in RotaryPositions(16, 10_000.0)(torch.tensor([3, 5, 40, 42])))
    )
    scores = [(rotated[first, 0] * rotated[second, 1]).sum() for first, second in ((0, 1), (2, 3))]
    torch.testing.assert_close(scores[0], scores[1], rtol=0, atol=1e-4)
