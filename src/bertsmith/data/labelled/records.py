"""Parquet files: their rows, read a few at a time, and the class names that the `datasets` library stores in them."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from bertsmith.data.corpus.lines import read_error
from bertsmith.data.corpus.sources import Source, import_pyarrow
from bertsmith.data.labelled.bad_rows import UNREADABLE

TABLE_BATCH_ROWS = 256  # held in memory at a time

RawRow = tuple[int, list[str] | dict[str, Any], str]  # the number of a line or row, its cells, and its fault, if any


def rows(source: Source, wanted: Sequence[str]) -> Iterator[RawRow]:
    """The wanted columns of every row; an unreadable row does not cost its neighbours."""
    arrow, done = import_pyarrow(source.name), 0
    unread = (arrow.ArrowException, ValueError, OverflowError)  # bytes that are not UTF-8, a date before all dates
    try:
        with arrow.parquet.ParquetFile(source.path) as file:
            for batch in file.iter_batches(batch_size=TABLE_BATCH_ROWS, columns=list(wanted)):
                try:
                    batch_rows: Iterable[Any] = batch.to_pylist()
                except unread:
                    batch_rows = (_read_row(batch.slice(row, 1), unread) for row in range(len(batch)))
                for row in batch_rows:
                    done += 1
                    yield (done, {}, UNREADABLE) if row is None else (done, row, "")
    except (arrow.ArrowException, OSError, LookupError, ValueError, OverflowError, MemoryError) as error:
        raise read_error(f"{source.name}:{done + 1}", error) from None


def _read_row(batch: Any, unread: tuple[type[Exception], ...]) -> Any:
    try:
        return batch.to_pylist()[0]
    except unread:
        return None


def schema(source: Source) -> tuple[tuple[str, ...], dict[str, tuple[str, ...]]]:
    """The columns of a Parquet file, and the class names that the `datasets` library has stored in its metadata."""
    arrow = import_pyarrow(source.name)
    try:
        with arrow.parquet.ParquetFile(source.path) as file:
            names, metadata = tuple(file.schema_arrow.names), file.schema_arrow.metadata or {}
    except (arrow.ArrowException, OSError, LookupError, ValueError, OverflowError, MemoryError) as error:
        raise read_error(source.name, error) from None
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        return names, {name: classes for name in names if (classes := _classes(features.get(name)))}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return names, {}


def _classes(feature: Any) -> tuple[str, ...]:
    if isinstance(feature, list) and feature:
        return _classes(feature[0])
    if not isinstance(feature, dict):
        return ()
    return tuple(map(str, feature["names"])) if feature.get("names") else _classes(feature.get("feature"))


def class_names(value: Any, classes: tuple[str, ...]) -> Any:
    """The name of a class for its number; None for a number without a class, as -1 in a test set."""
    if isinstance(value, list):
        return [class_names(number, classes) for number in value]
    return classes[value] if isinstance(value, int) and 0 <= value < len(classes) else None
