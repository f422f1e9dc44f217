"""Word vectors compared with gensim: the message where one side is missing."""

from bench.script import script

script("record")
word2vec = script("word2vec")


def rounds(*speeds: float) -> list[dict[str, float]]:
    marks = ("wordsim353", "simlex999", "analogies_add", "analogies_multiply")
    return [word2vec.figures(100, 0.0, 100 / speed, 100 / speed) | dict.fromkeys(marks, speed / 10) for speed in speeds]


def test_ratios_are_medians_of_the_ratios_within_rounds() -> None:
    found = word2vec.compared({"bertsmith": rounds(2.0, 6.0, 8.0), "gensim": rounds(1.0, 2.0, 8.0)})
    assert found["median"]["bertsmith"]["words_per_second"] == 6.0
    assert found["ratios"]["words_per_second"] == 2.0
    assert abs(found["differences"]["simlex999"] - 0.4) < 1e-12


def test_without_gensim_only_ours_is_reported() -> None:
    found = word2vec.compared({"bertsmith": rounds(2.0, 6.0, 8.0)})
    assert list(found) == ["median"]
    assert found["median"]["bertsmith"]["words_per_second"] == 6.0
