"""The micro-batches of an update, divided among the processes of a run."""

import math
from dataclasses import replace
from typing import Any, TypeVar

from bertsmith import config
from bertsmith.errors import RecipeError
from bertsmith.recipe import FineTune, ImageFineTune, ImagePretraining, Recipe, begun, check_kind
from bertsmith.train.processes import Processes

AnyRecipe = Recipe | FineTune | ImageFineTune | ImagePretraining
R = TypeVar("R", bound=AnyRecipe)


def divide(recipe: R, processes: Processes) -> R:
    """The recipe with micro-batches for every process: where they are too few, more and smaller ones.

    An update stays as large as it is. A run that is resumed keeps its micro-batches, since the order of its data
    depends on their size and not on the number of processes.
    """
    if recipe.train.deterministic and processes.size & (processes.size - 1):
        fact = f"sums in a fixed order are made in pairs, and here are {processes.size} processes"
        raise RecipeError("train.deterministic", fact, "Start 1, 2, 4 ... processes, or leave it out")
    if (kept := _kept(recipe)) is not None:
        recipe = kept
    elif recipe.train.gradient_accumulation % processes.size:
        recipe = _smaller(recipe, processes.size)
    count, size = recipe.train.gradient_accumulation, processes.size
    if size > count:
        fact = f"{size} processes are more than the {count} micro-batches of an update"
        raise RecipeError("train.gradient_accumulation", fact, f"Start at most {count}, or begin another run")
    return recipe


def _kept(recipe: R) -> R | None:
    """The recipe with the micro-batches that its run was begun with, if their product is what is asked for."""
    path = recipe.out / "recipe.toml"
    if not (path.exists() and begun(recipe.out)):
        return None
    check_kind(recipe)
    before = config.read(path, type(recipe))
    name = _size_name(recipe)
    products = [one.train.gradient_accumulation * getattr(one.data, name) for one in (before, recipe)]
    if products[0] != products[1]:
        return None  # refused by `settle`, which names the difference
    return _with(recipe, before.train.gradient_accumulation, getattr(before.data, name))


def _smaller(recipe: R, processes: int) -> R:
    """As many more micro-batches as the processes can divide, each of them smaller."""
    name, count = _size_name(recipe), recipe.train.gradient_accumulation
    parts = math.lcm(count, processes) // count
    size = getattr(recipe.data, name)
    try:
        if size % parts == 0:
            return _with(recipe, count * parts, size // parts)
    except ValueError:  # too small a batch
        pass
    fact = f"an update of {count} x {size:,} cannot be divided among {processes} processes"
    raise RecipeError(f"data.{name}", fact, f"Set it, or train.gradient_accumulation, to a multiple of {processes}")


def _size_name(recipe: AnyRecipe) -> str:
    """What the size of a batch is called: tokens in pretraining, else examples."""
    return "batch_tokens" if isinstance(recipe, Recipe) else "batch_size"


def _with(recipe: R, count: int, size: int) -> R:
    changes: dict[str, Any] = {_size_name(recipe): size}
    data: Any = replace(recipe.data, **changes)
    return replace(recipe, train=replace(recipe.train, gradient_accumulation=count), data=data)
