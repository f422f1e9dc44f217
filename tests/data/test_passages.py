"""Which lines of a file are a list of sentences, and which are documents."""

import pytest

from bertsmith.data.corpus.passages import marked_lists, passages

LIST, END = ["A line."] * 60, ["The end."]


@pytest.mark.parametrize(
    ("lines", "lists"),
    [
        (LIST, [True]),
        (["", *LIST, "", ""], [True]),
        (LIST[:20], [False]),  # a file of one short document
        ([*LIST, "", *LIST, "", *LIST], [False, False, False]),
        ([*LIST * 10, "", *LIST, "", *END], [True, False, False]),
        ([*END, "", *LIST * 10], [False, True]),
        ([], []),
    ],
)
def test_a_long_file_without_blank_lines_is_a_list(lines: list[str], lists: list[bool]) -> None:
    assert [one.in_list for one in marked_lists(passages([(1, lines)], blanks=1))] == lists


def test_the_rest_of_a_list_that_is_too_long_for_one_document_is_a_list() -> None:
    lines = [*["word " * 400] * 700, *END, "", *END]
    found = list(marked_lists(passages([(1, lines)], blanks=1)))
    assert [len(one.texts) for one in found] == [525, 176, 1]
    assert [one.in_list for one in found] == [True, True, False]
