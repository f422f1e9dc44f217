"""The recurrent stack: torch's own without dropout, and dropout as in AWD-LSTM."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bertsmith.nn.init import initialise
from bertsmith.nn.rnn import stack as stacks
from bertsmith.nn.rnn.cells import LAYERS, STATE_VECTORS, Cell
from bertsmith.nn.rnn.stack import MAX_SPAN, RecurrentStack

ALL: list[Cell] = ["rnn", "lstm", "gru"]
ROWS, LENGTH, WIDTH = 4, 9, 6


def texts(seed: int = 0) -> Tensor:
    return torch.randn(ROWS, LENGTH, WIDTH, generator=torch.Generator().manual_seed(seed))


def small(cell: Cell = "lstm", **shares: Any) -> RecurrentStack:
    stack = RecurrentStack(cell, WIDTH, (8, WIDTH), **shares)
    initialise(stack, 1)
    return stack


@pytest.mark.parametrize("cell", ALL)
def test_without_dropout_it_is_torchs_own_stack_bit_for_bit(cell: Cell) -> None:
    ours = RecurrentStack(cell, WIDTH, (8, 8, 8))
    theirs = LAYERS[cell](WIDTH, 8, num_layers=3, batch_first=True)
    for number, layer in enumerate(ours.layers):
        layer.load_state_dict(
            {f"{name[:-1]}0": one for name, one in theirs.state_dict().items() if name.endswith(f"l{number}")}
        )
    found, after = ours(texts())
    wanted, held = theirs(texts())
    assert torch.equal(found, wanted)
    parts = held if isinstance(held, tuple) else (held,)
    assert torch.equal(after, torch.cat([part[layer] for layer in range(3) for part in parts], 1))


@pytest.mark.parametrize("cell", ALL)
def test_a_text_in_two_parts_with_carried_state_is_as_a_whole_one(cell: Cell) -> None:
    stack = small(cell).double()
    whole, end = stack(texts().double())
    first, state = stack(texts()[:, :4].double())
    second, after = stack(texts()[:, 4:].double(), state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    torch.testing.assert_close(after, end)


@pytest.mark.parametrize("cell", ALL)
def test_one_token_at_a_time_gives_the_same(cell: Cell) -> None:
    stack = small(cell).double()
    whole, end = stack(texts().double())
    state = whole.new_zeros(ROWS, stack.state_size)
    for position in range(LENGTH):
        vectors, state = stack.step(texts()[:, position].double(), state)
        torch.testing.assert_close(vectors, whole[:, position])
    torch.testing.assert_close(state, end)
    assert stack.state_size == STATE_VECTORS[cell] * (8 + WIDTH)


@pytest.mark.parametrize("cell", ALL)
def test_gradients_go_through_dropped_weights_exactly(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """Output and gradients are those of a plain stack whose weights were multiplied by the mask."""
    stack, plain = small(cell, weight_dropout=0.5).train(), small(cell)
    masks = [torch.rand_like(layer.weight_hh_l0).round() * 2 for layer in stack.layers]
    with torch.no_grad():
        for layer, mask in zip(plain.layers, masks, strict=True):
            layer.weight_hh_l0 *= mask
    given = iter(masks)
    monkeypatch.setattr(stacks, "dropout", lambda weight, share: weight * next(given))
    (found, _), (wanted, _) = stack(texts()), plain(texts())
    assert torch.equal(found, wanted)
    found.square().sum().backward()
    wanted.square().sum().backward()
    for layer, other, mask in zip(stack.layers, plain.layers, masks, strict=True):
        torch.testing.assert_close(layer.weight_hh_l0.grad, other.weight_hh_l0.grad * mask)
        torch.testing.assert_close(layer.weight_ih_l0.grad, other.weight_ih_l0.grad)


def test_weights_are_dropped_once_a_batch_and_stay_unchanged() -> None:
    stack = small(weight_dropout=0.5).train()
    before = {name: weight.clone() for name, weight in stack.named_parameters()}
    torch.manual_seed(1)
    first, _ = stack(texts())
    second, _ = stack(texts())
    torch.manual_seed(1)
    again, _ = stack(texts())
    assert torch.equal(first, again)
    assert not torch.allclose(first, second)
    assert all(torch.equal(weight, before[name]) for name, weight in stack.named_parameters())
    stack.eval()
    assert torch.equal(stack(texts())[0], small()(texts())[0])


class Recorder(nn.Module):
    """Replaces a layer: keeps its input and returns ones."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.seen: list[Tensor] = []
        self.width = width

    def forward(self, rows: Tensor, state: Any) -> tuple[Tensor, Any]:
        self.seen.append(rows)
        return rows.new_ones(*rows.shape[:2], self.width), state


@pytest.mark.parametrize("option", ["input_dropout", "layer_dropout", "output_dropout"])
def test_the_dropout_mask_is_the_same_for_all_tokens_of_a_sequence(option: str) -> None:
    stack = RecurrentStack("lstm", WIDTH, (8, WIDTH), **{option: 0.5}).train()
    recorders = [Recorder(8), Recorder(WIDTH)]
    stack.layers = nn.ModuleList(recorders)
    torch.manual_seed(0)
    out, _ = stack(torch.ones(ROWS, LENGTH, WIDTH))
    seen = {"input_dropout": recorders[0].seen[0], "layer_dropout": recorders[1].seen[0], "output_dropout": out}
    for name, rows in seen.items():
        if name != option:
            assert torch.equal(rows, torch.ones_like(rows))
            continue
        assert torch.equal(rows, rows[:, :1].expand_as(rows))  # over time
        assert set(rows.unique().tolist()) == {0.0, 2.0}
        assert len(rows[:, 0].unique(dim=0)) > 1  # but differs between sequences


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_gates_are_initialised_for_memories_of_many_lengths(cell: Cell) -> None:
    stack = RecurrentStack(cell, 50, (50,))
    initialise(stack, 1)
    bound = 50**-0.5
    input_gate, forget_gate, *_ = stack.layers[0].bias_ih_l0.detach().split(50)
    assert (forget_gate >= -bound).all()
    assert (forget_gate <= math.log(MAX_SPAN - 1) + bound).all()
    assert forget_gate.std() > 0.5  # different spans
    assert (torch.sigmoid(forget_gate) > 0.9).float().mean() > 0.5
    if cell == "lstm":  # the input gate matches the forget gate
        assert ((input_gate + forget_gate).abs() <= 2 * bound).all()
    else:
        assert (input_gate.abs() <= bound).all()
