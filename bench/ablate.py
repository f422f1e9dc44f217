"""An ablation: a recipe is trained with one choice changed at a time, and each variant's held-out loss is compared.

    python bench/ablate.py smith-base PREPARED "" "objective.mask_rate=0.15" "model.norm_position=post"
        [--extent train.budget=60s] [--base "model.layers=4"] [--seeds 1] [--out bench/results/ablate.json]

Each quoted argument is a variant: its overrides. No model is saved, so that networks without a Hugging Face layout can
be tried. All variants are evaluated alike, as every run is: 15 % of the tokens, all of them replaced by [MASK]. With
weight averaging the average is evaluated. The step is compiled and captured as in `bertsmith pretrain`.
"""

import argparse
import gc
import tempfile
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from record import record

from bertsmith.commands import pretrain
from bertsmith.models.transformer import Transformer
from bertsmith.nn.init import initialise
from bertsmith.objectives import OBJECTIVES
from bertsmith.objectives.masked import MaskedLM
from bertsmith.recipe import Recipe
from bertsmith.runs import build
from bertsmith.train import hardware
from bertsmith.train.display import Display
from bertsmith.train.evaluate import evaluate
from bertsmith.train.forward import should_capture
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.step import Step
from bertsmith.train.step_metrics import Speed
from bertsmith.train.trainer import Trainer


def trained(recipe: Recipe) -> dict[str, float]:
    """The held-out metrics of one variant, with its tokens and speed."""
    tokenizer, train, valid = build.load_data(recipe)
    device = hardware.select_device(recipe.train.device)
    shape = replace(recipe.model.settings, vocabulary=tokenizer.vocabulary)
    objective = OBJECTIVES[recipe.objective.kind](Transformer(shape), recipe.objective.settings)
    assert isinstance(objective, MaskedLM)  # masked_lm or mixed
    initialise(objective, recipe.train.seed)
    objective = objective.to(device)
    batches = build.validation_batches(recipe, objective, tokenizer, valid, device)
    precision = hardware.select_precision(recipe.train.precision, device)
    graphs = should_capture(objective, recipe.train, precision, device)
    hidden = objective.hidden_matrices()
    optimizer = Optimizer(objective, recipe.optimizer, hidden_matrices=hidden, capturable=graphs)
    trainer = Trainer(
        Step(objective, optimizer, recipe.train, precision),
        build.feed(recipe, objective, tokenizer, train),
        recipe.schedule,
        replace(recipe.train, evaluations=0, checkpoints=0),
        folder=recipe.out,
        # Of a mixed objective, only the masked part, on the same batches.
        compute_metrics=partial(
            evaluate, objective, batches, valid.bytes / valid.tokens, partial(MaskedLM.forward, objective)
        ),
        speed=Speed(None, lambda attended: 0.0),
        display=Display(),
        tensorboard=False,
    )
    began = time.monotonic()
    figures = trainer.fit()
    tokens, skipped = trainer.state.tokens, trainer.state.skipped
    seen = {"tokens": tokens, "tokens_per_second": tokens / max(trainer.clock.training_seconds, 1e-9)}
    return {**figures, **seen, "seconds": round(time.monotonic() - began, 1), "skipped": skipped}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--extent", default="train.budget=60s", help="train.budget, train.steps or train.epochs")
    parser.add_argument("--base", default="", help="overrides that all variants share")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("bench/results/ablate.json"))
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    rows: list[dict[str, Any]] = []
    for variant in options.variants:
        for seed in range(options.seeds):
            with tempfile.TemporaryDirectory() as folder:
                shared = [f"out={folder}/run", f"data.folder={options.data}", f"train.seed={seed}", options.extent]
                recipe = pretrain.read_recipe(options.recipe, [*shared, *options.base.split(), *variant.split()])
                torch._dynamo.reset()
                gc.collect()  # the captured graphs of the variant before hold memory of the device
                figures = trained(recipe)
            rows.append({"variant": variant, "seed": seed, **figures})
            print(
                f"{variant or '(as it is)':60s} seed {seed}  {figures['masked_loss']:.3f} nats"
                f"  {figures['masked_accuracy']:.1%} right  {figures['tokens'] / 1e6:.1f} M tokens"
                f"  {figures['tokens_per_second'] / 1e3:.1f} k tokens/s",
                flush=True,
            )
            settings = {"extent": options.extent, "base": options.base, "rows": rows}
            record(options.out, settings, hardware.describe(hardware.select_device("auto")))


if __name__ == "__main__":
    main()
