"""/metrics: the counters of all processes in the text format of Prometheus."""

from collections.abc import Iterator, Sequence

from bertsmith.serving.counters import OTHER, SECONDS, STATUSES, Counters

PREFIX = "bertsmith"
SIMPLE = {  # of one value each: the type and the help
    "connections": ("gauge", "Connections that are open"),
    "pending_requests": ("gauge", "Requests that wait or are being computed"),
    "pending_tokens": ("gauge", "Tokens of these requests, each as often as the network reads it"),
    "inputs": ("counter", "Inputs of requests that were computed"),
    "tokens": ("counter", "Tokens of these inputs"),
    "batches": ("counter", "Batches that ran through a model"),
    "batch_jobs": ("counter", "Requests in these batches"),
    "batch_tokens": ("counter", "Tokens in these batches"),
    "batch_seconds": ("counter", "Seconds that these batches took"),
    "faults": ("counter", "Requests that failed by a fault of the server"),
}


def text(counters: Counters, routes: Sequence[str], ready: bool) -> str:
    """The page that Prometheus reads."""
    return "\n".join([*_simple(counters, ready), *_requests(counters, routes), *_histogram(counters)]) + "\n"


def _simple(counters: Counters, ready: bool) -> Iterator[str]:
    for name, (kind, words) in SIMPLE.items():
        full = f"{PREFIX}_{name}" + ("_total" if kind == "counter" else "")
        yield from (f"# HELP {full} {words}.", f"# TYPE {full} {kind}", f"{full} {counters.total(name):.10g}")
    yield from (f"# HELP {PREFIX}_ready Whether models are loaded.", f"# TYPE {PREFIX}_ready gauge")
    yield f"{PREFIX}_ready {int(ready)}"


def _requests(counters: Counters, routes: Sequence[str]) -> Iterator[str]:
    name = f"{PREFIX}_requests_total"
    yield from (f"# HELP {name} Requests by route and status.", f"# TYPE {name} counter")
    for route in [*routes, OTHER]:
        for status in STATUSES:
            if count := counters.total(f"{route} {status}"):
                yield f'{name}{{route="{route}",status="{status}"}} {count:.10g}'


def _histogram(counters: Counters) -> Iterator[str]:
    name, running = f"{PREFIX}_request_seconds", 0.0
    yield from (f"# HELP {name} Seconds from the headers of a request to its answer.", f"# TYPE {name} histogram")
    for number, bound in enumerate(SECONDS):
        running += counters.total(f"seconds {number}")
        yield f'{name}_bucket{{le="{bound:g}"}} {running:.10g}'.replace('"inf"', '"+Inf"')
    yield f"{name}_sum {counters.total('request_seconds'):.10g}"
    yield f"{name}_count {running:.10g}"
