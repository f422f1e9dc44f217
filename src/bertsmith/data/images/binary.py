"""Binary files: the whole of one, decompressed within limits, and numbers in it that are checked against its size."""

from pathlib import Path

from bertsmith.data.corpus.lines import READ_ERRORS, read_error
from bertsmith.data.corpus.sources import COMPRESSIONS, Source
from bertsmith.errors import TextError

MAX_BYTES = 1 << 31  # of a file, decompressed


def find_file(folder: Path, name: str) -> Path | None:
    """A file of this name, or of this name and a compression."""
    paths = (folder / (name + ending) for ending in ("", *COMPRESSIONS))
    return next((path for path in paths if path.is_file()), None)


def bare_name(path: Path) -> str:
    """The name of a file without the ending of its compression."""
    return path.stem if path.suffix in COMPRESSIONS else path.name


def read_bytes(path: Path) -> bytes:
    """The bytes of a file, decompressed by its ending."""
    compression = path.suffix if path.suffix in COMPRESSIONS else ""
    parts, size = list[bytes](), 0
    try:
        for block in Source(path, "", compression).blocks(lambda _: None):
            parts.append(block)
            size += len(block)
            if size > MAX_BYTES:
                raise TextError(path, f"is larger than {MAX_BYTES >> 20} MiB", "Split it")
    except READ_ERRORS as error:
        raise read_error(str(path), error) from None
    return b"".join(parts)
