"""What `bertsmith make` makes of a text in a given time: its choices, its curve, and the scores of the model folder.

    python bench/make.py TEXT DATA [--budget 10m] [--out bench/results/make.json]
    python bench/make.py --picture docs/images/epochs.svg --out bench/results/make-h200.json

The second line draws the validation loss of a result by how often its text had been read. DATA holds blimp/ and glue/,
as for bench/race.py, whose scores these are. The command runs in a process of its own, as a person types it. A run that
is there already is only scored, so that the same command also ends what was interrupted.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import race
import torch
from record import record

from bertsmith.commands import pretrain
from bertsmith.data.shards.shards import Shards
from bertsmith.inference.load import load
from bertsmith.runs import summary
from bertsmith.runs.race_metrics import held_out_scores
from bertsmith.train import hardware, log

TEXTS = [
    "The capital of France is [MASK].",
    "She opened the [MASK] and read the letter.",
    "The [MASK] was cold and the snow fell all night.",
    "He was born in [MASK] and died in 1920.",
    "Water boils when it is [MASK].",
    "Two plus two is [MASK].",
    "The king and the [MASK] had three children.",
    "They went to the [MASK] to buy bread.",
]


def make(text: Path, out: Path, budget: str) -> float:
    """Run the command; its seconds by the wall."""
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "bertsmith", "make", str(text), "--budget", budget, "--out", str(out)], check=True
    )
    return time.monotonic() - began


def figures(out: Path) -> dict[str, Any]:
    """What was chosen, what was learnt, and what the model fills in."""
    recipe, lines = pretrain.read_recipe(out / "recipe.toml", []), list(log.read(out / log.NAME))
    steps = [line for line in lines if line["kind"] == "step"]
    filled = load(out / "model").fill(TEXTS)
    return {
        "model": recipe.model.kind,
        "reasons": summary.load_choices(out).recipe,
        "recipe": (out / "recipe.toml").read_text(encoding="utf-8"),
        "tokens": steps[-1]["tokens"],
        "text_tokens": Shards(recipe.data.folder / "train").tokens,
        "training_seconds": steps[-1]["seconds"],
        "validation": [line for line in lines if line["kind"] == "validation"],
        "held_out": held_out_scores(out / "model", recipe.data.folder / "valid"),
        "blanks": {
            text: [f"{word.word} {word.probability:.0%}" for word in one.blanks[0]]
            for text, one in zip(TEXTS, filled, strict=True)
        },
    }


def draw(path: Path, row: dict[str, Any]) -> None:
    """The loss of masked words on held-out text, over the number of times that the text had been read."""
    from matplotlib import pyplot

    per_step = row["tokens"] / row["validation"][-1]["step"] / row["text_tokens"]
    points = [(one["step"] * per_step, one["masked_loss"], one["masked_accuracy"]) for one in row["validation"][1:]]
    epochs, losses, shares = zip(*points, strict=True)
    pyplot.rcParams |= {"svg.hashsalt": "bertsmith", "font.size": 11}
    figure, left = pyplot.subplots(figsize=(8, 3.6), layout="constrained")
    left.plot(epochs, losses, "o-", color="#2f6fb3", markersize=4)
    left.set_xlabel("times that the text had been read")
    left.set_ylabel("nats per masked word, held out", color="#2f6fb3")
    right = left.twinx()
    right.plot(epochs, [100 * share for share in shares], "s--", color="#c8651b", markersize=4)
    right.set_ylabel("% of masked words predicted", color="#c8651b")
    for axes in (left, right):
        axes.spines["top"].set_visible(False)
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, nargs="?")
    parser.add_argument("data", type=Path, nargs="?")
    parser.add_argument("--picture", type=Path, help="draw the curve of the result that --out names, and make nothing")
    parser.add_argument("--budget", default="10m")
    parser.add_argument("--work", type=Path, default=Path("runs/bench-make"), help="the run's folder")
    parser.add_argument("--processes", type=int, default=5 if torch.cuda.is_available() else 1, help="that score")
    parser.add_argument("--out", type=Path, default=Path("bench/results/make.json"))
    asked = parser.parse_args()
    if asked.picture:
        draw(asked.picture, json.loads(asked.out.read_text()))
        return
    if asked.data is None:
        parser.error("TEXT and DATA are missing")
    row: dict[str, Any] = {"budget": asked.budget, "scores": {}, "scoring_seconds": 0.0}
    if not (asked.work / "report.html").exists():
        row["wall_seconds"] = round(make(asked.text, asked.work, asked.budget), 1)
    row |= figures(asked.work)

    def keep() -> None:
        row["summary"] = race.summary(row["scores"])
        record(asked.out, row, hardware.describe(hardware.select_device("auto")))

    keep()
    wanted = race.jobs([race.BLIMP, *race.TASKS], asked.work / "model", asked.data, (), race.Size())
    if failed := race.score(row, wanted, asked.processes, keep):
        raise SystemExit(f"{failed} scores failed; the same command goes on")
    print({task: round(mean, 1) for task, (mean, _) in row["summary"].items()})


if __name__ == "__main__":
    main()
