"""A vector for each word, by its letters."""

import torch
import torch.nn.functional as F

from bertsmith.nn.rnn.char_cnn import CHARACTERS, PADDING, CharCNN, Highway
from bertsmith.text.characters import encode_characters

WORDS = ["a", "cat", "sat", "on", "the", "mathematicians", "mat"]


def network() -> CharCNN:
    torch.manual_seed(0)
    return CharCNN(4, (3, 0, 5), 2, 6)


def letters(words: list[str], most: int = 20) -> torch.Tensor:
    return torch.from_numpy(encode_characters(words, most))


def test_a_filter_keeps_its_best_fit_wherever_it_is() -> None:
    """By hand: every window of letters, its product with every filter, the largest of them."""
    made, word = network(), letters(["cat"], 8)
    table = made.embedding(word[0].int())  # C E
    best = []
    for one, size in zip(made.filters, (1, 3), strict=True):
        windows = [table[begin : begin + size].T for begin in range(8 - size + 1)]
        fits = torch.stack([(one.weight * window).sum((1, 2)) + one.bias for window in windows])
        best.append(fits.max(0).values)
    hidden = F.relu(torch.cat(best))[None]
    for highway in made.highways:
        hidden = highway(hidden)
    torch.testing.assert_close(made(word), made.dense(hidden))


def test_a_highway_lets_through_what_its_gate_says() -> None:
    highway, hidden = Highway(3), torch.randn(5, 3)
    with torch.no_grad():
        highway.dense.bias[3:] = 50.0
    torch.testing.assert_close(highway(hidden), hidden)
    with torch.no_grad():
        highway.dense.bias[3:] = -50.0
    new = F.linear(hidden, highway.dense.weight[:3], highway.dense.bias[:3])
    torch.testing.assert_close(highway(hidden), F.relu(new))


def test_cutting_off_what_all_words_are_filled_up_with_changes_nothing() -> None:
    made, words = network(), letters(WORDS, 50)
    seen: list[int] = []
    made.embedding.register_forward_hook(lambda _module, given, _said: seen.append(given[0].shape[1]))
    short = made(words)
    made._trim_padding = lambda letters: letters  # type: ignore[method-assign]
    torch.testing.assert_close(short, made(words))
    assert seen == [len("mathematicians") + 2 + 3, 50]


def test_neighbours_do_not_change_a_word() -> None:
    made = network()
    alone = torch.cat([made(letters([word])) for word in WORDS])
    torch.testing.assert_close(made(letters(WORDS)), alone, rtol=0, atol=1e-6)


def test_there_are_letters_for_every_byte_and_five_marks_and_filler() -> None:
    assert network().embedding.num_embeddings == CHARACTERS == PADDING + 1 == 1 + 256 + 5
