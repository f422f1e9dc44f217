"""`embed`: one vector per text, in a file; `search`: semantic search by those vectors."""

import io
import json
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith import terminal
from bertsmith.data.corpus.sources import import_pyarrow
from bertsmith.data.labelled import unlabelled
from bertsmith.data.output import Output
from bertsmith.errors import TextError
from bertsmith.inference.load import load_text_model
from bertsmith.inference.semantic_search import semantic_search
from bertsmith.runs.inference_output import checked_inputs, notice_once, output_settings, remaining_inputs

CONSOLE = terminal.console()


def embed(model: Path, inputs: Sequence[str], out: Path, **options: Any) -> None:
    """The vectors of the lines of the inputs, as .npy or .parquet. An interrupted file is resumed."""
    if out.suffix not in (".npy", ".parquet"):
        raise TextError(out, f"has the unknown ending '{out.suffix}'", "Use .npy or .parquet")
    names, parquet = checked_inputs(inputs), out.suffix == ".parquet"
    if parquet:
        import_pyarrow(str(out))
    loaded = load_text_model(model)
    embedder = loaded.embedder(**options)
    header = b"" if parquet else _npy_header(0, embedder.width)
    with Output(out, partial(output_settings, loaded, "embed", options), header=header) as output:
        remaining = remaining_inputs(output, partial(unlabelled.texts, names, notice_once()), str, names)
        read: deque[str] = deque()  # filled by the embedder's thread, which reads thousands of texts ahead
        with terminal.ProgressCounter("vectors", output.rows) as counter:
            for vectors in embedder.stream(_recorded(remaining, read)):
                texts = [read.popleft() for _ in range(len(vectors))]
                output.add(texts, _parquet_block(texts, vectors) if parquet else vectors.tobytes())
                counter.update(output.rows)
        total, rate = output.rows, counter.rate(output.rows)
        if parquet:
            output.finish(partial(_to_parquet, embedder.width))
        else:
            output.finish(header=_npy_header(total, embedder.width))
    CONSOLE.print(
        f"{terminal.count_of(total, 'vector')} of {embedder.width} dimensions in {out}, {rate:,.0f} per second"
    )


def search(model: Path, texts: Sequence[str], corpus: Sequence[str], *, top_k: int, as_json: bool) -> None:
    """For each query the nearest lines of the corpus, by cosine similarity."""
    names = checked_inputs(corpus)
    loaded = load_text_model(model)
    lines = list(dict.fromkeys(unlabelled.texts(names)))
    if not lines:
        raise TextError("--corpus", "holds no text")
    queries = list(texts) if texts else list(unlabelled.texts(["-"]))
    cosines, indices = semantic_search(loaded.embed(lines), loaded.embed(queries), min(top_k, len(lines)))
    for query, row, nearest in zip(queries, cosines.tolist(), indices.tolist(), strict=True):
        neighbours = [{"text": lines[index], "cosine": cosine} for cosine, index in zip(row, nearest, strict=True)]
        if as_json:
            print(terminal.json_line({"text": query, "neighbours": neighbours}), flush=True)
            continue
        CONSOLE.print(f"\n{query}", style="bold")
        for neighbour in neighbours:
            CONSOLE.print(f"  {neighbour['cosine']:.3f}  {neighbour['text']}")


def _recorded(texts: Iterator[str], read: deque[str]) -> Iterator[str]:
    for text in texts:
        read.append(text)
        yield text


def _npy_header(rows: int, width: int) -> bytes:
    """The header of a .npy file; its size is the same for any number of rows."""
    raw = io.BytesIO()
    fields = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    np.lib.format.write_array_header_1_0(raw, fields)
    return raw.getvalue()


def _parquet_block(texts: list[str], vectors: NDArray[np.float32]) -> bytes:
    """Texts and their vectors in an intermediate file, since a Parquet file cannot be appended to."""
    encoded = json.dumps(texts).encode()
    return f"{len(texts)} {len(encoded)}\n".encode() + encoded + vectors.tobytes()


def _to_parquet(width: int, part: Path, target: Path) -> None:
    arrow = import_pyarrow(str(target))
    schema = arrow.schema([("text", arrow.string()), ("vector", arrow.list_(arrow.float32(), width))])
    with part.open("rb") as blocks, arrow.parquet.ParquetWriter(target, schema) as writer:
        while line := blocks.readline():
            count, size = map(int, line.split())
            texts = json.loads(blocks.read(size))
            vectors = np.frombuffer(blocks.read(4 * count * width), np.float32)
            column = arrow.FixedSizeListArray.from_arrays(arrow.array(vectors), width)
            writer.write_table(arrow.table({"text": texts, "vector": column}, schema=schema))
