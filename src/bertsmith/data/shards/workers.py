"""Worker processes that encode text on all cores, in order."""

import json
import os
import sys
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import IO, TypeVar

from bertsmith.data import workers as processes
from bertsmith.data.shards.encode import Encoder
from bertsmith.data.shards.encoded import EncodedDocuments

Documents = list[list[str]]
Item = TypeVar("Item")


def encode_all(
    items: Iterable[tuple[Item, list[Documents]]], folder: Path, dtype: str, workers: int
) -> Generator[tuple[Item, list[EncodedDocuments]], None, None]:
    """Encode each item's documents with the tokenizer of a folder; the items are returned in order.

    With no workers this process does the work.
    """
    if workers == 0:
        encoder = Encoder(folder, dtype)
        for item, groups in items:
            yield item, [encoder.encode(documents) for documents in groups]
        return
    yield from processes.map_in_order(
        items, lambda: Worker(folder, dtype), lambda worker, groups: worker.encode(groups), workers, "prepare"
    )


class Worker(processes.Worker):
    """A process that encodes: JSON in; a line of sizes and the raw integers out."""

    def __init__(self, folder: Path, dtype: str) -> None:
        program = f"from bertsmith.data.shards.workers import serve; serve({os.fspath(folder)!r}, {dtype!r})"
        super().__init__("prepare", program)

    def encode(self, groups: list[Documents]) -> list[EncodedDocuments]:
        return self.ask(groups, lambda pipe: [_receive(pipe) for _ in groups])


def serve(folder: str, dtype: str) -> None:
    """The worker's main function: encode documents until the input ends."""
    encoder = Encoder(Path(folder), dtype)
    for groups in processes.messages():
        for documents in groups:
            _send(sys.stdout.buffer, encoder.encode(documents))
        sys.stdout.buffer.flush()


def _send(pipe: IO[bytes], block: EncodedDocuments) -> None:
    buffers, counts = block.pack()
    pipe.write(json.dumps([[len(buffer) for buffer in buffers], counts]).encode() + b"\n")
    for buffer in buffers:
        pipe.write(buffer)


def _receive(pipe: IO[bytes]) -> EncodedDocuments:
    line = pipe.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    sizes, (dropped, empty) = json.loads(line)
    tokens, lengths, documents = (pipe.read(size) for size in sizes)
    if [len(tokens), len(lengths), len(documents)] != sizes:
        raise EOFError
    return EncodedDocuments.unpack((tokens, lengths, documents), (dropped, empty))
