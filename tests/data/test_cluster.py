"""Shards from a cluster of several nodes: the bytes of one machine, whatever dies meanwhile."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from data.test_prepare import contents, document, entries, write

from bertsmith.commands import prepare as command
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards import chunks, cluster
from bertsmith.data.shards.prepare import Summary, prepare
from bertsmith.data.workers import PREFETCH
from bertsmith.errors import RecipeError, RunError, TextError
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

pytestmark = pytest.mark.slow("starts Ray")
needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'bertsmith[ray]'")

SOURCE = Path(__file__).resolve().parents[2] / "src"
LOST = "a chunk of text was lost 11 times with its worker; memory may have run out"
WORKER_NAMES = ("ray::IDLE", "ray::encode_chu")  # that Linux shows, at rest and at work
NO_CLIENT_SERVER = "Starting Ray client server failed"  # a process of Ray's that died as it was forked, now and then
STORE = 1 << 27  # bytes of shared memory of a node
DRIVER = """
import sys
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards import chunks
from bertsmith.data.shards.prepare import prepare
from bertsmith.text.tokenizer import Tokenizer
chunks.CHUNK_CHARACTERS = 4_000
text, out, on = sys.argv[1:]
tokenizer, wait = Tokenizer.load(text + ".tokenizer"), lambda *progress: sys.stdin.readline()
prepare(Corpus([text], layout="lines"), tokenizer, out, shard_tokens=6_000, validation_share=0.1, on=on, progress=wait)
"""


class Text:
    """A text, its tokenizer, and what one machine makes of them."""

    def __init__(self, folder: Path) -> None:
        self.file = write(folder / "a.txt", [document(number % 1_000) for number in range(1_500)])
        some = [" ".join(document(number)) for number in range(200)]
        self.tokenizer = train(some, TokenizerConfig(vocabulary=200, min_frequency=1))
        self.tokenizer.save(folder / "a.txt.tokenizer")
        self.prepare(folder / "whole", on=None)
        self.expected = contents(folder / "whole")

    def prepare(self, out: Path, on: str | None, progress: Callable[[float, int], object] | None = None) -> Summary:
        return prepare(
            Corpus([str(self.file)], layout="lines"),
            self.tokenizer,
            out,
            validation_share=0.1,
            shard_tokens=6_000,
            on=on,
            progress=progress,
        )


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Text]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(chunks, "CHUNK_CHARACTERS", 4_000)
        yield Text(tmp_path_factory.mktemp("text"))


@pytest.fixture(scope="module")
def ray_cluster() -> Iterator[tuple[Any, str]]:
    """Three nodes of one processor each on this machine, and the address at which any machine may join as a client."""
    with pytest.MonkeyPatch.context() as patch, socket.create_server(("127.0.0.1", 0)) as free:
        for name, value in (cluster.ENVIRONMENT | {"PYTHONPATH": str(SOURCE)}).items():
            patch.setenv(name, value)
        port = free.getsockname()[1]
        free.close()
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 1, "object_store_memory": STORE, "ray_client_server_port": port}
        for left in reversed(range(cluster.START_ATTEMPTS)):
            try:
                made = Cluster(initialize_head=True, head_node_args=head)
                break
            except RuntimeError:  # a busy machine
                if not left:
                    raise
        try:
            for _ in range(2):
                made.add_node(num_cpus=1, object_store_memory=STORE)
            yield made, f"ray://127.0.0.1:{port}"
        finally:
            made.shutdown()


def kill_workers(node: Any) -> int:
    """Kill the worker processes of a node; its agents would end the node."""
    import psutil

    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    workers = [child for child in raylet.children(recursive=True) if child.name() in WORKER_NAMES]
    for worker in workers:
        worker.kill()
    return len(workers)


@needs_ray
def test_the_shards_of_a_cluster_are_those_of_one_machine(
    tmp_path: Path, text: Text, ray_cluster: tuple[Any, str]
) -> None:
    text.prepare(tmp_path / "out", on=ray_cluster[0].address)
    assert contents(tmp_path / "out") == text.expected


@pytest.mark.exhaustive
@needs_ray
def test_a_client_of_a_cluster_makes_the_same_shards(tmp_path: Path, text: Text, ray_cluster: tuple[Any, str]) -> None:
    try:
        text.prepare(tmp_path / "out", on=ray_cluster[1])
    except RunError as error:
        if NO_CLIENT_SERVER in str(error):
            pytest.skip(f"Ray did not start its own server for clients, in {cluster.START_ATTEMPTS} attempts")
        raise
    assert contents(tmp_path / "out") == text.expected


@pytest.mark.exhaustive
@needs_ray
def test_the_number_of_chunks_in_flight_is_bounded(text: Text, ray_cluster: tuple[Any, str]) -> None:
    given, done, most = 0, 0, 0

    def items() -> Iterator[tuple[int, list[list[list[str]]]]]:
        nonlocal given
        for number in range(100):
            given += 1
            yield number, [[document(number)]]

    with cluster.connected(ray_cluster[0].address, None) as connection:
        for item, _ in connection.encode_all(items(), text.file.with_name("a.txt.tokenizer"), "uint16"):
            assert item == done
            most = max(most, given - done)
            done += 1
    assert done == 100
    assert most == 3 * PREFETCH


@pytest.mark.exhaustive
@needs_ray
def test_a_killed_worker_and_a_killed_node_cost_their_chunks_only(
    tmp_path: Path, text: Text, ray_cluster: tuple[Any, str]
) -> None:
    import ray

    nodes, calls, killed = ray_cluster[0], 0, 0
    nodes.add_node(num_cpus=1, object_store_memory=STORE)

    def kill(share: float, tokens: int) -> None:
        nonlocal calls, killed
        calls += share > cluster_share
        if calls in (2, 4):
            killed += kill_workers(nodes.head_node) + sum(map(kill_workers, nodes.worker_nodes))
        if calls == 6:
            mine = ray.get_runtime_context().get_node_id()  # with all nodes on one machine it may be any
            victim = next(node for node in nodes.worker_nodes if node.node_id != mine)
            nodes.remove_node(victim, allow_graceful=False)

    cluster_share = 0.1  # of the progress bar: the first reading
    text.prepare(tmp_path / "out", on=nodes.address, progress=kill)
    assert killed
    assert calls > 6
    assert contents(tmp_path / "out") == text.expected


@pytest.mark.exhaustive
@needs_ray
def test_a_killed_driver_goes_on_where_its_journal_ends(
    tmp_path: Path, text: Text, ray_cluster: tuple[Any, str]
) -> None:
    out, on = tmp_path / "out", ray_cluster[0].address
    command = [sys.executable, "-c", DRIVER, str(text.file), str(out), on]
    run = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        assert run.stdin is not None
        run.stdin.write(b"go on\n" * 25)
        run.stdin.flush()
        while not entries(out):
            assert run.poll() is None
            time.sleep(0.01)
    finally:
        run.send_signal(signal.SIGKILL)
        run.communicate()
    before = entries(out)
    assert before
    first: list[int] = []
    text.prepare(out, on=on, progress=lambda share, tokens: first.append(tokens))
    assert first[0] > 6_000 * before * 0.5  # it did not begin anew
    assert contents(out) == text.expected


@pytest.mark.exhaustive
@needs_ray
def test_a_cluster_of_this_machine_ends_with_its_run(
    tmp_path: Path, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    text.prepare(tmp_path / "out", on="auto")
    assert contents(tmp_path / "out") == text.expected
    assert not ray.is_initialized()


@needs_ray
def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path, text: Text, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def fail(*arguments: Any, **options: Any) -> None:  # as after half a minute of trying
        raise ConnectionError("the server said:\nray client connection timeout.\n")

    monkeypatch.setattr(ray, "init", fail)
    with pytest.raises(RunError) as caught:
        text.prepare(tmp_path / "out", on="ray://127.0.0.1:9")
    fact = "Ray cannot be reached (ray client connection timeout)"
    remedy = "Check the address, and that `ray status` answers there"
    assert str(caught.value) == f"ray://127.0.0.1:9: {fact}. {remedy}."


@needs_ray
@pytest.mark.parametrize("kind", [RuntimeError, ConnectionAbortedError])
@pytest.mark.parametrize("failures", [cluster.START_ATTEMPTS - 1, cluster.START_ATTEMPTS])
def test_ray_that_does_not_start_in_time_is_started_again(
    failures: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray

    done: list[str] = []

    def start(*arguments: Any, **options: Any) -> None:
        done.append("init")
        if done.count("init") <= failures:
            raise kind("Timed out waiting for file")

    monkeypatch.setattr(ray, "init", start)
    monkeypatch.setattr(ray, "shutdown", lambda: done.append("shutdown"))
    with ExitStack() as stack:
        if failures == cluster.START_ATTEMPTS:
            stack.enter_context(pytest.raises(RunError, match=r"Ray cannot be reached \(Timed out waiting for file\)"))
        with cluster.connected("ray://127.0.0.1:9", None):
            done.append("used")
    assert [word for word in done if word != "used"] == ["init", "shutdown"] * cluster.START_ATTEMPTS
    assert ("used" in done) == (failures < cluster.START_ATTEMPTS)


def test_a_name_that_is_no_cluster_is_refused(tmp_path: Path, text: Text) -> None:
    with pytest.raises(RecipeError) as caught:
        text.prepare(tmp_path / "out", on="spark")
    assert str(caught.value) == "on: 'spark' is no cluster. Give auto, or an address such as ray://host:10001."


@needs_ray
def test_the_workers_of_a_cluster_are_its_own(tmp_path: Path, text: Text) -> None:
    with pytest.raises(RecipeError) as caught:
        command.prepare([str(text.file)], tmp_path / "out", text.file.with_name("a.txt.tokenizer"), on="a:1", workers=2)
    assert str(caught.value) == "workers: the cluster at a:1 has its own. Leave it out."


def test_without_ray_one_line_says_how_to_install_it(
    tmp_path: Path, text: Text, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RunError) as caught:
        text.prepare(tmp_path / "out", on="auto")
    assert str(caught.value) == "on: needs Ray. Install it with: pip install 'bertsmith[ray]'."


def test_a_node_with_other_code_is_refused(text: Text) -> None:
    with pytest.raises(RunError) as caught:
        cluster.encode_chunk([], {}, "uint16", "another")
    fact = "a node has another version of bertsmith or tokenizers than this machine"
    assert str(caught.value) == f"ray: {fact}. Install the same ones on all nodes."


def test_a_task_encodes_as_a_worker_does(text: Text) -> None:
    folder = text.file.with_name("a.txt.tokenizer")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    (found,) = cluster.encode_chunk([[document(1)]], files, "uint16", cluster.code_version())
    expected = [number for ids in Tokenizer.load(folder).encode(document(1)) for number in ids]
    assert list(memoryview(found.tokens).cast("H")) == expected


class Raising:
    """A stand-in for Ray whose every call fails."""

    class exceptions:  # noqa: N801  (the name of Ray's module)
        class RayError(Exception): ...

        class RayTaskError(RayError):
            def __init__(self, cause: Exception) -> None:
                self.cause = cause

        class WorkerCrashedError(RayError): ...

        class NodeDiedError(RayError): ...

        class ObjectLostError(RayError): ...

        class OutOfMemoryError(RayError): ...

    def __init__(self, error: type[Exception], *arguments: Any) -> None:
        self.error = error(*arguments)

    def remote(self, **options: Any) -> Any:
        return lambda task: task

    def put(self, value: Any) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("error", "arguments", "kind", "line"),
    [
        ("RayError", ("gone\nand more",), RunError, "at: the cluster was lost (gone). Run the same command again."),
        ("RayTaskError", (MemoryError("no room"),), RunError, "at: a task failed (no room)."),
        ("RayTaskError", (TextError("a.txt", "is bad"),), TextError, "a.txt: is bad."),
        (
            "NodeDiedError",
            (),
            RunError,
            f"at: {LOST}. Run the same command again.",
        ),
    ],
)
def test_an_error_of_ray_is_one_line(
    tmp_path: Path, error: str, arguments: tuple[Any, ...], kind: type[Exception], line: str
) -> None:
    ray = Raising(getattr(Raising.exceptions, error), *arguments)
    with pytest.raises(kind) as caught:
        next(cluster.Cluster(ray, "at").encode_all([], tmp_path, "uint16"))
    assert str(caught.value) == line
    assert os.linesep not in line
