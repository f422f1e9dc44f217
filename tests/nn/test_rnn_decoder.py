"""The LSTM decoder: token by token and at once it equals torch's LSTM."""

import pytest
import torch
from torch import Tensor, nn

from bertsmith.nn.rnn.cells import lstm_gates
from bertsmith.nn.rnn.decoder import LSTMDecoder, States

WIDTH, HIDDEN, FED, ROWS, LENGTH = 5, 4, 3, 2, 6


def make_decoder(layers: int, input_feed: int = 0, dropout: float = 0.0) -> LSTMDecoder:
    torch.manual_seed(0)
    return LSTMDecoder(WIDTH, HIDDEN, layers, dropout, input_feed)


def given(layers: int) -> tuple[Tensor, Tensor, States]:
    """Words, input feed, and initial states."""
    dice = torch.Generator().manual_seed(1)
    states = [tuple(torch.randn(2, ROWS, HIDDEN, generator=dice)) for _ in range(layers)]
    words, input_feed = (torch.randn(ROWS, LENGTH, width, generator=dice) for width in (WIDTH, FED))
    return words, input_feed, states  # type: ignore[return-value]


def torchs(decoder: LSTMDecoder, inputs: Tensor, states: States) -> Tensor:
    """The output of torch's LSTM with the same weights."""
    own = nn.LSTM(inputs.shape[-1], HIDDEN, len(decoder.layers), batch_first=True)
    weights = {
        name.replace("_l0", f"_l{number}"): weight
        for number, layer in enumerate(decoder.layers)
        for name, weight in layer.state_dict().items()
    }
    own.load_state_dict(weights)
    hidden, cells = (torch.stack(part) for part in zip(*states, strict=True))
    found: Tensor = own(inputs, (hidden, cells))[0]
    return found


def stepped(decoder: LSTMDecoder, words: Tensor, input_feed: Tensor | None, states: States) -> Tensor:
    weights, outputs = decoder.step_weights(), []
    for position, gates in enumerate(decoder.input_gates(words, weights).unbind(1)):
        output, states = decoder.step(gates, None if input_feed is None else input_feed[:, position], states, weights)
        outputs.append(output)
    return torch.stack(outputs, 1)


@pytest.mark.parametrize("layers", [1, 3])
def test_at_once_and_token_by_token_are_torchs_own_lstm(layers: int) -> None:
    decoder, (words, _, states) = make_decoder(layers), given(layers)
    true = torchs(decoder, words, states)
    torch.testing.assert_close(decoder(words, states), true, rtol=0, atol=1e-6)
    torch.testing.assert_close(stepped(decoder, words, None, states), true, rtol=0, atol=1e-6)


@pytest.mark.parametrize("layers", [1, 2])
def test_the_input_feed_is_concatenated_with_the_words(layers: int) -> None:
    decoder, (words, input_feed, states) = make_decoder(layers, FED), given(layers)
    true = torchs(decoder, torch.cat((words, input_feed), -1), states)
    torch.testing.assert_close(stepped(decoder, words, input_feed, states), true, rtol=0, atol=1e-6)


def test_one_step_is_that_of_torchs_cell_and_so_is_its_gradient() -> None:
    torch.manual_seed(0)
    own = nn.LSTMCell(WIDTH, HIDDEN)
    word, hidden, cell = torch.randn(ROWS, WIDTH), torch.randn(ROWS, HIDDEN), torch.randn(ROWS, HIDDEN)
    sums = word @ own.weight_ih.T + own.bias_ih + hidden @ own.weight_hh.T + own.bias_hh
    found, true = lstm_gates(sums, cell), own(word, (hidden, cell))
    for one, other in zip(found, true, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)
    ours, torchs = (
        torch.autograd.grad(hidden.sum() + 2 * cell.sum(), own.weight_hh)[0] for hidden, cell in (found, true)
    )
    torch.testing.assert_close(ours, torchs, rtol=0, atol=1e-6)


def test_dropout_is_between_layers_only_and_follows_the_seed() -> None:
    words, input_feed, states = given(2)
    single = make_decoder(1, FED, 0.5)
    assert torch.equal(
        stepped(single, words, input_feed, states[:1]), stepped(single.eval(), words, input_feed, states[:1])
    )
    double = make_decoder(2, FED, 0.5)

    def output(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return stepped(double, words, input_feed, states)

    assert torch.equal(output(0), output(0))
    assert not torch.equal(output(0), output(1))
    double.eval()
    assert torch.equal(output(0), output(1))
