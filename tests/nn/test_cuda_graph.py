"""A recording is not disturbed by what Python cleans up."""

import gc
from contextlib import nullcontext

import pytest
import torch

from bertsmith.nn.cuda_graph import capture


def test_nothing_is_cleaned_up_within_and_everything_after(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, object]] = []

    def graph(_: object, **where: object) -> nullcontext[None]:
        asked.append(where)
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "graph", graph)
    with capture(None, stream="one"):
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="broken"), capture(None):
        raise ValueError("broken")
    assert gc.isenabled()
    assert asked == [{"capture_error_mode": "thread_local", "stream": "one"}, {"capture_error_mode": "thread_local"}]


@pytest.mark.gpu
def test_an_older_recording_may_go_out_of_use_meanwhile() -> None:
    """In a ring, as trainers are: only the collector finds it."""
    place = torch.zeros(4, device="cuda")
    ring: list[object] = [torch.cuda.CUDAGraph()]
    with capture(ring[0]):
        place.add_(1)
    ring.append(ring)
    del ring
    graph = torch.cuda.CUDAGraph()
    with capture(graph):
        rubbish = [[number] for number in range(100_000)]  # many times as many as it takes for the collector to come
        place.add_(2)
    gc.collect()
    graph.replay()
    assert len(rubbish) == 100_000
    assert place.tolist() == [2, 2, 2, 2]
