"""The recurrent network: ragged sequences, streams over several batches, and a cache of states."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from bertsmith.data.batch import Tokens
from bertsmith.models.family import AWD_LSTM, FAMILY, LSTM_LARGE, LSTM_MEDIUM
from bertsmith.models.networks import build_network
from bertsmith.models.recurrent import Recurrent, RecurrentConfig
from bertsmith.nn.init import initialise
from bertsmith.nn.rnn.cells import Cell

ALL: list[Cell] = ["rnn", "lstm", "gru"]
ROWS = [[1, 2, 3], [4], [5, 6, 7, 8, 9, 10], [11, 12]]
SMALL = RecurrentConfig(vocabulary=20, width=6, hidden=8, layers=3, tie_embeddings=True)


def small(**changes: Any) -> Recurrent:
    trunk = Recurrent(replace(SMALL, **changes))
    initialise(trunk, 0, 0.5)
    return trunk.double().eval()


def stream(rows: list[list[int]], place: int) -> Tokens:
    tokens = Tokens.from_rows(rows)
    return replace(tokens, positions=tokens.positions + place)


@pytest.mark.parametrize("cell", ALL)
def test_a_stream_in_parts_equals_the_whole_and_position_zero_resets_the_state(cell: Cell) -> None:
    trunk = small(cell=cell)
    whole = trunk(Tokens.from_rows([[1, 2, 3, 4], [5, 6, 7, 8]])).view(2, 4, -1)
    zero = whole.new_zeros(2, trunk.stack.state_size)
    first, state = trunk.forward_from_state(stream([[1, 2], [5, 6]], 0), zero)
    second, _ = trunk.forward_from_state(stream([[3, 4], [7, 8]], 2), state)
    torch.testing.assert_close(torch.cat([first.view(2, 2, -1), second.view(2, 2, -1)], 1), whole)
    restarted, _ = trunk.forward_from_state(stream([[1, 2], [5, 6]], 0), state)
    assert torch.equal(restarted, first)


@pytest.mark.parametrize("cell", ALL)
def test_a_cached_step_gives_the_same_as_the_whole_sequence(cell: Cell) -> None:
    trunk = small(cell=cell)
    cache = trunk.cache(len(ROWS), capacity=99, beams=2, dtype=torch.float64)
    torch.testing.assert_close(
        trunk.prefill(Tokens.from_rows(ROWS), cache),
        trunk(Tokens.from_rows(ROWS))[Tokens.from_rows(ROWS).bounds[1:] - 1],
    )
    ids = torch.tensor([[1, 2]] * len(ROWS))
    found = trunk.step(ids, cache)
    for number, row in enumerate(ROWS):
        for beam, token in enumerate((1, 2)):
            torch.testing.assert_close(found[number, beam], trunk(Tokens.from_rows([[*row, token]]))[-1])
    # Both beams continue the second one.
    cache.reorder(torch.ones_like(ids))
    found = trunk.step(torch.tensor([[3, 4]] * len(ROWS)), cache)
    for number, row in enumerate(ROWS):
        for beam, token in enumerate((3, 4)):
            torch.testing.assert_close(found[number, beam], trunk(Tokens.from_rows([[*row, 2, token]]))[-1])


def test_the_output_layer_is_tied_or_separate() -> None:
    tied, own = small(), small(tie_embeddings=False)
    hidden = torch.randn(4, 6).double()
    torch.testing.assert_close(tied.logits(hidden), hidden @ tied.embedding.weight.T + tied.bias)
    torch.testing.assert_close(own.logits(hidden), hidden @ own.lm_head.weight.T + own.bias)


def test_embedding_dropout_drops_a_word_at_all_its_positions() -> None:
    trunk = small(embedding_dropout=0.5).train()
    torch.manual_seed(0)
    embedded = trunk._embed(torch.arange(20).repeat(3)).view(3, 20, -1)
    assert torch.equal(embedded[0], embedded[1])
    gone = (embedded[0] == 0).all(1)
    assert 3 <= gone.sum() <= 17
    torch.testing.assert_close(embedded[0][~gone], 2 * trunk.embedding.weight[~gone])
    assert (trunk.eval()._embed(torch.arange(20)) != 0).all()


@pytest.mark.parametrize("name", ["rnn-small", "lstm-small", "gru-small", "lstm-medium", "lstm-large", "awd-lstm"])
def test_the_parameter_count_is_that_of_the_network(name: str) -> None:
    config = FAMILY[name]
    with torch.device("meta"):
        trunk = build_network(config)
    assert isinstance(trunk, Recurrent)
    assert sum(weight.numel() for weight in trunk.parameters()) == config.parameter_count
    assert set(trunk.matrices()) <= dict(trunk.named_parameters()).keys()


def test_members_are_as_large_as_their_papers_say() -> None:
    """Zaremba et al. 2014: 20 M and 66 M; Merity et al. 2017: 24 M on the Penn Treebank, 33 M on WikiText-2."""
    assert round(LSTM_MEDIUM.parameter_count / 1e6) == 20
    assert round(LSTM_LARGE.parameter_count / 1e6) == 66
    assert round(replace(AWD_LSTM, vocabulary=10_000).parameter_count / 1e6) == 24
    assert 33 <= AWD_LSTM.parameter_count / 1e6 < 34


def test_the_flops_of_a_token_do_not_depend_on_the_length() -> None:
    config = replace(SMALL, layers=1)
    matrices = 4 * 6 * (6 + 6)
    assert config.flops(10, 1.0) == config.flops(1000, 1.0) == 6 * (matrices + 20 * 6)
    assert config.flops(10, 0.0) == 6 * matrices


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"width": 0}, "width is 0. Give at least 1"),
        ({"layers": 0}, "layers is 0. Give at least 1"),
        ({"hidden": -1}, "hidden is -1. Give a width, or 0 for that of the embeddings"),
        ({"weight_dropout": 1.0}, "weight_dropout is 1.0. Give a share, at least 0 and below 1"),
        ({"dropout": -0.1}, "dropout is -0.1. Give a share, at least 0 and below 1"),
    ],
)
def test_impossible_sizes_are_refused(change: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError) as caught:
        replace(SMALL, **change)
    assert str(caught.value) == line
