"""The LSTM with projection against torch's own."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_sequence

from bertsmith.nn.rnn.projected_lstm import ProjectedLSTM


def twins() -> tuple[ProjectedLSTM, nn.LSTM]:
    torch.manual_seed(0)
    ours = ProjectedLSTM(5, 9, 4).double()
    theirs = nn.LSTM(5, 9, batch_first=True, proj_size=4).double()
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs


def output_and_gradients(lstm: nn.LSTM, rows: list[Tensor], packed: bool) -> list[Tensor]:
    """The output, and every gradient."""
    leaves = [row.clone().requires_grad_() for row in rows]
    inputs = pack_sequence(leaves) if packed else torch.stack(leaves)
    output = lstm(inputs)[0]
    numbers = output.data if packed else output
    (numbers * torch.sin(torch.arange(numbers.numel(), dtype=torch.double)).view_as(numbers)).sum().backward()
    return [numbers, *(leaf.grad for leaf in leaves), *(weight.grad for weight in lstm.parameters())]  # type: ignore[misc]


@pytest.mark.parametrize("lengths", [[7, 4, 4, 1], [3, 3, 3], [1, 1], [6]])
@pytest.mark.parametrize("packed", [True, False])
def test_output_and_gradients_are_torchs(lengths: list[int], packed: bool) -> None:
    rows = [torch.randn(length if packed else 4, 5, dtype=torch.double) for length in lengths]
    for one, other in zip(*(output_and_gradients(lstm, rows, packed) for lstm in twins()), strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_its_gradients_pass_gradcheck() -> None:
    ours, _ = twins()
    inputs = torch.randn(2, 3, 5, dtype=torch.double, requires_grad=True)
    assert torch.autograd.gradcheck(lambda tokens: ours(tokens)[0], (inputs,))


def test_without_gradients_the_output_is_the_same() -> None:
    ours, _ = twins()
    inputs = torch.randn(3, 6, 5, dtype=torch.double)
    with torch.no_grad():
        torch.testing.assert_close(ours(inputs)[0], ours(inputs.clone())[0])
        expected = ours(inputs)[0]
    torch.testing.assert_close(ours(inputs)[0], expected, rtol=0, atol=1e-12)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_under_autocast_it_is_torchs_own() -> None:
    inputs = torch.randn(3, 6, 5)
    with torch.autocast("cpu", torch.bfloat16):
        one, other = (lstm.float()(inputs)[0] for lstm in twins())
    assert one.dtype == torch.bfloat16
    assert torch.equal(one, other)
