"""Recording: what a GPU is told once and plays again as often as one likes, a CUDA graph."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def capture(graph: Any, **where: Any) -> Iterator[None]:
    """What runs in here is recorded. `where` is a pool of memory or a stream.

    Other threads may go on using the GPU meanwhile, which is none of the recording's business. Python may not clean up:
    an older recording that goes out of use in the middle of a new one breaks it.
    """
    cleans = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.graph(graph, capture_error_mode="thread_local", **where):
            yield
    finally:
        if cleans:
            gc.enable()
