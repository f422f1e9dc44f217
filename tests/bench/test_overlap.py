"""How much of the sending lies in a backward pass: spans of time that overlap, touch or are apart."""

from bench.script import script

script("record")
overlap = script("overlap")


def test_time_is_counted_once_where_two_buckets_are_sent_together() -> None:
    assert overlap.merged([(4.0, 5.0), (0.0, 2.0), (1.0, 3.0)]) == [(0.0, 3.0), (4.0, 5.0)]


def test_hidden_is_what_lies_in_a_backward_pass() -> None:
    assert overlap.hidden([(1.0, 3.0), (5.0, 7.0)], [(0.0, 2.0), (6.0, 6.5)]) == (4.0, 1.5)
    assert overlap.hidden([(2.0, 3.0)], [(0.0, 2.0)]) == (1.0, 0.0)
