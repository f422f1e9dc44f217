"""The server as processes: it ends in order, reloads without a lost request, and survives the death of its parts."""

import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from inference.test_load import plain, saved
from serving.running import RunningServer, running

pytestmark = pytest.mark.slow("starts servers")

KEY = "a-key-for-tests"
SECRET = "unbelievable 1984"  # a text that no log may show


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return plain(tmp_path_factory.mktemp("model") / "mine")


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """With two fronts and a key in the environment."""
    with running(tmp_path_factory.mktemp("server"), str(model), "--fronts", "2", BERTSMITH_KEY=KEY) as one:
        yield one


class Load:
    """Clients that ask again and again, each on new connections; and the statuses that they got."""

    def __init__(self, server: RunningServer, clients: int = 4) -> None:
        self.server, self.statuses, self.errors = server, list[int](), list[str]()
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._ask) for _ in range(clients)]

    def _ask(self) -> None:
        while not self._stop.is_set():
            try:
                self.statuses.append(self.server.ask("/embed", {"inputs": SECRET}, KEY)[0])
            except OSError as error:
                self.errors.append(repr(error))
                time.sleep(0.05)

    @contextmanager
    def __call__(self) -> Iterator["Load"]:
        for thread in self._threads:
            thread.start()
        try:
            time.sleep(0.3)
            yield self
            time.sleep(0.3)
        finally:
            self._stop.set()
            for thread in self._threads:
                thread.join()


def test_fronts_never_import_torch(server: RunningServer) -> None:
    fronts, models = server.children("front"), server.children("model_process")
    assert (len(fronts), len(models)) == (2, 1)
    assert server.ask("/embed", {"inputs": SECRET}, KEY)[0] == 200
    assert any("torch" in one.path for one in models[0].memory_maps())
    for front in fronts:
        assert not [one.path for one in front.memory_maps() if "torch" in one.path]


def test_the_key_comes_from_the_environment_and_is_in_no_command_line(server: RunningServer) -> None:
    assert server.ask("/health")[0] == 200
    assert server.ask("/v1/models")[0] == 401
    assert server.ask("/v1/models", key=KEY)[0] == 200
    assert not any(KEY in word for one in server.children("") for word in one.cmdline())


def test_models_are_loaded_anew_without_a_lost_request(server: RunningServer, model: Path, tmp_path: Path) -> None:
    [old] = server.children("model_process")
    saved(tmp_path / "other", "class")
    kept = shutil.copytree(model, tmp_path / "kept")
    with Load(server)() as load:
        for path in (tmp_path / "other").iterdir():
            shutil.copy(path, model)
        server.signal(signal.SIGHUP)
        server.wait_for(lambda: "the new models are served" in server.errors)
    assert set(load.statuses) == {200}
    assert not load.errors
    assert server.ask("/predict", {"inputs": "the cat"}, KEY)[1]["label"] in ("no", "so-so", "yes")
    server.wait_for(lambda: not old.is_running())
    (model / "model.safetensors").write_bytes(b"broken")
    server.signal(signal.SIGHUP)
    server.wait_for(lambda: "the models stay as they are" in server.errors)
    assert server.ask("/predict", {"inputs": "the cat"}, KEY)[0] == 200
    shutil.rmtree(model)
    shutil.copytree(kept, model)
    server.signal(signal.SIGHUP)
    server.wait_for(lambda: server.errors.count("the new models are served") == 2)
    assert server.ask("/fill", {"inputs": "the [MASK]"}, KEY)[0] == 200


def test_a_model_process_that_dies_is_started_again(server: RunningServer) -> None:
    with Load(server)() as load:
        server.children("model_process")[0].kill()
        server.wait_for(lambda: "the model process has died" in server.errors)
        server.wait_for(lambda: server.ask("/ready", key=KEY)[0] == 200)
    assert set(load.statuses) <= {200, 503}
    assert load.statuses[-1] == 200
    assert not load.errors  # fronts go on answering


def test_a_front_that_dies_is_started_again(server: RunningServer) -> None:
    front = server.children("front")[0]
    front.kill()
    server.wait_for(lambda: "a front has died" in server.errors)
    for _ in range(20):  # new connections wait until it is back
        assert server.ask("/health")[0] == 200
    server.wait_for(lambda: len(server.children("front")) == 2)
    for _ in range(20):
        server.wait_for(lambda: server.ask("/ready", key=KEY)[0] == 200)


def test_counters_are_those_of_all_fronts(server: RunningServer) -> None:
    import urllib.request

    def count() -> float:
        request = urllib.request.Request(f"{server.url}/metrics", headers={"Authorization": f"Bearer {KEY}"})
        with urllib.request.urlopen(request) as answer:
            lines = answer.read().decode().splitlines()
        [line] = [line for line in lines if line.startswith('bertsmith_requests_total{route="/tokenize",status="200"}')]
        return float(line.split()[1])

    server.ask("/tokenize", {"inputs": SECRET}, KEY)
    before = count()
    for _ in range(10):
        assert server.ask("/tokenize", {"inputs": SECRET}, KEY)[0] == 200
    assert {count() for _ in range(10)} == {before + 10}


def test_texts_and_keys_are_in_no_log(server: RunningServer) -> None:
    server.ask("/fill", {"inputs": SECRET}, KEY)
    server.ask("/embed", {"inputs": [SECRET, 3]}, KEY)
    assert SECRET not in server.errors
    assert KEY not in server.errors


@pytest.mark.exhaustive(suite=1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_when_accepted_requests_are_answered(
    model: Path, tmp_path: Path, number: signal.Signals
) -> None:
    with running(tmp_path, str(model)) as server:
        statuses = []
        body = {"inputs": [f"{SECRET} {one}" for one in range(1_000)]}
        asking = [threading.Thread(target=lambda: statuses.append(server.ask("/embed", body)[0])) for _ in range(6)]
        for thread in asking:
            thread.start()
        time.sleep(0.2)
        server.signal(signal.SIGTERM)
        for thread in asking:
            thread.join()
        assert server.process.wait(30) == 0
        assert statuses == [200] * 6
        assert server.errors == ""
        with pytest.raises(OSError):
            server.ask("/health")


@pytest.mark.exhaustive
def test_new_clients_are_turned_away_while_accepted_requests_are_answered(model: Path, tmp_path: Path) -> None:
    with running(tmp_path, str(model)) as server:
        slow = socket.create_connection(("127.0.0.1", server.port))
        slow.sendall(b"POST /embed HTTP/1.1\r\nHost: localhost\r\nContent-Length: 15\r\n\r\n{")
        time.sleep(0.3)
        server.signal(signal.SIGTERM)
        time.sleep(1)
        with pytest.raises(ConnectionRefusedError):  # and not a connection that nobody accepts
            socket.create_connection(("127.0.0.1", server.port), timeout=5).close()
        slow.sendall(b'"inputs": "a"}')
        assert slow.recv(1_000).startswith(b"HTTP/1.1 200 ")
        slow.close()
        assert server.process.wait(30) == 0


@pytest.mark.exhaustive
def test_nothing_outlives_a_supervisor_that_was_killed(model: Path, tmp_path: Path) -> None:
    with running(tmp_path, str(model)) as server:
        children = [*server.children("front"), *server.children("model_process")]
        server.process.kill()
        server.wait_for(lambda: not any(child.is_running() for child in children))


def refusal(*arguments: str) -> str:
    """The line of a server that must not start."""
    command = [sys.executable, "-m", "bertsmith", "serve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr


def test_what_cannot_be_started_is_a_line(server: RunningServer, model: Path, tmp_path: Path) -> None:
    assert refusal(str(model), "--port", str(server.port)).startswith(f"bertsmith: port {server.port}: cannot be used")
    (tmp_path / "empty").mkdir()
    assert refusal(str(tmp_path / "empty"), "--port", "0").startswith(f"bertsmith: {tmp_path / 'empty'}")
