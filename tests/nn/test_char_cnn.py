"""The character CNN: a vector for each word from its characters."""

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


def test_filters_are_max_pooled_over_the_word() -> None:
    """By hand: the product of every window of characters with every filter, and its maximum."""
    cnn, word = network(), letters(["cat"], 8)
    table = cnn.embedding(word[0].int())  # C E
    best = []
    for one, size in zip(cnn.filters, (1, 3), strict=True):
        windows = [table[begin : begin + size].T for begin in range(8 - size + 1)]
        fits = torch.stack([(one.weight * window).sum((1, 2)) + one.bias for window in windows])
        best.append(fits.max(0).values)
    hidden = F.relu(torch.cat(best))[None]
    for highway in cnn.highways:
        hidden = highway(hidden)
    torch.testing.assert_close(cnn(word), cnn.dense(hidden))


def test_the_gate_of_a_highway_passes_the_input_or_the_transform() -> None:
    highway, hidden = Highway(3), torch.randn(5, 3)
    with torch.no_grad():
        highway.dense.bias[3:] = 50.0
    torch.testing.assert_close(highway(hidden), hidden)
    with torch.no_grad():
        highway.dense.bias[3:] = -50.0
    new = F.linear(hidden, highway.dense.weight[:3], highway.dense.bias[:3])
    torch.testing.assert_close(highway(hidden), F.relu(new))


def test_trimming_shared_padding_changes_nothing() -> None:
    cnn, words = network(), letters(WORDS, 50)
    seen: list[int] = []
    cnn.embedding.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0].shape[1]))
    short = cnn(words)
    cnn._trim_padding = lambda letters: letters  # type: ignore[method-assign]
    torch.testing.assert_close(short, cnn(words))
    assert seen == [len("mathematicians") + 2 + 3, 50]


def test_other_words_do_not_change_a_vector() -> None:
    cnn = network()
    alone = torch.cat([cnn(letters([word])) for word in WORDS])
    torch.testing.assert_close(cnn(letters(WORDS)), alone, rtol=0, atol=1e-6)


def test_there_are_ids_for_every_byte_five_marks_and_padding() -> None:
    assert network().embedding.num_embeddings == CHARACTERS == PADDING + 1 == 1 + 256 + 5
