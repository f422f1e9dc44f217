"""CUDA graph capture: kernel launches recorded once and replayed."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def capture(graph: Any, **options: Any) -> Iterator[None]:
    """Capture into `graph` all kernels launched inside; `options` are torch.cuda.graph's (pool, stream).

    Other threads may use the GPU meanwhile. Garbage collection is off: an older graph that is freed during a capture
    breaks it.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local", **options):
            yield
    finally:
        if collects:
            gc.enable()
