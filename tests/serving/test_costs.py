"""What a request costs is known, and refused, before anything is done for it."""

from collections.abc import Iterator
from typing import Any

import pytest
from inference.test_load import saved
from serving.local import LocalServer, local

from bertsmith.inference.load import load
from bertsmith.text import long_texts
from bertsmith.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalServer]:
    """A cross-encoder."""
    with local({"judge": load(saved(tmp_path_factory.mktemp("judge") / "judge", "number"), "cpu")}) as running:
        yield running


@pytest.fixture
def tokenised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The characters of each call of the tokenizer."""
    seen: list[int] = []
    for name in ("encode", "encode_with_offsets"):
        encode = getattr(Tokenizer, name)

        def count(self: Tokenizer, texts: Any, encode: Any = encode) -> Any:
            seen.append(sum(map(len, texts)))
            return encode(self, texts)

        monkeypatch.setattr(Tokenizer, name, count)
    return seen


def test_a_query_is_refused_by_its_length_times_the_texts(judge: LocalServer, tokenised: list[int]) -> None:
    line = "inputs: 2,048,002,048 characters are more than the 4,194,304 that a request may have. Send fewer texts"
    assert judge.refusal("/rerank", {"query": "a" * 1_000_000, "texts": ["b"] * 2_048}, 413).startswith(line)
    assert tokenised == []


def test_a_query_is_tokenised_once_and_counted_for_each_text(judge: LocalServer, tokenised: list[int]) -> None:
    refused = judge.refusal("/rerank", {"query": "the cat " * 18, "texts": ["the"] * 1_974}, 413)
    assert refused.endswith("tokens are more than the 65,536 that a request may have. Send fewer texts at a time.")
    assert tokenised == [8 * 18 + 3]


@pytest.mark.parametrize("text", ["the cat " * 40_000, " " * 5_000_000])
def test_tokens_and_characters_of_tokenize_are_limited(server: LocalServer, tokenised: list[int], text: str) -> None:
    refused = server.refusal("/tokenize", {"inputs": text, "model": "plain"}, 413)
    assert refused.endswith("that a request may have. Send fewer texts at a time.")
    assert tokenised == ([len(text)] if "cat" in text else [])


def test_a_long_text_is_tokenised_in_parts_with_its_offsets(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"inputs": "the cat sees the big fox . " * 1_000, "model": "plain"}
    parts = server.post("/tokenize", body)
    monkeypatch.setattr(long_texts, "MAX_TEXT_CHARACTERS", 1 << 20)
    assert parts == server.post("/tokenize", body)
