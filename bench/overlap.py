"""The share of the time in which gradients are sent that a backward pass hides, by torch's profiler on gloo.

    python bench/overlap.py [--device cuda] [--out bench/results/overlap.json]

Two processes with one thread each train a BERT in float32, on the CPU or on one GPU. Every update is profiled: when
buckets of gradients are sent (from the call of all-reduce to its end), and when the backward pass runs.
"""

import argparse
import os
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.multiprocessing as multiprocessing
from record import record
from torch.profiler import ProfilerActivity, profile, record_function

from bertsmith.data.batch import Tokens
from bertsmith.files import read_json, write_json
from bertsmith.models.family import BERT
from bertsmith.models.transformer import Transformer
from bertsmith.nn.init import initialise
from bertsmith.objectives.masked import MaskedBatch, MaskedLM
from bertsmith.train import hardware
from bertsmith.train.gradient_buckets import GradientBuckets
from bertsmith.train.processes import Processes, joined
from bertsmith.train.train_config import TrainConfig

PROCESSES, WARM_UP = 2, 2
SHAPE: dict[str, Any] = {"layers": 4, "width": 256, "heads": 4, "feed_forward": 1024, "vocabulary": 8192}
Span = tuple[float, float]


def batch(objective: MaskedLM, rows: int, length: int, rank: int) -> MaskedBatch:
    """Random tokens, of which one in six is predicted."""
    generator = torch.Generator().manual_seed(rank)
    ids = torch.randint(objective.trunk.config.vocabulary, (rows, length), generator=generator)
    positions = torch.arange(0, rows * length, 6)
    return MaskedBatch(
        tokens=Tokens.from_rows(ids.tolist()), target_positions=positions, targets=ids.flatten()[positions], labels=None
    )


def hidden(sent: list[Span], backward: list[Span]) -> tuple[float, float]:
    """The time in which anything is sent, and how much of it lies in a backward pass."""
    spans = merged(sent)
    within = sum(max(0.0, min(end, last) - max(begin, first)) for begin, end in spans for first, last in backward)
    return sum(end - begin for begin, end in spans), within


def merged(spans: list[Span]) -> list[Span]:
    """Spans that overlap or touch, as one."""
    whole: list[Span] = []
    for begin, end in sorted(spans):
        if whole and begin <= whole[-1][1]:
            whole[-1] = whole[-1][0], max(whole[-1][1], end)
        else:
            whole.append((begin, end))
    return whole


def update(objective: MaskedLM, given: MaskedBatch, buckets: GradientBuckets, *, overlapped: bool) -> float:
    """Gradients of all processes, without the optimizer's step. Returns the seconds of backward pass and sums."""
    losses = sum(term.total for term in objective(given).values())
    wait(given.targets.device)
    began = time.perf_counter()
    if overlapped:
        buckets.send_when_complete()
    with record_function("backward pass"):
        losses.backward()  # type: ignore[union-attr]
        wait(given.targets.device)
    buckets.finish()
    wait(given.targets.device)
    objective.zero_grad()
    return time.perf_counter() - began


def wait(device: torch.device) -> None:
    """Until a GPU has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize()


def spans(profiler: profile, name: str) -> list[Span]:
    return [(one.time_range.start, one.time_range.end) for one in profiler.events() if one.name == name]


def measure(processes: Processes, device: torch.device, updates: int, rows: int, length: int) -> dict[str, Any]:
    """The figures of one process."""
    torch.set_num_threads(1)
    objective = MaskedLM(Transformer(BERT.__class__(**vars(BERT) | SHAPE)), MaskedLM.Config(pairs="none"))
    initialise(objective, 0)
    objective.to(device)
    parameters = dict(objective.named_parameters())
    given = batch(objective, rows, length, processes.rank).to(device)
    buckets = GradientBuckets(parameters, processes)
    figures: dict[str, Any] = {"parameters": sum(one.numel() for one in parameters.values())}
    for name, overlapped in (("after the backward pass", False), ("during it", True)):
        for _ in range(WARM_UP):
            update(objective, given, buckets, overlapped=overlapped)
        times = sorted(update(objective, given, buckets, overlapped=overlapped) for _ in range(updates))
        with profile(activities=[ProfilerActivity.CPU]) as profiler:
            for _ in range(updates):
                update(objective, given, buckets, overlapped=overlapped)
        sending, within = hidden(spans(profiler, "gloo:all_reduce"), spans(profiler, "backward pass"))
        figures[name] = {
            "milliseconds of backward pass and sums": round(1e3 * times[len(times) // 2], 1),
            "milliseconds of sending": round(1e-3 * sending / updates, 1),
            "share hidden": round(within / sending, 3),
        }
    return figures


def work(rank: int, port: int, out: Path, options: argparse.Namespace) -> None:
    # Two local processes and one GPU: gloo, since NCCL wants a GPU for each.
    variables = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": PROCESSES, "LOCAL_WORLD_SIZE": PROCESSES}
    variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in variables.items()})
    device = torch.device(options.device)
    with joined(device, out / "run", TrainConfig(steps=options.updates)) as processes:
        figures = measure(processes, device, options.updates, options.rows, options.length)
        if processes.main:
            write_json(out / "figures.json", figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--updates", type=int, default=10)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--length", type=int, default=64)
    parser.add_argument("--port", type=int, default=29400)
    parser.add_argument("--out", type=Path, default=Path("bench/results/overlap.json"))
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        multiprocessing.spawn(work, (options.port, Path(folder), options), PROCESSES)  # type: ignore[no-untyped-call]
        figures = read_json(Path(folder) / "figures.json")
    print(figures)
    known = {"model": SHAPE, "processes": PROCESSES, "rows": options.rows, "length": options.length, **figures}
    record(options.out, known, hardware.describe(torch.device(options.device)))


if __name__ == "__main__":
    main()
