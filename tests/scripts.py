"""Commands and scripts in processes of their own, where no shapes are checked at run time.

A compiler cannot look through such checks, and a person does not meet them. The processes are forked from a server that
has everything imported, which takes longer than most of what they do.
"""

import multiprocessing
import os
import runpy
import subprocess
import sys
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import torch

# Every optimizer of torch imports its compiler.
COMPILER = ("torch._dynamo", "torch._functorch.aot_autograd", "torch._inductor.lowering")
IMPORTED = [
    "bertsmith.commands.pretrain",
    "bertsmith.commands.finetune",
    "tasks.small_images",
    "tiny",
    "scripts",
    "torch.utils.tensorboard",
    *COMPILER,
]


def server() -> ForkServerContext:
    """What forks processes; there is one for all tests of a worker."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    with pytest.MonkeyPatch.context() as patch:
        tests = Path(__file__).resolve().parent  # the server does not inherit sys.path
        patch.setenv("PYTHONPATH", os.pathsep.join([str(tests), str(tests.parent / "src")]))
        forkserver.ensure_running()
    return context


def python(*arguments: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    """`python` with these arguments, without the time that its imports take."""
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("stdin", "stdout", "stderr")]
        paths[0].write_text(stdin, encoding="utf-8")
        process = server().Process(target=_forked, args=(arguments, paths))
        process.start()
        process.join(300)
        if process.exitcode is None:
            process.kill()
        assert process.exitcode is not None, f"{arguments}: it has not ended"
        output, errors = (path.read_text(encoding="utf-8") for path in paths[1:])
        return subprocess.CompletedProcess(arguments, process.exitcode, output, errors)


def _forked(arguments: tuple[str, ...], paths: list[Path]) -> None:
    sys.stdin = paths[0].open(encoding="utf-8")
    for number, path in enumerate(paths[1:], 1):
        with path.open("w") as stream:
            os.dup2(stream.fileno(), number)
    if arguments[0] == "-m":
        sys.argv = list(arguments[1:])
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(arguments)
        sys.path.insert(0, str(Path(arguments[0]).parent))
        runpy.run_path(arguments[0], run_name="__main__")


def run(test: str, name: str, script: str) -> None:
    """A function of a file next to a test, which must not raise."""
    command = [str(Path(test).with_name(name)), script]
    if torch.cuda.is_available():  # a device is not to be forked
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=300, check=False)
    else:
        done = python(*command)
    assert done.returncode == 0, done.stderr[-2000:]
