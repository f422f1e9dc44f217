"""Fertility: the statistics of a tokenizer on a text."""

import pytest

from bertsmith.text import fertility as module
from bertsmith.text.fertility import Sample, measure_fertility
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

TEXT = ["The cat sat.", "The cat sat on the caté.", "A cat!"]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(TEXT * 3, TokenizerConfig(vocabulary=100))


def test_everything_is_counted(tokenizer: Tokenizer) -> None:
    found = measure_fertility(tokenizer, [*TEXT, "漢 字 the"])
    ids = [number for row in tokenizer.encode([*TEXT, "漢 字 the"]) for number in row]
    assert (found.vocabulary, found.words, found.bytes) == (tokenizer.vocabulary, 14, 12 + 25 + 6 + 11)
    assert found.tokens == len(ids)
    assert found.unknown == 2
    assert found.tokens_per_word == len(ids) / 14
    assert found.bytes_per_token == 54 / len(ids)
    assert found.unknown_rate == 2 / len(ids)
    assert found.unused == tokenizer.vocabulary - 5 - len(set(ids) - {tokenizer.unknown_id})
    lengths = [len(piece.removeprefix("##")) for piece in found.longest]
    assert lengths == sorted(lengths, reverse=True)
    assert {"the", "cat", "sat"} <= set(found.longest)
    counts = [count for _, count in found.rarest]
    assert counts == sorted(counts)
    assert all(ids.count(tokenizer.encode([piece])[0][0]) == count for piece, count in found.rarest if piece[0] != "#")


def test_the_report_reads_as_a_table(tokenizer: Tokenizer) -> None:
    rows = str(measure_fertility(tokenizer, TEXT)).splitlines()
    assert [row[:16].strip() for row in rows] == [
        "vocabulary",
        "measured on",
        "tokens per word",
        "bytes per token",
        "unknown",
        "not in sample",
        "longest",
        "rarest",
    ]
    assert rows[1].endswith("11 words, 43 bytes")


def test_no_text_is_no_division_by_zero(tokenizer: Tokenizer) -> None:
    found = measure_fertility(tokenizer, [])
    assert (found.tokens_per_word, found.bytes_per_token, found.unknown_rate) == (0, 0, 0)


def test_only_a_sample_is_measured(tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FERTILITY_CHARACTERS", 1_000)
    taken = []
    found = measure_fertility(tokenizer, (taken.append(number) or "cat " for number in range(10_000)))
    assert found.bytes == 1_000
    assert len(taken) == 250


def test_a_sample_is_drawn_from_the_whole_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FERTILITY_CHARACTERS", 1_000)
    texts = [f"{number:010}" for number in range(1_000)]
    sample = Sample(texts)
    assert list(sample) == texts
    places = [int(text) for text in sample.kept]
    assert 50 <= len(places) <= 100
    assert places == list(range(0, 1_000, places[1]))
