"""The cells in plain maths are torch's own: the same values, and the same gradients."""

import pytest
import torch
from torch import nn

from bertsmith.nn.rnn.cells import CELLS, GATES, LAYERS, STATE_VECTORS, Cell, Weights

ALL: list[Cell] = ["rnn", "lstm", "gru"]
WIDTH, HIDDEN, ROWS, LENGTH = 5, 7, 3, 11


def drawn(cell: Cell) -> tuple[nn.RNNBase, torch.Tensor, list[torch.Tensor]]:
    """A layer of torch's own, some texts, and a state to begin with, all in double precision."""
    torch.manual_seed(3)
    layer = LAYERS[cell](WIDTH, HIDDEN, batch_first=True).double()
    texts = torch.randn(ROWS, LENGTH, WIDTH, dtype=torch.float64, requires_grad=True)
    state = [torch.randn(ROWS, HIDDEN, dtype=torch.float64, requires_grad=True) for _ in range(STATE_VECTORS[cell])]
    return layer, texts, state


def slowly(cell: Cell, layer: nn.RNNBase, texts: torch.Tensor, state: list[torch.Tensor]) -> torch.Tensor:
    """What the plain maths makes of every token, and of the last state."""
    held, found = tuple(state), []
    for place in range(LENGTH):
        held = CELLS[cell](texts[:, place], held, Weights.of(layer))
        found.append(held[0])
    return torch.cat([torch.stack(found, 1).flatten(1), *held], 1)


def at_once(layer: nn.RNNBase, texts: torch.Tensor, state: list[torch.Tensor]) -> torch.Tensor:
    held = tuple(part[None] for part in state)
    found, after = layer(texts, held if len(held) > 1 else held[0])
    parts = after if isinstance(after, tuple) else (after,)
    return torch.cat([found.flatten(1), *(part[0] for part in parts)], 1)


@pytest.mark.parametrize("cell", ALL)
def test_a_cell_equals_torchs_own_in_values_and_gradients(cell: Cell) -> None:
    layer, texts, state = drawn(cell)
    wanted = [texts, *state, *layer.parameters()]
    slow, fast = slowly(cell, layer, texts, state), at_once(layer, texts, state)
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
def test_weights_lie_one_gate_above_the_other(cell: Cell) -> None:
    layer, *_ = drawn(cell)
    weights = Weights.of(layer)
    assert weights.weight_ih.shape == (GATES[cell] * HIDDEN, WIDTH)
    assert weights.weight_hh.shape == (GATES[cell] * HIDDEN, HIDDEN)


def test_an_open_forget_gate_lets_the_gradient_through_as_it_was() -> None:
    layer, texts, (hidden, cell) = drawn("lstm")
    with torch.no_grad():
        layer.bias_ih_l0[HIDDEN : 2 * HIDDEN] = 100.0  # never forget
    held = (hidden, cell)
    for place in range(LENGTH):
        held = CELLS["lstm"](texts[:, place], (torch.zeros_like(hidden), held[1]), Weights.of(layer))
    (gradient,) = torch.autograd.grad(held[1].sum(), [cell])
    torch.testing.assert_close(gradient, torch.ones_like(gradient))
