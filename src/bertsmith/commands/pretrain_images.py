"""`pretrain` on images without labels: a masked autoencoder."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from bertsmith import config, recipes, terminal
from bertsmith.commands.pretrain import facts_table
from bertsmith.inference.reconstruction import reconstruct
from bertsmith.insight import reconstructions, report
from bertsmith.insight.report import RunSummary
from bertsmith.objectives.masked_patches import MaskedPatches
from bertsmith.recipe import ImagePretraining, settle
from bertsmith.runs import image_pretraining as parts
from bertsmith.runs.image_pretraining import UnlabelledImages
from bertsmith.runs.micro_batches import divide
from bertsmith.runs.next_commands import next_commands
from bertsmith.runs.verdict import pixel_verdict
from bertsmith.train import hardware, log
from bertsmith.train.clock import format_duration
from bertsmith.train.display import Display
from bertsmith.train.evaluate import SINGLE_EVALUATION_SHARE, Validation
from bertsmith.train.forward import should_capture
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.processes import ALONE, joined
from bertsmith.train.step import Step
from bertsmith.train.step_metrics import Speed
from bertsmith.train.trainer import Trainer

CONSOLE = terminal.console()
PICTURES = 8  # reconstructions in the report
MAY_CHANGE = frozenset(
    {"out", "data.train", "data.workers"}
    | {
        f"train.{name}"
        for name in ("steps", "epochs", "budget", "device", "compile", "evaluations", "checkpoints", "keep_checkpoints")
    }
)


def reads_images(recipe: str | Path) -> bool:
    """Whether a recipe, by its name or from its file, is for pretraining on images."""
    return parts.reads_images(config.read_toml(recipes.find(recipe)))


def read_recipe(
    recipe: str | Path, images: Path | None, out: Path | None, overrides: Sequence[str]
) -> ImagePretraining:
    """The recipe of a run on these images."""
    return parts.read_recipe(recipe, images, out, overrides)


def pretrain(recipe: ImagePretraining) -> dict[str, float]:
    """Pretrain on images, from the last checkpoint if there is one; write a model folder and a report."""
    device = hardware.select_device(recipe.train.device)
    with joined(device, recipe.out, recipe.train) as processes:
        recipe = divide(recipe, processes)
        images = parts.read(recipe)
        if processes.main:
            settle(recipe, MAY_CHANGE)  # only now: a recipe with a mistake must not block the corrected one
        processes.wait()
        for name, value in images.facts().items():
            CONSOLE.print(f"{name}: {value}", markup=False)
        objective = parts.objective(recipe, images).to(device)
        budget = recipe.train.extent.budget
        seconds = None if budget is None else SINGLE_EVALUATION_SHARE * budget
        validation = Validation(objective, parts.validation_batches(recipe, objective, images), 1.0, seconds)
        precision = hardware.select_precision(recipe.train.precision, device)
        optimizer = Optimizer(
            objective,
            recipe.optimizer,
            hidden_matrices=objective.hidden_matrices(),
            capturable=processes.size == 1 and should_capture(objective, recipe.train, precision, device),
            processes=processes if recipe.train.shard_optimizer else ALONE,
        )
        peak = hardware.peak_flops(device, torch.bfloat16) if device.type == "cuda" else None
        with Display("training", silent=not processes.main) as display:
            trainer = Trainer(
                Step(objective, optimizer, recipe.train, precision, processes),
                parts.feed(recipe, objective, images),
                recipe.schedule,
                recipe.train,
                folder=recipe.out,
                compute_metrics=validation,
                keep_best="lowest" if recipe.keep == "best" else None,
                speed=Speed(peak, objective.flops),
                display=display,
            )
            figures = trainer.fit()
            if recipe.keep == "best":
                trainer.load_best()
                figures = trainer.state.metrics
        if not processes.main:
            processes.wait()  # until the files are there
            return figures
        run = summarise(recipe, trainer, objective.eval(), images, validation)
        parts.export(recipe, objective, run)
        report.write(recipe.out / "report.html", run)
        paths = {"model": str(recipe.out / "model"), "report": str(recipe.out / "report.html")}
        CONSOLE.print(facts_table({**run.figures, **paths}))
        CONSOLE.print(f"\n{run.verdict}", style="bold")
        for purpose, command in next_commands(recipe.out, "masked_autoencoder", ()):
            CONSOLE.print(f"{purpose}:\n  {command}", markup=False)
        processes.wait()
    return figures


def summarise(
    recipe: ImagePretraining,
    trainer: Trainer,
    objective: MaskedPatches,
    images: UnlabelledImages,
    validation: Validation,
) -> RunSummary:
    """The summary of a finished run, with reconstructions of held-out images."""
    records, metrics, settings = log.read(recipe.out / log.NAME), trainer.state.metrics, objective.config
    baseline = parts.baseline(objective, validation.batches)
    options: dict[str, Any] = {"mask_rate": settings.mask_rate, "normalised_pixels": settings.normalise_pixels}
    shown = [images.valid.images[number] for number in range(min(PICTURES, len(images.valid)))]
    made = reconstruct(objective.trunk, objective.decoder, shown, objective.normalisation, **options)
    pictures = reconstructions.section([(one.masked, one.reconstructed, one.original) for one in made])
    lead = reconstructions.LEAD + (reconstructions.RELATIVE if settings.normalise_pixels else "")
    figures = {
        "validation loss of masked pixels": f"{metrics['pixels_loss']:.3f}",
        "of predicting the mean of each patch": f"{baseline:.3f}",
        "updates": f"{trainer.state.step:,}",
        "updates skipped": f"{trainer.state.skipped:,}",
        "training time": format_duration(trainer.clock.training_seconds),
        "parameters": f"{objective.trunk.config.parameter_count:,}",
        "and of the decoder": f"{sum(weight.numel() for weight in objective.decoder.parameters()):,}",
    }
    return RunSummary(
        title=f"{recipe.model.kind} from {len(images.train):,} images",
        verdict=pixel_verdict(metrics["pixels_loss"], baseline),
        records=records,
        figures=figures,
        visualisations=[("Reconstructions", pictures, lead)],
        data=images.facts(),
        recipe=config.dump(recipe),
        machine=hardware.describe(trainer.device),
        baseline=baseline,
    )
