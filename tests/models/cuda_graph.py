"""CUDA graphs on a CPU: a stand-in that records the operations of a captured step, and runs them again at each replay.

As on a GPU, a capture runs nothing, every operation gets the same tensors at every replay, and numbers of Python are
those of the capture.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

SYNCHRONISING = {torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default}


class Graph(TorchDispatchMode):
    """The operations of a capture, with their arguments and results."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, tuple[Any, ...], dict[str, Any], Any]] = []
        self.overwritten: list[tuple[Tensor, Tensor]] = []  # during the capture, and what was there before
        self.replays = 0

    def __torch_dispatch__(self, call: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        assert call not in SYNCHRONISING, f"{call} waits for the GPU"
        given = dict(kwargs or {})
        for argument, value in zip(call._schema.arguments, args, strict=False):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self.overwritten.append((value, value.clone()))
        made = call(*args, **given)
        self.calls.append((call, args, given, made))
        return made

    def end(self) -> None:
        for tensor, before in reversed(self.overwritten):
            tensor.copy_(before)

    def replay(self) -> None:
        self.replays += 1
        for call, args, kwargs, made in self.calls:
            for old, new in zip(tree_leaves(made), tree_leaves(call(*args, **kwargs)), strict=True):
                if isinstance(old, Tensor) and old.untyped_storage().data_ptr() != new.untyped_storage().data_ptr():
                    old.copy_(new)  # not a view, and not changed in place


class Stream:
    def __init__(self, device: Any = None) -> None: ...

    def wait_stream(self, other: Any) -> None: ...


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> list[Graph]:
    """All graphs of a test, while torch.cuda captures on a CPU."""
    made: list[Graph] = []

    def graph() -> Graph:
        made.append(Graph())
        return made[-1]

    @contextmanager
    def capture(into: Graph, **options: Any) -> Iterator[None]:
        with into:
            yield
        into.end()

    @contextmanager
    def stream(which: Stream) -> Iterator[None]:
        yield

    for name, one in {"CUDAGraph": graph, "graph": capture, "Stream": Stream, "stream": stream}.items():
        monkeypatch.setattr(torch.cuda, name, one)
    monkeypatch.setattr(torch.cuda, "current_stream", Stream)
    return made
