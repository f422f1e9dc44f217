"""Items of many examples: made in chunks, and kept in a file if there are too many for memory."""

import struct
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith.data.rows import Row
from bertsmith.data.spool import Spool
from bertsmith.tasks.base import Item, Task
from bertsmith.text.tokenizer import Tokenizer

CHUNK_EXAMPLES = 8192  # examples that are tokenised at a time: the tokenizer needs kilobytes for each

ITEM_HEADER = struct.Struct("<qii")  # example, tokens that were cut, rows
# Of a row: tokens, tokens of the first text (-1: segments are stored), characters per token.
ROW_HEADER = struct.Struct("<iii")
INT64, FLOAT64, FLOAT32 = (struct.Struct(f"<{letter}") for letter in "qdf")
ARRAY = struct.Struct("<ccB")  # kind and size of the dtype, number of axes
AXIS = struct.Struct("<i")


def make_items(
    task: Task,
    examples: Sequence[Any],
    tokenizer: Tokenizer,
    max_length: int,
    folder: Path | None = None,
    progress: Callable[[int], object] = int,
) -> Sequence[Item]:
    """The items of all examples: a list if the examples are one, else a spool file in the folder."""
    if not isinstance(examples, Spool):
        return _make_list(task, examples, tokenizer, max_length, progress)
    found = ItemSpool(folder)
    for start in range(0, len(examples), CHUNK_EXAMPLES):
        for item in task.preprocess(examples[start : start + CHUNK_EXAMPLES], tokenizer, max_length):
            found.add(replace(item, example=start + item.example))
        progress(min(start + CHUNK_EXAMPLES, len(examples)))
    return found.seal()


def _make_list(
    task: Task, examples: Sequence[Any], tokenizer: Tokenizer, max_length: int, progress: Callable[[int], object]
) -> list[Item]:
    found = list[Item]()
    for start in range(0, max(1, len(examples)), CHUNK_EXAMPLES):
        chunk = task.preprocess(examples[start : start + CHUNK_EXAMPLES], tokenizer, max_length)
        found += [replace(item, example=start + item.example) for item in chunk] if start else chunk
        progress(min(start + CHUNK_EXAMPLES, len(examples)))
    return found


def count_truncated(items: Sequence[Item]) -> int:
    """The number of items that were cut to the maximum length."""
    return items.truncated if isinstance(items, ItemSpool) else sum(item.truncated > 0 for item in items)


class ItemSpool(Spool[Item]):
    """Items in a file. Notes that are not arrays or numbers stay in memory, each object once."""

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__(self._unpack_item, folder)
        self.truncated = 0
        self._objects: list[Any] = []

    def add(self, item: Item) -> None:
        self.truncated += item.truncated > 0
        parts = [ITEM_HEADER.pack(item.example, item.truncated, len(item.rows))]
        for row in item.rows:
            first = int(len(row) - row.segments.sum())
            parted = bool((row.segments[:first] == 0).all() and (row.segments[first:] == 1).all())
            letters = 0 if row.character_ids is None else row.character_ids.shape[1]
            parts += [ROW_HEADER.pack(len(row), first if parted else -1, letters), row.ids.astype(np.int32).tobytes()]
            parts += [] if parted else [row.segments.astype(np.int32).tobytes()]
            parts += [] if row.character_ids is None else [row.character_ids.astype(np.int16).tobytes()]
        self.append(b"".join([*parts, self._pack_value(item.target), self._pack_value(item.notes)]))

    def _pack_value(self, value: Any) -> bytes:
        """A type byte, then the value."""
        value = int(value) if isinstance(value, np.integer) else value
        if isinstance(value, np.ndarray) and value.dtype.kind in "if":
            axes = b"".join(map(AXIS.pack, value.shape))
            kind, size = value.dtype.kind.encode(), str(value.dtype.itemsize).encode()
            return b"a" + ARRAY.pack(kind, size, value.ndim) + axes + value.tobytes()
        if isinstance(value, np.float32):
            return b"s" + FLOAT32.pack(value)
        match value:
            case None:
                return b"n"
            case int():
                return b"i" + INT64.pack(value)
            case float():
                return b"f" + FLOAT64.pack(value)
            case tuple():
                return b"t" + AXIS.pack(len(value)) + b"".join(map(self._pack_value, value))
        if not self._objects or self._objects[-1] is not value:
            self._objects.append(value)
        return b"o" + INT64.pack(len(self._objects) - 1)

    def _unpack_item(self, record: bytes) -> Item:
        (example, truncated, rows), at = ITEM_HEADER.unpack_from(record), ITEM_HEADER.size
        found = list[Row]()
        for _ in range(rows):
            (tokens, first, letters), at = ROW_HEADER.unpack_from(record, at), at + ROW_HEADER.size
            ids, at = np.frombuffer(record, np.int32, tokens, at), at + 4 * tokens
            if first < 0:
                segments, at = np.frombuffer(record, np.int32, tokens, at), at + 4 * tokens
            else:
                segments = np.zeros(tokens, np.int32)
                segments[first:] = 1
            characters = None
            if letters:
                characters, at = np.frombuffer(record, np.int16, tokens * letters, at), at + 2 * tokens * letters
                characters = characters.reshape(tokens, letters)
            found.append(Row(ids, segments, characters))
        target, at = self._unpack_value(record, at)
        notes, _ = self._unpack_value(record, at)
        return Item(rows=tuple(found), example=example, target=target, notes=notes, truncated=truncated)

    def _unpack_value(self, record: bytes, at: int) -> tuple[Any, int]:
        """The value at an offset, and the offset of the next."""
        letter, at = record[at : at + 1], at + 1
        match letter:
            case b"n":
                return None, at
            case b"s":
                return np.float32(FLOAT32.unpack_from(record, at)[0]), at + FLOAT32.size
            case b"i":
                return INT64.unpack_from(record, at)[0], at + INT64.size
            case b"f":
                return FLOAT64.unpack_from(record, at)[0], at + FLOAT64.size
            case b"a":
                (kind, size, axes), at = ARRAY.unpack_from(record, at), at + ARRAY.size
                shape = [AXIS.unpack_from(record, at + AXIS.size * axis)[0] for axis in range(axes)]
                held, at = np.dtype((kind + size).decode()), at + AXIS.size * axes
                count = int(np.prod(shape, dtype=np.int64))
                return np.frombuffer(record, held, count, at).reshape(shape), at + count * held.itemsize
            case b"t":
                count, at = AXIS.unpack_from(record, at)[0], at + AXIS.size
                values = []
                for _ in range(count):
                    value, at = self._unpack_value(record, at)
                    values.append(value)
                return tuple(values), at
        return self._objects[INT64.unpack_from(record, at)[0]], at + INT64.size
