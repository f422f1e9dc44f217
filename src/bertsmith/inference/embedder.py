"""Embeddings of texts, for any number of them, and semantic search among them.

No text is padded. On a CPU each core works through passes of its own, small enough for its cache; on a GPU passes are
large, nothing is waited for, and what has been computed is fetched while the next texts are under way.
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

from bertsmith.data.batch import Tokens
from bertsmith.data.rows import batch_by_length
from bertsmith.errors import RecipeError, TextError
from bertsmith.models.transformer import Transformer
from bertsmith.nn import pooling as pools
from bertsmith.nn.pooling import Pooling
from bertsmith.nn.prepacked import prepack
from bertsmith.text.tokenizer import Tokenizer

LayerJoin = Literal["sum", "concatenate"]
Precision = Literal["auto", "float32", "bfloat16"]

CHUNK = {"cpu": 8_192, "cuda": 65_536}  # texts tokenised together, and sorted by length among themselves
BATCH_TOKENS = {"cpu": 4_096, "cuda": 131_072}  # tokens in one pass: what a core's cache holds, what fills a GPU
MIN_PASS_TOKENS = 128  # tokens: a smaller pass on a CPU costs more than it brings
ROUND_TO = 16  # tokens: passes on a CPU are filled up to a multiple
WORKERS = 16  # passes computed at once, at most; on more cores each has several
BLOCK, QUERIES = 65_536, 256  # vectors and queries that are multiplied at once


class Embedder:
    """A trunk made ready for vectors: its weights in the precision and the order that the device reads fastest."""

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
        """`layers` counts the embedding as 0, and -1 is the last. Devlin et al. 2018, section 5.3, join the last four.

        `max_length` is the most tokens of a text, its special tokens included; `batch_tokens` those of a pass.
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
        self.device = trunk.embedding.weight.device
        self.batch_tokens = batch_tokens or BATCH_TOKENS[self.device.type]
        dtype = _dtype(precision, self.device)
        if self.device.type == "cpu":
            self.trunk = prepack(trunk, dtype)
        else:
            self.trunk = copy.deepcopy(trunk).to(dtype).eval()

    def __call__(self, texts: Iterable[str]) -> NDArray[np.float32]:
        """The vectors of all texts, in their order."""
        parts = list(self.stream(texts))
        return np.concatenate(parts) if parts else np.zeros((0, self.width), np.float32)

    def stream(self, texts: Iterable[str]) -> Iterator[NDArray[np.float32]]:
        """The same for texts without end: the vectors of the first some thousands, of the next, and so on."""
        if isinstance(texts, str):
            raise TextError("texts", "is one text, not several", "Put it into a list")
        source, under_way = iter(texts), _Pending()
        with ThreadPoolExecutor(1) as reader:
            try:
                reading = reader.submit(self._encode, source)
                while (read := reading.result()) is not None:
                    reading = reader.submit(self._encode, source)
                    before, under_way = under_way, self._submit(read)
                    if before.fetch is not None:
                        yield before.fetch()
                if under_way.fetch is not None:
                    yield under_way.fetch()
            finally:
                under_way.cancel()

    def _encode(self, texts: Iterator[str]) -> "_Encoded | None":
        if not (some := list(islice(texts, CHUNK[self.device.type]))):
            return None
        before, _, after = self.tokenizer.template
        rows = [ids if ids or before or after else [self.tokenizer.start_id] for ids in self.tokenizer.encode(some)]
        return _Encoded.of(rows, (before[0] if before else None, after[0] if after else None), self.max_length)

    def _submit(self, encoded: "_Encoded") -> "_Pending":
        return self._submit_to_cpu(encoded) if self.device.type == "cpu" else self._submit_to_gpu(encoded)

    def _submit_to_cpu(self, encoded: "_Encoded") -> "_Pending":
        crew, size = _thread_pool(os.getpid(), torch.get_num_threads())
        vectors = np.empty((len(encoded.lengths), self.width), np.float32)

        def compute(some: list[int]) -> None:
            tokens = encoded.collate(some, _rounded_up(int(encoded.lengths[some].sum())))
            vectors[some] = self._pooled(tokens)[: len(some)].numpy()

        def fetch() -> NDArray[np.float32]:
            for one in begun:
                one.result()
            return vectors

        # Every core gets as many passes as the others, of sizes that have been met before.
        total = int(encoded.lengths.sum())
        turns = -(-total // (size * self.batch_tokens))
        share = _rounded_up(max(MIN_PASS_TOKENS, -(-total // (size * turns))))
        begun = [
            crew.submit(compute, some)
            for some in batch_by_length(encoded.lengths.tolist(), min(self.batch_tokens, share))
        ]
        return _Pending(fetch, begun)

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
            fetched: NDArray[np.float32] = host.numpy().copy()  # pinned memory is scarce
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


def embed(trunk: Transformer, tokenizer: Tokenizer, texts: Iterable[str], **how: Any) -> NDArray[np.float32]:
    """A vector for each text, in their order. `how` is that of `Embedder`, which to keep saves time."""
    return Embedder(trunk, tokenizer, **how)(texts)


def semantic_search(
    vectors: NDArray[np.float32], queries: NDArray[np.float32], top_k: int = 10
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """For each query its largest products with all the vectors, and whose they are, the best first.

    Exact. The vectors are read once, some at a time, and may lie in a memory map larger than the memory.
    """
    if vectors.ndim != 2 or queries.ndim != 2 or vectors.shape[1] != queries.shape[1]:
        fact = f"are {queries.shape}, the vectors {vectors.shape}"
        raise TextError("queries", fact, "Both are tables with one vector a row, all of one width")
    scores = torch.empty((len(queries), 0))
    places = torch.empty((len(queries), 0), dtype=torch.int64)
    for start in range(0, len(vectors), BLOCK):
        table = np.asarray(vectors[start : start + BLOCK]).T
        top = min(top_k, table.shape[1])
        found = [torch.from_numpy(part @ table).topk(top) for part in _query_chunks(queries)]
        scores = torch.cat((scores, torch.cat([best.values for best in found])), 1)
        places = torch.cat((places, torch.cat([best.indices for best in found]) + start), 1)
        scores, kept = scores.topk(min(top_k, scores.shape[1]))
        places = places.gather(1, kept)
    return scores.numpy(), places.numpy()


@dataclass(frozen=True)
class _Encoded:
    """Texts as the ids of their pieces, end to end, without the special ones round each."""

    ids: NDArray[np.int32]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]  # what is read of each text, special pieces included
    special_tokens: tuple[
        int | None, int | None
    ]  # the special piece before a text, and the one after it, where there are any

    @classmethod
    def of(
        cls, rows: Sequence[Sequence[int]], special_tokens: tuple[int | None, int | None], max_length: int
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
        """Some texts end to end, filled up to a total with short sequences that nobody reads."""
        count, lengths = len(some), self.lengths[some]
        real, shortest, longest = int(lengths.sum()), int(lengths.min()), int(lengths.max())
        if total > real:  # none longer than the others, so that what is sorted stays so
            many, rest = divmod(total - real, shortest)
            lengths = np.append(lengths, [shortest] * many + [rest] * (rest > 0)).astype(np.int64)
        bounds = np.concatenate(([0], np.cumsum(lengths)))
        positions = np.arange(bounds[-1]) - np.repeat(bounds[:-1], lengths)
        start, stop = self.special_tokens
        ids = np.full(len(positions), start or 0, np.int32)
        if len(self.ids):
            places = np.repeat(self.starts[some], lengths[:count]) + positions[:real] - (start is not None)
            ids[:real] = self.ids.take(places, mode="clip")
        if start is not None:
            ids[bounds[:count]] = start
        if stop is not None:
            ids[bounds[1 : count + 1] - 1] = stop
        return Tokens(
            ids=torch.from_numpy(ids),
            bounds=torch.from_numpy(bounds.astype(np.int32)),
            positions=torch.from_numpy(positions.astype(np.int32)),
            max_length=longest,
            equal_lengths=bool((lengths == longest).all()),
        )


@dataclass(frozen=True)
class _Pending:
    """Vectors that are being computed, and how to wait for them."""

    fetch: Callable[[], NDArray[np.float32]] | None = None
    futures: list[Future[None]] = field(default_factory=list)

    def cancel(self) -> None:
        for one in self.futures:
            one.cancel()


@lru_cache(4)
def _thread_pool(process: int, threads: int) -> tuple[ThreadPoolExecutor, int]:
    """Threads that compute passes side by side, one core each: two cores that share a pass wait for each other.

    They stay, so that what is set here is set once; a process that was forked gets its own.
    """
    size = min(threads, WORKERS)
    crew, met = ThreadPoolExecutor(size), Barrier(size)

    def begin() -> None:
        torch.set_num_threads(threads // size)
        met.wait()

    for one in [crew.submit(begin) for _ in range(size)]:
        one.result()
    torch.set_num_threads(threads)  # of this thread, and of those to come
    return crew, size


def _rounded_up(tokens: int) -> int:
    """So many tokens or at most an eighth more: oneDNN compiles a kernel for each number it meets."""
    step = max(ROUND_TO, 1 << max(0, (tokens - 1).bit_length() - 3))
    return -(-tokens // step) * step


def _pin_memory(tokens: Tokens) -> Tokens:
    return replace(
        tokens,
        ids=tokens.ids.pin_memory(),
        bounds=tokens.bounds.pin_memory(),
        positions=tokens.positions.pin_memory(),
    )


def _query_chunks(queries: NDArray[np.float32]) -> list[NDArray[np.float32]]:
    return [queries[first : first + QUERIES] for first in range(0, max(1, len(queries)), QUERIES)]


def _dtype(precision: Precision, device: torch.device) -> torch.dtype:
    """Half precision where matrix units do it faster: on GPUs since Ampere, and on processors with AMX."""
    if precision == "auto":
        if device.type == "cuda":
            fast = torch.cuda.get_device_properties(device).major >= 8
        else:
            fast = torch.cpu._is_amx_tile_supported()
        return torch.bfloat16 if fast else torch.float32
    return torch.bfloat16 if precision == "bfloat16" else torch.float32
