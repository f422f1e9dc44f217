"""Frames between a front and the model process: msgpack with its length before it, over a Unix socket.

The model process begins with a `Hello`; then a front sends jobs and gets results, in any order, matched by their id.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

LENGTH = struct.Struct("<I")
MAX_FRAME = 1 << 30  # bytes; a longer frame is a sign that bytes were lost


class ServedModel(msgspec.Struct, frozen=True, kw_only=True):
    """What a front knows of a model: what it can do, and how its texts are tokenised."""

    name: str
    folder: str
    verbs: list[str]  # of serving.verbs
    task: str  # of fine-tuning; empty after pretraining alone
    labels: list[str]
    sentence: bool  # whether it was made for sentence embeddings
    reranks: bool  # whether it is a cross-encoder: of pairs of texts it predicts a number, or one of two classes
    positives: list[str] = []  # of two classes the one that means relevant; both if that is not known
    columns: list[str]  # of the texts that it was fine-tuned on, where they are known
    description: str
    max_length: int  # of a sequence, in tokens
    embedding_length: int = 0  # tokens of a text that its embedding reads
    width: int = 0  # of an embedding
    normalise: bool = False  # whether embeddings have length 1 by default
    for_tasks: bool = True  # whether the tokenizer puts special tokens around texts that the folder leaves out
    images: bool = False  # whether its inputs are images, and no texts
    created: int = 0  # seconds since 1970: when the weights were written


def created(folder: str) -> int:
    """When the newest weights of a folder, or the graphs of an exported one, were written."""
    files = [*Path(folder).glob("*.safetensors"), *Path(folder).glob("*.onnx")]
    return max((int(file.stat().st_mtime) for file in files), default=0)


class Hello(msgspec.Struct, frozen=True, kw_only=True):
    """The first frame of the model process."""

    models: list[ServedModel]
    device: str


class Job(msgspec.Struct, array_like=True):
    """A request to the model process."""

    id: int
    model: str
    verb: str
    inputs: list[Any]  # token ids as the bytes of int32 numbers, or texts in the form of the verb
    options: dict[str, Any]
    tokens: int


class Result(msgspec.Struct, array_like=True):
    """An answer: one value for each input, or why there is none."""

    id: int
    values: list[Any] | None  # vectors as the bytes of float32 numbers, or JSON values
    error: tuple[str, ...] = ()  # its place, fact and remedy
    fault: bool = False  # the error is ours and not the client's


ENCODER = msgspec.msgpack.Encoder()
HELLOS, JOBS, RESULTS = msgspec.msgpack.Decoder(Hello), msgspec.msgpack.Decoder(Job), msgspec.msgpack.Decoder(Result)


def frame(message: Hello | Job | Result) -> bytes:
    """A message as a frame."""
    content = ENCODER.encode(message)
    return LENGTH.pack(len(content)) + content


class FrameBuffer:
    """Bytes as they arrive, and the frames that are complete."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> Iterator[bytes]:
        """The contents of the frames that these bytes complete."""
        self._bytes += data
        start = 0
        while len(self._bytes) - start >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._bytes, start)
            if size > MAX_FRAME:
                raise ConnectionError(f"a frame of {size} bytes")
            stop = start + LENGTH.size + size
            if len(self._bytes) < stop:
                break
            yield bytes(self._bytes[start + LENGTH.size : stop])
            start = stop
        del self._bytes[:start]
