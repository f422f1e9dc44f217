"""/metrics is Prometheus' text, its counters are those of all processes, and they survive a process."""

import re
from pathlib import Path

from serving.local import local

from bertsmith.inference.model import Model
from bertsmith.serving.counters import Counters
from bertsmith.serving.metrics import text

SAMPLE = re.compile(r'^([a-z_]+)(\{[a-z]+="[^"]*"(?:,[a-z]+="[^"]*")*\})? (-?[\d.e+]+)$')


def samples(page: str) -> dict[str, float]:
    """Values by name and labels; every line is a comment or a sample, and every sample has a type."""
    found, types = {}, set()
    for line in page.splitlines():
        if line.startswith("# TYPE "):
            types.add(line.split()[2])
        elif not line.startswith("# HELP "):
            match = SAMPLE.match(line)
            assert match is not None, line
            assert any(match[1] in (name, f"{name}_bucket", f"{name}_sum", f"{name}_count") for name in types), line
            found[match[1] + (match[2] or "")] = float(match[3])
    return found


def test_requests_tokens_and_batches_are_counted(models: dict[str, Model]) -> None:
    with local({"plain": models["plain"]}) as server:
        for _ in range(3):
            server.post("/embed", {"inputs": ["the cat", "the cat"]})
        server.ask("POST", "/embed", {"inputs": 3})
        server.ask("GET", "/nowhere")
        reply = server.ask("GET", "/metrics")
        assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
        found = samples(reply.content.decode())
    assert found['bertsmith_requests_total{route="/embed",status="200"}'] == 3
    assert found['bertsmith_requests_total{route="/embed",status="422"}'] == 1
    assert found['bertsmith_requests_total{route="other",status="404"}'] == 1
    assert found["bertsmith_inputs_total"] == 6
    assert found["bertsmith_tokens_total"] == found["bertsmith_batch_tokens_total"] == 24
    assert found["bertsmith_batch_jobs_total"] == 3 == found["bertsmith_batches_total"]
    assert found["bertsmith_pending_requests"] == 0
    assert found["bertsmith_ready"] == 1
    assert found['bertsmith_request_seconds_bucket{le="+Inf"}'] == found["bertsmith_request_seconds_count"] == 5


def test_requests_are_counted_by_the_path_of_their_route(models: dict[str, Model]) -> None:
    with local({"plain": models["plain"]}) as server:
        server.post("/pipeline/fill-mask", {"inputs": "the [MASK]"})
        server.post("/models/plain/pipeline/fill-mask", {"inputs": "the [MASK]"})
        server.post("/models/plain/fill", {"inputs": "the [MASK]"})
        for method, path in (("GET", "/v1/models/plain"), ("GET", "/v1/models/nobody"), ("POST", "/v1/models/plain")):
            server.ask(method, path)
        found = samples(server.ask("GET", "/metrics").content.decode())
    counts = {name: count for name, count in found.items() if name.startswith("bertsmith_requests_total")}
    assert counts == {
        'bertsmith_requests_total{route="/pipeline/",status="200"}': 2,
        'bertsmith_requests_total{route="/fill",status="200"}': 1,
        'bertsmith_requests_total{route="/v1/models/",status="200"}': 1,
        'bertsmith_requests_total{route="/v1/models/",status="404"}': 1,
        'bertsmith_requests_total{route="/v1/models/",status="405"}': 1,
    }


def test_rows_are_summed_and_kept(tmp_path: Path) -> None:
    Counters.create(tmp_path / "counters", ["/a"], 2)
    rows = [Counters.open(tmp_path / "counters", ["/a"], row) for row in (0, 1, -1)]
    for number, row in enumerate(rows, 1):
        row.count_request("/a", 200, 0.02)
        row.add("tokens", number)
        row.set("pending_requests", number)
    again = Counters.open(tmp_path / "counters", ["/a"], 1)  # a front that was started again
    assert again.total("tokens") == 6
    assert again.total("pending_requests") == 4  # what it had begun is lost
    found = samples(text(again, ["/a"], ready=False))
    assert found['bertsmith_requests_total{route="/a",status="200"}'] == 3
    assert found['bertsmith_request_seconds_bucket{le="0.01"}'] == 0
    assert found['bertsmith_request_seconds_bucket{le="0.025"}'] == 3
