"""The routes for texts answer as the library does, and say in one line what a model cannot do."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference.test_load import saved
from serving.local import LocalServer, local
from tasks.small import prose

from bertsmith.inference.load import load
from bertsmith.inference.model import Model


def test_classes_are_those_of_the_library(server: LocalServer, models: dict[str, Model]) -> None:
    texts = prose(9, 1)
    found = server.post("/predict", {"inputs": texts, "model": "reviews"})
    for one, known in zip(found, models["reviews"].predict(texts), strict=True):
        assert one["label"] == known["label"]
        assert one["probabilities"] == pytest.approx(known["probabilities"], abs=1e-6)
    pair = server.post("/models/reviews/predict", {"inputs": [["the cat", "sees the dog"]]})
    assert pair[0]["label"] == models["reviews"].predict(("the cat", "sees the dog"))["label"]
    assert server.post("/predict", {"inputs": "the cat", "model": "reviews"})["label"] in ("no", "so-so", "yes")
    assert server.post("/predict", {"inputs": {"text": "the cat"}, "model": "reviews"})["label"]


def test_words_are_tagged_with_probabilities_and_bounds(server: LocalServer, models: dict[str, Model]) -> None:
    text = "The old cat's river, the green cat."
    found = server.post("/tag", {"inputs": text})
    assert {name: found[name] for name in ("words", "tags")} == models["ner"].tag(text)
    assert all(0.5 <= one <= 1 for one in found["probabilities"])
    for entity in found["entities"]:
        assert text[entity["start"] : entity["end"]] == " ".join(entity["words"])
    [split] = server.post("/tag", {"inputs": [["The", "old", "cat"]]})
    assert split["words"] == ["The", "old", "cat"]


def test_answers_do_not_depend_on_the_batch(server: LocalServer, models: dict[str, Model]) -> None:
    questions = [{"question": "who sees ?", "context": context} for context in prose(6, 5)]
    alone = [server.post("/answer", {"inputs": question}) for question in questions]
    assert [one["answer"] for one in alone] == [
        models["squad"].answer(one["question"], one["context"])["answer"] for one in questions
    ]

    async def together() -> list[Any]:
        replies = [server.request("POST", "/answer", {"inputs": question}) for question in questions]
        return [reply.json for reply in await asyncio.gather(*replies)]

    for one, other in zip(alone, server.loop.run_until_complete(together()), strict=True):
        assert (one["id"], one["answer"], one["start"]) == (other["id"], other["answer"], other["start"]) != ("", "", 0)
        assert one["score"] == pytest.approx(other["score"], abs=1e-5)


def test_blanks_and_scores_are_those_of_the_library(server: LocalServer, models: dict[str, Model]) -> None:
    found = server.post("/fill", {"inputs": ["the [MASK] sees", "[MASK]"], "top_k": 2})
    known = models["plain"].fill(["the [MASK] sees", "[MASK]"], top_k=2)
    assert [one["best"] for one in found] == [one.best for one in known]
    assert found[0]["blanks"][0][0]["token"] == known[0].blanks[0][0].token
    scored = server.post("/score", {"inputs": "the cat sees"})
    assert scored["log_likelihood"] == pytest.approx(models["plain"].score("the cat sees").log_likelihood, abs=1e-5)
    assert scored["perplexity"] > 1
    assert server.post("/score", {"inputs": "", "model": "plain"})["perplexity"] is None


def test_tokens_have_their_bounds(server: LocalServer, models: dict[str, Model]) -> None:
    [found] = server.post("/tokenize", {"inputs": "the cat", "model": "plain"})
    assert [one["special"] for one in found] == [True, *[False] * (len(found) - 2), True]
    assert [one["id"] for one in found[1:-1]] == models["plain"].tokenizer.encode(["the cat"])[0]
    assert ("the cat")[found[1]["start"] : found[1]["stop"]] == "the"
    [bare] = server.post("/tokenize", {"inputs": ["the cat"], "model": "ner", "add_special_tokens": False})
    assert len(bare) == len(found) - 2


def test_texts_are_ranked_by_their_cosine_or_by_a_cross_encoder(server: LocalServer, tmp_path: Path) -> None:
    texts = ["the old cat", "the cat", "1984"]
    cosines = server.post("/models/plain/similarity", {"inputs": {"source_sentence": "the cat", "sentences": texts}})
    assert cosines[1] == pytest.approx(1, abs=1e-6)
    ranked = server.post("/models/plain/rerank", {"query": "the cat", "texts": texts, "return_text": True})
    assert [one["score"] for one in ranked] == sorted(cosines, reverse=True)
    assert (ranked[0]["index"], ranked[0]["text"]) == (1, "the cat")
    model = load(saved(tmp_path, "number"), "cpu")
    with local({"judge": model}) as judge:
        ranked = judge.post("/rerank", {"query": "the cat", "texts": texts, "top_n": 2})
        numbers = [one["number"] for one in model.predict([("the cat", text) for text in texts])]
        assert [one["index"] for one in ranked] == np.argsort(numbers)[::-1][:2].tolist()


@pytest.fixture(scope="module")
def writers(writing_models: dict[str, Model]) -> Iterator[LocalServer]:
    with local(writing_models) as running:
        yield running


def test_text_is_generated_as_by_the_library(writers: LocalServer, writing_models: dict[str, Model]) -> None:
    gpt = writing_models["gpt"]
    options = {"max_new_tokens": 5, "samples": 2, "seed": 7}
    found = writers.post("/generate", {"inputs": "the cat", "model": "gpt", **options})
    assert found["texts"] == gpt.generate("the cat", **options)
    greedy = writers.post("/generate", {"inputs": ["the cat", "a dog"], "model": "gpt", "temperature": 0})
    assert [one["texts"] for one in greedy] == [[text] for text in gpt.generate(["the cat", "a dog"], temperature=0)]
    line = writers.refusal("/generate", {"inputs": "the", "model": "gpt", "stop": ["no token"]}, 422)
    assert line == "'no token': is no token of the vocabulary. Stop at a single token."


def test_a_text_is_translated_as_by_the_library(writers: LocalServer, writing_models: dict[str, Model]) -> None:
    translator = writing_models["translator"]
    found = writers.post("/translate", {"inputs": ["the cat", "a dog"], "num_beams": 2})
    assert [one["translation"] for one in found] == translator.translate(["the cat", "a dog"], num_beams=2)


@pytest.mark.parametrize(
    ("path", "body", "line"),
    [
        ("/fill", {"inputs": "x [MASK]", "model": "ner"}, "model ner: cannot fill. It answers /v1/embeddings, "),
        ("/models/plain/tag", {"inputs": "x"}, "model plain: cannot tag. It answers /v1/embeddings, /embed, "),
        ("/generate", {"inputs": "x"}, "model: none here can generate. plain answers "),
        ("/predict", {"inputs": "x"}, "model: is missing. Give one of: reviews, ner, squad."),
        ("/fill", {"inputs": "the cat"}, "'the cat': has no blank to fill. Write [MASK] where a word is missing."),
        ("/fill", {"inputs": "[MASK]", "topk": 3}, "body: Object contains unknown field `topk`."),
        ("/fill", {"inputs": "[MASK]", "top_k": 0}, "body: Expected `int` >= 1 - at `$.top_k`."),
        ("/predict", {"inputs": [["a", "b", "c"]], "model": "reviews"}, "body: Expected `array` of length <= 2"),
        ("/predict", {"inputs": {"x": "y"}, "model": "reviews"}, "text 1: has no column 'text', but 'x'. Give {"),
        ("/answer", {"inputs": [{"question": "who ?"}]}, "body: Object missing required field `context`"),
    ],
)
def test_what_cannot_be_done_is_a_line(server: LocalServer, path: str, body: object, line: str) -> None:
    assert server.refusal(path, body, 422).startswith(line)


def test_a_wrong_input_does_not_harm_its_neighbours(server: LocalServer) -> None:
    async def together() -> list[int]:
        texts = ["the [MASK]", "no blank", "[MASK] sees", "neither"]
        replies = [server.request("POST", "/fill", {"inputs": text}) for text in texts]
        return [reply.status for reply in await asyncio.gather(*replies)]

    assert server.loop.run_until_complete(together()) == [200, 422, 200, 422]


def test_routes_and_methods_that_are_not_there_are_refused(server: LocalServer) -> None:
    assert server.ask("GET", "/nowhere").json["error"] == (
        "/nowhere: is no route of this server. GET /openapi.json lists them."
    )
    refused = server.ask("GET", "/embed")
    assert (refused.status, refused.headers["allow"]) == (405, "POST")
    assert server.ask("GET", "/v1/models/nobody").json["error"]["code"] == "not_found"
    assert server.ask("GET", "/v1/models/ner").json["task"] == "tag"
    assert [one["id"] for one in server.ask("GET", "/v1/models").json["data"]] == ["plain", "reviews", "ner", "squad"]
    assert server.ask("GET", "/ready").json["status"] == "ready"


def test_the_name_of_a_model_stands_before_any_route(server: LocalServer) -> None:
    body = {"input": "the cat", "model": "plain"}
    found = server.post("/models/plain/v1/embeddings", {"input": "the cat"})
    assert found == server.post("/v1/embeddings", body)
    assert server.ask("GET", "/models/plain/v1/models").json == server.ask("GET", "/v1/models").json
    assert server.ask("GET", "/models/plain/v1/models/ner").json["id"] == "ner"
    missing = server.ask("POST", "/models/nobody/v1/embeddings", body)
    assert missing.json["error"]["message"] == "model: there is no 'nobody' here. Served: plain, reviews, ner, squad."
    for method in ("GET", "POST"):
        reply = server.ask(method, "/models/plain/v1/nowhere", {})
        line = "/models/plain/v1/nowhere: is no route of this server. GET /openapi.json lists them."
        assert (reply.status, reply.json["error"]) == (404, line)


def test_a_name_with_slashes_is_told_from_a_route(models: dict[str, Model]) -> None:
    with local({"ours/plain": models["plain"]}) as server:
        vectors = server.post("/embed", {"inputs": "the cat"})
        assert server.post("/models/ours/plain/embed", {"inputs": "the cat"}) == vectors
        assert server.post("/models/ours/plain/pipeline/feature-extraction", {"inputs": "the cat"}) == vectors
        assert server.post("/models/ours/plain", {"inputs": "the [MASK]"})[0]["token_str"]


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/openapi.json", "/v1/models"])
def test_head_is_get_without_the_body(server: LocalServer, path: str) -> None:
    head, get = server.ask("HEAD", path), server.ask("GET", path)
    assert (head.status, head.headers, head.content) == (200, get.headers, b"")
    assert get.content


def test_cosines_are_never_above_one(server: LocalServer) -> None:
    texts = prose(40, 3)
    for text in texts:
        inputs = {"source_sentence": text, "sentences": texts}
        found = server.post("/models/plain/similarity", {"inputs": inputs})
        assert max(map(abs, found)) <= 1


def test_predictions_read_as_many_tokens_as_those_of_the_library(tmp_path: Path) -> None:
    own = {"bertsmith": {"trained_on": {"max_length": 8}}}
    model = load(saved(tmp_path, "class", extra=own), "cpu")
    text = "the old dog sees the green garden"
    with local({"reviews": model}) as server:
        found = server.post("/predict", {"inputs": text})
        assert found["truncated_tokens"] == model.predict(text).truncated_tokens == 1
        assert found["probabilities"] == pytest.approx(model.predict(text).probabilities, abs=1e-6)
