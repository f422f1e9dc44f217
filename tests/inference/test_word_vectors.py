"""Words by their vectors: neighbours and analogies are those of a plain loop, correlations those of scipy."""

import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import spearmanr

from bertsmith.errors import TextError
from bertsmith.inference.word_vectors import KeyedVectors, Method, read_analogies, read_word_pairs
from bertsmith.models.word_vectors import WordVectors

TOY = {  # royal, male, female, old, young, and what nobody asks for
    "king": [1, 1, 0, 1, 0, 0.1],
    "queen": [1, 0, 1, 1, 0, 0.1],
    "man": [0, 1, 0, 1, 0, 0.1],
    "woman": [0, 0, 1, 1, 0, 0.2],
    "boy": [0, 1, 0, 0, 1, 0.2],
    "girl": [0, 0, 1, 0, 1, 0.1],
    "prince": [1, 1, 0, 0, 1, 0.2],
    "princess": [1, 0, 1, 0, 1, 0.1],
    "apple": [0.1, 0.1, 0, 0, 0, 1],
}


def toy() -> KeyedVectors:
    return KeyedVectors(WordVectors(list(TOY), np.array(list(TOY.values()), np.float32)))


def random(seed: int, count: int = 30, width: int = 6) -> KeyedVectors:
    table = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    return KeyedVectors(WordVectors([f"w{place}" for place in range(count)], table))


@pytest.mark.parametrize("method", ["add", "multiply"])
def test_analogies_on_a_toy_are_answered(method: Method) -> None:
    words = toy()
    assert words.analogy("king", "man", "woman", 1, method)[0].word == "queen"
    assert words.analogy("prince", "boy", "girl", 1, method)[0].word == "princess"
    assert words.most_similar("man", 1)[0].word == "king"
    asked = [("royal", ("man", "king", "woman", "queen")), ("royal", ("boy", "prince", "girl", "princess"))]
    asked += [("young", ("man", "boy", "woman", "girl")), ("wrong", ("man", "king", "woman", "apple"))]
    asked += [("unknown", ("man", "king", "woman", "empress"))]
    found = words.evaluate_analogies(asked, method)
    assert found.groups == {"royal": 1.0, "young": 1.0, "wrong": 0.0}
    assert (found.accuracy, found.found, found.questions) == (0.75, 4, 5)
    assert words.evaluate_analogies(asked, method, limit=2).found == 0


def cosine(one: np.ndarray, other: np.ndarray) -> float:
    return float(one @ other / np.linalg.norm(one) / np.linalg.norm(other))


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 999), st.permutations(range(12)))
def test_analogies_are_those_of_a_plain_loop(seed: int, places: list[int]) -> None:
    """Levy and Goldberg 2014: 3CosAdd and 3CosMul, written out."""
    words = random(seed)
    table = words.table.astype(np.float64)
    b, a, c = places[:3]
    add, multiply = {}, {}
    for place, vector in enumerate(table):
        if place in (a, b, c):
            continue
        to_a, to_b, to_c = (cosine(vector, table[one]) for one in (a, b, c))
        add[f"w{place}"] = to_b - to_a + to_c
        multiply[f"w{place}"] = (to_b + 1) / 2 * (to_c + 1) / 2 / ((to_a + 1) / 2 + 1e-3)
    for method, expected in (("add", add), ("multiply", multiply)):
        found = words.analogy(f"w{b}", f"w{a}", f"w{c}", 5, method)  # type: ignore[arg-type]
        best = sorted(expected.values(), reverse=True)[:5]
        assert [one.score for one in found] == pytest.approx(best, rel=1e-3)
        assert [expected[one.word] for one in found] == pytest.approx(best, rel=1e-3)


@given(st.integers(0, 99), st.integers(1, 40))
def test_neighbours_are_those_of_a_plain_loop(seed: int, top: int) -> None:
    words = random(seed)
    expected = {f"w{place}": cosine(words.table[place], words.table[3]) for place in range(30) if place != 3}
    found = words.most_similar("w3", top)
    assert len(found) == min(top, 29)
    assert [one.score for one in found] == pytest.approx(sorted(expected.values(), reverse=True)[:top], abs=1e-5)
    assert [expected[one.word] for one in found] == pytest.approx([one.score for one in found], abs=1e-5)


def test_the_correlation_is_scipys_over_the_pairs_that_are_known() -> None:
    words, chance = random(5), np.random.default_rng(1)
    judged = [(f"w{chance.integers(30)}", f"W{chance.integers(30)}", float(chance.integers(6))) for _ in range(60)]
    found = words.evaluate_pairs([*judged, ("w1", "nobody", 3.0)])
    cosines = [cosine(words.table[int(one[1:])], words.table[int(other[1:])]) for one, other, _ in judged]
    truth = spearmanr([score for *_, score in judged], cosines).statistic
    assert found.correlation == pytest.approx(truth, abs=1e-6)
    assert (found.found, found.pairs) == (60, 61)
    assert words.evaluate_pairs([]).correlation == 0.0


def test_a_word_is_found_as_it_is_written_or_in_lower_case() -> None:
    words = KeyedVectors(WordVectors(["Paris", "paris", "rome", "paris"], np.eye(4, dtype=np.float32)))
    assert [words.index_of(word) for word in ("Paris", "paris", "PARIS", "Rome")] == [0, 1, 1, 2]
    with pytest.raises(TextError, match=r"'romme': is none of the 4 words that have a vector\. Did you mean 'rome'\?"):
        words.index_of("romme")
    with pytest.raises(TextError, match=r"'zzz': is none of the 4 words that have a vector\.$"):
        words.index_of("zzz")


def test_files_of_judgements_are_read_and_bad_ones_told(tmp_path: Path) -> None:
    with lzma.open(tmp_path / "pairs.tsv.xz", "wt") as file:
        file.write("# a remark\nTiger\tcat\t7.35\n\nold new 1.58\r\n")
    assert read_word_pairs(tmp_path / "pairs.tsv.xz") == [("Tiger", "cat", 7.35), ("old", "new", 1.58)]
    (tmp_path / "asked").write_text(": capital common\nAthens Greece Oslo Norway\n: family\na b c d\n")
    assert read_analogies(tmp_path / "asked") == [
        ("capital common", ("Athens", "Greece", "Oslo", "Norway")),
        ("family", ("a", "b", "c", "d")),
    ]
    for name, text, read, fact in (
        ("three", "a b\n", read_word_pairs, "three:1: is not two words and a number"),
        ("number", "a b 1\nc d e\n", read_word_pairs, "number:2: is not two words and a number"),
        ("four", ": x\na b c\n", read_analogies, "four:2: is not four words"),
        ("bytes", "\udcff", read_word_pairs, "holds bytes that are not UTF-8"),
    ):
        (tmp_path / name).write_bytes(text.encode(errors="surrogateescape"))
        with pytest.raises(TextError) as caught:
            read(tmp_path / name)
        assert fact in str(caught.value)
    with pytest.raises(TextError, match="does not exist"):
        read_word_pairs(tmp_path / "nowhere")
    with pytest.raises(TextError, match="is not a file"):
        read_analogies(tmp_path)


@pytest.mark.shared
def test_the_published_judgements_are_all_read(shared: Path) -> None:
    folder = shared / "data" / "word-similarity"
    assert len(read_word_pairs(folder / "wordsim353.tsv.xz")) == 353
    assert len(read_word_pairs(folder / "simlex999.txt.xz")) == 999
    asked = read_analogies(folder / "questions-words.txt.xz")
    assert len(asked) == 19_544
    assert len({group for group, _ in asked}) == 14
