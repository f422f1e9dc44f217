"""Models of a pretraining run's checkpoints, to see what it learnt when.

A run keeps its newest two by default; `train.keep_checkpoints=10` keeps more.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import torch

from bertsmith import config
from bertsmith.errors import FolderError
from bertsmith.inference.device import resolve_device
from bertsmith.inference.model import Model
from bertsmith.recipe import Recipe
from bertsmith.runs import build
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import checkpoint
from bertsmith.train.average import averaged_weights

FOLDER, PREFIX = "checkpoints", "step-"


def is_checkpoint(path: Path) -> bool:
    """Whether a path is a checkpoint, or the folder with those of a run."""
    return _steps(path) != [] if path.name == FOLDER else path.name.startswith(PREFIX) and path.parent.name == FOLDER


def load_checkpoints(path: Path, device: str | torch.device = "auto") -> Iterator[tuple[str, Model]]:
    """The model of a checkpoint, or of all that a run has kept, the earliest first; each with a name."""
    folder = path.resolve()
    run = folder.parent if folder.name == FOLDER else folder.parent.parent
    if not (run / "recipe.toml").is_file():
        raise FolderError(path, f"there is no recipe.toml in {run}", "Give a checkpoint inside of its pretraining run")
    recipe = config.read(run / "recipe.toml", Recipe)
    tokenizer = _tokenizer(run, recipe)
    shape = replace(recipe.model.settings, vocabulary=tokenizer.vocabulary)
    for one in _steps(folder) if folder.name == FOLDER else [folder]:
        saved = checkpoint.load(one)
        objective = build.untrained_objective(recipe, shape)
        objective.bind(tokenizer)
        objective.load_state_dict(averaged_weights(objective, saved.tensors))
        decodes = shape.architecture == "decoder"
        reading = tokenizer.for_prompts() if decodes else tokenizer.for_tasks()
        yield f"{run.name} step {saved.step:,}", Model(objective.to(resolve_device(device)).eval(), reading, str(path))


def _steps(folder: Path) -> list[Path]:
    return sorted(folder.glob(f"{PREFIX}*"))


def _tokenizer(run: Path, recipe: Recipe) -> Tokenizer:
    """The tokenizer of the run's data, or a copy in its folder if the data are no longer there."""
    for folder in (recipe.data.local / "tokenizer", run / "data" / "tokenizer", run / "tokenizer", run / "model"):
        if (folder / "tokenizer.json").is_file():
            return Tokenizer.load(folder)
    raise FolderError(run, "its tokenizer is no longer there", f"It was in {recipe.data.folder}")
