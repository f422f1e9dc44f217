"""The training speed of each member of the family with its own recipe: tokens per second, MFU and memory.

    python bench/members.py TEXT [section.key=value ...] [--members bert-base gpt2 t5-base] [--length 128]

TEXT is prepared once for each kind of tokenizer, and kept under --work. Each member takes whole steps of `bertsmith
pretrain`, data loading included: objective, optimizer and schedule are its recipe's; length and tokens are the same for
all, and overrides go to every recipe. MFU counts the FLOPs per token of the objective, over the speed of a large bf16
matrix product measured in this run. A member that fails is recorded as failed, and the others are measured.
"""

import argparse
import sys
import tempfile
import time
import traceback
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from pretrain import TIMED, WARM, memory, wait
from record import record

from bertsmith.commands import entrants, pretrain, race
from bertsmith.recipe import Recipe
from bertsmith.runs import build
from bertsmith.runs.candidates import tokenizer_kind
from bertsmith.train import hardware
from bertsmith.train.display import Display
from bertsmith.train.forward import should_capture
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.step import Step
from bertsmith.train.step_metrics import Speed
from bertsmith.train.trainer import Trainer

MEMBERS = (
    "bert-base",
    "roberta-base",
    "albert-base",
    "electra-base",
    "modernbert-base",
    "gpt2",
    "t5-base",
    "smith-base",
)


def measured(recipe: Recipe, device: torch.device) -> dict[str, Any]:
    """Steps of one recipe."""
    torch.manual_seed(0)
    tokenizer, train, _ = build.load_data(recipe)
    objective = build.objective(recipe, tokenizer).to(device)
    source = build.feed(recipe, objective, tokenizer, train)
    precision = hardware.select_precision(recipe.train.precision, device)
    recorded = should_capture(objective, recipe.train, precision, device)
    hidden = objective.hidden_matrices()
    optimizer = Optimizer(objective, recipe.optimizer, hidden_matrices=hidden, capturable=recorded)
    trainer = Trainer(
        Step(objective, optimizer, recipe.train, precision),
        source,
        recipe.schedule,
        recipe.train,
        folder=Path(tempfile.mkdtemp()),
        compute_metrics=dict,
        speed=Speed(None, objective.flops),
        display=Display(),
        tensorboard=False,
    )
    began = time.perf_counter()
    with source.loader(source.first_position(), pin_memory=device.type == "cuda") as loader:
        for _ in range(WARM):
            trainer.update([next(loader)[1]], 0.1)
        wait(device)
        warm = time.perf_counter() - began
        began, seen, squares = time.perf_counter(), 0, 0
        for _ in range(TIMED):
            batch = next(loader)[1]
            trainer.update([batch], 0.1)
            seen, squares = seen + batch.counts["tokens"], squares + batch.counts["squares"]
        wait(device)
        seconds = time.perf_counter() - began
    return {
        "tokens_per_second": seen / seconds,
        "flops_per_token": objective.flops(squares / seen),
        "memory_gib": memory(device),
        "first_steps_seconds": warm,
        "parameters": sum(weight.numel() for weight in objective.parameters()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("overrides", nargs="*", help="of every recipe, as in model.layers=2")
    parser.add_argument("--members", nargs="+", default=MEMBERS)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--work", type=Path, default=Path("runs/members"))
    parser.add_argument("--out", type=Path, default=Path("bench/results/members.json"))
    options = parser.parse_args()
    device = hardware.select_device("auto")
    peak = hardware.peak_flops(device, torch.bfloat16) if device.type == "cuda" else None
    same = {"length": options.length, "tokens": options.tokens, "peak_flops": peak}
    rows: list[dict[str, Any]] = []
    for name in options.members:
        changes = [
            f"data.max_length={options.length}",
            f"data.batch_tokens={options.tokens}",
            "train.gradient_accumulation=1",
        ]
        recipe = pretrain.read_recipe(name, [*changes, *options.overrides])
        folder = entrants.prepare_text(
            [str(options.text)], options.work, tokenizer_kind(recipe.model.kind, recipe.model.settings), True
        )
        recipe = replace(recipe, data=replace(recipe.data, folder=folder))
        race.free_memory()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats()
        try:
            figures = measured(recipe, device)
        except Exception as error:  # whatever a compiler may throw: minutes of others are at stake
            traceback.print_exc()
            rows.append({"member": name, "failed": f"{type(error).__name__}: {error}"[:500]})
            record(options.out, {**same, "rows": rows}, hardware.describe(device))
            continue
        if peak is not None:
            figures["mfu"] = figures["tokens_per_second"] * figures["flops_per_token"] / peak
        rows.append({"member": name, **figures})
        used = f"MFU {figures['mfu']:.3f}  " if peak is not None else ""
        print(
            f"{name:16s} {figures['tokens_per_second'] / 1e3:8.1f} k tokens/s  {used}{figures['memory_gib']:.1f} GiB",
            flush=True,
        )
        record(options.out, {**same, "rows": rows}, hardware.describe(device))
    sys.exit(int(any("failed" in row for row in rows)))


if __name__ == "__main__":
    main()
