"""The table behind the choices of `make`: sizes trained for equal times on the same text, by their held-out loss.

    python bench/choose.py PREPARED --sizes tiny mini --seconds 120 300 [--variants "" "train.seed=1"]
        [--out bench/results/choose.json]
    python bench/choose.py --show bench/results/choose-cpu.json

Every cell is the recipe that `make` would write for this size, text and time, with the overrides of a variant. All are
evaluated alike, as by `bench/ablate.py`: 15 % of the tokens, all of them replaced by [MASK]. Cells that the file has
already are not trained again. `--show` compares, for every text and time of a file, what `make` would choose with the
best: of the cells without overrides, the newest of each size.
"""

import argparse
import json
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from ablate import trained
from record import record

from bertsmith import config
from bertsmith.data.shards.shards import Shards
from bertsmith.recipe import EXTENTS, Recipe
from bertsmith.runs import autoconfig, candidates
from bertsmith.train import hardware


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path, nargs="?", help="a folder that `bertsmith prepare` wrote")
    parser.add_argument("--show", type=Path, help="a file of cells: what make would choose, beside the best")
    parser.add_argument("--sizes", nargs="+", default=["tiny", "mini", "small"])
    parser.add_argument("--like", default="smith", help="the member whose sizes are trained")
    parser.add_argument("--seconds", nargs="+", type=float, default=[120.0, 300.0])
    parser.add_argument("--variants", nargs="+", default=[""], help="overrides, each tried with every size and time")
    parser.add_argument("--out", type=Path, default=Path("bench/results/choose.json"))
    options = parser.parse_args()
    if options.show:
        print(comparison(json.loads(options.show.read_text())["cells"]))
        return
    if options.data is None:
        parser.error("a prepared folder is missing")
    torch.set_float32_matmul_precision("high")
    device = hardware.select_device("auto")
    flops, shards = hardware.training_flops(device), Shards(options.data / "train")
    pairs = candidates.has_pairs(shards)
    kept: list[dict[str, Any]] = json.loads(options.out.read_text())["cells"] if options.out.exists() else []
    known = {(cell["text"], cell["seconds"], cell["like"], cell["size"], cell["variant"]) for cell in kept}
    for seconds in options.seconds:
        for size in options.sizes:
            for variant in options.variants:
                key = (options.data.name, seconds, options.like, size, variant)
                if key in known:
                    continue
                seen = seconds * flops / candidates.flops_per_token(options.like, size, shards.vocabulary)
                with tempfile.TemporaryDirectory() as folder:
                    recipe = candidates.build(
                        size,
                        options.data,
                        Path(folder) / "run",
                        budget=seconds,
                        tokens_seen=seen,
                        gpu=device.type == "cuda",
                        pairs=pairs,
                        like=options.like,
                    )
                    values = config.override(tomllib.loads(config.dump(recipe)), variant.split(), EXTENTS)
                    torch._dynamo.reset()
                    figures = trained(config.build(values, Recipe, "choose"))
                cell = dict(zip(("text", "seconds", "like", "size", "variant"), key, strict=True))
                kept.append({**figures, **cell, "text_tokens": shards.tokens, "expected_tokens": seen})
                print(
                    f"{options.data.name} {seconds:g} s {options.like}-{size} {variant}: "
                    f"{figures['masked_loss']:.3f} nats, "
                    f"{figures['bits_per_byte']:.3f} bits per byte, {figures['tokens'] / 1e6:.2f} M tokens "
                    f"({seen / 1e6:.2f} M expected)",
                    flush=True,
                )
                record(options.out, {"cells": kept}, hardware.describe(device))


def comparison(cells: Sequence[Mapping[str, Any]]) -> str:
    """A Markdown table: for every text and time the size that `make` chooses, the best one, and what it gains.

    The choice is by the tokens that each size has seen, as on a CPU, where its pace is measured.
    """
    lines = ["| text | seconds | make chooses | bits per byte | best | bits per byte | better by |"]
    lines.append("|---|---:|---|---:|---|---:|---:|")
    plain = sorted((one for one in cells if not one["variant"]), key=lambda one: (one["text"], one["seconds"]))
    for (text, seconds), group in groupby(plain, key=lambda one: (one["text"], one["seconds"])):
        found = {(one["like"], one["size"]): one for one in group}
        ours = {size: one for (like, size), one in found.items() if like == candidates.SMITH}
        seen = {size: ours[size]["tokens"] if size in ours else 0.0 for size in candidates.SIZES}
        made = ours[autoconfig.largest_size(seen, next(iter(ours.values()))["text_tokens"])]
        best = min(found.values(), key=lambda one: one["bits_per_byte"])
        better = 1 - best["bits_per_byte"] / made["bits_per_byte"]
        names = [f"{one['like']}-{one['size']} | {one['bits_per_byte']:.3f}" for one in (made, best)]
        lines.append(f"| {text} | {seconds:g} | {names[0]} | {names[1]} | {better:.1%} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
