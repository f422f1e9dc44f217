"""A stack of recurrent layers: torch's own where nothing is forgotten, and forgetting as AWD-LSTM does it."""

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
def test_without_forgetting_it_is_torchs_own_stack_bit_for_bit(cell: Cell) -> None:
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
def test_a_text_in_two_parts_is_read_as_a_whole_one(cell: Cell) -> None:
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
    for place in range(LENGTH):
        vectors, state = stack.step(texts()[:, place].double(), state)
        torch.testing.assert_close(vectors, whole[:, place])
    torch.testing.assert_close(state, end)
    assert stack.state_size == STATE_VECTORS[cell] * (8 + WIDTH)


@pytest.mark.parametrize("cell", ALL)
def test_gradients_go_through_dropped_weights_exactly(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it computes is a plain stack whose weights were multiplied by the mask; and so are its gradients."""
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


def test_weights_are_dropped_once_a_batch_and_stay_as_they_are() -> None:
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
    """Instead of a layer: it hands on what it is given, and keeps it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.seen: list[Tensor] = []
        self.width = width

    def forward(self, rows: Tensor, state: Any) -> tuple[Tensor, Any]:
        self.seen.append(rows)
        return rows.new_ones(*rows.shape[:2], self.width), state


@pytest.mark.parametrize("place", ["input_dropout", "layer_dropout", "output_dropout"])
def test_the_same_numbers_are_forgotten_all_along_a_sequence(place: str) -> None:
    stack = RecurrentStack("lstm", WIDTH, (8, WIDTH), **{place: 0.5}).train()
    recorders = [Recorder(8), Recorder(WIDTH)]
    stack.layers = nn.ModuleList(recorders)
    torch.manual_seed(0)
    out, _ = stack(torch.ones(ROWS, LENGTH, WIDTH))
    seen = {"input_dropout": recorders[0].seen[0], "layer_dropout": recorders[1].seen[0], "output_dropout": out}
    for name, rows in seen.items():
        if name != place:
            assert torch.equal(rows, torch.ones_like(rows))
            continue
        assert torch.equal(rows, rows[:, :1].expand_as(rows))  # over time
        assert set(rows.unique().tolist()) == {0.0, 2.0}
        assert len(rows[:, 0].unique(dim=0)) > 1  # but not in every sequence


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_cells_keep_for_a_while_at_first_what_came_in(cell: Cell) -> None:
    stack = RecurrentStack(cell, 50, (50,))
    initialise(stack, 1)
    reach = 50**-0.5
    enter, keep, *_ = stack.layers[0].bias_ih_l0.detach().split(50)
    assert (keep >= -reach).all()
    assert (keep <= math.log(MAX_SPAN - 1) + reach).all()
    assert keep.std() > 0.5  # each its own span
    assert (torch.sigmoid(keep) > 0.9).float().mean() > 0.5
    if cell == "lstm":  # which lets in as much as it forgets
        assert ((enter + keep).abs() <= 2 * reach).all()
    else:
        assert (enter.abs() <= reach).all()


def test_a_seed_gives_the_first_weights() -> None:
    stack, again, other = small(), small(), RecurrentStack("lstm", WIDTH, (8, WIDTH))
    initialise(other, 2)
    assert all(torch.equal(one, two) for one, two in zip(stack.parameters(), again.parameters(), strict=True))
    assert not torch.equal(stack.layers[0].weight_ih_l0, other.layers[0].weight_ih_l0)
