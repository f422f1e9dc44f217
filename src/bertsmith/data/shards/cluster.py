"""A cluster: Ray encodes the chunks of a corpus on many machines, in order, with a bounded number of chunks in flight.

Tasks of Ray's core, and not `ray.data`: which documents are duplicates, and which are held out, depends on all
documents before them, so one process reads the text in order and hands out chunks; a dataset would need all chunks
before it begins, or lose their order. A task has no state but its chunk, so Ray runs it again on another node where a
worker or a node dies. The text goes through the driver: a cluster helps until the driver reads as fast as it can.
"""

import os
import tempfile
import time
import warnings
from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

from bertsmith.data.shards import encode
from bertsmith.data.shards.encoded import EncodedDocuments
from bertsmith.data.shards.workers import Documents, Item
from bertsmith.data.workers import PREFETCH
from bertsmith.errors import BertsmithError, RecipeError, RunError

AUTO = "auto"  # the cluster that RAY_ADDRESS names, or a new one on this machine that ends with the run
MAX_RETRIES = 10  # times that a chunk is encoded again where its worker or its node died
START_ATTEMPTS = 3  # at a Ray that does not start within its own limits on time, as on a busy machine
RESOURCES_SECONDS = 5.0  # between two questions how many processors the cluster has now
STORE_BYTES = 8 << 20  # of Ray's shared memory for each chunk in flight on this machine, its text and its tokens
MIN_STORE_BYTES = 1 << 27  # Ray refuses less than 75 MB
AGAIN = "Run the same command again"
ENVIRONMENT = {  # of Ray itself, unless the user has set it
    "RAY_USAGE_STATS_ENABLED": "0",  # nothing is sent to anybody
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",  # no warning about GPUs, which encoding does not use
}


def check_address(on: str) -> None:
    """Refuse a name that is neither `auto` nor the address of a cluster."""
    if on != AUTO and ":" not in on:
        raise RecipeError("on", f"'{on}' is no cluster", "Give auto, or an address such as ray://host:10001")


class Cluster:
    """A connection to Ray that encodes documents."""

    def __init__(self, ray: Any, name: str) -> None:
        self._ray, self.name = ray, name
        self._task = ray.remote(num_cpus=1, max_retries=MAX_RETRIES)(encode_chunk)
        self._processors, self._asked = 1, -RESOURCES_SECONDS

    def encode_all(
        self, items: Iterable[tuple[Item, list[Documents]]], folder: Path, dtype: str
    ) -> Generator[tuple[Item, list[EncodedDocuments]], None, None]:
        """Encode each item's documents with the tokenizer of a folder; the items are returned in order."""
        waiting: deque[tuple[Item, Any]] = deque()
        with self._explained():
            tokenizer = self._ray.put({path.name: path.read_bytes() for path in folder.iterdir()})
        for item, groups in items:
            with self._explained():
                waiting.append((item, self._task.remote(groups, tokenizer, dtype, code_version())))
            while len(waiting) >= PREFETCH * self.processors:
                yield self._first(waiting)
        while waiting:
            yield self._first(waiting)

    @property
    def processors(self) -> int:
        """The processors of all nodes, which may come and go."""
        if time.monotonic() - self._asked > RESOURCES_SECONDS:
            with self._explained():
                self._processors = max(1, int(self._ray.cluster_resources().get("CPU", 1)))
            self._asked = time.monotonic()
        return self._processors

    def _first(self, waiting: deque[tuple[Item, Any]]) -> tuple[Item, list[EncodedDocuments]]:
        item, answer = waiting.popleft()
        with self._explained():
            return item, self._ray.get(answer)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn errors of Ray into one line."""
        errors = self._ray.exceptions
        try:
            yield
        except errors.RayTaskError as error:  # of the task itself, which fails on every node
            if isinstance(error.cause, BertsmithError):
                raise error.cause from None
            raise RunError(self.name, f"a task failed ({_lines(error.cause)[0]})") from None
        except (errors.WorkerCrashedError, errors.NodeDiedError, errors.ObjectLostError, errors.OutOfMemoryError):
            fact = f"a chunk of text was lost {MAX_RETRIES + 1} times with its worker; memory may have run out"
            raise RunError(self.name, fact, AGAIN) from None
        except (errors.RayError, ConnectionError) as error:
            raise RunError(self.name, f"the cluster was lost ({_lines(error)[0]})", AGAIN) from None


@contextmanager
def connected(on: str, workers: int | None) -> Iterator[Cluster]:
    """A connection to a cluster; `workers` are the processors of one that is started on this machine."""
    ray = _import_ray()
    address = os.environ.get("RAY_ADDRESS", "local") if on == AUTO else on
    if ray.is_initialized() and on == AUTO:  # the caller's own program uses Ray
        yield Cluster(ray, "ray")
        return
    options: dict[str, Any] = {"log_to_driver": False, "logging_level": "ERROR"}
    if address == "local":
        processors = workers or len(os.sched_getaffinity(0))
        store = max(MIN_STORE_BYTES, PREFETCH * processors * STORE_BYTES)
        options |= {"num_cpus": processors, "include_dashboard": False, "object_store_memory": store}
    elif workers is not None:
        raise RecipeError("workers", f"the cluster at {address} has its own", "Leave it out")
    name = "ray" if address == "local" else address
    try:
        _start(ray, address, name, options)
        yield Cluster(ray, name)
    finally:
        ray.shutdown()


def _start(ray: Any, address: str, name: str, options: dict[str, Any]) -> None:
    """Connect, or start a cluster; an attempt that fails leaves nothing that the next one would meet."""
    for attempts_left in reversed(range(START_ATTEMPTS)):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # the error says the same
                ray.init(address, **options)
            return
        except (RuntimeError, ValueError, OSError) as error:
            was_cut_off = isinstance(error, RuntimeError | ConnectionAbortedError)  # Ray was there, and failed
            if not (was_cut_off and attempts_left):
                fact = f"Ray cannot be reached ({_lines(error)[-1]})"
                raise RunError(name, fact, "Check the address, and that `ray status` answers there") from None
            ray.shutdown()


def encode_chunk(
    groups: list[Documents], tokenizer: dict[str, bytes], dtype: str, version: str
) -> list[EncodedDocuments]:
    """A task of Ray: the ids of some documents. A worker process keeps its tokenizer and the cache of words."""
    if version != code_version():
        fact = "a node has another version of bertsmith or tokenizers than this machine"
        raise RunError("ray", fact, "Install the same ones on all nodes")
    encoder = _encoder(tuple(sorted(tokenizer.items())), dtype)
    return [encoder.encode(documents) for documents in groups]


@cache
def _encoder(tokenizer: tuple[tuple[str, bytes], ...], dtype: str) -> encode.Encoder:
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the processors are taken by other tasks
    with tempfile.TemporaryDirectory() as name:
        for file, content in tokenizer:
            Path(name, file).write_bytes(content)
        return encode.Encoder(Path(name), dtype)


@cache
def code_version() -> str:
    """A hash of the code that encodes and of its library: with another one the bytes might differ."""
    code = Path(encode.__file__).read_bytes() + metadata.version("tokenizers").encode()
    return sha256(code).hexdigest()[:16]


def _import_ray() -> Any:
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        import ray
        import ray.exceptions
    except ImportError:
        raise RunError("on", "needs Ray", "Install it with: pip install 'bertsmith[ray]'") from None
    return ray


def _lines(error: BaseException) -> list[str]:
    """The message of an error, line by line, without the last full stop."""
    return str(error).strip().rstrip(".").splitlines() or [type(error).__name__]
