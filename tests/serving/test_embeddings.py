"""Embeddings over HTTP are those of the library, alone or with others, in OpenAI's form and as plain lists."""

import asyncio
import base64

import numpy as np
import pytest
from serving.local import LocalServer
from tasks.small import prose

from bertsmith.inference.model import Model

PATH = "/v1/embeddings"


def test_vectors_are_those_of_the_library(server: LocalServer, models: dict[str, Model]) -> None:
    texts = [*prose(20, 1), "", "the cat " * 100]
    found = np.array(server.post("/embed", {"inputs": texts, "model": "plain"}), np.float32)
    assert np.abs(found - models["plain"].embed(texts)).max() < 1e-6
    assert np.abs(np.linalg.norm(found, axis=1) - 1).max() < 1e-6


def test_one_text_and_a_list_of_one_have_the_same_bits(server: LocalServer) -> None:
    one = server.post(PATH, {"input": "the cat", "model": "plain"})["data"]
    listed = server.post(PATH, {"input": ["the cat"], "model": "plain"})["data"]
    assert one == listed
    assert server.post("/embed", {"inputs": "the cat", "model": "plain"}) == [one[0]["embedding"]]


def test_neighbours_in_a_batch_change_nothing(server: LocalServer) -> None:
    texts = prose(24, 2)
    alone = np.concatenate([server.post("/embed", {"inputs": text, "model": "plain"}) for text in texts])

    async def together() -> list[list[float]]:
        asked = [server.request("POST", "/embed", {"inputs": text, "model": "plain"}) for text in texts]
        return [reply.json[0] for reply in await asyncio.gather(*asked)]

    assert np.abs(np.array(server.loop.run_until_complete(together())) - alone).max() < 1e-6


def test_base64_holds_the_same_numbers(server: LocalServer) -> None:
    body = {"input": ["the cat", "a dog"], "model": "plain"}
    floats = server.post(PATH, body)
    coded = server.post(PATH, body | {"encoding_format": "base64"})
    assert floats["usage"] == coded["usage"]
    for plain, packed in zip(floats["data"], coded["data"], strict=True):
        assert np.frombuffer(base64.b64decode(packed["embedding"]), "<f4").tolist() == plain["embedding"]


def test_token_ids_are_embedded_as_their_text(server: LocalServer, models: dict[str, Model]) -> None:
    rows = models["plain"].tokenizer.encode(["the cat", "a dog"])
    by_text = server.post(PATH, {"input": ["the cat", "a dog"], "model": "plain"})
    assert server.post(PATH, {"input": rows, "model": "plain"}) == by_text
    assert server.post(PATH, {"input": rows[0], "model": "plain"})["data"][0] == by_text["data"][0]
    assert by_text["usage"]["prompt_tokens"] == sum(map(len, rows)) + 4


def test_fewer_dimensions_are_normalised_anew(server: LocalServer) -> None:
    [whole] = np.array(server.post("/embed", {"inputs": "the cat", "model": "plain"}))
    [short] = np.array(server.post("/embed", {"inputs": "the cat", "model": "plain", "dimensions": 5}))
    assert short == pytest.approx(whole[:5] / np.linalg.norm(whole[:5]), abs=1e-6)
    [raw] = np.array(server.post("/embed", {"inputs": "the cat", "model": "plain", "normalize": False}))
    assert raw / np.linalg.norm(raw) == pytest.approx(whole, abs=1e-6)
    assert np.linalg.norm(raw) != pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        ({"input": "x", "dimensions": 33}, 422, "dimensions: is 33, and the vectors have 32. Give 1 to 32."),
        ({"input": [[1, 99999]]}, 422, "input: there is no token 99999. Ids go from 0 to 103."),
        ({"input": ["x", [1]]}, 422, "input: mixes texts and token ids. Give a text, token ids, or a list of one of "),
        ({"input": []}, 422, "inputs: is an empty list. Give one text at least."),
        ({"input": "x", "model": "gpt-4"}, 404, "model: there is no 'gpt-4' here. Served: plain, reviews, ner, squad."),
        ({}, 422, "body: Object missing required field `input`."),
        (b"", 400, "body: is empty. Send a JSON object."),
        (b"[1e999", 422, "body: Expected `object`, got `array`."),
        (b'{"input": [[1e999]]}', 422, "body: Number out of range - at `$.input[0][0]`."),
        (b'{"input": [NaN]}', 400, "body: is not JSON (JSON is malformed"),
        (b'{"x": ' + b"[" * 100_000, 400, "body: is nested too deeply. Send plain JSON."),
        (b'{"input": "\xff"}', 400, "body: is not UTF-8. Send JSON in UTF-8."),
    ],
)
def test_a_mistake_is_a_line(server: LocalServer, body: object, status: int, line: str) -> None:
    if isinstance(body, dict) and "model" not in body:
        body = body | {"model": "plain"}
    assert server.refusal(PATH, body, status).startswith(line)


def test_a_text_that_is_too_long_is_refused_where_it_may_not_be_cut(server: LocalServer) -> None:
    body = {"inputs": ["the cat " * 100], "model": "plain", "truncate": False}
    line = "inputs: one has 202 tokens, and plain reads 64. Shorten it, or let it be truncated."
    assert server.refusal("/embed", body, 413) == line
