"""CIFAR-10 in minutes: vision transformers from scratch, with a teacher, and after a masked autoencoder.

    python bench/cifar.py CIFAR [--runs vit-5m vit-10m teacher deit-10m few-labels mae] [--seeds 0 1 2]
        [--folder runs/cifar] [--out bench/results/cifar-h200.json]

CIFAR is the folder of the binary version. Every run is the command that a user would type, in a process of its own; its
seconds are those of the whole command, and `budget` is the part of them that trains. Accuracy is that of the last
weights on the 10,000 test images. A run that is in the results already is not made again, so that the measurement can
be spread over several sessions. `deit-10m` needs the teacher of the same seed, whose time counts. `few-labels` learns
from a tenth of the labels alone, and `mae` first from all images without labels, at equal time.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from record import record

from bertsmith.train import hardware

SIZE = 1 + 3 * 32 * 32  # bytes of a label and an image
TEACHER_BUDGET = 25  # seconds, so that the command with its report takes some thirty
STRONG = ["task.mixup=0.8", "task.cutmix=1.0", "task.label_smoothing=0.1"]  # the changes of images in vit-cifar10
STRONG += ["augmentation.padding=4", "augmentation.operations=2", "augmentation.erasing=0.25"]
TUNING = ["data.batch_size=512", "optimizer.learning_rate=5e-4", "optimizer.betas=[0.9,0.95]", *STRONG]


def command(*arguments: str | Path) -> float:
    """Run bertsmith with these arguments; the seconds that it took."""
    began = time.monotonic()
    subprocess.run([sys.executable, "-m", "bertsmith", *map(str, arguments)], check=True)
    return time.monotonic() - began


def finetune(network: str | Path, data: Path, out: Path, budget: int, seed: int, *overrides: str) -> dict[str, Any]:
    """Train on labels: accuracy on the test images, and what it took."""
    changes = [f"train.seed={seed}", *overrides]
    seconds = command("finetune", network, data, "--out", out, "--budget", f"{budget}s", *changes)
    result = json.loads((out / "result.json").read_text(encoding="utf-8"))
    run = json.loads((out / "seed-0" / "result.json").read_text(encoding="utf-8"))
    accuracy, steps = result["summary"]["accuracy"]["mean"], run["metrics"]["step"]
    return {"accuracy": accuracy, "budget": budget, "seconds": round(seconds, 1), "steps": steps}


def teacher(data: Path, folder: Path, seed: int) -> dict[str, Any]:
    return finetune("convnet-cifar10", data, folder / f"teacher-{seed}", TEACHER_BUDGET, seed)


def vit(budget: int) -> Callable[[Path, Path, int], dict[str, Any]]:
    def trained(data: Path, folder: Path, seed: int) -> dict[str, Any]:
        return finetune("vit-cifar10", data, folder / f"vit-{budget}-{seed}", budget, seed)

    return trained


def deit(budget: int) -> Callable[[Path, Path, int], dict[str, Any]]:
    def trained(data: Path, folder: Path, seed: int) -> dict[str, Any]:
        out, shown = folder / f"deit-{budget}-{seed}", folder / f"teacher-{seed}"
        return finetune("deit-cifar10", data, out, budget, seed, f"teacher={shown}")

    return trained


def few_labels(data: Path, folder: Path, seed: int) -> dict[str, Any]:
    few = tenth(data, folder / "tenth")
    return finetune("vit-cifar10", few, folder / f"few-{seed}", 270, seed)


def mae(data: Path, folder: Path, seed: int) -> dict[str, Any]:
    """From all images without labels for most of the time, and then from a tenth of the labels."""
    first = folder / f"mae-{seed}"
    changes = ["--out", first, "--budget", "180s", f"train.seed={seed}"]
    seconds = command("pretrain", "mae-cifar10", "--data", data, *changes)
    few = tenth(data, folder / "tenth")
    found = finetune(first / "model", few, folder / f"mae-few-{seed}", 60, seed, *TUNING)
    return {**found, "seconds": round(found["seconds"] + seconds, 1), "budget": 240}


def tenth(data: Path, folder: Path) -> Path:
    """A folder with every tenth training image, and all test images."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(data.iterdir()):
        kept = path.read_bytes()
        if path.name.startswith("data_batch"):
            kept = np.frombuffer(kept, np.uint8).reshape(-1, SIZE)[::10].tobytes()
        (folder / path.name).write_bytes(kept)
    return folder


RUNS: dict[str, Callable[[Path, Path, int], dict[str, Any]]] = {
    "vit-5m": vit(270),
    "vit-10m": vit(570),
    "teacher": teacher,
    "deit-5m": deit(240),
    "deit-10m": deit(540),
    "few-labels": few_labels,
    "mae": mae,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--folder", type=Path, default=Path("runs/cifar"))
    parser.add_argument("--out", type=Path, default=Path("bench/results/cifar-h200.json"))
    options = parser.parse_args()
    known = json.loads(options.out.read_text(encoding="utf-8"))["results"] if options.out.exists() else {}
    for seed in options.seeds:
        for name in options.runs:
            if str(seed) in known.get(name, {}):
                continue
            known.setdefault(name, {})[str(seed)] = RUNS[name](options.data, options.folder, seed)
            print(name, seed, known[name][str(seed)], flush=True)
            record(options.out, {"results": known}, hardware.describe(hardware.select_device("auto")))
    for name, seeds in known.items():
        print(f"{name}: {mean(one['accuracy'] for one in seeds.values()):.4f} over {len(seeds)} seeds")


if __name__ == "__main__":
    main()
