"""Hugging Face's inference endpoint: a request to the model's own URL does its task, in the form of the pipelines."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from inference.test_load import saved
from serving.local import LocalServer, local

from bertsmith.inference.load import load
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


def test_as_many_answers_are_given_as_asked_for(server: LocalServer) -> None:
    body = {"inputs": {"question": "who sees ?", "context": "the old cat sees the green river and a dog"}}
    one = server.post("/models/squad", body)
    assert server.post("/models/squad", body | {"parameters": {"top_k": 1}}) == one
    found = server.post("/models/squad", body | {"parameters": {"top_k": 2}})
    assert len(found) == 2
    assert found[0] == one
    assert found[0]["score"] >= found[1]["score"]
    spans = server.post("/answer", body)["spans"]
    assert [answer["answer"] for answer in found] == [span["answer"] for span in spans[:2]]


def test_no_answer_comes_first_where_it_is_likeliest(tmp_path: Path) -> None:
    never = {"bertsmith": {"settings": {"null_threshold": -1e9}}}
    with local({"squad": load(saved(tmp_path, "answer", extra=never), "cpu")}) as server:
        body = {"inputs": {"question": "who sees ?", "context": "the old cat sees the green river"}}
        none, *spans = server.post("/", body | {"parameters": {"top_k": 2}})
        assert (none["answer"], none["start"], none["end"]) == ("", 0, 0)
        assert 0 <= none["score"] <= 1
        assert spans[0]["answer"]


def test_a_pair_of_texts_is_classified_as_by_predict(server: LocalServer) -> None:
    pair = {"text": "the cat", "text_pair": "sees the dog"}
    [found] = server.post("/models/reviews", {"inputs": pair})
    [known] = server.post("/models/reviews/predict", {"inputs": [["the cat", "sees the dog"]]})
    assert {one["label"]: one["score"] for one in found} == pytest.approx(known["probabilities"])
    assert len(server.post("/models/reviews", {"inputs": [pair, "the cat"]})) == 2


def test_embeddings_are_normalised_and_shortened_as_asked(server: LocalServer) -> None:
    usual = {"truncation_direction": "right", "encoding_format": "float"}
    body = {"inputs": "the cat", "parameters": {"dimensions": 5, "normalize": False, **usual}}
    [vector] = server.post("/models/plain/pipeline/feature-extraction", body)
    assert len(vector) == 5
    assert np.linalg.norm(vector) != pytest.approx(1, abs=1e-2)


def test_multiple_choice_is_not_answered_by_an_embedding(tmp_path: Path) -> None:
    with local({"swag": load(saved(tmp_path, "choose"), "cpu")}) as server:
        line = "model swag: has no task that Hugging Face's clients know. Use POST /predict."
        assert server.refusal("/models/swag", {"inputs": "it rained"}, 422) == line


@pytest.fixture(scope="module")
def writers(writing_models: dict[str, Model]) -> Iterator[LocalServer]:
    with local(writing_models) as running:
        yield running


def test_the_parameters_of_generation_are_honoured(writers: LocalServer, writing_models: dict[str, Model]) -> None:
    def generated(**parameters: Any) -> list[str]:
        body = {"inputs": "the cat", "parameters": {"max_new_tokens": 5, **parameters}}
        return [one["generated_text"] for one in writers.post("/models/gpt", body)]

    gpt = writing_models["gpt"]
    greedy = gpt.generate("the cat", max_new_tokens=5, temperature=0)
    assert generated(do_sample=False, temperature=3.0) == [greedy]
    assert generated(do_sample=False, return_full_text=False) == [greedy.removeprefix("the cat")]
    assert generated(do_sample=False, return_full_text=True, details=False, watermark=None) == [greedy]
    known = gpt.generate("the cat", max_new_tokens=5, samples=3, seed=7)
    assert generated(do_sample=True, num_return_sequences=3, seed=7) == known


def test_the_text_of_a_text_to_text_model_has_the_name_of_every_task(writers: LocalServer) -> None:
    [known] = [one["translation"] for one in writers.post("/translate", {"inputs": ["the cat"]})]
    for path in ("/models/translator", "/models/translator/pipeline/summarization"):
        [found] = writers.post(path, {"inputs": "the cat"})
        assert found == dict.fromkeys(("translation_text", "summary_text", "generated_text"), known)


@pytest.mark.parametrize(
    ("model", "body", "line"),
    [
        (
            "gpt",
            {"parameters": {"repetition_penalty": 1.2}},
            "parameters.repetition_penalty: is not supported. Known: ",
        ),
        ("gpt", {"stream": True}, "stream: is not supported. Leave it out: an answer comes as a whole."),
        ("gpt", {"parameters": {"do_sample": "no"}}, "inputs: Expected `bool`, got `str`."),
        ("translator", {"parameters": {"num_beams": 2}}, "parameters.num_beams: is not supported. Leave it out."),
    ],
)
def test_what_generation_does_not_know_is_a_line(
    writers: LocalServer, model: str, body: dict[str, Any], line: str
) -> None:
    assert writers.refusal(f"/models/{model}", {"inputs": "the cat", **body}, 422).startswith(line)


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
        *(
            ("/models/plain/pipeline/feature-extraction", {"inputs": "x", "parameters": {name: value}}, 422, line)
            for name, value, line in (
                ("prompt_name", "query", "parameters.prompt_name: is not supported. Known: normalize, "),
                ("truncation_direction", "left", "parameters.truncation_direction: is not supported. Known: "),
            )
        ),
        (
            "/models/squad",
            {"inputs": {"question": "x", "context": "x"}, "parameters": {"handle_impossible_answer": True}},
            422,
            "parameters.handle_impossible_answer: is not supported. Known: top_k.",
        ),
        ("/models/reviews", {"inputs": {"x": "y"}}, 422, "text 1: has no column 'text', but 'x'."),
        ("/models/plain", {"inputs": 3}, 422, "inputs: Expected `str | array`, got `int`."),
        ("/models/squad", {"inputs": "who ?"}, 422, "inputs: Expected `object`, got `str`."),
        ("/models/ner/pipeline/fill-mask", {"inputs": "x"}, 422, "model ner: cannot fill. It answers "),
        ("/models/reviews", {"inputs": "x", "parameters": {"top_k": "all"}}, 422, "inputs: Expected `int`, got `str`."),
    ],
)
def test_a_mistake_is_a_line(server: LocalServer, path: str, body: object, status: int, line: str) -> None:
    assert server.refusal(path, body, status).startswith(line)
