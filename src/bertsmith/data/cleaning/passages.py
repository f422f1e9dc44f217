"""Chunks of a corpus for the workers of a cleaning, and the messages between them."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import IO, Any

from bertsmith.data.corpus.corpus import Corpus
from bertsmith.terminal import escape_surrogates
from bertsmith.text.sentences import Layout

CHUNK_CHARACTERS = 1 << 19  # characters that go to a worker at a time


@dataclass(frozen=True)
class NumberedPassage:
    """A document with its number in the corpus: its sentences, or its paragraphs."""

    number: int
    lines: list[str]
    location: str
    layout: Layout
    is_list: bool = False  # part of a file without blank lines, whose lines are judged one by one


@dataclass(frozen=True)
class Chunk:
    """Some passages, how many were read so far, and the share of the corpus that is read."""

    passages: list[NumberedPassage]
    read: int
    progress: float


def chunks(corpus: Corpus, skip: int, limit: int | None) -> Iterator[Chunk]:
    """The passages after the first `skip`, up to number `limit`, in chunks that are the same in every run."""
    found, size, number = list[NumberedPassage](), 0, skip
    for passage in islice(corpus.passages(skip), None if limit is None else limit - skip):
        location = escape_surrogates(f"{passage.file}:{passage.line}")  # a name may not be UTF-8
        found.append(NumberedPassage(number, passage.texts, location, passage.layout, passage.in_list))
        number += 1
        size += sum(map(len, passage.texts))
        if size >= CHUNK_CHARACTERS:
            yield Chunk(found, number, corpus.progress)
            found, size = [], 0
    if found:
        yield Chunk(found, number, 1.0)


def encode(passages: list[NumberedPassage]) -> list[Any]:
    """Passages as JSON for a worker."""
    return [[one.number, one.lines, one.location, one.layout, one.is_list] for one in passages]


def decode(message: list[Any]) -> list[NumberedPassage]:
    return [NumberedPassage(*one) for one in message]


def send(pipe: IO[bytes], header: Any, buffers: list[bytes]) -> None:
    """Write an answer of a worker: a line of JSON, and raw bytes."""
    pipe.write(json.dumps([header, [len(buffer) for buffer in buffers]]).encode() + b"\n")
    for buffer in buffers:
        pipe.write(buffer)
    pipe.flush()


def receive(pipe: IO[bytes]) -> tuple[Any, list[bytes]]:
    line = pipe.readline()
    if not line.endswith(b"\n"):
        raise EOFError
    header, sizes = json.loads(line)
    buffers = [pipe.read(size) for size in sizes]
    if [len(buffer) for buffer in buffers] != sizes:
        raise EOFError
    return header, buffers
