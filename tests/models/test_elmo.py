"""ELMo: a character CNN and LSTM stacks in both directions."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from bertsmith.data.batch import Tokens
from bertsmith.errors import FolderError
from bertsmith.models.elmo import Elmo, ElmoConfig
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.models.networks import build_network
from bertsmith.nn.init import initialise
from bertsmith.text.characters import encode_characters

WORDS = ["<unk>", "<s>", "the", "cat", "sat", "on", "a", "mat", "extraordinarily", "zoo"]
SMALL = ElmoConfig(
    vocabulary=len(WORDS),
    max_characters=12,
    character_width=4,
    filters=(4, 4, 6),
    highway_layers=1,
    hidden=10,
    width=12,
    max_length=20,
)
ROWS = [[1, 2, 3, 4], [5, 6, 7, 8, 9, 2], [3]]


def elmo(config: ElmoConfig = SMALL) -> Elmo:
    made = Elmo(config)
    initialise(made, 0)
    made.set_characters(torch.from_numpy(encode_characters(WORDS, config.max_characters)))
    return made.eval()


@pytest.mark.parametrize(
    ("name", "count", "published"),
    [("elmo", 93_600_864, 93.6), ("elmo-medium", 28_027_744, 28.0), ("elmo-small", 13_593_312, 13.6)],
)
def test_it_has_as_many_parameters_as_the_published_ones(name: str, count: int, published: float) -> None:
    """Of elmo: 262 x 16 for characters, 197,120 + 2,048 for filters, twice 2,048 x 4,096 + 4,096 for highways, 2,048 x
    512 + 512 for the projection, and four times (512 + 512) x 16,384 + 16,384 + 4,096 x 512 for LSTMs.

    The published file has 261 characters, and so 16 numbers fewer, since it has none for padding. torch has two biases
    for each gate where one would do."""
    shape = FAMILY[name]
    assert isinstance(shape, ElmoConfig)
    assert shape.parameter_count == count
    assert round(count / 1e6, 1) == published
    with torch.device("meta"):
        there = sum(weight.numel() for weight in build_network(replace(shape, vocabulary=10)).parameters())
    assert there - shape.parameter_count == 2 * shape.layers * 4 * shape.hidden


def test_the_papers_parameter_count_is_the_sum_that_the_paper_gives() -> None:
    letters = 262 * 16
    filters = 16 * (1 * 32 + 2 * 32 + 3 * 64 + 4 * 128 + 5 * 256 + 6 * 512 + 7 * 1024) + 2048
    highways = 2 * (2048 * 4096 + 4096)
    narrow = 2048 * 512 + 512
    lstm = (512 + 512) * 4 * 4096 + 4 * 4096 + 4096 * 512
    assert letters + filters + highways + narrow + 4 * lstm == FAMILY["elmo"].parameter_count


@pytest.mark.filterwarnings("ignore:LSTM with projections")  # of torch, once a process
def test_hidden_states_are_the_word_vectors_twice_and_then_every_layer_with_its_residual() -> None:
    """Compared with torch's own LSTM, sequence by sequence."""
    made, tokens = elmo(), Tokens.from_rows(ROWS)
    begin = 0
    states = made.hidden_states(tokens)
    assert [state.shape for state in states] == [(11, 12)] * 3
    for row in ROWS:
        words = made.char_cnn(made.character_ids[row])
        both = []
        for end, turned in (("left_to_right", False), ("right_to_left", True)):
            read = words.flip(0) if turned else words
            layers = [read]
            for number, lstm in enumerate(made.lstms[end]):  # type: ignore[arg-type]
                output = nn.LSTM.forward(lstm, layers[-1][None])[0][0]
                layers.append(output + layers[-1] if number else output)
            both.append([layer.flip(0) if turned else layer for layer in layers])
        for state, forward, backward in zip(states, *both, strict=True):
            torch.testing.assert_close(state[begin : begin + len(row)], torch.cat([forward, backward], 1))
        begin += len(row)
    torch.testing.assert_close(made(tokens), states[-1])
    torch.testing.assert_close(made(tokens, selected=torch.tensor([3, 0])), states[-1][[3, 0]])


def test_a_known_word_has_the_same_vectors_by_its_id_and_by_its_characters() -> None:
    made, tokens = elmo(), Tokens.from_rows(ROWS)
    letters = torch.from_numpy(
        encode_characters([WORDS[number] for row in ROWS for number in row], SMALL.max_characters)
    )
    torch.testing.assert_close(made(replace(tokens, character_ids=letters)), made(tokens), rtol=0, atol=1e-6)


def test_two_unknown_words_have_different_vectors_if_their_characters_are_given() -> None:
    made, tokens = elmo(), Tokens.from_rows([[2, 0], [2, 0]])
    same = made(tokens)
    torch.testing.assert_close(same[1], same[3])
    letters = torch.from_numpy(encode_characters(["the", "zebra", "the", "gnu"], SMALL.max_characters))
    own = made(replace(tokens, character_ids=letters))
    assert (own[1] - own[3]).abs().max() > 1e-3
    assert (own[1] - same[1]).abs().max() > 1e-3


def test_the_same_seed_gives_the_same_weights_and_forget_gates_begin_open() -> None:
    one, other = elmo(), elmo()
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, other.state_dict()[name]), name
    lstm = one.lstms["left_to_right"][0]  # type: ignore[index]
    assert lstm.bias_ih_l0[10:20].tolist() == [1.0] * 10
    assert lstm.bias_ih_l0[:10].tolist() == [0.0] * 10
    assert (one.char_cnn.highways[0].dense.bias[14:] > 0).all()


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"hidden": 0}, "hidden is 0. Give at least 1"),
        ({"highway_layers": -1}, "highway_layers is -1. Give at least 0"),
        ({"filters": (0, 0)}, r"filters are \[0, 0\]. Give how many of width 1, of width 2, and so on"),
        ({"filters": ()}, r"filters are \[\]. Give how many"),
        ({"max_characters": 2}, "words of 2 characters are too short. Give at least 3"),
        ({"max_characters": 3, "filters": (1, 1, 1, 1)}, "words of 3 characters are too short. Give at least 4"),
        ({"width": 13}, "a width of 13 cannot be shared by two directions. Take an even one"),
        ({"hidden": 6}, "6 cells cannot be projected to 6 numbers in each direction. Raise hidden, or lower width"),
        ({"dropout": 1.0}, "dropout is 1.0. Give a share, at least 0 and below 1"),
    ],
)
def test_impossible_sizes_are_refused(change: dict[str, object], line: str) -> None:
    with pytest.raises(ValueError, match=line):
        replace(SMALL, **change)  # type: ignore[arg-type]


def test_flops_are_six_times_the_products() -> None:
    words = 12 * 4 * (1 * 4 + 2 * 4 + 3 * 6) + 14 * 28 + 14 * 6
    lstms = 4 * (6 * 40 + 6 * 40 + 10 * 6)
    assert SMALL.flops(5.0, 2.0) == 6 * (words + lstms + 2.0 * len(WORDS) * 6)


def test_a_folder_whose_character_ids_are_floats_is_refused(tmp_path: Path) -> None:
    state = {f"trunk.{name}": weight for name, weight in elmo().state_dict().items()}
    folders.write(tmp_path / "model", SMALL, state | {"trunk.character_ids": state["trunk.character_ids"].float()})
    with pytest.raises(FolderError, match=r"'trunk\.character_ids' holds F32, not integers"):
        folders.read(tmp_path / "model")
