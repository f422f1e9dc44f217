"""Hugging Face's inference endpoint: a request to the model's own URL does its task, in the form of the pipelines."""

import pytest
from serving.local import LocalServer

from bertsmith.inference.model import Model


def test_masks_are_filled(server: LocalServer, models: dict[str, Model]) -> None:
    found = server.post("/models/plain", {"inputs": "the [MASK] sees", "parameters": {"top_k": 3}})
    [blank] = models["plain"].fill("the [MASK] sees", top_k=3).blanks
    assert [(one["token"], one["token_str"]) for one in found] == [(word.token, word.word) for word in blank]
    assert found[0]["sequence"] == models["plain"].fill("the [MASK] sees").best
    two = server.post("/models/plain", {"inputs": "[MASK] [MASK]"})
    assert [len(blank) for blank in two] == [5, 5]


def test_texts_are_classified(server: LocalServer) -> None:
    [found] = server.post("/models/reviews", {"inputs": "the cat"})
    assert [one["score"] for one in found] == sorted((one["score"] for one in found), reverse=True)
    assert sum(one["score"] for one in found) == pytest.approx(1)
    [found] = server.post("/models/reviews", {"inputs": "the cat", "parameters": {"top_k": 1}})
    assert len(found) == 1


def test_words_are_tagged(server: LocalServer) -> None:
    text = "the old cat sees the river"
    groups = server.post("/models/ner", {"inputs": text})
    assert all(text[one["start"] : one["end"]] == one["word"] and one["entity_group"] == "X" for one in groups)
    body = {"inputs": text, "parameters": {"aggregation_strategy": "none", "ignore_labels": ["nothing"]}}
    assert [one["word"] for one in server.post("/models/ner", body)] == text.split()


def test_questions_are_answered(server: LocalServer) -> None:
    context = "the old cat sees the green river"
    found = server.post("/models/squad", {"inputs": {"question": "who sees ?", "context": context}})
    assert context[found["start"] : found["end"]] == found["answer"]
    assert 0 <= found["score"] <= 1


def test_a_task_can_be_named(server: LocalServer) -> None:
    [vector] = server.post("/models/reviews/pipeline/feature-extraction", {"inputs": "the cat"})
    assert len(vector) == 32
    sentences = {"source_sentence": "the cat", "sentences": ["the cat", "a dog"]}
    found = server.post("/models/plain", {"inputs": sentences})
    assert found[0] == pytest.approx(1, abs=1e-6)
    assert server.post("/models/plain/pipeline/sentence-similarity", {"inputs": sentences}) == found


@pytest.mark.parametrize(
    ("path", "body", "status", "line"),
    [
        ("/models/plain/pipeline/paint", {"inputs": "x"}, 404, "task paint: is none of this server. Known: "),
        ("/models/nobody", {"inputs": "x"}, 404, "model: there is no 'nobody' here. Served: plain, "),
        ("/models/plain", {"inputs": "[MASK]", "parameters": {"targets": ["x"]}}, 422, "parameters.targets: is not "),
        ("/models/plain", {"inputs": 3}, 422, "inputs: Expected `str | array`, got `int`."),
        ("/models/squad", {"inputs": "who ?"}, 422, "inputs: Expected `object`, got `str`."),
        ("/models/ner/pipeline/fill-mask", {"inputs": "x"}, 422, "model ner: cannot fill. It answers "),
        ("/models/reviews", {"inputs": "x", "parameters": {"top_k": "all"}}, 422, "inputs: Expected `int`, got `str`."),
    ],
)
def test_a_mistake_is_a_line(server: LocalServer, path: str, body: object, status: int, line: str) -> None:
    assert server.refusal(path, body, status).startswith(line)
