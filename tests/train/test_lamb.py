"""LAMB against algorithm 2 of its paper, written out for one parameter at a time in double precision.

What it shares with AdamW and Muon - resuming, steps left out, rates on the device, recording - is in test_optimizers.
"""

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from bertsmith.train.lamb import initial_state, step, trust_ratio
from bertsmith.train.optimizers import Optimizer, OptimizerConfig

GOOD, BAD = torch.tensor(False), torch.tensor(True)
WORDS: dict[str, Any] = {"betas": (0.9, 0.999), "epsilon": 1e-6, "weight_decay": 0.1, "use_trust_ratio": True}
SHAPES = [(8, 4), (3, 8), (1, 1), (6,), (2, 3, 4)]


def drawn(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def fresh(weights: list[Tensor]) -> list[dict[str, Tensor]]:
    return [initial_state(nn.Parameter(weight)) for weight in weights]


def plain(
    weight: Tensor, gradients: list[Tensor], rates: list[float], *, decay: float, trusting: bool = True
) -> Tensor:
    """m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g g; r = m^ / (sqrt(v^) + e); u = r + d x; x -= rate |x| / |u| u."""
    weight = weight.double()
    mean, square = torch.zeros_like(weight), torch.zeros_like(weight)
    for turn, (gradient, rate) in enumerate(zip(gradients, rates, strict=True), 1):
        mean = 0.9 * mean + 0.1 * gradient
        square = 0.999 * square + 0.001 * gradient**2
        direction = (mean / (1 - 0.9**turn)) / ((square / (1 - 0.999**turn)).sqrt() + 1e-6)
        update = direction + decay * weight
        length, moved = float(weight.norm()), float(update.norm())
        ratio = length / moved if trusting and length > 0 and moved > 0 else 1.0
        weight = weight - rate * ratio * update
    return weight


@pytest.mark.parametrize("trusting", [True, False])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-12), (torch.float32, 2e-6)])
def test_a_step_over_many_is_the_papers_for_each(
    dtype: torch.dtype, tolerance: float, decay: float, trusting: bool
) -> None:
    weights = [drawn(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(SHAPES)]
    before = [weight.clone() for weight in weights]
    gradients = [[drawn(*shape, seed=9 * turn + 1, dtype=dtype) for shape in SHAPES] for turn in range(6)]
    rates = [0.1 / (turn + 1) for turn in range(6)]
    states = fresh(weights)
    for given_now, rate in zip(gradients, rates, strict=True):
        step(weights, given_now, states, rate, GOOD, **WORDS | {"weight_decay": decay, "use_trust_ratio": trusting})
    for index, weight in enumerate(weights):
        own = [given_now[index].double() for given_now in gradients]
        expected = plain(before[index], own, rates, decay=decay, trusting=trusting)
        torch.testing.assert_close(weight.double(), expected, rtol=tolerance, atol=tolerance)
        assert float(states[index]["step"]) == 6


@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("shares", [{}, {"0.weight": 0.25, "1.bias": 0.5}])
def test_matrices_have_weight_decay_and_a_trust_ratio_and_biases_and_norms_neither(
    shares: dict[str, float], decay: float, clip: float
) -> None:
    """Without decay matrices are still trusted; the clip comes first; and each moves at its share of the rate."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.Linear(8, 3)).double()
    before = {name: weight.detach().clone() for name, weight in module.named_parameters()}
    optimizer = Optimizer(
        module, OptimizerConfig(kind="lamb", learning_rate=0.1, weight_decay=decay, max_grad_norm=clip), shares
    )
    factors = [1.0, 0.5, 0.25, 0.1]
    gradients: dict[str, list[Tensor]] = {name: [] for name in before}
    for turn, factor in enumerate(factors):
        module(drawn(5, 4, seed=turn)).square().sum().backward()
        length = torch.cat([weight.grad.flatten() for weight in module.parameters()]).norm()  # type: ignore[union-attr]
        assert float(length) > 0.5
        for name, weight in module.named_parameters():
            gradients[name].append(weight.grad.clone() * (clip / (length + 1e-6) if clip else 1.0))  # type: ignore[union-attr]
        optimizer.step_at(factor)
    for name, weight in module.named_parameters():
        matrix = weight.ndim > 1
        rates = [0.1 * factor * shares.get(name, 1.0) for factor in factors]
        expected = plain(before[name], gradients[name], rates, decay=decay if matrix else 0.0, trusting=matrix)
        torch.testing.assert_close(weight.detach(), expected, rtol=1e-10, atol=1e-12)


def test_the_trust_ratio_is_one_if_either_norm_is_zero() -> None:
    nothing, something = torch.zeros(2, 2), torch.tensor([[0.0, 3.0], [4.0, 0.0]])
    weights = [something, nothing, something, nothing, 1e6 * something]
    updates = [2 * something, something, nothing, nothing, 1e-6 * something]
    torch.testing.assert_close(
        trust_ratio(weights, updates), torch.tensor([0.5, 1.0, 1.0, 1.0, 1e12])
    )  # clipped nowhere


def test_zero_weights_are_updated_as_by_adamw() -> None:
    weights, gradient = [torch.zeros(3, 4, dtype=torch.float64)], drawn(3, 4)
    step(weights, [gradient], fresh(weights), 0.1, GOOD, **WORDS)
    torch.testing.assert_close(weights[0], -0.1 * gradient.sign(), rtol=1e-3, atol=0)


def test_a_zero_gradient_leaves_weight_decay() -> None:
    """The update is then the weights' own direction: they shrink by the rate itself, and without decay stand still."""
    weights, nothing = [drawn(3, 4)], [torch.zeros(3, 4, dtype=torch.float64)]
    before = weights[0].clone()
    step(weights, nothing, fresh(weights), 0.1, GOOD, **WORDS | {"weight_decay": 0.0})
    assert torch.equal(weights[0], before)
    step(weights, nothing, fresh(weights), 0.1, GOOD, **WORDS)
    torch.testing.assert_close(weights[0], before * 0.9, rtol=1e-12, atol=0)


@settings(deadline=None, max_examples=30)
@given(rate=st.floats(1e-4, 1), size=st.floats(1e-4, 1e4), decay=st.floats(0, 1), seed=st.integers(0, 2**31))
def test_the_update_of_a_matrix_is_relative_to_its_norm(rate: float, size: float, decay: float, seed: int) -> None:
    weights = [drawn(3, 5, seed=seed) * size]
    before = weights[0].clone()
    step(weights, [drawn(3, 5, seed=seed + 1)], fresh(weights), rate, GOOD, **WORDS | {"weight_decay": decay})
    assert float((weights[0] - before).norm()) == pytest.approx(rate * float(before.norm()), rel=1e-6)


@pytest.mark.parametrize("turns", [0, 2])  # before a first good step there is nothing to divide by
@pytest.mark.parametrize("trusting", [True, False])
@pytest.mark.parametrize("broken", [torch.nan, torch.inf, -torch.inf])
def test_a_bad_step_leaves_every_bit_and_the_next_goes_on(broken: float, trusting: bool, turns: int) -> None:
    words = WORDS | {"use_trust_ratio": trusting}
    weights = [drawn(4, 6, dtype=torch.float32), drawn(3, 2, seed=1, dtype=torch.float32)]
    states = fresh(weights)
    gradients = [drawn(*weight.shape, seed=3, dtype=torch.float32) for weight in weights]
    for _ in range(turns):
        step(weights, gradients, states, torch.tensor(0.1), GOOD, **words)
    for tensor in (weights[0], states[0]["exp_avg"]):
        tensor[0] = torch.tensor([0.0, -0.0, 0.0, -0.0, 1e-45, -1e-45])  # what is easily lost
    everything = [*weights, *(tensor for state in states for tensor in state.values())]
    before = [tensor.clone() for tensor in everything]
    spoilt = [gradients[0].clone(), gradients[1]]
    spoilt[0][1, 2] = broken
    step(weights, spoilt, states, torch.tensor(0.1), BAD, **words)
    for tensor, kept in zip(everything, before, strict=True):
        assert torch.equal(tensor.view(torch.int32), kept.view(torch.int32))
    step(weights, gradients, states, torch.tensor(0.1), GOOD, **words)
    assert all(bool(torch.isfinite(tensor).all()) for tensor in everything)
    assert all(float(state["step"]) == turns + 1 for state in states)
    assert not torch.equal(weights[0], before[0])


def test_a_gradient_is_read_and_not_written() -> None:
    weights, gradient = [drawn(3, 4)], drawn(3, 4, seed=1)
    before = gradient.clone()
    step(weights, [gradient], fresh(weights), 0.1, GOOD, **WORDS)
    assert torch.equal(gradient, before)


def test_parameters_without_a_gradient_are_not_updated_and_count_no_step() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
    before = module.get_parameter("1.weight").detach().clone()
    optimizer = Optimizer(module, OptimizerConfig(kind="lamb"))
    module(torch.ones(1, 4)).sum().backward()
    module.get_parameter("1.weight").grad = None
    optimizer.step_at(1.0)
    state = optimizer.state_dict()
    assert torch.equal(module.get_parameter("1.weight"), before)
    assert [float(state[f"step.{name}"]) for name in ("0.weight", "0.bias", "1.weight", "1.bias")] == [1, 1, 0, 1]


def test_it_learns() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 3))
    optimizer = Optimizer(module, OptimizerConfig(kind="lamb", learning_rate=0.03))
    inputs = drawn(64, 4, dtype=torch.float32)
    losses = []
    for _ in range(100):
        loss = (module(inputs) - inputs[:, :3].sin()).square().mean()
        loss.backward()
        losses.append(float(loss.detach()))
        optimizer.step_at(1.0)
    assert losses[-1] < losses[0] / 10


class Listener(TorchDispatchMode):
    """Notes what is asked of tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, positional: Any = (), named: Any = None) -> Any:
        self.heard.append(str(function))
        return function(*positional, **(named or {}))


def test_the_host_reads_no_number_so_that_a_cuda_graph_can_capture_a_step() -> None:
    weights = [drawn(*shape, dtype=torch.float32) for shape in SHAPES]
    with Listener() as listener:
        step(weights, [weight.clone() for weight in weights], fresh(weights), torch.tensor(0.1), GOOD, **WORDS)
    assert "aten._foreach_norm.Scalar" in listener.heard
    assert "aten._local_scalar_dense.default" not in listener.heard
