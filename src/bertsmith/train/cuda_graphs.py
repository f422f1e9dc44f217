"""CUDA graphs of training steps: a small step is mostly kernel launches, so they are captured once and replayed.

A step over a small batch keeps an H200 busy for two milliseconds and a Python interpreter for twenty. A CUDA graph
records what the device did for one shape of batch and plays it again; the host only copies the next batch into place.
"""

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from torch import Tensor

from bertsmith.data.batch import Batch, Tokens
from bertsmith.nn.cuda_graph import capture

Step = Callable[[Batch, dict[str, Tensor]], Tensor]  # a batch and its counts, both on the device, to figures


@dataclass(frozen=True)
class _CapturedStep:
    graph: Any
    batch: Batch  # the place that every batch of this shape is copied into
    counts: dict[str, Tensor]
    metrics: Tensor


class CudaGraphs:
    """A step that is recorded for each shape of batch when the shape comes a second time.

    The first time it simply runs: that is a step like any other, and it lets every library set itself up, which must
    not happen during a recording. Recording computes nothing; a played step gives the same numbers as one that ran,
    dropout included, since the device's random numbers are seeded anew before each.
    """

    def __init__(self, step: Step, device: torch.device) -> None:
        self._step, self._device = step, device
        self._seen_shapes: set[tuple[Any, ...]] = set()
        self._captured: dict[tuple[Any, ...], _CapturedStep] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]

    def __call__(self, batch: Batch) -> Tensor:
        shape = _shape(batch)
        recording = self._captured.get(shape)
        if recording is None and shape not in self._seen_shapes:
            self._seen_shapes.add(shape)
            return self._run(batch)
        if recording is None:
            recording = self._capture(batch)
            self._captured[shape] = recording
        _copy(batch, recording.batch)
        for name, count in recording.counts.items():
            count.fill_(batch.counts[name])
        recording.graph.replay()
        return recording.metrics.clone()  # the next step writes over them

    def _run(self, batch: Batch) -> Tensor:
        """Aside, on the stream that recordings use, so that memory is taken from the same place."""
        moved, counts = self._to_device(batch)
        self._stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self._stream):
            figures = self._step(moved, counts)
        torch.cuda.current_stream().wait_stream(self._stream)
        return figures

    def _capture(self, batch: Batch) -> _CapturedStep:
        moved, counts = self._to_device(batch)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()  # a recording has memory of its own, and cannot ask for what others keep
        graph = torch.cuda.CUDAGraph()
        with capture(graph, pool=self._pool, stream=self._stream):
            figures = self._step(moved, counts)
        return _CapturedStep(graph, moved, counts, figures)

    def _to_device(self, batch: Batch) -> tuple[Batch, dict[str, Tensor]]:
        counts = {
            name: torch.tensor(float(count), device=self._device)
            for name, count in batch.counts.items()
            if name not in ("tokens", "squares")
        }
        return replace(batch.to(self._device), counts={}), counts


def _tensors(record: Any) -> dict[str, Tensor]:
    found: dict[str, Tensor] = {}
    for part in fields(record):
        value = getattr(record, part.name)
        if isinstance(value, Tokens | Batch):
            found |= {f"{part.name}.{name}": tensor for name, tensor in _tensors(value).items()}
        elif isinstance(value, Tensor):
            found[part.name] = value
    return found


def _shape(batch: Batch) -> tuple[Any, ...]:
    shapes = tuple((name, tuple(tensor.shape)) for name, tensor in _tensors(batch).items())
    halves = [half for half in (batch.tokens, batch.decoder_tokens) if half is not None]
    return (*shapes, *((half.max_length, half.equal_lengths) for half in halves))


def _copy(batch: Batch, target: Batch) -> None:
    there = _tensors(target)
    for name, tensor in _tensors(batch).items():
        there[name].copy_(tensor, non_blocking=True)
