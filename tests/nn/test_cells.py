"""The plain cells have the values and the gradients of torch's own."""

import pytest
import torch
from torch import nn

from bertsmith.nn.rnn.cells import CELLS, GATES, LAYERS, STATE_VECTORS, Cell, Weights

ALL: list[Cell] = ["rnn", "lstm", "gru"]
WIDTH, HIDDEN, ROWS, LENGTH = 5, 7, 3, 11


def drawn(cell: Cell) -> tuple[nn.RNNBase, torch.Tensor, list[torch.Tensor]]:
    """A layer of torch, texts, and an initial state, all in float64."""
    torch.manual_seed(3)
    layer = LAYERS[cell](WIDTH, HIDDEN, batch_first=True).double()
    texts = torch.randn(ROWS, LENGTH, WIDTH, dtype=torch.float64, requires_grad=True)
    state = [torch.randn(ROWS, HIDDEN, dtype=torch.float64, requires_grad=True) for _ in range(STATE_VECTORS[cell])]
    return layer, texts, state


def step_by_step(cell: Cell, layer: nn.RNNBase, texts: torch.Tensor, state: list[torch.Tensor]) -> torch.Tensor:
    """The plain cell's output for every token, and the last state."""
    state_now, found = tuple(state), []
    for position in range(LENGTH):
        state_now = CELLS[cell](texts[:, position], state_now, Weights.of(layer))
        found.append(state_now[0])
    return torch.cat([torch.stack(found, 1).flatten(1), *state_now], 1)


def by_torch(layer: nn.RNNBase, texts: torch.Tensor, state: list[torch.Tensor]) -> torch.Tensor:
    state_now = tuple(part[None] for part in state)
    found, after = layer(texts, state_now if len(state_now) > 1 else state_now[0])
    parts = after if isinstance(after, tuple) else (after,)
    return torch.cat([found.flatten(1), *(part[0] for part in parts)], 1)


@pytest.mark.parametrize("cell", ALL)
def test_a_cell_equals_torchs_own_in_values_and_gradients(cell: Cell) -> None:
    layer, texts, state = drawn(cell)
    wanted = [texts, *state, *layer.parameters()]
    slow, fast = step_by_step(cell, layer, texts, state), by_torch(layer, texts, state)
    torch.testing.assert_close(slow, fast, rtol=0, atol=1e-12)
    scale = torch.randn_like(slow)
    pairs = zip(
        torch.autograd.grad((slow * scale).sum(), wanted),
        torch.autograd.grad((fast * scale).sum(), wanted),
        strict=True,
    )
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)


@pytest.mark.parametrize("cell", ALL)
def test_weights_of_the_gates_are_stacked(cell: Cell) -> None:
    layer, *_ = drawn(cell)
    weights = Weights.of(layer)
    assert weights.weight_ih.shape == (GATES[cell] * HIDDEN, WIDTH)
    assert weights.weight_hh.shape == (GATES[cell] * HIDDEN, HIDDEN)


def test_an_open_forget_gate_passes_the_gradient_unchanged() -> None:
    layer, texts, (hidden, cell) = drawn("lstm")
    with torch.no_grad():
        layer.bias_ih_l0[HIDDEN : 2 * HIDDEN] = 100.0  # never forget
    state_now = (hidden, cell)
    for position in range(LENGTH):
        state_now = CELLS["lstm"](texts[:, position], (torch.zeros_like(hidden), state_now[1]), Weights.of(layer))
    (gradient,) = torch.autograd.grad(state_now[1].sum(), [cell])
    torch.testing.assert_close(gradient, torch.ones_like(gradient))
