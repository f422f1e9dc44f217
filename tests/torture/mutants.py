"""Every guard removed once, in a copy: a test must fail for it, or it proves nothing. `make mutants` runs this."""

import argparse
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

# What takes longest to import is imported once, before a process is forked for each mutant; nothing of ours is.
import pytest
import safetensors.torch
import tokenizers
import torch
import typer.testing
from guards import TABLE, Guard

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 300  # seconds; what hangs without its guard is noticed, too
MEMORY = 8 << 30  # bytes of a process: a limit that is removed must not take the machine with it
LIBRARIES = (safetensors.torch, tokenizers, torch, typer.testing)


def copied(place: Path) -> Path:
    """What the tests need of the repository."""
    skipped = shutil.ignore_patterns("__pycache__", ".*_cache", "results")
    for name in ("src", "tests", "bench", "docs"):
        shutil.copytree(ROOT / name, place / name, ignore=skipped)
    for name in ("pyproject.toml", "README.md", "CHANGELOG.md", "Makefile"):
        shutil.copy(ROOT / name, place / name)
    return place


def outcome(root: Path, tests: list[str], patience: float = PATIENCE) -> tuple[str, float]:
    """How the tests go in a copy: passed, failed, or the time over; and how long that took."""
    began, said = time.monotonic(), root / "said.txt"
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        with said.open("w") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        del sys.modules["__main__"].__file__  # or processes that tests start would run this file first
        os.chdir(root)
        os.environ["PYTHONPATH"] = str(root / "src")
        sys.path[:] = [path for path in sys.path if not Path(path).is_relative_to(ROOT / "tests")]
        arguments = ["-x", "-q", "-p", "no:cacheprovider", "-W", "ignore::DeprecationWarning"]
        os._exit(int(pytest.main([*arguments, *(f"tests/{name}" for name in tests)])))
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() - began < patience:
        time.sleep(0.05)
    seconds = time.monotonic() - began
    if ended[0] == 0:
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return "hung", seconds
    code = os.waitstatus_to_exitcode(ended[1])
    return {0: "passed", 1: "failed"}.get(code, "failed" if code < 0 else f"error {code}"), seconds


def removed(root: Path, guard: Guard, number: int) -> str:
    """How its tests go without the guard."""
    path = root / "src" / "bertsmith" / guard.file
    whole = path.read_text(encoding="utf-8")
    if whole.count(guard.text) != 1:
        return "not found"
    path.write_text(whole.replace(guard.text, guard.without), encoding="utf-8")
    os.utime(path, (10**9 + number, 10**9 + number))  # what was compiled before is known by the time to be older
    try:
        return outcome(root, guard.tests.split())[0]
    finally:
        path.write_text(whole, encoding="utf-8")
        os.utime(path, (10**9 - 1 - number, 10**9 - 1 - number))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="a file for the figures")
    parser.add_argument("--only", default="", help="guards whose promise or file has these words in it")
    asked = parser.parse_args()
    guards = [guard for guard in TABLE if asked.only in f"{guard.promise} {guard.file}"]
    rows, began = [], time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        root = copied(Path(place))
        named = sorted({name for guard in guards for name in guard.tests.split()})
        how, seconds = outcome(root, named, 12 * PATIENCE)
        print(f"all guards in place: {how} ({seconds:.0f} s)", flush=True)
        if how != "passed":
            print((root / "said.txt").read_text()[-3000:])
            sys.exit("the tests must pass while the guards are there")
        for number, guard in enumerate(guards, 1):
            how = removed(root, guard, number)
            caught = how in ("failed", "hung")
            rows.append({"promise": guard.promise, "file": guard.file, "without": how, "caught": caught})
            print(f"{number:3} of {len(guards)} {'caught' if caught else 'MISSED'} {guard.promise} ({how})", flush=True)
    missed = [row["promise"] for row in rows if not row["caught"]]
    print(f"{len(rows) - len(missed)} of {len(rows)} removals noticed in {time.monotonic() - began:.0f} s")
    if asked.out:
        sys.path[:0] = [str(ROOT / "src"), str(ROOT / "bench")]
        from record import record

        from bertsmith.train import hardware

        figures = {"guards": len(rows), "caught": len(rows) - len(missed), "missed": missed, "rows": rows}
        record(asked.out, figures, hardware.describe(torch.device("cpu")))
    sys.exit(1 if missed else 0)


if __name__ == "__main__":
    main()
