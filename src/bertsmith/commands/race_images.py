"""`race` of image networks: train several on the same images with equal compute, and plot accuracy against the cost.

Each recipe runs as `bertsmith finetune` runs it, and goes on where it was interrupted. Its evaluations on the dev
images, evenly spaced over the budget, are the points of its curve.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from bertsmith import config, files, terminal
from bertsmith.commands import race_report
from bertsmith.commands.entrants import folder_name, read_entries
from bertsmith.commands.race import (
    Rules,
    free_memory,
    load_race,
    pacemaker_flops,
    report_failure,
    show,
    too_short,
)
from bertsmith.errors import RecipeError, StopError
from bertsmith.insight import evaluation
from bertsmith.insight.table import Results
from bertsmith.models.hf import image_classifiers
from bertsmith.models.hf.image_classifiers import ImageConfig
from bertsmith.models.vision_config import VisionConfig
from bertsmith.recipe import EXTENTS, ImageFineTune
from bertsmith.runs import image_finetuning, image_recipe
from bertsmith.runs.finetuning_result import RESULT as RUN_RESULT
from bertsmith.train import hardware, log
from bertsmith.train.lock import Lock

CONSOLE = terminal.console()
RACE_KEYS = frozenset({"out", "seeds", "data.train", "data.dev", "train.evaluations", *EXTENTS[0]})
SCORE = "accuracy"
COUNTED_SIDE = 32  # pixels: the FLOPs of a convolutional network are counted for such images
FORWARD_AND_BACKWARD = 3  # times the operations of a forward pass


@dataclass(frozen=True)
class Entrant:
    """A network that takes part."""

    recipe: ImageFineTune
    overrides: list[str]  # those of all, then its own


def reads_images(entries: Sequence[str]) -> bool:
    """Whether the entrants of a race are networks of images; some of images and some of text are refused."""
    named = [text.split()[0] for text in entries if text.strip() and "=" not in text.split()[0]]
    of_images = [entry for entry in named if image_recipe.reads_images(Path(entry))]
    if of_images and len(of_images) < len(named):
        other = next(entry for entry in named if entry not in of_images)
        raise RecipeError("race", f"'{of_images[0]}' reads images, and '{other}' text", "Race them apart")
    return bool(of_images)


def race(entries: Sequence[str], out: Path, *, rules: Rules, data: Path | None, seeds: int = 1) -> Results:
    """Train each network on the images, and write the report. Earlier results are kept, and a failure stops no other.

    `entries` are members, recipes or model folders, each with overrides of its own if it has any.
    """
    if data is None:
        raise RecipeError("race", "needs images for all networks", "Give --data IMAGES, a folder for each class")
    entrants = read_entrants(entries, out, data, rules, seeds)
    with Lock(out):
        state, failed = load_race(out, rules, next(iter(entrants)), "images"), []
        for number, (name, entrant) in enumerate(entrants.items(), 1):
            CONSOLE.print(f"{name}, network {number} of {len(entrants)}", style="bold", markup=False)
            recipe = entrant.recipe
            try:
                recipe = _with_budget(out, state, name, recipe, rules)
                image_finetuning.finetune(recipe)  # which reads its own result if there is one
                row = _row(name, entrant, recipe, rules)
            except StopError:
                raise
            except Exception as error:  # any error: the others may have hours of training before them
                if len(entrants) == 1:
                    raise
                failed.append(name)
                report_failure(name, recipe.out, error)
                continue
            state["rows"] = [other for other in state["rows"] if other["name"] != name] + [row]
            race_report.save(out, state)
            free_memory()
        results = race_report.save(out, state)
    show(results, out, failed, len(entrants))
    return results


def read_entrants(entries: Sequence[str], out: Path, data: Path, rules: Rules, seeds: int) -> dict[str, Entrant]:
    """The networks by name, all with the same budget and as many evaluations as there are points."""
    settings = [f"train.budget={rules.budget}", f"train.evaluations={rules.points}"]
    found = {}
    for name, (entry, shared, own) in read_entries(entries, stem=_stem, race_keys=RACE_KEYS).items():
        overrides, folder = [*shared, *own], out / folder_name(name)
        changes = [*overrides, *settings]
        recipe = image_recipe.build_recipe(Path(entry), data, folder, dev=None, seeds=seeds, overrides=changes)
        found[name] = Entrant(recipe, overrides)
    return found


def _stem(entry: str) -> str:
    """The name of a network: a member's or a recipe's own, or that of a run."""
    path = Path(entry)
    return evaluation.model_name(path) if path.is_dir() else path.name.removesuffix(".toml")


def _with_budget(out: Path, state: Mapping[str, Any], name: str, recipe: ImageFineTune, rules: Rules) -> ImageFineTune:
    """The recipe with its length: the same time for all, or as many updates as the pacemaker's FLOPs allow."""
    if rules.equal == "time" or name == state["rules"]["pacemaker"]:
        return recipe
    steps = round(pacemaker_flops(out, state) / (image_flops(recipe) * images_per_update(recipe)))
    if steps < rules.points:
        raise too_short(recipe.out, steps, rules.points)
    return replace(recipe, train=replace(recipe.train, budget=None, steps=steps))


def _shape(recipe: ImageFineTune) -> ImageConfig:
    return image_finetuning.network_config(recipe, image_finetuning.base_folder(recipe))


def images_per_update(recipe: ImageFineTune) -> int:
    """The images of all micro-batches of an update."""
    return recipe.data.batch_size * recipe.train.gradient_accumulation


def image_flops(recipe: ImageFineTune) -> float:
    """Floating-point operations of training for each image; a teacher's are those of its forward pass."""
    size = image_finetuning.side_read(recipe)
    own = _flops(_shape(recipe), size)
    if recipe.teacher is None:
        return own
    return own + _flops(image_classifiers.read(recipe.teacher).config, size) / FORWARD_AND_BACKWARD


def _flops(shape: ImageConfig, size: int) -> float:
    """Those of a network on images with sides of this size, forward and backward."""
    if isinstance(shape, VisionConfig):
        tokens = (size // shape.patch_size) ** 2 + shape.special_tokens
        return tokens * shape.flops(tokens, 0.0)
    return shape.flops(1, 0.0) * size**2 / COUNTED_SIDE**2


def _row(name: str, entrant: Entrant, recipe: ImageFineTune, rules: Rules) -> dict[str, Any]:
    """The row of a network that has been trained: its cost and its scores, from its logs."""
    result, device = files.read_json(recipe.out / RUN_RESULT), hardware.select_device(recipe.train.device)
    return {
        "name": name,
        "label": name.partition(" ")[0],
        "overrides": entrant.overrides,
        "description": "; ".join(result["protocol"]["data"]),
        "parameters": _shape(recipe).parameter_count,
        "peak": hardware.peak_flops(device, torch.bfloat16) if device.type == "cuda" else None,
        "points": _points(recipe, rules),
        "recipe": config.dump(recipe),
    }


def _points(recipe: ImageFineTune, rules: Rules) -> list[dict[str, Any]]:
    """The evaluations of all seeds, with what they took on average."""
    settings = {"seeds": recipe.seeds, "overrides": []}
    curves = [_evaluations(recipe.out / f"seed-{number}" / log.NAME) for number in range(recipe.seeds)]
    if any(len(curve) < rules.points for curve in curves):
        raise too_short(recipe.out, max(step for curve in curves for step, *_ in curve), rules.points)
    points = []
    for together in zip(*(curve[-rules.points :] for curve in curves), strict=True):
        step, seconds = (mean(one[part] for one in together) for part in (0, 1))
        images = step * images_per_update(recipe)
        scores = {SCORE: {"settings": settings, "values": [one[2] for one in together]}}
        flops = images * image_flops(recipe)
        points.append({"step": step, "images": images, "seconds": seconds, "flops": flops, "scores": scores})
    return points


def _evaluations(path: Path) -> list[tuple[int, float, float]]:
    """Step, seconds of training and score of each evaluation after the first step."""
    records = log.read(path)
    seconds = {record["step"]: record["seconds"] for record in records if record["kind"] == "step"}
    found = [record for record in records if record["kind"] == "validation"]
    return [(record["step"], seconds[record["step"]], record[SCORE]) for record in found]
