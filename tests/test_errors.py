"""The remedy for a misspelt name: one that is near, and none that only has the same ending."""

import pytest

from bertsmith.errors import suggest


@pytest.mark.parametrize(
    ("word", "known", "near"),
    [
        ("nowhere.csv", "paare.csv", False),
        ("a.csv", "b.csv", False),
        ("reviws.csv", "reviews.csv", True),
        ("train.csv", "train.tsv", True),
        ("corpus.text", "corpus.txt", True),
        ("test", "text", True),
        ("model", "run", False),
        ("nope", "no", True),
    ],
)
def test_only_a_name_that_is_near_is_suggested(word: str, known: str, near: bool) -> None:
    assert suggest(word, [known]) == (f"Did you mean '{known}'?" if near else f"Known: {known}.")


def test_of_several_the_nearest_is_suggested_and_without_any_nothing_is() -> None:
    assert suggest("trian.csv", ["rain.csv", "train.csv", "brain.csv"]) == "Did you mean 'train.csv'?"
    assert suggest("a", []) == "Known: ."
