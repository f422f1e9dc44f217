"""CUDA graph capture is not disturbed by garbage collection."""

import gc
from contextlib import nullcontext

import pytest
import torch

from bertsmith.nn.cuda_graph import capture


def test_garbage_collection_is_off_during_a_capture_only(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, object]] = []

    def graph(_: object, **options: object) -> nullcontext[None]:
        calls.append(options)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "graph", graph)
    with capture(None, stream="one"):
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="broken"), capture(None):
        raise ValueError("broken")
    assert gc.isenabled()
    assert calls == [{"capture_error_mode": "thread_local", "stream": "one"}, {"capture_error_mode": "thread_local"}]


@pytest.mark.gpu
def test_an_older_graph_may_become_garbage_during_a_capture() -> None:
    """In a reference cycle, as trainers are: only the garbage collector frees it."""
    total = torch.zeros(4, device="cuda")
    cycle: list[object] = [torch.cuda.CUDAGraph()]
    with capture(cycle[0]):
        total.add_(1)
    cycle.append(cycle)
    del cycle
    graph = torch.cuda.CUDAGraph()
    with capture(graph):
        garbage = [[number] for number in range(100_000)]  # many more allocations than trigger a collection
        total.add_(2)
    gc.collect()
    graph.replay()
    assert len(garbage) == 100_000
    assert total.tolist() == [2, 2, 2, 2]
