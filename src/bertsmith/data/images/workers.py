"""Worker processes that decode image files on all cores, in order."""

import json
import os
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import IO, TypeVar

import numpy as np

from bertsmith.data import workers as processes
from bertsmith.data.images.bad_images import ImageError
from bertsmith.data.images.decoding import DecodingConfig, Pixels, import_pillow, read_file

FILES_PER_TASK = 16

Item = TypeVar("Item")
Decoded = Pixels | ImageError


def decode_all(
    files: Iterable[tuple[Item, Path]], config: DecodingConfig, workers: int
) -> Generator[tuple[Item, Decoded], None, None]:
    """The pixels of each file, or what is wrong with it, in order. With no workers this process does the work."""
    import_pillow()  # so that one line says that it is missing, before any worker starts
    if workers == 0:
        for item, path in files:
            yield item, _decoded(path, config)
        return
    answers = processes.map_in_order(
        _tasks(files), lambda: Worker(config), lambda worker, paths: worker.decode(paths), workers, "images"
    )
    with closing(answers):
        for items, decoded in answers:
            yield from zip(items, decoded, strict=True)


class Worker(processes.Worker):
    """A process that decodes: paths in; a line of shapes and faults, and the raw pixels, out."""

    def __init__(self, config: DecodingConfig) -> None:
        program = f"from bertsmith.data.images.workers import serve; serve({json.dumps(asdict(config))!r})"
        super().__init__("images", program)

    def decode(self, paths: list[Path]) -> list[Decoded]:
        # In hexadecimal, since a name may hold bytes that are no text.
        return self.ask([os.fsencode(path).hex() for path in paths], _receive)


def serve(config: str) -> None:
    """The worker's main function: decode files until the input ends."""
    options = DecodingConfig(**json.loads(config))
    for names in processes.messages():
        decoded = [_decoded(Path(os.fsdecode(bytes.fromhex(name))), options) for name in names]
        heads = [[one.reason, one.fact] if isinstance(one, ImageError) else list(one.shape) for one in decoded]
        sys.stdout.buffer.write(json.dumps(heads).encode() + b"\n")
        for one in decoded:
            if not isinstance(one, ImageError):
                sys.stdout.buffer.write(one.data)
        sys.stdout.buffer.flush()


def _tasks(files: Iterable[tuple[Item, Path]]) -> Iterator[tuple[list[Item], list[Path]]]:
    rest = iter(files)
    while some := list(islice(rest, FILES_PER_TASK)):
        yield [item for item, _ in some], [path for _, path in some]


def _decoded(path: Path, config: DecodingConfig) -> Decoded:
    try:
        return read_file(path, config)
    except ImageError as error:
        return error


def _receive(pipe: IO[bytes]) -> list[Decoded]:
    line = pipe.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    decoded = list[Decoded]()
    for head in json.loads(line):
        if isinstance(head[0], str):
            decoded.append(ImageError(*head))
            continue
        size = int(np.prod(head))
        data = pipe.read(size)
        if len(data) != size:
            raise EOFError
        decoded.append(np.frombuffer(data, np.uint8).reshape(head))
    return decoded
