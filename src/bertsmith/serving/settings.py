"""The settings of a server, as the supervisor hands them to its other processes."""

import os
from typing import Literal

import msgspec

MAX_FRONTS = 8


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a server refuses before it works on a request."""

    body_bytes: int = 8 << 20  # of a request
    inputs: int = 2_048  # texts in a request
    request_tokens: int = 65_536  # of a request, special tokens included
    inspect_tokens: int = 64  # of a text that is inspected, which takes a pass for each of them
    queue_tokens: int = 0  # of all requests that wait or are being computed; 0: by the device
    queue_requests: int = 96  # that wait or are being computed; with ten times 64 clients none waits thrice as long
    connections: int = 1_024  # open at a time, of each front
    header_seconds: float = 10.0  # from a connection, or the first byte of a request, to the end of its headers
    body_seconds: float = 20.0  # from the end of the headers to the end of the body
    idle_seconds: float = 15.0  # of a connection between two requests
    flush_seconds: float = 10.0  # in which a client reads 256 KiB of its answer, or the rest of it


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is served, and where."""

    models: dict[str, str]  # folders, by the name of the model
    host: str = "127.0.0.1"
    port: int = 8000
    fronts: int = 1
    device: str = "auto"
    backend: str = "auto"  # of `load`: "torch", or of exported folders "onnx" or "onnx-int8"
    precision: Literal["auto", "float32", "bfloat16"] = "auto"  # of embeddings
    key: str = ""  # that requests have to give; empty: none
    limits: Limits = Limits()
    drain_seconds: float = 30.0  # for requests that have been accepted, before the server ends


class FrontSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a front: the server's, and the number of the socket that it inherits."""

    server: Settings
    descriptor: int
    counters: str  # path of the table
    row: int


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings of a model process: the server's, and the path of its socket."""

    server: Settings
    path: str
    counters: str  # path of the table
    row: int


def default_fronts() -> int:
    """One front up to four cores; beyond them one for every two, since tokenising is cheaper than a model."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return 1 if cores <= 4 else min(MAX_FRONTS, cores // 2)
