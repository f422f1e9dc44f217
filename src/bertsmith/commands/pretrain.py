"""`pretrain`: train the model of a recipe, and write its folder and report."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from rich.table import Table
from rich.text import Text

from bertsmith import config, files, recipes, terminal
from bertsmith.errors import RecipeError
from bertsmith.inference.model import Model
from bertsmith.insight import report
from bertsmith.insight.model_card import pretrained_card
from bertsmith.insight.report import RunSummary
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layouts import layout_of
from bertsmith.nn.kernels.availability import kernels_unavailable
from bertsmith.objectives.base import Pretraining
from bertsmith.recipe import EXTENTS, Recipe, settle
from bertsmith.runs import build, summary
from bertsmith.runs.image_pretraining import reads_images
from bertsmith.runs.micro_batches import divide
from bertsmith.runs.overview import use_of
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import hardware
from bertsmith.train.average import averaged_weights
from bertsmith.train.checkpoint import Checkpoint
from bertsmith.train.clock import WallBudget
from bertsmith.train.display import Display
from bertsmith.train.evaluate import SINGLE_EVALUATION_SHARE, Validation
from bertsmith.train.forward import should_capture
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.processes import ALONE, joined
from bertsmith.train.step import Step
from bertsmith.train.step_metrics import Speed
from bertsmith.train.trainer import Trainer

CONSOLE = terminal.console()
MAX_EXAMPLES_SHOWN = 4  # on the terminal; the report has more
COST_BATCHES = 8  # batches from which the cost of training is estimated
MAY_CHANGE = frozenset(  # settings that may differ when a run is resumed
    {"out", "data.folder", "data.workers"}
    | {
        f"train.{name}"
        for name in ("steps", "epochs", "budget", "device", "compile", "evaluations", "checkpoints", "keep_checkpoints")
    }
)


def read_recipe(recipe: str | Path, overrides: Sequence[str]) -> Recipe:
    """A recipe by its name or from its file, with the overrides of the command line."""
    values = config.read_toml(recipes.find(recipe))
    if reads_images(values):
        raise RecipeError(recipe, "is a recipe for images", f"Use: bertsmith pretrain {recipe} IMAGES --out DIR")
    if "task" in values:
        raise RecipeError(recipe, "is a recipe for fine-tuning", f"Use: bertsmith finetune {recipe} DATA --out DIR")
    return config.build(config.override(values, overrides, EXTENTS), Recipe, str(recipe))


def with_paths(recipe: Recipe, data: Path | None, out: Path | None) -> Recipe:
    """The recipe with other data or another output folder."""
    recipe = recipe if data is None else replace(recipe, data=replace(recipe.data, folder=data))
    return recipe if out is None else replace(recipe, out=out)


def pretrain(
    recipe: Recipe,
    wall: WallBudget | None = None,
    finish: Callable[[RunSummary, Model], RunSummary] | None = None,
) -> dict[str, float]:
    """Pretrain the model of a recipe, from its last checkpoint if there is one; write a model folder and a report.

    `wall`: the wall-clock budget of the whole command, which replaces the recipe's own budget. `finish` completes the
    summary with what the trained model shows.
    """
    device = hardware.select_device(recipe.train.device)
    with joined(device, recipe.out, recipe.train) as processes:
        recipe = divide(recipe, processes)
        if processes.main:
            settle(recipe, MAY_CHANGE)
        processes.wait()
        tokenizer, train, valid = build.load_data(recipe)
        objective = build.objective(recipe, tokenizer, train).to(device)
        *_, language_model = objective.exports.values()
        model = Model(language_model, tokenizer, str(recipe.out))
        if objective.needs == "recurrent" and processes.size > 1:
            fact = "carries its state from batch to batch, and trains in one process"
            raise RecipeError("objective.kind", fact, "Start it without torchrun")
        began = time.monotonic()
        examples = summary.untrained_examples(recipe, model, valid) if processes.main else []
        counts = train.frequencies()
        if wall is not None:  # after training the same examples are predicted again
            wall = replace(wall, reserve=wall.reserve + 1.3 * (time.monotonic() - began))
        batches = build.validation_batches(recipe, objective, tokenizer, valid, device, train)
        validation = Validation(objective, batches, valid.bytes / valid.tokens, _evaluation_seconds(recipe, wall))
        precision = hardware.select_precision(recipe.train.precision, device)
        graphs = processes.size == 1 and should_capture(objective, recipe.train, precision, device)
        hidden = objective.hidden_matrices()
        among = processes if recipe.train.shard_optimizer else ALONE
        optimizer = Optimizer(objective, recipe.optimizer, hidden_matrices=hidden, capturable=graphs, processes=among)
        with Display("training", silent=not processes.main) as display:
            trainer = Trainer(
                Step(objective, optimizer, recipe.train, precision, processes),
                build.feed(recipe, objective, tokenizer, train),
                recipe.schedule,
                recipe.train,
                folder=recipe.out,
                compute_metrics=validation,
                keep_best="lowest" if recipe.keep == "best" else None,
                speed=_speed(objective, device),
                display=display,
                wall=wall,
            )
            compiles = trainer.train_step.forward.compiles
            if compiles and device.type == "cuda" and (reason := kernels_unavailable(device)):
                display.say(f"attention by torch's own kernels, not ours: {reason}")
            figures = trainer.fit()
            if recipe.keep == "best":
                trainer.load_best()
                figures = trainer.state.metrics
                if figures["step"] < trainer.state.step:
                    display.say(f"the weights of step {figures['step']} are kept: their validation loss is the lowest")
        if not processes.main:
            processes.wait()  # until the files are there
            return figures
        run = summary.summarise(recipe, model, trainer, train, valid, batches[: validation.count], counts, examples)
        run = run if finish is None else finish(run, model)
        for name, part in objective.exports.items():
            _export(recipe.out / name, part, tokenizer, run)
        report.write(recipe.out / "report.html", run)
        paths = {name: str(recipe.out / name) for name in objective.exports}
        paths["report"] = str(recipe.out / "report.html")
        CONSOLE.print(facts_table({**run.figures, **paths}))
        _show(run)
        processes.wait()
    return figures


def _evaluation_seconds(recipe: Recipe, wall: WallBudget | None) -> float | None:
    """The seconds that one evaluation may take; None for a run that is not bounded by time."""
    budget = wall.budget if wall is not None else recipe.train.extent.budget
    return None if budget is None else SINGLE_EVALUATION_SHARE * budget


def _show(run: RunSummary) -> None:
    """Print some cloze examples with the model's predictions, the verdict, and the overview."""
    for example in run.examples[:MAX_EXAMPLES_SHOWN]:
        CONSOLE.print(f"\n{example.text}")
        predictions = ", ".join(f"{word} {probability:.0%}" for word, probability in example.after[:3])
        CONSOLE.print(f"  correct: {example.truth}   predicted: {predictions}")
    if run.verdict:
        CONSOLE.print(f"\n{run.verdict}", style="bold")
    if run.overview is not None:
        for line in run.overview.lines():
            CONSOLE.print(line)


@dataclass(frozen=True)
class TrainingCost:
    """The compute that a recipe needs for training."""

    parameters: int
    flops: float  # per token, by the usual count
    tokens: float  # per update


def training_cost(recipe: Recipe) -> TrainingCost:
    """The cost of training, from the first batches. A recipe that does not fit its data is refused here."""
    tokenizer, train, _ = build.load_data(recipe)
    objective = build.objective(recipe, tokenizer)
    feed, counts = build.feed(recipe, objective, tokenizer, train), Counter[str]()
    position = feed.first_position()
    for _ in range(COST_BATCHES):
        counts.update(feed(position).counts)
        position = feed.next_position(position)
    return TrainingCost(
        parameters=sum(parameter.numel() for parameter in objective.parameters()),
        flops=objective.flops(counts["squares"] / counts["tokens"]),
        tokens=counts["tokens"] / COST_BATCHES * recipe.train.gradient_accumulation,
    )


def export(recipe: Recipe, saved: Checkpoint, path: Path) -> None:
    """Write the model folders of a checkpoint."""
    tokenizer, train, valid = build.load_data(recipe)
    objective = build.objective(recipe, tokenizer)
    objective.load_state_dict(averaged_weights(objective, saved.tensors))
    run = summary.summarise_checkpoint(recipe, saved, train, valid, tokenizer)
    for name, part in objective.exports.items():
        _export(path / name, part, tokenizer, run)


def facts_table(facts: Mapping[str, str]) -> Table:
    """A table of names and values."""
    table = Table(show_header=False, box=None)
    for name, value in facts.items():
        table.add_row(Text(name, "bold"), value)
    return table


def _speed(objective: Pretraining, device: torch.device) -> Speed:
    peak = hardware.peak_flops(device, torch.bfloat16) if device.type == "cuda" else None
    return Speed(peak, objective.flops)


def _export(path: Path, objective: Pretraining, tokenizer: Tokenizer, run: RunSummary) -> None:
    """Write a model folder: weights, config, tokenizer and model card."""
    shape = objective.trunk.config
    layout = layout_of(shape)
    kept = {"trunk", *layout.pretrained}  # heads that the layout has; ModernBERT has none for next-sentence prediction
    state = {name: one for name, one in objective.state_dict().items() if name.partition(".")[0] in kept}
    if shape.architecture == "decoder":
        tokenizer = tokenizer.for_prompts()  # no end token after a prompt
    with folders.atomic_folder(path) as folder:
        extra: dict[str, Any] = dict(tokenizer.special_ids(layout.special_tokens))
        if objective.pairs not in ("none", layout.pairs):
            extra["pairs"] = objective.pairs  # transformers has no key for the meaning of the two classes
        folders.write(folder, shape, state, extra)
        tokenizer.save(folder, max_length=shape.max_length, segments=shape.segments > 1)
        files.write(folder / "README.md", pretrained_card(run, use=use_of(objective)).encode())
