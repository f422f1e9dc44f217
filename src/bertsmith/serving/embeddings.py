"""Embeddings of a request: its texts as token ids, and the vectors shortened and normalised as it asks."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bertsmith.serving.request_error import RequestError
from bertsmith.serving.served import FrontModel, Served
from bertsmith.serving.settings import Limits, Settings

INLINE_CHARACTERS = 16_384  # texts up to this size are tokenised at once; longer ones in a thread, for others' sake
TOKEN_CHARACTERS = 64  # of a token, on average: more than any language has
T = TypeVar("T")


@dataclass(frozen=True)
class Embedded:
    """A row for each text, and the number of tokens that were read, special tokens included."""

    vectors: NDArray[np.float32]
    tokens: int


async def tokenise(model: FrontModel, texts: Sequence[str], limits: Limits) -> list[list[int]]:
    """The token ids of texts, unless these are so long that they must have too many tokens."""
    characters = sum(map(len, texts))
    check_characters(characters, limits)
    return await in_thread(characters, model.tokenizer.encode, texts)


def check_characters(characters: int, limits: Limits) -> None:
    """Refuse texts by their length: tokenising them, only to count their tokens, would take seconds."""
    if characters > (most := TOKEN_CHARACTERS * limits.request_tokens):
        fact = f"{characters:,} characters are more than the {most:,} that a request may have"
        raise RequestError(413, "inputs", fact, "Send fewer texts at a time")


async def in_thread(characters: int, function: Callable[[Sequence[str]], T], texts: Sequence[str]) -> T:
    """Call a function of texts in a thread, unless they are short; the tokenizer's library lets other threads run."""
    if characters <= INLINE_CHARACTERS:
        return function(texts)
    return await asyncio.get_running_loop().run_in_executor(None, function, texts)


async def embed(
    served: Served,
    settings: Settings,
    model: FrontModel,
    rows: Sequence[Sequence[int]],
    *,
    normalise: bool | None = None,
    dimensions: int | None = None,
    truncate: bool = True,
) -> Embedded:
    """The vectors of texts that are given by their token ids."""
    check_dimensions(model, dimensions)
    most = model.served.embedding_length - model.special_tokens
    if not truncate and (longest := max(map(len, rows), default=0)) > most:
        fact = f"one has {longest + model.special_tokens} tokens, and {model} reads {model.served.embedding_length}"
        raise RequestError(413, "inputs", fact, "Shorten it, or let it be truncated")
    ids = model.read_ids(rows)
    tokens = sum(map(len, ids)) + model.special_tokens * len(ids)
    packed = [one.tobytes() for one in ids]
    result = await served.run(model, "embed", packed, tokens, precision=settings.precision)
    assert result.values is not None
    return Embedded(as_vectors(model, result.values, dimensions, normalise), tokens)


def check_dimensions(model: FrontModel, dimensions: int | None) -> None:
    """Refuse vectors longer than those of the model."""
    width = model.served.width
    if dimensions is not None and dimensions > width:
        raise RequestError(422, "dimensions", f"is {dimensions}, and the vectors have {width}", f"Give 1 to {width}")


def as_vectors(
    model: FrontModel, values: Sequence[bytes], dimensions: int | None, normalise: bool | None
) -> NDArray[np.float32]:
    """The model's values as rows, shortened and then normalised."""
    vectors = np.frombuffer(b"".join(values), np.float32).reshape(len(values), model.served.width)[:, :dimensions]
    if model.served.normalise if normalise is None else normalise:
        vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))
    return vectors
