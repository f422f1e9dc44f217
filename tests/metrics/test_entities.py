"""Entities are counted as by conlleval, of which the part that matters stands here once more, line by line."""

import lzma
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.metrics.entities import TypeScores, entity_scores, get_entities

quick = settings(deadline=None, max_examples=100)

KINDS = ["PER", "LOC", "A-B"]
TIDY = ["O", *(f"{mark}-{kind}" for mark in "BI" for kind in KINDS)]
TAGS = [*TIDY, "B", "I", "X-PER", "X-LOC", "L-PER", "U-LOC"]  # unknown marks too
WILD = [*TAGS, "X", "PER", "", "O-PER", "B-", "-"]


def pairs(tags: list[str]) -> st.SearchStrategy:
    """Sentences, each tagged twice; the second time often alike."""
    word = st.sampled_from(tags).flatmap(lambda tag: st.tuples(st.just(tag), st.sampled_from([tag, *tags])))
    alike = st.sampled_from(tags).map(lambda tag: (tag, tag))
    sentence = st.lists(alike | alike | word, max_size=12)
    return st.lists(sentence, max_size=4).map(
        lambda found: tuple([[words[side] for words in sentence] for sentence in found] for side in (0, 1))
    )


class Conlleval:
    """Version 2004-01-26, by Erik Tjong Kim Sang: the counting, with its names."""

    def __init__(self, gold: list[list[str]], guessed: list[list[str]]) -> None:
        self.correct_chunk: Counter[str] = Counter()
        self.found_correct: Counter[str] = Counter()
        self.found_guessed: Counter[str] = Counter()
        self.correct_tags = self.token_counter = 0
        in_correct = False
        last_correct, last_correct_type, last_guessed, last_guessed_type = "O", "", "O", ""
        lines = [line for tags in zip(gold, guessed, strict=True) for line in [*zip(*tags, strict=True), None]]
        for line in lines:
            correct, correct_type = self.split(line[0] if line else "O")
            guess, guess_type = self.split(line[1] if line else "O")
            correct_ends = self.end_of_chunk(last_correct, correct, last_correct_type, correct_type)
            guess_ends = self.end_of_chunk(last_guessed, guess, last_guessed_type, guess_type)
            if in_correct:
                if correct_ends and guess_ends and last_guessed_type == last_correct_type:
                    in_correct = False
                    self.correct_chunk[last_correct_type] += 1
                elif correct_ends != guess_ends or guess_type != correct_type:
                    in_correct = False
            correct_starts = self.start_of_chunk(last_correct, correct, last_correct_type, correct_type)
            guess_starts = self.start_of_chunk(last_guessed, guess, last_guessed_type, guess_type)
            if correct_starts and guess_starts and guess_type == correct_type:
                in_correct = True
            if correct_starts:
                self.found_correct[correct_type] += 1
            if guess_starts:
                self.found_guessed[guess_type] += 1
            if line:
                self.correct_tags += correct == guess and guess_type == correct_type
                self.token_counter += 1
            last_guessed, last_guessed_type = guess, guess_type
            last_correct, last_correct_type = correct, correct_type
        if in_correct:
            self.correct_chunk[last_correct_type] += 1

    @staticmethod
    def split(tag: str) -> tuple[str, str]:
        mark, hyphen, kind = tag.partition("-")
        return (mark, kind) if hyphen else (tag, "")

    @staticmethod
    def end_of_chunk(previous: str, tag: str, previous_type: str, kind: str) -> bool:
        ends = False
        if previous == "B" and tag == "B":
            ends = True
        if previous == "B" and tag == "O":
            ends = True
        if previous == "I" and tag == "B":
            ends = True
        if previous == "I" and tag == "O":
            ends = True
        if previous not in ("O", ".") and previous_type != kind:
            ends = True
        return ends

    @staticmethod
    def start_of_chunk(previous: str, tag: str, previous_type: str, kind: str) -> bool:
        starts = False
        if previous == "B" and tag == "B":
            starts = True
        if previous == "I" and tag == "B":
            starts = True
        if previous == "O" and tag == "B":
            starts = True
        if previous == "O" and tag == "I":
            starts = True
        if tag not in ("O", ".") and previous_type != kind:
            starts = True
        return starts


def figures(right: int, gold: int, guessed: int) -> tuple[float, float, float]:
    """Precision, recall and FB1 as conlleval has them."""
    precision = right / guessed if guessed > 0 else 0.0
    recall = right / gold if gold > 0 else 0.0
    return precision, recall, 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0


@quick
@given(pairs(TIDY) | pairs(TAGS))
def test_scores_are_those_of_conlleval(both):
    gold, guessed = both
    expected, found = Conlleval(gold, guessed), entity_scores(gold, guessed)
    whole = [counter.total() for counter in (expected.correct_chunk, expected.found_correct, expected.found_guessed)]
    assert (found.precision, found.recall, found.f1) == pytest.approx(figures(*whole))
    assert found.accuracy == (expected.correct_tags / expected.token_counter if expected.token_counter else 0)
    assert list(found.by_type) == sorted({*expected.found_correct, *expected.found_guessed})
    for kind, scores in found.by_type.items():
        counts = expected.correct_chunk[kind], expected.found_correct[kind], expected.found_guessed[kind]
        assert (scores.correct, scores.gold, scores.predicted) == counts
        assert (scores.precision, scores.recall, scores.f1) == pytest.approx(figures(*counts))


@pytest.mark.slow("tries many sequences of tags")
@quick
@given(pairs(WILD))
def test_entities_begin_where_those_of_conlleval_do_whatever_the_tags(both):
    expected, found = Conlleval(*both), entity_scores(*both)
    assert {kind: scores.gold for kind, scores in found.by_type.items() if scores.gold} == expected.found_correct
    assert {
        kind: scores.predicted for kind, scores in found.by_type.items() if scores.predicted
    } == expected.found_guessed


@quick
@given(st.lists(st.sampled_from(WILD), max_size=12))
def test_perfect_predictions_score_one_whatever_the_tags(tags):
    found = entity_scores([tags], [tags])
    assert found.f1 == float(bool(get_entities(tags)))
    assert found.accuracy == float(bool(tags))


SPANS = st.lists(st.tuples(st.sampled_from(["", *KINDS]), st.integers(1, 4)), max_size=6)  # "": words outside


@quick
@given(SPANS, st.sampled_from(["IOB1", "IOB2", "IOE2", "IOBES"]))
def test_entities_in_any_tag_scheme_are_decoded(spans, custom):
    tags: list[str] = []
    expected = []
    before = ""
    for kind, length in spans:
        if not kind:
            tags += ["O"] * length
        else:
            expected.append((kind, len(tags), len(tags) + length))
            marks = ["I"] * length
            if custom == "IOB2" or (custom == "IOB1" and before == kind) or (custom == "IOBES" and length > 1):
                marks[0] = "B"
            if custom in ("IOE2", "IOBES"):
                marks[-1] = "E" if custom == "IOE2" or length > 1 else "S"
            tags += [f"{mark}-{kind}" for mark in marks]
        before = kind
    assert get_entities(tags) == expected


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        ("B-PER I-PER O B-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("I-PER I-PER O I-LOC", [("PER", 0, 2), ("LOC", 3, 4)]),
        ("I-PER B-PER I-PER", [("PER", 0, 1), ("PER", 1, 3)]),
        ("B-PER I-LOC I-LOC", [("PER", 0, 1), ("LOC", 1, 3)]),
        ("B-PER B-PER", [("PER", 0, 1), ("PER", 1, 2)]),
        ("S-PER S-PER B-LOC E-LOC", [("PER", 0, 1), ("PER", 1, 2), ("LOC", 2, 4)]),
        ("S-PER I-PER E-PER I-PER", [("PER", 0, 1), ("PER", 1, 3), ("PER", 3, 4)]),
        ("B-PER X-PER O", [("PER", 0, 2)]),
        ("B-LOC PER O O", [("LOC", 0, 1), ("", 1, 2)]),  # conlleval would leave the second one open
        ("O O", []),
        ("", []),
    ],
)
def test_entities_are_read_from_tags(tags, expected):
    assert get_entities(tags.split()) == expected


def test_an_entity_is_right_only_as_a_whole():
    gold = [["B-PER", "I-PER", "O", "B-LOC", "O"], ["B-LOC", "O"]]
    guessed = [["B-PER", "O", "O", "B-LOC", "O"], ["B-PER", "O"]]
    found = entity_scores(gold, guessed)
    assert found.by_type == {
        "LOC": TypeScores(correct=1, gold=2, predicted=1),
        "PER": TypeScores(correct=0, gold=1, predicted=2),
    }
    assert (found.precision, found.recall, found.f1) == pytest.approx((1 / 3, 1 / 3, 1 / 3))
    assert found.accuracy == 5 / 7
    assert found.by_type["LOC"].f1 == pytest.approx(2 / 3)


def test_no_entity_continues_in_the_next_sentence():
    assert entity_scores([["B-PER"], ["I-PER"]], [["B-PER"], ["I-PER"]]).by_type["PER"].correct == 2


def test_every_word_needs_a_predicted_tag():
    with pytest.raises(ValueError, match="there are 1 tagged sentences, but 0 predicted ones"):
        entity_scores([["O"]], [])
    with pytest.raises(ValueError, match="sentence 1 has 2 tags, but 1 predicted ones"):
        entity_scores([["O"], ["O", "O"]], [["O"], ["O"]])


@pytest.mark.shared
def test_real_sentences_have_as_many_entities_as_their_authors_counted(shared: Path):
    """Tjong Kim Sang and De Meulder 2003, table 2; the tags begin with I wherever they can."""
    with lzma.open(shared / "data" / "conll2003" / "eng.testa.xz", "rt", encoding="utf-8") as file:
        text = file.read()
    blocks = [block.splitlines() for block in text.split("\n\n")]
    tags = [[line.split()[-1] for line in block if line.strip()] for block in blocks]
    found = entity_scores(tags, tags)
    counts = {kind: scores.gold for kind, scores in found.by_type.items()}
    assert counts == {"LOC": 1837, "MISC": 922, "ORG": 1341, "PER": 1842}
    assert found.f1 == 1
