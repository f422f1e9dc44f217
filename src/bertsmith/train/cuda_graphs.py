"""CUDA graphs of training steps: a small step is mostly kernel launches, so they are captured once and replayed.

A step over a small batch takes an H200 two milliseconds and the Python interpreter twenty. A CUDA graph records the
kernels for one shape of batch and replays them; the host only copies the next batch into the graph's input.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bertsmith.data.batch import Batch
from bertsmith.nn.cuda_graph import capture


@dataclass(frozen=True)
class _CapturedStep:
    graph: Any
    batch: Batch  # the input buffer, into which every batch of this shape is copied
    counts: dict[str, Tensor]
    metrics: Tensor


class CudaGraphs:
    """A step that is captured for each shape of batch when the shape comes a second time.

    The first time it simply runs, by which libraries allocate their workspaces: that must not happen during capture.
    Capturing computes nothing. A replayed step gives the same numbers as one that runs, dropout included, since the
    device's random generator is seeded before each.
    """

    def __init__(self, step: Callable[[Batch, dict[str, Tensor]], Tensor], device: torch.device) -> None:
        self._step, self._device = step, device
        self._seen_shapes: set[tuple[Any, ...]] = set()
        self._captured: dict[tuple[Any, ...], _CapturedStep] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, batch: Batch) -> Tensor:
        shape = _shape(batch)
        captured = self._captured.get(shape)
        if captured is None and shape not in self._seen_shapes:
            self._seen_shapes.add(shape)
            return self._run(batch)
        if captured is None:
            captured = self._capture(batch)
            self._captured[shape] = captured
        _copy(batch, captured.batch)
        for name, count in captured.counts.items():
            count.fill_(batch.counts[name])
        captured.graph.replay()
        return captured.metrics.clone()  # the next replay overwrites them

    def _run(self, batch: Batch) -> Tensor:
        """Run on the stream of the captures, so that memory comes from the same pool."""
        moved, counts = self._to_device(batch)
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            metrics = self._step(moved, counts)
        torch.cuda.current_stream().wait_stream(self._stream)
        return metrics

    def _capture(self, batch: Batch) -> _CapturedStep:
        moved, counts = self._to_device(batch)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # a capture has a separate memory pool, and cannot reuse cached memory
        graph = torch.cuda.CUDAGraph()
        with capture(graph, pool=self._pool, stream=self._stream):
            metrics = self._step(moved, counts)
        return _CapturedStep(graph, moved, counts, metrics)

    def _to_device(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        counts = {
            name: torch.tensor(float(count), device=self._device)
            for name, count in batch.counts.items()
            if name not in ("tokens", "squares")
        }
        return replace(batch.to(self._device), counts={}), counts


def _tensors(batch: Batch) -> dict[str, Tensor]:
    return {name: value for name, value in batch.leaves() if isinstance(value, Tensor)}


def _shape(batch: Batch) -> tuple[Any, ...]:
    """The shape of every tensor, and the plain values, on which kernels depend; counts go into a graph as tensors."""
    return tuple(
        (name, tuple(value.shape) if isinstance(value, Tensor) else value)
        for name, value in batch.leaves()
        if not isinstance(value, dict)
    )


def _copy(batch: Batch, target: Batch) -> None:
    there = _tensors(target)
    for name, tensor in _tensors(batch).items():
        there[name].copy_(tensor, non_blocking=True)
