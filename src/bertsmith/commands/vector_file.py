"""The file of vectors that `embed` writes: .npy, or .parquet with the text or the image of each vector."""

import io
import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.corpus.sources import import_pyarrow
from bertsmith.data.output import Output
from bertsmith.errors import TextError


def check_vector_file(out: Path) -> None:
    """Refuse another ending, and Parquet without pyarrow, before any work is done."""
    if out.suffix not in (".npy", ".parquet"):
        raise TextError(out, f"has the unknown ending '{out.suffix}'", "Use .npy or .parquet")
    if out.suffix == ".parquet":
        import_pyarrow(str(out))


class VectorFile:
    """Vectors of one width, in blocks; `column` is the name of what they are vectors of: text or image."""

    def __init__(self, out: Path, width: int, column: str) -> None:
        check_vector_file(out)
        self.width, self.column, self.parquet = width, column, out.suffix == ".parquet"

    def header(self) -> bytes:
        """The beginning of the file while its number of rows is not known."""
        return b"" if self.parquet else npy_header(0, self.width)

    def block(self, names: Sequence[str], vectors: NDArray[np.float32]) -> bytes:
        """Rows. A Parquet file cannot be appended to, so its names and vectors are kept in an intermediate file."""
        if not self.parquet:
            return vectors.tobytes()
        encoded = json.dumps(list(names)).encode()
        return f"{len(names)} {len(encoded)}\n".encode() + encoded + vectors.tobytes()

    def finish(self, output: Output) -> None:
        """Put the file in place."""
        if self.parquet:
            output.finish(partial(_to_parquet, self.width, self.column))
        else:
            output.finish(header=npy_header(output.rows, self.width))


def npy_header(rows: int, width: int) -> bytes:
    """The header of a .npy file; its size is the same for any number of rows."""
    raw = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(raw, fields)
    return raw.getvalue()


def _to_parquet(width: int, column: str, part: Path, target: Path) -> None:
    arrow = import_pyarrow(str(target))
    schema = arrow.schema([(column, arrow.string()), ("vector", arrow.list_(arrow.float32(), width))])
    with part.open("rb") as blocks, arrow.parquet.ParquetWriter(target, schema) as writer:
        while line := blocks.readline():
            count, size = map(int, line.split())
            names = json.loads(blocks.read(size))
            vectors = np.frombuffer(blocks.read(4 * count * width), np.float32)
            array = arrow.FixedSizeListArray.from_arrays(arrow.array(vectors), width)
            writer.write_table(arrow.table({column: names, "vector": array}, schema=schema))
