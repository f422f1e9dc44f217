"""Stored rows: Parquet files, read some rows at a time, and the names of classes that are left in them."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bertsmith.data.corpus.lines import read_error
from bertsmith.data.corpus.sources import Source, import_pyarrow

ROWS = 256  # held at a time
UNREADABLE = "rows that cannot be read"

Raw = tuple[int, list[str] | dict[str, Any], str]  # the number of a line or row, what is in it, what is wrong with it


def rows(found: Source, wanted: Sequence[str]) -> Iterator[Raw]:
    """The wanted columns of every row; one that cannot be read does not take its neighbours with it."""
    arrow, done = import_pyarrow(found.name), 0
    unread = (arrow.ArrowException, ValueError, OverflowError)  # bytes that are not UTF-8, a date before all dates
    try:
        with arrow.parquet.ParquetFile(found.path) as file:
            for batch in file.iter_batches(batch_size=ROWS, columns=list(wanted)):
                try:
                    held: Iterable[Any] = batch.to_pylist()
                except unread:
                    held = (_read_row(batch.slice(row, 1), unread) for row in range(len(batch)))
                for row in held:
                    done += 1
                    yield (done, {}, UNREADABLE) if row is None else (done, row, "")
    except (arrow.ArrowException, OSError, LookupError, ValueError, OverflowError, MemoryError) as error:
        raise read_error(f"{found.name}:{done + 1}", error) from None


def _read_row(batch: Any, unread: tuple[type[Exception], ...]) -> Any:
    try:
        return batch.to_pylist()[0]
    except unread:
        return None


def schema(found: Source) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """The columns of a Parquet file, and the names of classes that the `datasets` library has left in it."""
    arrow = import_pyarrow(found.name)
    try:
        with arrow.parquet.ParquetFile(found.path) as file:
            names, kept = tuple(file.schema_arrow.names), file.schema_arrow.metadata or {}
    except (arrow.ArrowException, OSError, LookupError, ValueError, OverflowError, MemoryError) as error:
        raise read_error(found.name, error) from None
    try:
        features = json.loads(kept.get(b"huggingface", b"{}"))["info"]["features"]
        return names, {name: classes for name in names if (classes := _classes(features.get(name)))}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return names, {}


def _classes(feature: Any) -> tuple[str, ...]:
    if isinstance(feature, list) and feature:
        return _classes(feature[0])
    if not isinstance(feature, dict):
        return ()
    return tuple(map(str, feature["names"])) if feature.get("names") else _classes(feature.get("feature"))


def class_names(held: Any, classes: tuple[str, ...]) -> Any:
    """The name of a class for its number. A number that has none, as -1 in a test set, says nothing."""
    if isinstance(held, list):
        return [class_names(one, classes) for one in held]
    return classes[held] if isinstance(held, int) and 0 <= held < len(classes) else None
