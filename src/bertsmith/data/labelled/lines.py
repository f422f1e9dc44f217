"""The lines of a labelled file with their faults, and the text of a file that is one JSON value."""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from bertsmith.data.corpus.lines import READ_ERRORS, Cleaner, clean_lines, read_error
from bertsmith.data.corpus.sources import Source
from bertsmith.data.labelled import bad_rows
from bertsmith.errors import TextError

MAX_JSON_BYTES = 1 << 28  # bytes of a file that is one JSON value, which is held in memory

Line = tuple[int, str, str]  # its number, its text, and its fault, if any


def read_lines(source: Source) -> Iterator[Line]:
    """The lines of a file, each with its fault, if any."""
    tally, last = Counter[str](), 0
    cleaner = Cleaner("replace", bad_rows.MAX_LINE, tally)
    for first, run in clean_lines(source.blocks(lambda _: None), source.name, cleaner):
        fault = next((kind for kind in tally if kind != "byte-order marks"), "")
        tally.clear()
        if fault and first != last:  # a bad line is a run of its own; one that is too long comes in parts
            yield first, run[0] if run else "", f"rows with {fault}"
            last = first
        elif first != last:
            for number, line in enumerate(run, first):
                yield number, line, ""


def first_line(source: Source) -> str:
    """The first line that is not blank."""
    return next((line for _, line, _ in read_lines(source) if line.strip()), "")


def read_text(source: Source) -> str:
    """The whole text of a file that is one JSON value. Bytes that are not UTF-8 become lone surrogates."""
    parts, size = list[bytes](), 0
    try:
        for block in source.blocks(lambda _: None):
            parts.append(block)
            size += len(block)
            if size > MAX_JSON_BYTES:
                fact = f"is one JSON value of more than {MAX_JSON_BYTES:,} bytes"
                raise TextError(source.name, fact, "Write its rows as JSON lines")
        raw = b"".join(parts)
    except READ_ERRORS as error:
        raise read_error(source.name, error) from None
    if not raw.strip():
        raise TextError(source.name, "is empty", "Give it rows")
    try:
        return raw.decode(json.detect_encoding(raw), "surrogateescape")
    except UnicodeDecodeError:
        raise TextError(source.name, "is not UTF-8 text", "Save it as UTF-8") from None


def parse_json(text: str, name: str) -> Any:
    """The JSON value in a text."""
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise TextError(f"{name}:{error.lineno}", f"is not JSON: {error.msg}", "Get the file again") from None
    except (ValueError, RecursionError):
        raise TextError(name, "is no JSON that can be read: too deep, or a number too long") from None
