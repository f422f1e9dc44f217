"""What a request costs is known, and refused, before anything is done for it."""

import socket
from collections.abc import Iterator
from typing import Any

import pytest
from inference.test_load import saved
from serving.local import LocalServer, local

from bertsmith.inference.load import load
from bertsmith.inference.model import Model
from bertsmith.serving.counters import Counters
from bertsmith.serving.model_process import Connection, ModelServer, Waiting
from bertsmith.serving.paths import PATHS
from bertsmith.serving.wire import Job
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


@pytest.fixture(scope="module")
def writers(models: dict[str, Model], writing_models: dict[str, Model]) -> Iterator[LocalServer]:
    with local({"gpt": writing_models["gpt"], "plain": models["plain"]}) as running:
        yield running


MANY: dict[str, Any] = {"max_new_tokens": 4_096, "samples": 100}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/generate", {"inputs": ["the"] * 2_048, **MANY, "model": "gpt"}),
        ("/generate", {"inputs": ["the"] * 512, "num_beams": 64, "model": "gpt"}),
        ("/models/gpt", {"inputs": ["the"] * 2_048, "parameters": MANY}),
        ("/models/gpt", {"inputs": ["the"] * 512, "parameters": {"num_beams": 64}}),
        ("/score", {"inputs": ["the " * 64] * 900, "model": "plain"}),
    ],
)
def test_no_request_holds_the_server_for_itself(writers: LocalServer, path: str, body: dict[str, Any]) -> None:
    assert "tokens through the network, and a request may take 524,288." in writers.refusal(path, body, 413)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/fill", {"inputs": ["[MASK] " * 20] * 20, "top_k": 1_000, "model": "plain"}),
        ("/models/plain", {"inputs": ["[MASK] " * 50] * 50, "parameters": {"top_k": 100}}),
    ],
)
def test_the_words_of_an_answer_are_limited(writers: LocalServer, path: str, body: dict[str, Any]) -> None:
    assert "words, which are too many for an answer." in writers.refusal(path, body, 413)


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ({"temperature": 1e-39}, "body: Expected `temperature` 0, or at least 0.001"),
        ({"temperature": 5e-324}, "body: Expected `temperature` 0, or at least 0.001"),
        ({"temperature": 1e39}, "body: Expected `float` <= 1000.0"),
        ({"top_p": 5e-324}, "body: Expected `float` >= 1e-06"),
        ({"num_beams": 2, "length_penalty": 2_000}, "body: Expected `float` <= 10"),
        ({"num_beams": 2, "length_penalty": -2_000}, "body: Expected `float` >= -10"),
    ],
)
def test_numbers_that_leave_none_are_refused(writers: LocalServer, option: dict[str, Any], line: str) -> None:
    assert writers.refusal("/generate", {"inputs": "the", "model": "gpt", **option}, 422).startswith(line)
    refused = writers.refusal("/models/gpt", {"inputs": "the", "parameters": option}, 422)
    assert refused.startswith(line.replace("body", "inputs"))


@pytest.mark.parametrize(
    "option", [{"temperature": 1e-3}, {"temperature": 1e3}, {"num_beams": 2, "length_penalty": -10.0}, {"top_p": 1e-6}]
)
def test_the_ends_of_each_range_work(writers: LocalServer, option: dict[str, Any]) -> None:
    body = {"inputs": ["the", "the cat"], "model": "gpt", "max_new_tokens": 4_096, **option}
    assert len(writers.post("/generate", body)) == 2


def test_a_fault_of_the_device_ends_the_model_process(models: dict[str, Model]) -> None:
    server = ModelServer({"plain": models["plain"]}, "cpu", Counters.private(PATHS))
    ours, theirs = socket.socketpair()
    with ours, theirs, pytest.MonkeyPatch.context() as patch:

        def broken(*_: object) -> None:
            raise RuntimeError("CUDA error: device-side assert triggered")

        patch.setattr(server, "_run", broken)
        jobs = [Job(number, "plain", "fill", ["the [MASK]"], {}, 3) for number in range(2)]
        server.batcher.put([Waiting(job, Connection(theirs), 3) for job in jobs])
        server.batcher.close()
        with pytest.raises(RuntimeError, match="CUDA error"):
            server.run()


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ({"max_new_tokens": 5, "min_new_tokens": 9}, "min_new_tokens: is 9, and max_new_tokens 5."),
        ({"num_beams": 2, "temperature": 1.5}, "temperature: is 1.5, and a beam search draws nothing."),
        ({"length_penalty": 2.0}, "length_penalty: is 2.0, of beam search alone."),
    ],
)
def test_options_that_exclude_each_other_are_refused(writers: LocalServer, option: dict[str, Any], line: str) -> None:
    assert writers.refusal("/generate", {"inputs": "the", "model": "gpt", **option}, 422).startswith(line)
