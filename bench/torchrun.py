"""Training under torchrun beside training without: the speed of one process, and the losses of two.

    python bench/torchrun.py PREPARED --recipe bert-base --losses bert-small --out bench/results/torchrun.json

The commands are run as a person types them, and the figures read from their logs. Where there is one GPU, two processes
share it and talk through the host by gloo: that shows that they learn the same, and nothing about speed. On a CPU, with
`--recipe bert-tiny --losses bert-tiny --tokens 4096 --length 64 --steps 30 --skip 10`.
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from record import record

from bertsmith.train import hardware, log

MICRO_BATCHES = 2  # of the runs whose losses are compared, so that two processes have one each


def train(out: Path, arguments: Sequence[str], processes: int = 0) -> list[dict[str, Any]]:
    """The updates of a run by so many processes under torchrun, or without it."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)] if processes else []
    command = [sys.executable, *launcher, "-m", "bertsmith", "pretrain", *arguments, "--out", str(out)]
    subprocess.run(command, check=True)
    return [entry for entry in log.read(out / log.NAME) if entry["kind"] == "step"]


def speed(updates: Sequence[dict[str, Any]], skip: int) -> float:
    return statistics.median(one["tokens_per_second"] for one in updates if one["step"] > skip)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--recipe", default="bert-base", help="whose speed is measured")
    parser.add_argument("--losses", default="bert-small", help="the recipe whose losses are compared")
    parser.add_argument("--tokens", type=int, default=65_536, help="of a batch")
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--steps", type=int, default=90)
    parser.add_argument("--skip", type=int, default=30, help="updates before those that are timed")
    parser.add_argument("--out", type=Path, default=Path("bench/results/torchrun.json"))
    options = parser.parse_args()
    common = ["--data", str(options.data), f"data.max_length={options.length}"]
    fast = [options.recipe, *common, "--steps", str(options.steps), f"data.batch_tokens={options.tokens}"]
    exact = [options.losses, *common, "--steps", str(options.steps // 3), f"data.batch_tokens={options.tokens // 4}"]
    exact += ["train.compile=never", f"train.gradient_accumulation={MICRO_BATCHES}"]
    with TemporaryDirectory() as name:
        folder = Path(name)
        speeds = {
            "plain": speed(train(folder / "plain", fast), options.skip),
            "torchrun, one process": speed(train(folder / "one", fast, 1), options.skip),
        }
        losses = [[one["loss"] for one in train(folder / f"losses-{size}", exact, size)] for size in (0, 2)]
    differences = [abs(one - other) for one, other in zip(*losses, strict=True)]
    figures = {
        "median tokens per second": {name: round(value) for name, value in speeds.items()},
        "torchrun as a share of plain": round(speeds["torchrun, one process"] / speeds["plain"], 4),
        "largest difference of a loss of two processes": max(differences),
        "losses by one process and by two": [
            [round(value, 5) for value in pair] for pair in list(zip(*losses, strict=True))[:: options.steps // 15]
        ],
    }
    print(figures)
    record(options.out, figures, hardware.describe(hardware.select_device("auto")))


if __name__ == "__main__":
    main()
