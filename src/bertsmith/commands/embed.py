"""`embed`: one vector per text, in a file; `search`: semantic search by those vectors."""

from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from bertsmith import terminal
from bertsmith.commands import images
from bertsmith.commands.vector_file import VectorFile, check_vector_file
from bertsmith.data.labelled import unlabelled
from bertsmith.data.output import Output
from bertsmith.errors import RecipeError, TextError
from bertsmith.inference.load import load_text_model
from bertsmith.inference.semantic_search import semantic_search
from bertsmith.runs.inference_output import checked_inputs, notice, notice_once, output_settings, remaining_inputs

CONSOLE = terminal.console()


def embed(model: Path, inputs: Sequence[str], out: Path, *, size: str = "model", **options: Any) -> None:
    """The vectors of the lines of the inputs, as .npy or .parquet. An interrupted file is resumed."""
    check_vector_file(out)
    if images.is_of_images(model, size):
        images.embed(model, inputs, out, size=size, **options)
        return
    names = checked_inputs(model, inputs)
    loaded = load_text_model(model)
    embedder = loaded.embedder(**options)
    file = VectorFile(out, embedder.width, "text")
    with Output(out, partial(output_settings, loaded, "embed", options), header=file.header()) as output:
        remaining = remaining_inputs(output, partial(unlabelled.texts, names, notice_once()), str, names)
        read: deque[str] = deque()  # filled by the embedder's thread, which reads thousands of texts ahead
        with terminal.ProgressCounter("vectors", output.rows) as counter:
            for vectors in embedder.stream(_recorded(remaining, read)):
                texts = [read.popleft() for _ in range(len(vectors))]
                output.add(texts, file.block(texts, vectors))
                counter.update(output.rows)
        total, rate = output.rows, counter.rate(output.rows)
        file.finish(output)
    CONSOLE.print(
        f"{terminal.count_of(total, 'vector')} of {embedder.width} dimensions in {out}, {rate:,.0f} per second"
    )


def search(
    model: Path, texts: Sequence[str], corpus: Sequence[str], *, top_k: int, as_json: bool, out: Path | None = None
) -> None:
    """For each query the nearest lines of the corpus, or images of it, by cosine similarity."""
    if images.is_of_images(model):
        images.search(model, texts, corpus, top_k=top_k, as_json=as_json, out=out)
        return
    if out is not None:
        raise RecipeError("--out", "is for images, whose page shows them", "Use --json for texts")
    names = checked_inputs(model, corpus)
    loaded = load_text_model(model)
    lines = list(dict.fromkeys(unlabelled.texts(names, notice)))
    if not lines:
        raise TextError("--corpus", "holds no text")
    queries = list(texts) if texts else list(unlabelled.texts(["-"], notice))
    # Vectors of length one, whatever the folder says: inner products are cosines only then.
    vectors, asked = loaded.embed(lines, normalise=True), loaded.embed(queries, normalise=True)
    cosines, indices = semantic_search(vectors, asked, min(top_k, len(lines)))
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
