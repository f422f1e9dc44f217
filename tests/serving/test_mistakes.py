"""A client's mistake is never a fault of the server, and its answer is always one line of JSON."""

import json
from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from serving.fuzz import Fuzzer
from serving.local import LocalServer, local

from bertsmith.inference.model import Model
from bertsmith.serving.counters import STATUSES
from bertsmith.serving.openapi import ERRORS
from bertsmith.serving.routes import ROUTES


@pytest.fixture(scope="module")
def everything(models: dict[str, Model], writing_models: dict[str, Model]) -> Iterator[LocalServer]:
    """A server with a model for every route."""
    with local(models | writing_models) as running:
        yield running


@pytest.mark.slow("sends hundreds of requests")
@pytest.mark.torture("D1", suite=600, whole=10_000)
def test_no_mistake_is_a_fault(
    everything: LocalServer,
    times: int,
    record_property: Callable[[str, object], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    fuzzer, seen = Fuzzer(everything.ask("GET", "/openapi.json").json), Counter[int]()
    for _ in range(times):
        method, path, body = fuzzer.request()
        reply = everything.ask(method, path, body)
        seen[reply.status] += 1
        assert reply.status < 500, (method, path, body, reply.content)
        assert reply.status in STATUSES
        if method == "HEAD":
            assert reply.content == b""
        elif reply.status != 200:
            error = reply.json["error"]
            line = error["message"] if isinstance(error, dict) else error
            assert "\n" not in line, (method, path, body, line)
            assert len(line) < 2_000
        elif reply.headers["content-type"] == "application/json":
            json.loads(reply.content, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    record_property("statuses", dict(sorted(seen.items())))
    assert capsys.readouterr().err == ""
    assert seen[200] > times // 10
    assert seen[422] > times // 10


def test_the_description_is_complete(server: LocalServer) -> None:
    document = server.ask("GET", "/openapi.json").json
    described = {(method.upper(), path.partition("{")[0]) for path, one in document["paths"].items() for method in one}
    assert described == set(ROUTES)
    operations = [operation for one in document["paths"].values() for operation in one.values()]
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert set(ERRORS) <= {str(status) for status in STATUSES}
    named = json.dumps(document).split('"#/components/schemas/')[1:]
    assert {one.partition('"')[0] for one in named} <= set(document["components"]["schemas"])
