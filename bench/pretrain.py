"""Pretraining speed compared with transformers, in one run, on the same text.

    python bench/pretrain.py PREPARED --sizes bert-base bert-large --lengths 128 512 --rows full ragged packed
    python bench/pretrain.py runs/demo/data --sizes bert-tiny --lengths 32 --tokens 2048 --dropout 0   # on a CPU

There are three kinds of rows: `full`, all of one length except at the end of a batch; `ragged`, of any length from an
eighth of it, like unsplit texts; and `packed`, sentences packed up to the length as `bertsmith pretrain` does.

Ours is the whole step of `bertsmith pretrain`: packing, masking, copying, forward, backward, clipping, AdamW.
transformers gets its batches ready on the device, at no cost. Both see the same sequences, and only tokens of text are
counted. MFU counts the FLOPs of `TransformerConfig.flops`, over the speed of a large matrix product measured in this
run, in bfloat16 where the machine has units for it (otherwise transformers does not run in bfloat16 either); the
positions of the last layer that we skip are still counted. `--profile` also lists the GPU kernels of our step.
"""

import argparse
import itertools
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from record import record

from bertsmith.data.feed import Feed
from bertsmith.data.packing.pack import Packer
from bertsmith.data.shards.shards import Shards
from bertsmith.models.family import FAMILY
from bertsmith.models.hf.convert import to_config_json
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.nn.kernel_choice import KernelName
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import hardware
from bertsmith.train.display import Display
from bertsmith.train.forward import should_capture
from bertsmith.train.optimizers import Optimizer, OptimizerConfig
from bertsmith.train.schedules import ScheduleConfig
from bertsmith.train.step import Step
from bertsmith.train.step_metrics import Speed
from bertsmith.train.train_config import TrainConfig
from bertsmith.train.trainer import Trainer

WARM, TIMED, PROFILED = 8, 30, 5


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def memory(device: torch.device) -> float:
    return torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0


class Cut:
    """A text cut anew, each piece a document of its own, whatever its sentences were."""

    def __init__(self, shards: Shards, shortest: int, longest: int) -> None:
        lengths = np.random.default_rng(0).integers(shortest, longest, shards.tokens // shortest + 1, endpoint=True)
        ends = np.cumsum(lengths)
        self.sentence_ends = ends[ends <= shards.tokens]
        self.document_ends = np.arange(1, len(self.sentence_ends) + 1)
        self.gather = shards.gather


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is trained on what."""

    config: TransformerConfig
    data: Path
    tokenizer: Tokenizer
    rows: str
    length: int
    tokens: int
    device: torch.device
    kernel: KernelName | None
    precision: Literal["auto", "float32", "bfloat16", "pure"]
    profile: bool
    steps: int  # that are timed

    def feed(self, objective: MaskedLM) -> Feed:
        shards, room = Shards(self.data / "train"), self.length - 2
        shortest = {"packed": 0, "full": room, "ragged": self.length // 8 - 2}[self.rows]
        ids = {name: getattr(self.tokenizer, name) for name in ("start_id", "stop_id", "padding_id")}
        pack = Packer(
            Cut(shards, shortest, room) if shortest else shards,
            max_length=self.length,
            batch_tokens=self.tokens,
            pairs="none",
            seed=0,
            **ids,
        )
        return Feed(pack, objective.collator(self.tokenizer), shards.fingerprint)


def ours(case: Case) -> dict[str, float]:
    """Our step, loader and all."""
    torch.manual_seed(0)
    config, tokens, device = case.config, case.tokens, case.device
    objective = MaskedLM(Transformer(config), MaskedLM.Config(pairs="none"))
    initialise(objective, 0)
    objective = objective.to(device)
    objective.trunk.kernel = case.kernel
    source = case.feed(objective)
    plan, precision = (
        TrainConfig(steps=1000, precision=case.precision),
        hardware.select_precision(case.precision, device),
    )
    recorded = should_capture(objective, plan, precision, device)
    trainer = Trainer(
        Step(objective, Optimizer(objective, OptimizerConfig(), capturable=recorded), plan, precision),
        source,
        ScheduleConfig(),
        plan,
        folder=Path(tempfile.mkdtemp()),
        compute_metrics=dict,
        speed=Speed(None, lambda attended: 0.0),
        display=Display(),
        tensorboard=False,
    )
    began = time.perf_counter()
    with source.loader(source.first_position(), pin_memory=device.type == "cuda") as loader:
        for _ in range(WARM):
            trainer.update([next(loader)[1]], 0.1)
        wait(device)
        first_steps = time.perf_counter() - began
        seen = squares = chosen = 0
        laps = []
        for _ in range(case.steps):
            lap = time.perf_counter()
            batch = next(loader)[1]
            trainer.update([batch], 0.1)
            seen, squares = seen + batch.counts["tokens"], squares + batch.counts["squares"]
            chosen += batch.counts["masked"]
            laps.append(lap)
        wait(device)
        seconds = time.perf_counter() - laps[0]
        kernels = profiled(lambda: trainer.update([next(loader)[1]], 0.1)) if case.profile else None
    return {
        "tokens_per_second": seen / seconds,
        "flops_per_token": config.flops(squares / seen, chosen / seen),
        "memory_gib": memory(device),
        "first_steps_seconds": first_steps,
        "loss": float(trainer.step_metrics._pending[-1][1][0]),
        "filler": 1 - seen / (case.steps * tokens),
        **({"kernels": kernels} if kernels else {}),
    }


def profiled(step: Callable[[], None]) -> list[dict[str, Any]]:
    """Milliseconds of a step by kernel, the longest first; `idle` is the time between kernels."""
    wait(torch.device("cuda"))
    began = time.perf_counter()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as found:
        for _ in range(PROFILED):
            step()
        wait(torch.device("cuda"))
        whole = time.perf_counter() - began
    times = {event.key: (event.device_time_total / 1e6, event.count) for event in found.key_averages()}
    times["idle"] = (whole - sum(seconds for seconds, _ in times.values()), 1)
    rows = [
        {"kernel": name[:120], "calls": calls / PROFILED, "milliseconds": round(1e3 * seconds / PROFILED, 3)}
        for name, (seconds, calls) in sorted(times.items(), key=lambda item: -item[1][0])
    ]
    for row in rows[:30]:
        print(f"    {row['milliseconds']:8.3f} ms {row['calls']:7.1f} x {row['kernel']}", flush=True)
    return rows[:60]


def theirs(case: Case, *, compiled: bool, half: bool) -> dict[str, float]:
    """transformers' own model on the same sequences, padded to rows of one length as its users have them."""
    from transformers import AutoConfig, AutoModelForMaskedLM

    torch.manual_seed(0)
    config, tokenizer, length, tokens, device = case.config, case.tokenizer, case.length, case.tokens, case.device
    source = case.feed(MaskedLM(Transformer(FAMILY["bert-tiny"]), MaskedLM.Config(pairs="none")))
    rows, labels, position = [], [], source.first_position()
    count = tokens // length
    while len(rows) < 4 * count:
        batch = source(position)
        truth = torch.full((tokens,), -100)
        truth[batch.target_positions] = batch.targets
        bounds = batch.tokens.bounds.tolist()
        for start, stop in itertools.pairwise(bounds):
            if stop > start and int(batch.tokens.ids[start]) != tokenizer.padding_id:
                rows.append(batch.tokens.ids[start:stop].long())
                labels.append(truth[start:stop])
        position = source.next_position(position)
    batches = []
    for at in range(0, 4 * count, count):
        ids, marks, truth = (torch.full((count, length), fill) for fill in (tokenizer.padding_id, 0, -100))
        for row in range(count):
            size_here = len(rows[at + row])
            ids[row, :size_here], marks[row, :size_here], truth[row, :size_here] = rows[at + row], 1, labels[at + row]
        batches.append((ids.to(device), marks.to(device), truth.to(device), int(marks.sum())))
    shape = AutoConfig.for_model(**to_config_json(config, ("mlm_head",)))
    model = AutoModelForMaskedLM.from_config(shape, attn_implementation="sdpa").to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    whole = bool((batches[0][1] == 1).all())
    run = torch.compile(model) if compiled else model

    def step(ids: Any, marks: Any, truth: Any, _: int) -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=half):
            loss = run(input_ids=ids, attention_mask=None if whole else marks, labels=truth).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for index in range(WARM):
        step(*batches[index % 4])
    wait(device)
    began = time.perf_counter()
    seen = 0
    for index in range(case.steps):
        step(*batches[index % 4])
        seen += batches[index % 4][3]
    wait(device)
    return {
        "tokens_per_second": seen / (time.perf_counter() - began),
        "memory_gib": memory(device),
        "padding": 1 - seen / case.steps / tokens,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--sizes", nargs="+", default=["bert-base"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--rows", nargs="+", default=["full", "ragged", "packed"])
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--kernel", choices=get_args(KernelName), help="ours by this attention kernel")
    parser.add_argument("--precision", choices=("auto", "float32", "bfloat16", "pure"), default="auto", help="of ours")
    parser.add_argument("--steps", type=int, default=TIMED, help="that are timed")
    parser.add_argument("--profile", action="store_true", help="ours by kernels, on a GPU")
    parser.add_argument("--alone", action="store_true", help="without transformers")
    parser.add_argument("--out", type=Path, default=Path("bench/results/pretrain.json"))
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    device = hardware.select_device("auto")
    tokenizer = Tokenizer.load(options.data / "tokenizer")
    fast = hardware.select_precision(
        "auto", device
    )  # a processor without units for it takes minutes for a product in half
    peak = hardware.peak_flops(device, fast)
    print(f"{hardware.describe(device)['device']}: {peak / 1e12:.3g} TFLOP/s in a large product, {fast}")
    cases: list[dict[str, Any]] = []
    for size, length, rows in itertools.product(options.sizes, options.lengths, options.rows):
        dropout = {"dropout": options.dropout, "attention_dropout": options.dropout}
        shape = replace(FAMILY[size], vocabulary=tokenizer.vocabulary, **dropout)
        case = Case(
            config=shape,
            data=options.data,
            tokenizer=tokenizer,
            rows=rows,
            length=length,
            tokens=options.tokens,
            device=device,
            kernel=options.kernel,
            precision=options.precision,
            profile=options.profile,
            steps=options.steps,
        )
        plans = {"bertsmith": partial(ours, case)}
        if not options.alone:
            if fast == torch.bfloat16:
                plans["transformers compiled"] = partial(theirs, case, compiled=True, half=True)
                plans["transformers eager"] = partial(theirs, case, compiled=False, half=True)
            if device.type == "cpu":
                plans["transformers compiled, float32"] = partial(theirs, case, compiled=True, half=False)
                plans["transformers eager, float32"] = partial(theirs, case, compiled=False, half=False)
        flops = first = 0.0
        for name, plan in plans.items():
            if device.type == "cuda":
                torch.cuda.empty_cache()
                torch.cuda.reset_peak_memory_stats()
            torch._dynamo.reset()
            figures = plan()
            flops = figures.pop("flops_per_token", flops)
            speed = figures["tokens_per_second"]
            first = first or speed
            figures |= {"mfu": speed * flops / peak, "ours_is_faster_by": first / speed}
            cases.append({"size": size, "length": length, "rows": rows, "who": name, **figures})
            print(
                f"{size} {length:4d} {rows:6s} {name:30s} {speed / 1e3:8.1f} k tokens/s  MFU {figures['mfu']:.3f}"
                f"  {figures['memory_gib']:.1f} GiB  {first / speed:.2f}x",
                flush=True,
            )
            settings = {name: getattr(options, name) for name in ("tokens", "dropout", "kernel", "precision", "steps")}
            record(options.out, {"peak_flops": peak, **settings, "cases": cases}, hardware.describe(device))


if __name__ == "__main__":
    main()
