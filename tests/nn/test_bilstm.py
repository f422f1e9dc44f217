"""The Bi-LSTM against torch's own, one sequence at a time."""

import pytest
import torch
from torch import Tensor, nn

from bertsmith.nn.rnn.bilstm import BiLSTM, Direction, _padded_orders, packed_orders

RAGGED = [3, 7, 1, 7, 5, 0, 0]  # trailing empty sequences, as packing leaves them
DIRECTIONS: tuple[Direction, ...] = ("both", "left_to_right", "right_to_left")


def bounds_of(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def alone(stack: BiLSTM, sequence: Tensor) -> Tensor:
    """The output of torch's LSTM with the same weights for one sequence."""
    ends = list(stack.layers[0])
    one = stack.layers[0][ends[0]]
    torchs = nn.LSTM(one.input_size, one.hidden_size, len(stack.layers), bidirectional=len(ends) == 2)
    weights = {
        name.replace("_l0", f"_l{number}" + ("_reverse" if place else "")): weight
        for number, layer in enumerate(stack.layers)
        for place, end in enumerate(ends)
        for name, weight in layer[end].state_dict().items()
    }
    torchs.load_state_dict(weights)
    if ends == ["right_to_left"]:
        return torchs(sequence.flip(0))[0].flip(0)
    return torchs(sequence)[0]


@pytest.mark.parametrize("direction", DIRECTIONS)
@pytest.mark.parametrize("lengths", [RAGGED, [4, 4, 4], [6], [1, 1], [2, 0, 3]])
def test_every_sequence_has_the_output_of_torchs_lstm_alone(lengths: list[int], direction: Direction) -> None:
    torch.manual_seed(0)
    stack = BiLSTM(5, 4, 2, direction=direction)
    hidden, bounds = torch.randn(sum(lengths), 5), bounds_of(lengths)
    found = stack(hidden, bounds, max(lengths))
    true = torch.cat([alone(stack, part) for part in torch.split(hidden, lengths) if len(part)])
    assert found.shape == (sum(lengths), 8 if direction == "both" else 4)
    torch.testing.assert_close(found, true, rtol=0, atol=1e-6)


def test_rows_and_packed_give_the_same_numbers() -> None:
    torch.manual_seed(0)
    lstm, hidden, bounds = nn.LSTM(5, 4, batch_first=True), torch.randn(sum(RAGGED), 5), bounds_of(RAGGED)
    for end in ("left_to_right", "right_to_left"):
        rows, packed = _padded_orders(bounds, 7, len(hidden))[end], packed_orders(bounds)[end]
        torch.testing.assert_close(rows.run(lstm, hidden), packed.run(lstm, hidden), rtol=0, atol=1e-6)
    assert len(packed.tokens) == sum(RAGGED)  # no padding


def test_a_longest_that_is_only_a_limit_changes_nothing() -> None:
    torch.manual_seed(0)
    stack, hidden = BiLSTM(5, 4), torch.randn(8, 5)
    rows, limited = stack(hidden, bounds_of([4, 4]), 4), stack(hidden, bounds_of([4, 4]), 100)
    torch.testing.assert_close(rows, limited, rtol=0, atol=1e-6)


@pytest.mark.parametrize("lengths", [RAGGED, [4, 4, 4]])
def test_other_sequences_do_not_change_an_output_nor_its_gradient(lengths: list[int]) -> None:
    torch.manual_seed(0)
    stack = BiLSTM(5, 4)
    hidden = torch.randn(sum(lengths), 5, requires_grad=True)
    bounds = bounds_of(lengths)
    begin, end = int(bounds[1]), int(bounds[2])  # the second sequence
    found = stack(hidden, bounds, max(lengths))
    (gradient,) = torch.autograd.grad(found[begin:end].square().sum(), hidden)
    assert gradient[begin:end].abs().sum(1).min() > 0
    assert gradient[:begin].count_nonzero() == gradient[end:].count_nonzero() == 0
    elsewhere = torch.randn_like(hidden)
    elsewhere[begin:end] = hidden[begin:end]
    torch.testing.assert_close(stack(elsewhere, bounds, max(lengths))[begin:end], found[begin:end])


@pytest.mark.parametrize(("direction", "unseen"), [("left_to_right", slice(4, 7)), ("right_to_left", slice(0, 3))])
def test_one_direction_has_no_gradient_from_tokens_it_has_not_read(direction: Direction, unseen: slice) -> None:
    torch.manual_seed(0)
    stack = BiLSTM(5, 4, direction=direction)
    hidden = torch.randn(9, 5, requires_grad=True)
    found = stack(hidden, bounds_of([7, 2]), 7)
    (gradient,) = torch.autograd.grad(found[3].sum(), hidden)
    assert gradient[unseen].count_nonzero() == 0
    assert gradient[:7].abs().sum(1).count_nonzero() == 4


def test_empty_sequences_give_an_empty_output() -> None:
    assert BiLSTM(5, 4)(torch.zeros(0, 5), bounds_of([0, 0]), 0).shape == (0, 8)


def test_dropout_lies_between_layers_and_follows_the_seed() -> None:
    hidden, bounds = torch.randn(23, 5), bounds_of(RAGGED)
    single, double = BiLSTM(5, 4, 1, dropout=0.5), BiLSTM(5, 4, 2, dropout=0.5)
    assert torch.equal(single(hidden, bounds, 7), single.eval()(hidden, bounds, 7))

    def output(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return double(hidden, bounds, 7)

    assert torch.equal(output(0), output(0))
    assert not torch.equal(output(0), output(1))
    double.eval()
    assert torch.equal(output(0), output(1))


@pytest.mark.gpu
@pytest.mark.parametrize("lengths", [RAGGED, [4, 4, 4]])
def test_a_gpu_gives_the_numbers_of_a_cpu(lengths: list[int]) -> None:
    torch.manual_seed(0)
    stack = BiLSTM(5, 4, 2, dropout=0.5).eval()
    hidden, bounds = torch.randn(sum(lengths), 5), bounds_of(lengths)
    true = stack(hidden, bounds, max(lengths))
    moved = stack.cuda()
    hidden = hidden.cuda().requires_grad_()
    found = moved(hidden, bounds.cuda(), max(lengths))
    torch.testing.assert_close(found.cpu(), true, rtol=1e-4, atol=1e-4)
    with torch.autocast("cuda", torch.bfloat16):
        half = moved(hidden, bounds.cuda(), max(lengths))
    torch.testing.assert_close(half.float().cpu(), true, rtol=5e-2, atol=5e-2)
    moved.train()
    torch.manual_seed(1)
    one = moved(hidden, bounds.cuda(), max(lengths))
    torch.manual_seed(1)
    other = moved(hidden, bounds.cuda(), max(lengths))
    assert torch.equal(one, other)  # dropout is keyed by the seed, on every device
    other.sum().backward()
    assert hidden.grad is not None
