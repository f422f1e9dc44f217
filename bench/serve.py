"""`bertsmith serve` beside its peers under a closed-loop load, and the promises D2 and D3 at their full figure.

    python bench/serve.py [MODEL] [--seconds 5] [--rounds 3] [--out bench/results/serve-cpu.json]
    python bench/serve.py --promises [--out bench/results/serve-promises.json]

MODEL is a folder that sentence-transformers opens; all-MiniLM-L6-v2 from its package by default. Servers run at the
same time, and only one of them is asked at a time; rounds alternate, and figures are medians over rounds. The load is
`bench/load.py`, in a process of its own on the same machine. --infinity PYTHON adds infinity-emb from another
environment.
"""

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from embed import SAMPLE, lines, packaged
from record import record

from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import hardware

HERE = Path(__file__).parent
PATH = "/v1/embeddings"
CLIENTS = (1, 16, 64)
START_SECONDS = 180


def free_port() -> int:
    with socket.socket() as endpoint:
        endpoint.bind(("127.0.0.1", 0))
        return int(endpoint.getsockname()[1])


@contextmanager
def started(command: list[str], port: int, path: str) -> Iterator[int]:
    """The port of a server, as soon as it answers a path."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        end = time.monotonic() + START_SECONDS
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5):
                    break
            except OSError:
                if process.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"it does not start: {' '.join(command)}") from None
                time.sleep(0.2)
        yield port
    finally:
        process.terminate()
        process.wait(60)


def servers(options: argparse.Namespace) -> dict[str, tuple[list[str], int, str]]:
    """The command, the port and the path that says it is ready, by name."""
    python, model = sys.executable, str(options.model)
    ours, theirs, third = free_port(), free_port(), free_port()
    dtype = "bfloat16" if options.device == "cuda" else "float32"
    found = {
        "bertsmith serve": (
            [python, "-m", "bertsmith", "serve", f"model={model}", "--port", str(ours), "--device", options.device],
            ours,
            "/ready",
        )
    }
    if not options.alone:
        found["sentence-transformers behind FastAPI"] = (
            [python, str(HERE / "serve_peer.py"), model, str(theirs), options.device, dtype],
            theirs,
            "/health",
        )
    if options.infinity:
        command = [options.infinity, "-m", "infinity_emb", "v2", "--model-id", model, "--port", str(third)]
        command += [
            "--device",
            options.device,
            "--served-model-name",
            "model",
            "--url-prefix",
            "/v1",
            "--no-bettertransformer",
        ]
        found["infinity"] = (command, third, "/health")
    return found


def bodies(model: Path, tokens: int, per_request: int, count: int = 64) -> tuple[list[bytes], float]:
    """Requests of texts of about this many tokens, and their mean number of tokens."""
    tokenizer = Tokenizer.load(model)
    words = " ".join(lines(SAMPLE)).split()
    found, total, place = [], 0, 0
    for _ in range(count):
        texts = []
        for _ in range(per_request):
            ids: list[int] = []
            size = max(1, tokens // 2)
            while len(ids) < tokens - 2:
                size += max(1, (tokens - 2 - len(ids)) // 2)
                [ids] = tokenizer.encode([" ".join(words[place : place + size])])
            text = tokenizer.decode(ids[: tokens - 2])
            place = (place + size) % (len(words) - 4 * tokens)
            texts.append(text)
            total += tokens
        given = texts[0] if per_request == 1 else texts
        found.append(json.dumps({"input": given, "model": "model"}).encode())
    return found, total / count


def load(port: int, content: list[bytes], clients: int, seconds: float, *more: str) -> dict[str, Any]:
    """The figures of a load."""
    command = [sys.executable, str(HERE / "load.py"), str(port), PATH, str(clients), str(seconds), *more]
    done = subprocess.run(command, input=b"\n".join(content), capture_output=True, check=True)
    return dict(json.loads(done.stdout))


def compare(options: argparse.Namespace) -> dict[str, Any]:
    """Every server at every number of clients, with short and long texts."""
    results: dict[str, Any] = {}
    shapes = {f"{tokens} tokens, {texts} a request": (tokens, texts) for tokens, texts in options.shapes}
    with ExitStack() as stack:
        ports = {name: stack.enter_context(started(*how)) for name, how in servers(options).items()}
        for shape, (tokens, texts) in shapes.items():
            content, mean = bodies(options.model, tokens, texts)
            for port in ports.values():
                load(port, content, max(options.clients), 3)  # warm up every shape
            for clients in options.clients:
                rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in ports}
                for _ in range(options.rounds):
                    for name, port in ports.items():
                        rounds[name].append(load(port, content, clients, options.seconds))
                for name, some in rounds.items():
                    one = {key: statistics.median(each[key] for each in some) for key in some[0] if key != "statuses"}
                    one["tokens_per_second"] = round(one["requests_per_second"] * mean)
                    one["statuses"] = [each["statuses"] for each in some]
                    results.setdefault(shape, {}).setdefault(str(clients), {})[name] = one
                    print(f"{shape:28} {clients:3} clients {name:38}", json.dumps(one), flush=True)
    return results


def promises(options: argparse.Namespace) -> dict[str, Any]:
    """D2: ten times the load. D3: an upload of 1 GB, and 3,000 slow sockets."""
    options.alone, found = True, {}
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        [port] = [stack.enter_context(started(*how)) for how in servers(options).values()]
        content, _ = bodies(options.model, 16, 1)
        load(port, content, 64, 3)
        for name, more in {"patient": (), "impatient": ("--impatient",)}.items():
            peak, crowd = load(port, content, 64, options.seconds), load(port, content, 640, options.seconds, *more)
            began = time.perf_counter()
            while load(port, content, 1, 0.2)["statuses"].keys() != {"200"}:
                pass
            found[f"ten times the load, {name} clients"] = {
                "64 clients": peak,
                "640 clients": crowd,
                "goodput": crowd["requests_per_second"] / peak["requests_per_second"],
                "p99": crowd["p99_ms"] / peak["p99_ms"],
                "recovery_seconds": time.perf_counter() - began,
            }
        found["upload of 1 GB"] = upload(port)
        found["3,000 slow sockets"] = slow(port, 3_000)
    for name, one in found.items():
        print(name, json.dumps(one), flush=True)
    return found


def upload(port: int) -> dict[str, Any]:
    """How much of an upload of 1 GB is sent before it ends, and the status of the answer."""
    sent, piece = 0, b"x" * 65_536
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(b"POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Length: 1073741824\r\n\r\n")
        try:
            while sent < 1 << 30:
                connection.sendall(piece)
                sent += len(piece)
        except OSError:
            pass
        try:
            answer = connection.recv(65_536)
        except OSError:
            answer = b""
    return {"bytes_sent": sent, "status": answer[9:12].decode()}


def slow(port: int, count: int) -> dict[str, Any]:
    """How many of these sockets, each with a byte of its headers a second, are open after 35 seconds."""
    connections = []
    for _ in range(count):
        connection = socket.socket()
        connection.setblocking(False)
        connection.connect_ex(("127.0.0.1", port))
        connections.append(connection)
    end, open_ones = time.monotonic() + 35, connections
    while time.monotonic() < end:
        still = []
        for connection in open_ones:
            try:
                connection.send(b"X")
                if connection.recv(1000) == b"":
                    continue
            except BlockingIOError:
                pass
            except OSError:
                continue
            still.append(connection)
        open_ones = still
        time.sleep(1)
    for connection in connections:
        connection.close()
    return {"sockets": count, "open_after_35_seconds": len(open_ones)}


def shape(text: str) -> tuple[int, int]:
    tokens, _, texts = text.partition("x")
    return int(tokens), int(texts or 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="a folder; all-MiniLM-L6-v2 by default")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=CLIENTS)
    parser.add_argument("--shapes", type=shape, nargs="+", default=[(16, 1), (256, 1)], help="tokens x texts: 512x16")
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--infinity", help="the Python of an environment with infinity-emb")
    parser.add_argument("--alone", action="store_true", help="without peers")
    parser.add_argument("--promises", action="store_true", help="D2 and D3 instead of a comparison")
    parser.add_argument("--out", type=Path, default=Path("bench/results/serve-cpu.json"))
    options = parser.parse_args()
    options.model = options.model or packaged()
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    results = promises(options) if options.promises else compare(options)
    versions = {name: version(name) for name in ("uvicorn", "httptools", "msgspec")}
    if not options.alone:
        versions |= {name: version(name) for name in ("sentence-transformers", "transformers", "fastapi")}
    machine = hardware.describe(hardware.select_device(options.device))
    record(options.out, {"seconds": options.seconds, "rounds": options.rounds, "results": results}, machine | versions)


if __name__ == "__main__":
    main()
