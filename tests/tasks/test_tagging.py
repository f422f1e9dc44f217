"""Every word is tagged once, whatever the length of the sentence."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tasks.small import CASES, LENGTH, WORDS, tokenizer
from tasks.small import shape as network
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.data.labelled.examples import Sentence
from bertsmith.errors import RecipeError, TextError
from bertsmith.models.transformer import Transformer
from bertsmith.tasks.base import Bucket, predict
from bertsmith.tasks.tagging import TokenClassification, _windows


def tag(labels: tuple[str, ...] = ("B-X", "O"), **settings: float) -> TokenClassification:
    return TokenClassification(Transformer(network()), TokenClassification.Config(**settings), labels).eval()


def sentence(words: list[str], tags: list[str] | None = None) -> Sentence:
    return Sentence(location="train.conll:12", words=tuple(words), tags=None if tags is None else tuple(tags))


# ---------------------------------------------------------------------------------------------------- windows


@given(st.data(), st.integers(0, 200), st.integers(1, 40), st.floats(0, 0.99))
def test_windows_cover_every_token_and_own_every_word_once(
    data: st.DataObject, pieces: int, room: int, overlap: float
) -> None:
    firsts = np.array(sorted(data.draw(st.sets(st.integers(0, max(0, pieces - 1)), max_size=pieces))), np.int64)
    found = _windows(pieces, firsts, room, overlap)
    covered = np.zeros(pieces, bool)
    for begin, end, owned in found:
        assert 0 <= begin <= end <= pieces
        assert end - begin <= room
        covered[begin:end] = True
        assert all(begin <= first < end for first in firsts[owned])
    assert covered.all()
    owners = np.concatenate([owned for *_, owned in found])
    assert sorted(owners) == list(range(len(firsts)))
    if pieces <= room:
        assert len(found) == 1


@given(st.integers(1, 200), st.integers(2, 40), st.floats(0, 0.95))
def test_a_word_belongs_to_the_window_where_it_is_farthest_from_an_edge(pieces: int, room: int, overlap: float) -> None:
    firsts = np.arange(pieces)
    found = _windows(pieces, firsts, room, overlap)

    def distance(window: int, first: int) -> int:
        begin, end, _ = found[window]
        if not begin <= first < end:
            return -1
        left = pieces if begin == 0 else first - begin  # nothing was cut off before the beginning
        return min(left, pieces if end == pieces else end - 1 - first)

    for number, (_, _, owned) in enumerate(found):
        for first in owned:
            assert distance(number, first) == max(distance(other, first) for other in range(len(found)))


def test_half_a_window_is_context_at_either_side() -> None:
    begins = [(begin, end, (owned[0], owned[-1])) for begin, end, owned in _windows(50, np.arange(50), 20, 0.5)]
    assert begins == [(0, 20, (0, 14)), (10, 30, (15, 24)), (20, 40, (25, 34)), (30, 50, (35, 49))]


# ------------------------------------------------------------------------------------------------------ words


class Echo(TokenClassification):
    """A tagger that says of each token its id, so that it can be seen whose vector was read."""

    def outputs(self, tokens: Tokens) -> list[Tensor]:
        scores = torch.nn.functional.one_hot(tokens.ids.long(), len(self.labels)).float()
        return list(torch.split(scores, tokens.bounds.diff().tolist()))


def echo() -> Echo:
    labels = tuple(tokenizer().piece(number) for number in range(tokenizer().vocabulary))
    return Echo(Transformer(network()), TokenClassification.Config(), labels).eval()


def first_piece(word: str) -> str:
    return tokenizer().piece(tokenizer().encode([word])[0][0])


def test_two_thousand_words_are_tagged_each_by_its_own_first_piece() -> None:
    words = [WORDS[number * number % len(WORDS)] for number in range(2000)]
    task, example = echo(), sentence(words)
    items = task.preprocess([example], tokenizer(), LENGTH)
    assert sum(item.truncated for item in items) == 0
    assert len(items) > 100
    (said,) = predict(task, [example], items, device="cpu")
    assert said["words"] == words
    assert said["tags"] == [first_piece(word) for word in words]


def test_two_thousand_words_are_each_learnt_once() -> None:
    words = [WORDS[number * 7 % len(WORDS)] for number in range(2000)]
    tags = ["B-X" if number % 3 else "O" for number in range(2000)]
    task = tag()
    items = task.preprocess([sentence(words, tags)], tokenizer(), LENGTH)
    batch = task.collate(items, Bucket(batch_size=len(items), max_length=LENGTH))
    assert batch.counts["tag"] == 2000
    seen = {}
    for item in items:
        places, numbers = item.notes
        assert (item.target != -100).sum() == len(places)
        for place, number in zip(places, numbers, strict=True):
            assert number not in seen
            seen[int(number)] = task.labels[item.target[place]]
            assert tokenizer().piece(int(item.rows[0].ids[place])) == first_piece(words[number])
    assert [seen[number] for number in range(2000)] == tags


def test_words_without_tokens_are_tagged_all_the_same() -> None:
    words = ["\u200b", "cat", " ", "", "dog", "\x00"]
    example = sentence(words, ["O", "B-X", "O", "O", "B-X", "O"])
    task = tag()
    items = task.preprocess([example], tokenizer(), LENGTH)
    assert items[0].notes[1].tolist() == [1, 4]
    (said,) = predict(task, [example], items, device="cpu")
    assert len(said["tags"]) == len(words)
    assert [said["tags"][number] for number in (0, 2, 3, 5)] == ["O"] * 4
    (said,) = predict(task, [sentence([""])], task.preprocess([sentence([""])], tokenizer(), LENGTH), device="cpu")
    assert said == {"words": [""], "tags": ["O"]}
    assert tag(("A", "B")).postprocess(sentence([""]), [], [])["tags"] == ["A"]


def test_a_sentence_without_words_has_no_tags() -> None:
    task, example = tag(), sentence([], [])
    items = task.preprocess([example], tokenizer(), LENGTH)
    assert predict(task, [example], items, device="cpu") == [{"words": [], "tags": []}]
    batch = task.collate(items, Bucket(batch_size=1, max_length=LENGTH))
    assert batch.counts["tag"] == 1  # no division by zero
    assert task(batch)["tag"].total.item() == 0.0


def test_a_word_longer_than_a_window_is_tagged_once() -> None:
    words = ["cat", "-" * 90, "dog", "likes"]  # a piece for every mark
    assert len(tokenizer().encode([words[1]])[0]) > 2 * LENGTH
    example, task = sentence(words), echo()
    items = task.preprocess([example], tokenizer(), LENGTH)
    (said,) = predict(task, [example], items, device="cpu")
    assert said["tags"] == [first_piece(word) for word in words]
    assert sorted(number for item in items for number in item.notes[1]) == [0, 1, 2, 3]


def test_words_with_marks_inside_stay_one_word() -> None:
    words = ["don't", "(", "river-garden", "Œuvre", "[MASK]", "1984"]
    items = tag().preprocess([sentence(words)], tokenizer(), LENGTH)
    places, numbers = items[0].notes
    assert numbers.tolist() == [0, 1, 2, 3, 4, 5]
    assert tokenizer().piece(int(items[0].rows[0].ids[places[2]])) == first_piece("river")


def test_the_loss_is_that_of_first_pieces_alone() -> None:
    task, examples = CASES["tag"].task(), CASES["tag"].examples
    items = task.preprocess(examples, tokenizer(), LENGTH)
    batch = task.collate(items, Bucket(batch_size=len(items), max_length=LENGTH))
    total = 0.0
    with torch.no_grad():
        outputs = task.outputs(batch.tokens)
    for item, logits in zip(items, outputs, strict=True):
        for place, number in zip(*item.notes, strict=True):
            right = task.labels.index(examples[item.example].tags[number])
            total -= float(logits[place].double().log_softmax(0)[right])
    assert task(batch)["tag"].total.item() == pytest.approx(total, rel=1e-5)
    assert batch.counts["tag"] == sum(len(example.words) for example in examples)


def test_tags_are_scored_by_entities_or_by_words() -> None:
    examples = [sentence(["a", "b", "c"], ["B-X", "O", "O"]), sentence(["d"])]
    said = [{"words": [], "tags": ["B-X", "O", "B-X"]}, {"words": [], "tags": ["O"]}]
    figures = tag().score(examples, said)
    assert list(figures) == ["f1", "precision", "recall", "accuracy"]
    assert (figures["precision"], figures["recall"]) == (0.5, 1.0)
    assert figures["accuracy"] == pytest.approx(2 / 3)
    plain = [sentence(["a", "b"], ["NOUN", "VERB"])]
    assert tag(("NOUN", "VERB")).score(plain, [{"tags": ["NOUN", "NOUN"]}]) == {"accuracy": 0.5}


def test_tags_are_in_the_order_of_the_alphabet() -> None:
    examples = [sentence(["a", "b"], ["O", "I-Y"]), sentence(["c"], ["B-Y"]), sentence(["d"])]
    assert TokenClassification.collect_labels(examples) == ("B-Y", "I-Y", "O")
    assert TokenClassification.file_kind(TokenClassification.Config()) == "tag"


def test_an_unknown_tag_is_refused_with_its_location() -> None:
    with pytest.raises(TextError) as caught:
        tag().preprocess([sentence(["a"], ["B-Y"])], tokenizer(), LENGTH)
    assert str(caught.value) == "train.conll:12: the tag 'B-Y' is not among those learnt. Did you mean 'B-X'?"


def test_one_tag_is_refused() -> None:
    with pytest.raises(RecipeError) as caught:
        tag(("O",))
    assert str(caught.value) == "task: there is only one tag, ('O',). Give examples of at least two."


@pytest.mark.parametrize("overlap", [-0.1, 1.0])
def test_an_overlap_that_is_no_share_is_refused(overlap: float) -> None:
    with pytest.raises(ValueError) as caught:
        TokenClassification.Config(overlap=overlap)
    assert str(caught.value) == f"overlap is {overlap}. Give a share, at least 0 and below 1"
