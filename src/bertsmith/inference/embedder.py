"""Sentence embeddings of any number of texts.

No text is padded. On a CPU each core computes batches of its own, small enough for its cache; on a GPU batches are
large, nothing waits for the device, and vectors are copied back while the next texts are tokenised.
"""

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain, islice
from threading import Barrier
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import Tokens, end_to_end
from bertsmith.data.rows import batch_by_length
from bertsmith.errors import RecipeError, TextError
from bertsmith.inference.onnx_session import GraphTrunk
from bertsmith.models.prepacked import prepack
from bertsmith.models.transformer import Transformer
from bertsmith.nn import pooling as pools
from bertsmith.nn.pooling import Pooling
from bertsmith.text.tokenizer import Tokenizer

LayerJoin = Literal["sum", "concatenate"]
Precision = Literal["auto", "float32", "bfloat16"]

CHUNK_TEXTS = {"cpu": 8_192, "cuda": 65_536}  # texts that are tokenised and sorted by length together
BATCH_TOKENS = {"cpu": 4_096, "cuda": 131_072}  # tokens in a batch: as many as a core's cache holds, or as fill a GPU
MIN_PASS_TOKENS = 128  # tokens: smaller batches on a CPU cost more than they save
ROUND_TO = 16  # tokens: batches on a CPU are padded to a multiple
WORKERS = 16  # batches computed at once, at most; with more cores each takes several


class Embedder:
    """A network prepared for embeddings: its weights in the precision and the layout that the device reads fastest.

    >>> embedder = model.embedder(layers=[-1, -2], layer_join="concatenate")
    >>> embedder(["the cat", "the dog"]).shape
    (2, 64)
    """

    def __init__(
        self,
        trunk: Transformer,
        tokenizer: Tokenizer,
        *,
        pooling: Pooling = "mean",
        layers: tuple[int, ...] = (-1,),
        layer_join: LayerJoin = "sum",
        normalise: bool = True,
        max_length: int | None = None,
        batch_tokens: int | None = None,
        precision: Precision = "auto",
    ) -> None:
        """Layer 0 of `layers` is the embedding, -1 the last; Devlin et al. 2018, section 5.3, concatenate four layers.

        `max_length` counts the special tokens, too; `batch_tokens` is the size of a batch.
        """
        most, count = trunk.config.max_length, trunk.config.layers
        self.max_length = most if max_length is None else max_length
        if not 2 < self.max_length <= most:
            raise RecipeError("max_length", f"is {max_length}, and the model reads {most} tokens", f"Give 3 to {most}")
        if not layers:
            raise RecipeError("layers", "none is chosen", "-1 is the last")
        if wrong := [layer for layer in layers if not -count - 1 <= layer <= count]:
            raise RecipeError("layers", f"there is no {wrong[0]}", f"They go from 0, the embedding, to {count}")
        self.tokenizer, self.pooling, self.layers = tokenizer, pooling, layers
        self.layer_join, self.normalise = layer_join, normalise
        self.width = trunk.config.width * (len(layers) if layer_join == "concatenate" else 1)
        graph = isinstance(trunk, GraphTrunk)  # whose precision is its own
        self.device = torch.device("cpu") if graph else trunk.embedding.weight.device
        self.batch_tokens = batch_tokens or BATCH_TOKENS[self.device.type]
        dtype = _dtype(precision, self.device)
        if graph:
            self.trunk = trunk
        elif self.device.type == "cpu":
            self.trunk = prepack(trunk, dtype)
        else:
            self.trunk = copy.deepcopy(trunk).to(dtype).eval()

    def __call__(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """The vectors of all texts, in their order."""
        parts = list(self.stream(texts))
        return np.concatenate(parts) if parts else np.zeros((0, self.width), np.float32)

    def stream(self, texts: Iterable[str]) -> Iterator[NDArray[np.float32]]:
        """The vectors of an iterable of any length, a chunk of some thousand texts at a time.

        >>> [vectors.shape for vectors in model.embedder().stream(iter(["the cat", "the dog"]))]
        [(2, 32)]
        """
        if isinstance(texts, str):
            raise TextError("texts", "is one text, not several", "Put it into a list")
        source, pending = iter(texts), _Pending()
        with ThreadPoolExecutor(1) as reader:
            try:
                reading = reader.submit(self._encode, source)
                while (read := reading.result()) is not None:
                    reading = reader.submit(self._encode, source)
                    previous, pending = pending, self._submit(read)
                    if previous.fetch is not None:
                        yield previous.fetch()
                if pending.fetch is not None:
                    yield pending.fetch()
            finally:
                pending.cancel()

    def submit_ids(self, rows: Sequence[Sequence[int] | NDArray[np.int32]]) -> Callable[[], NDArray[np.float32]]:
        """Start on texts that are token ids, without special tokens around them; a call of the result waits.

        >>> embedder, ids = model.embedder(), model.tokenizer.encode(["the cat", "the dog"])
        >>> (embedder.submit_ids(ids)() == embedder(["the cat", "the dog"])).all()
        np.True_
        """
        fetch = self._submit(self._framed(rows)).fetch if rows else None
        return fetch or (lambda: np.zeros((0, self.width), np.float32))

    def _encode(self, texts: Iterator[str]) -> "_Encoded | None":
        some = list(islice(texts, CHUNK_TEXTS[self.device.type]))
        return self._framed(self.tokenizer.encode(some)) if some else None

    def _framed(self, rows: Sequence[Sequence[int] | NDArray[np.int32]]) -> "_Encoded":
        before, after = self.tokenizer.template.before, self.tokenizer.template.after
        if not (before or after):  # an empty text has one token at least
            rows = [row if len(row) else [self.tokenizer.start_id] for row in rows]
        return _Encoded.of(rows, (before[0] if before else None, after[0] if after else None), self.max_length)

    def _submit(self, encoded: "_Encoded") -> "_Pending":
        return self._submit_to_cpu(encoded) if self.device.type == "cpu" else self._submit_to_gpu(encoded)

    def _submit_to_cpu(self, encoded: "_Encoded") -> "_Pending":
        pool, size = _thread_pool(os.getpid(), torch.get_num_threads())
        vectors = np.empty((len(encoded.lengths), self.width), np.float32)

        def compute(some: list[int]) -> None:
            tokens = encoded.collate(some, _rounded_up(int(encoded.lengths[some].sum())))
            vectors[some] = self._pooled(tokens)[: len(some)].numpy()

        def fetch() -> NDArray[np.float32]:
            for one in futures:
                one.result()
            return vectors

        # Every core gets equally many batches, of sizes that oneDNN has compiled a kernel for.
        total = int(encoded.lengths.sum())
        turns = -(-total // (size * self.batch_tokens))
        share = _rounded_up(max(MIN_PASS_TOKENS, -(-total // (size * turns))))
        futures = [
            pool.submit(compute, some)
            for some in batch_by_length(encoded.lengths.tolist(), min(self.batch_tokens, share))
        ]
        return _Pending(fetch, futures)

    def _submit_to_gpu(self, encoded: "_Encoded") -> "_Pending":
        parts = list(batch_by_length(encoded.lengths.tolist(), self.batch_tokens))
        found = [self._pooled(_pin_memory(encoded.collate(some)).to(self.device)) for some in parts]
        back = torch.from_numpy(np.argsort(np.concatenate(parts))).pin_memory()
        vectors = torch.cat(found).index_select(0, back.to(self.device, non_blocking=True))
        host = torch.empty(vectors.shape, dtype=vectors.dtype, pin_memory=True)
        host.copy_(vectors, non_blocking=True)
        done = torch.cuda.current_stream(self.device).record_event()

        def fetch() -> NDArray[np.float32]:
            done.synchronize()
            fetched: NDArray[np.float32] = host.numpy().copy()  # pinned memory is scarce: give it back
            return fetched

        return _Pending(fetch)

    @torch.inference_mode()
    def _pooled(self, tokens: Tokens) -> Tensor:
        pool = pools.POOLS[self.pooling]
        if self.layers == (-1,):
            states = [self.trunk(tokens)]
        else:
            every = self.trunk.hidden_states(tokens)
            states = [every[layer] for layer in self.layers]
        pooled = [pool(state, tokens.bounds).float() for state in states]  # B D
        joined = torch.cat(pooled, 1) if self.layer_join == "concatenate" else torch.stack(pooled).sum(0)
        return F.normalize(joined) if self.normalise else joined


def embed(trunk: Transformer, tokenizer: Tokenizer, texts: Iterable[str], **options: Any) -> NDArray[np.float32]:
    """A vector for each text, in order, with the options of `Embedder`; an `Embedder` that is kept saves time."""
    return Embedder(trunk, tokenizer, **options)(texts)


@dataclass(frozen=True)
class _Encoded:
    """The token ids of texts, end to end, without special tokens."""

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]  # tokens that are read of each text, special tokens included
    special_tokens: tuple[int | None, int | None]  # before and after a text; None where the tokenizer has none

    @classmethod
    def of(
        cls,
        rows: Sequence[Sequence[int] | NDArray[np.int32]],
        special_tokens: tuple[int | None, int | None],
        max_length: int,
    ) -> "_Encoded":
        sizes = np.fromiter(map(len, rows), np.int64, len(rows))
        ids = np.fromiter(chain.from_iterable(rows), np.int32, int(sizes.sum()))
        return cls(
            ids,
            np.cumsum(sizes) - sizes,
            np.minimum(sizes + sum(one is not None for one in special_tokens), max_length),
            special_tokens,
        )

    def collate(self, some: list[int], total: int = 0) -> Tokens:
        """A flat batch of some texts, padded to `total` tokens with short sequences whose vectors are dropped."""
        count, lengths = len(some), self.lengths[some]
        real, shortest, longest = int(lengths.sum()), int(lengths.min()), int(lengths.max())
        if total > real:  # none longer than the shortest text, so that lengths stay sorted
            many, rest = divmod(total - real, shortest)
            lengths = np.append(lengths, [shortest] * many + [rest] * (rest > 0)).astype(np.int64)
        bounds, positions = end_to_end(lengths)
        start, stop = self.special_tokens
        ids = np.full(len(positions), start or 0, np.int32)
        if len(self.ids):
            sources = np.repeat(self.starts[some], lengths[:count]) + positions[:real] - (start is not None)
            ids[:real] = self.ids.take(sources, mode="clip")
        if start is not None:
            ids[bounds[:count]] = start
        if stop is not None:
            ids[bounds[1 : count + 1] - 1] = stop
        return Tokens(
            ids=torch.from_numpy(ids),
            bounds=torch.from_numpy(bounds),
            positions=torch.from_numpy(positions),
            max_length=longest,
            equal_lengths=bool((lengths == longest).all()),
        )


@dataclass(frozen=True)
class _Pending:
    """Vectors that are being computed; `fetch` waits for them."""

    fetch: Callable[[], NDArray[np.float32]] | None = None
    futures: list[Future[None]] = field(default_factory=list)

    def cancel(self) -> None:
        for one in self.futures:
            one.cancel()


@lru_cache(4)
def _thread_pool(process: int, threads: int) -> tuple[ThreadPoolExecutor, int]:
    """A thread for each core, since two cores that share a batch wait for each other.

    The pool is kept, so that torch's thread count is set once; a forked process gets a pool of its own.
    """
    size = min(threads, WORKERS)
    pool, barrier = ThreadPoolExecutor(size), Barrier(size)

    def begin() -> None:
        torch.set_num_threads(threads // size)
        barrier.wait()

    for one in [pool.submit(begin) for _ in range(size)]:
        one.result()
    torch.set_num_threads(threads)  # of this thread, and of threads started later
    return pool, size


def _rounded_up(tokens: int) -> int:
    """At most an eighth more tokens: oneDNN compiles a kernel for each size, so there should be few sizes."""
    step = max(ROUND_TO, 1 << max(0, (tokens - 1).bit_length() - 3))
    return -(-tokens // step) * step


def _pin_memory(tokens: Tokens) -> Tokens:
    ids, bounds, positions = (part.pin_memory() for part in (tokens.ids, tokens.bounds, tokens.positions))
    return replace(tokens, ids=ids, bounds=bounds, positions=positions)


def _dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """bfloat16 where matrix units are faster with it: GPUs since Ampere, and processors with AMX."""
    if precision == "auto":
        if device.type == "cuda":
            fast = torch.cuda.get_device_properties(device).major >= 8
        else:
            fast = torch.cpu._is_amx_tile_supported()
        return torch.bfloat16 if fast else torch.float32
    return torch.bfloat16 if precision == "bfloat16" else torch.float32
