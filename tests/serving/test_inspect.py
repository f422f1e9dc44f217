"""The page for people is public and holds nothing of the models; the page of a text is the model process's."""

import base64
import hashlib
import re

import pytest
from serving.local import LocalServer, local

from bertsmith.inference.model import Model


def test_the_page_needs_no_key_and_holds_nothing_of_the_models(models: dict[str, Model]) -> None:
    with local({"secret-name": models["plain"]}, key="a-long-secret") as server:
        reply = server.ask("GET", "/")
        assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert "secret-name" not in reply.content.decode()
        assert server.ask("POST", "/", {"inputs": "the [MASK]"}).status == 401
        assert server.ask("GET", "/models/secret-name").status == 405
        assert server.ask("POST", "/inspect", {"inputs": "the cat"}).status == 401


def test_the_policy_of_the_page_names_its_own_script_and_no_other_place(server: LocalServer) -> None:
    reply = server.ask("GET", "/")
    policy = dict(rule.split(" ", 1) for rule in reply.headers["content-security-policy"].split("; "))
    [script] = re.findall(r'<script type="module">(.*?)</script>', reply.content.decode(), re.S)
    assert base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() in policy["script-src"]
    assert "unsafe" not in policy["script-src"]
    assert (policy["default-src"], policy["connect-src"]) == ("'none'", "'self'")
    assert reply.headers["x-content-type-options"] == "nosniff"


def test_the_models_say_what_the_page_needs_to_know(server: LocalServer) -> None:
    known = {one["id"]: one for one in server.ask("GET", "/v1/models").json["data"]}
    assert {name: one["mask"] for name, one in known.items()} == {
        "plain": "[MASK]",
        "reviews": "",
        "ner": "",
        "squad": "",
    }
    assert all("inspect" in one["verbs"] for one in known.values())
    assert not any("/" in one["description"] for one in known.values())  # a path of the server is nobody's business


def test_a_text_is_inspected(server: LocalServer) -> None:
    reply = server.ask("POST", "/inspect", {"inputs": "the [MASK] sees", "model": "plain"})
    assert (reply.status, reply.headers["content-type"]) == (200, "text/html; charset=utf-8")
    page = reply.content.decode()
    assert "Inside plain" in page
    assert '"attributions":[]' in page
    more = server.ask("POST", "/inspect", {"inputs": "the [MASK] sees", "model": "plain", "attributions": True})
    assert '"attributions":[]' not in more.content.decode()  # which needs gradients
    pair = server.ask("POST", "/models/squad/inspect", {"inputs": ["who sees ?", "the cat sees the river"]})
    assert pair.status == 200


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        ({"inputs": "cat " * 65, "model": "plain"}, 413, "inputs: has 65 tokens, and a page shows 64. Give a shorter "),
        ({"inputs": "who ?", "model": "squad"}, 422, "text 1: squad reads pairs of texts. Give (question, context), "),
        ({"inputs": "x"}, 422, "model: is missing. Give one of: plain, reviews, ner, squad."),
    ],
)
def test_a_text_that_cannot_be_inspected_is_refused(server: LocalServer, body: object, status: int, line: str) -> None:
    assert server.refusal("/inspect", body, status).startswith(line)


def test_answers_have_other_spans_beside_the_best(server: LocalServer) -> None:
    context = "the old cat sees the green river in the garden"
    found = server.post("/answer", {"inputs": {"question": "who sees ?", "context": context}})
    assert found["spans"][0]["answer"] == found["answer"]
    assert all(context[one["start"] : one["end"]] == one["answer"] for one in found["spans"])
    shares = [one["probability"] for one in found["spans"]]
    assert shares == sorted(shares, reverse=True)
    assert 0 < sum(shares) <= 1
