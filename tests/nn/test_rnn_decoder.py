"""LSTMs that write: token by token and at once the numbers of torch's own."""

import pytest
import torch
from torch import Tensor, nn

from bertsmith.nn.rnn.cells import lstm_gates
from bertsmith.nn.rnn.decoder import LSTMDecoder, States

WIDTH, HIDDEN, FED, ROWS, LENGTH = 5, 4, 3, 2, 6


def made(layers: int, fed: int = 0, dropout: float = 0.0) -> LSTMDecoder:
    torch.manual_seed(0)
    return LSTMDecoder(WIDTH, HIDDEN, layers, dropout, fed)


def given(layers: int) -> tuple[Tensor, Tensor, States]:
    """Words, what each token is told by the one before, and states to begin with."""
    dice = torch.Generator().manual_seed(1)
    states = [tuple(torch.randn(2, ROWS, HIDDEN, generator=dice)) for _ in range(layers)]
    words, fed = (torch.randn(ROWS, LENGTH, width, generator=dice) for width in (WIDTH, FED))
    return words, fed, states  # type: ignore[return-value]


def torchs(writer: LSTMDecoder, inputs: Tensor, states: States) -> Tensor:
    """What torch's own stack says, with the same weights."""
    own = nn.LSTM(inputs.shape[-1], HIDDEN, len(writer.layers), batch_first=True)
    weights = {
        name.replace("_l0", f"_l{number}"): weight
        for number, layer in enumerate(writer.layers)
        for name, weight in layer.state_dict().items()
    }
    own.load_state_dict(weights)
    said, kept = (torch.stack(part) for part in zip(*states, strict=True))
    found: Tensor = own(inputs, (said, kept))[0]
    return found


def stepped(writer: LSTMDecoder, words: Tensor, fed: Tensor | None, states: States) -> Tensor:
    gates, said = writer.step_weights(), []
    for place, told in enumerate(writer.input_gates(words, gates).unbind(1)):
        one, states = writer.step(told, None if fed is None else fed[:, place], states, gates)
        said.append(one)
    return torch.stack(said, 1)


@pytest.mark.parametrize("layers", [1, 3])
def test_at_once_and_token_by_token_are_torchs_own_lstm(layers: int) -> None:
    writer, (words, _, states) = made(layers), given(layers)
    true = torchs(writer, words, states)
    torch.testing.assert_close(writer(words, states), true, rtol=0, atol=1e-6)
    torch.testing.assert_close(stepped(writer, words, None, states), true, rtol=0, atol=1e-6)


@pytest.mark.parametrize("layers", [1, 2])
def test_what_is_fed_stands_beside_the_words(layers: int) -> None:
    writer, (words, fed, states) = made(layers, FED), given(layers)
    true = torchs(writer, torch.cat((words, fed), -1), states)
    torch.testing.assert_close(stepped(writer, words, fed, states), true, rtol=0, atol=1e-6)


def test_one_step_is_that_of_torchs_cell_and_so_is_its_gradient() -> None:
    torch.manual_seed(0)
    own = nn.LSTMCell(WIDTH, HIDDEN)
    word, said, kept = torch.randn(ROWS, WIDTH), torch.randn(ROWS, HIDDEN), torch.randn(ROWS, HIDDEN)
    sums = word @ own.weight_ih.T + own.bias_ih + said @ own.weight_hh.T + own.bias_hh
    found, true = lstm_gates(sums, kept), own(word, (said, kept))
    for one, other in zip(found, true, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    ours, torchs = (torch.autograd.grad(said.sum() + 2 * kept.sum(), own.weight_hh)[0] for said, kept in (found, true))
    torch.testing.assert_close(ours, torchs, rtol=0, atol=1e-6)


def test_dropout_lies_between_layers_alone_and_follows_the_seed() -> None:
    words, fed, states = given(2)
    single = made(1, FED, 0.5)
    assert torch.equal(stepped(single, words, fed, states[:1]), stepped(single.eval(), words, fed, states[:1]))
    double = made(2, FED, 0.5)

    def said(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return stepped(double, words, fed, states)

    assert torch.equal(said(0), said(0))
    assert not torch.equal(said(0), said(1))
    double.eval()
    assert torch.equal(said(0), said(1))
