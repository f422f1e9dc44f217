"""Pretraining speed beside transformers, in one run, on the same ragged text.

    python bench/pretrain.py PREPARED [--sizes bert-base] [--lengths 128 512] [--out bench/results/pretrain.json]

Ours is the whole step as `bertsmith pretrain` takes it: packing, masking, copying, forward, backward, clipping, AdamW.
transformers gets its batches ready on the device, for nothing. Both see the same sequences, and only tokens that are
text are counted. MFU counts the FLOPs the maths needs over the speed of a large bf16 product, measured in this run.
"""

import argparse
import itertools
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from record import record

from bertsmith.data.feed import Feed
from bertsmith.data.pack import Pack
from bertsmith.data.shards import Shards
from bertsmith.models.family import FAMILY
from bertsmith.models.transformer import Transformer
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import machine
from bertsmith.train.display import Display
from bertsmith.train.optimizers import Optimizer, OptimizerConfig
from bertsmith.train.schedules import ScheduleConfig
from bertsmith.train.trainer import Speed, TrainConfig, Trainer

WARM, TIMED = 8, 30


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def memory(device: torch.device) -> float:
    return torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0


def feed(data: Path, tokenizer: Tokenizer, objective: MaskedLM, length: int, tokens: int) -> Feed:
    shards = Shards(data / "train")
    ids = {"start": tokenizer.start, "stop": tokenizer.stop, "padding": tokenizer.padding}
    pack = Pack(shards, length=length, tokens=tokens, pairs=objective.pairs, seed=0, **ids)
    return Feed(pack, objective.collator(tokenizer), shards.fingerprint)


def ours(
    size: str, data: Path, tokenizer: Tokenizer, length: int, tokens: int, device: torch.device
) -> dict[str, float]:
    """Our step, loader and all."""
    torch.manual_seed(0)
    config = FAMILY[size]
    objective = MaskedLM(Transformer(config), MaskedLM.Config(pairs="none")).to(device)
    source = feed(data, tokenizer, objective, length, tokens)
    trainer = Trainer(
        objective,
        source,
        Optimizer(objective, OptimizerConfig()),
        ScheduleConfig(),
        TrainConfig(steps=1000),
        folder=Path(tempfile.mkdtemp()),
        measure=dict,
        precision=machine.precision("auto", device),
        speed=Speed(None, lambda attended: 0.0),
        display=Display(),
        tensorboard=False,
    )
    began = time.perf_counter()
    with source.loader(source.first(), pin=device.type == "cuda") as loader:
        for _ in range(WARM):
            trainer.update([next(loader)[1]], 0.1)
        wait(device)
        first_steps = time.perf_counter() - began
        seen = squares = chosen = 0
        laps = []
        for _ in range(TIMED):
            lap = time.perf_counter()
            batch = next(loader)[1]
            trainer.update([batch], 0.1)
            seen, squares = seen + batch.counts["tokens"], squares + batch.counts["squares"]
            chosen += batch.counts["masked"]
            laps.append(lap)
        wait(device)
        seconds = time.perf_counter() - laps[0]
    return {
        "tokens_per_second": seen / seconds,
        "flops_per_token": config.flops(squares / seen, chosen / seen),
        "memory_gib": memory(device),
        "first_steps_seconds": first_steps,
        "loss": float(trainer._pending[-1][1][0]),
        "filler": 1 - seen / (TIMED * tokens),
    }


def theirs(
    size: str, data: Path, tokenizer: Tokenizer, length: int, tokens: int, device: torch.device, compiled: bool
) -> dict[str, float]:
    """transformers' BertForMaskedLM on the same sequences, padded to rows of one length as its users have them."""
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    config = FAMILY[size]
    probe = MaskedLM(Transformer(FAMILY["bert-tiny"]), MaskedLM.Config(pairs="none"))
    source = feed(data, tokenizer, probe, length, tokens)
    rows, labels, position = [], [], source.first()
    count = tokens // length
    while len(rows) < 4 * count:
        batch = source(position)
        assert batch.chosen is not None
        assert batch.targets is not None
        truth = torch.full((tokens,), -100)
        truth[batch.chosen] = batch.targets
        bounds = batch.tokens.bounds.tolist()
        for start, stop in itertools.pairwise(bounds):
            if stop > start and int(batch.tokens.ids[start]) != tokenizer.padding:
                rows.append(batch.tokens.ids[start:stop].long())
                labels.append(truth[start:stop])
        position = source.after(position)
    batches = []
    for at in range(0, 4 * count, count):
        ids, marks, truth = (torch.full((count, length), fill) for fill in (tokenizer.padding, 0, -100))
        for row in range(count):
            size_here = len(rows[at + row])
            ids[row, :size_here], marks[row, :size_here], truth[row, :size_here] = rows[at + row], 1, labels[at + row]
        batches.append((ids.to(device), marks.to(device), truth.to(device), int(marks.sum())))
    words = {"hidden_size": config.width, "num_hidden_layers": config.layers, "num_attention_heads": config.heads}
    shape = BertConfig(vocab_size=config.vocabulary, intermediate_size=config.feed_forward, **words)
    shape._attn_implementation = "sdpa"
    model = BertForMaskedLM(shape).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    run = torch.compile(model) if compiled else model

    def step(ids: Any, marks: Any, truth: Any, _: int) -> None:
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = run(input_ids=ids, attention_mask=marks, labels=truth).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    for index in range(WARM):
        step(*batches[index % 4])
    wait(device)
    began = time.perf_counter()
    seen = 0
    for index in range(TIMED):
        step(*batches[index % 4])
        seen += batches[index % 4][3]
    wait(device)
    return {
        "tokens_per_second": seen / (time.perf_counter() - began),
        "memory_gib": memory(device),
        "padding": 1 - seen / TIMED / tokens,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--sizes", nargs="+", default=["bert-base"])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 512])
    parser.add_argument("--tokens", type=int, default=65_536)
    parser.add_argument("--eager", action="store_true", help="transformers without compilation, too")
    parser.add_argument("--alone", action="store_true", help="without transformers")
    parser.add_argument("--out", type=Path, default=Path("bench/results/pretrain.json"))
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    device = machine.device("auto")
    tokenizer = Tokenizer.load(options.data / "tokenizer")
    peak = machine.peak(device, torch.bfloat16)
    print(f"{machine.describe(device)['device']}: {peak / 1e12:.0f} TFLOP/s in a large bf16 product")
    cases = []
    for size in options.sizes:
        for length in options.lengths:
            settings = (size, options.data, tokenizer, length, options.tokens, device)
            plans = {"bertsmith": lambda s=settings: ours(*s)}
            if not options.alone:
                plans["transformers compiled"] = lambda s=settings: theirs(*s, compiled=True)
            if options.eager:
                plans["transformers eager"] = lambda s=settings: theirs(*s, compiled=False)
            flops = 0.0
            for name, plan in plans.items():
                if device.type == "cuda":
                    torch.cuda.empty_cache()
                    torch.cuda.reset_peak_memory_stats()
                torch._dynamo.reset()
                figures = plan()
                flops = figures.pop("flops_per_token", flops)
                figures["mfu"] = figures["tokens_per_second"] * flops / peak
                cases.append({"size": size, "length": length, "who": name, **figures})
                speed = figures["tokens_per_second"] / 1e3
                print(
                    f"{size} {length:4d} {name:22s} {speed:8.1f} k tokens/s  MFU {figures['mfu']:.3f}"
                    f"  {figures['memory_gib']:.1f} GiB",
                    flush=True,
                )
            ratios = {
                case["who"]: cases[-len(plans)]["tokens_per_second"] / case["tokens_per_second"]
                for case in cases[-len(plans) :]
            }
            print(
                "   ratio", {name: round(ratio, 2) for name, ratio in ratios.items() if name != "bertsmith"}, flush=True
            )
            record(
                options.out, {"peak_flops": peak, "tokens": options.tokens, "cases": cases}, machine.describe(device)
            )


if __name__ == "__main__":
    main()
