"""What the models of a race are asked: words of held-out text, minimal pairs, and tasks to be learnt."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bertsmith import kit, tune
from bertsmith.data.pack import Pack
from bertsmith.data.shards import Shards
from bertsmith.data.verification import verify
from bertsmith.errors import RecipeError, nearest
from bertsmith.insight.standings import BITS, BLIMP
from bertsmith.objectives.base import Unlabelled
from bertsmith.objectives.masked import MaskedLM
from bertsmith.recipe import Recipe
from bertsmith.suites import QUICK, glue_folders
from bertsmith.train import machine
from bertsmith.train.evaluate import evaluate
from bertsmith.use import minimal
from bertsmith.use.load import load

HIDDEN = 0.15  # of the pieces of held-out text, whatever a recipe hides
TOKENS = 16_384  # in a batch of it; fewer where all are guessed, so that a batch has as many guesses
LENGTH = 128  # of texts in fine-tuning, or less where the model takes less


@dataclass(frozen=True, kw_only=True)
class Questions:
    """What the models are asked beside held-out text."""

    glue: Path | None = None
    tasks: Sequence[str] = ()  # of GLUE; all that are there if none is named
    seeds: int = 1
    tuning: Sequence[str] = ()  # overrides of fine-tuning
    blimp: Path | None = None
    most: int | None = None  # pairs of each phenomenon


@dataclass(frozen=True)
class Measure:
    """A score: what is asked beside the model, and how. A score that was asked otherwise is taken again."""

    name: str
    asked: Mapping[str, Any]
    take: Callable[[Recipe, Path], Sequence[float]]  # one a seed; none of a model that has no answer


def measures(questions: Questions) -> list[Measure]:
    """All that the models are asked. What cannot be understood is told before any time is spent."""
    found = [Measure(BITS, {"hidden": HIDDEN}, _bits)]
    if questions.blimp is not None:
        pairs = minimal.minimal_pairs(questions.blimp, questions.most)
        how = {"data": str(questions.blimp), "most": questions.most}
        found.append(Measure(BLIMP, how, partial(_blimp, pairs)))
    if questions.glue is None:
        if questions.tasks:
            raise RecipeError("--tasks", "they are GLUE's", "Say where it lies, with --glue FOLDER")
        return found
    there = glue_folders(questions.glue)
    for name in questions.tasks or there:
        if name not in there:
            raise RecipeError("--tasks", f"there is no '{name}' in {questions.glue}", nearest(name, there))
        learn = partial(_tuned, there[name], questions.seeds, tuple(questions.tuning))
        tune.recipe(Path(), there[name], Path(), dev=None, task="classify", seeds=1, overrides=questions.tuning)
        asked = {"data": str(there[name]), "seeds": questions.seeds, "tuning": list(questions.tuning)}
        found.append(Measure(name, asked, learn))
    return found


def _bits(recipe: Recipe, folder: Path) -> Sequence[float]:
    figures = held_out(folder, recipe.data.folder / "valid", recipe.data.length)
    return [figures["bits_per_byte"]] if "bits_per_byte" in figures else []


def held_out(folder: Path, text: Path, length: int = LENGTH) -> dict[str, float]:
    """How well a model guesses words of held-out text; nothing of one that guesses none, as ELECTRA.

    Hidden words are asked alike of all models of one vocabulary: 15 % of the pieces, hidden as BERT's were.
    """
    model, shards = load(folder), Shards(text)
    verify(shards).wait()
    objective, tokenizer = model.objective, model.tokenizer
    if not model.guesses or not isinstance(objective, Unlabelled):
        return {}
    if isinstance(objective, MaskedLM):
        objective.config = MaskedLM.Config(rate=HIDDEN, pairs="none")
    length = min(length, model.length)
    tokens = max(length, round(TOKENS * HIDDEN / objective.guesses))
    ids: dict[str, Any] = {"start": tokenizer.start, "stop": tokenizer.stop, "padding": tokenizer.padding}
    pack = Pack(shards, length=length, tokens=tokens, pairs="none", seed=kit.VALID_SEED, once=True, **ids)
    collate = objective.collator(tokenizer)
    batches = [collate(pack(position)).to(model.device) for position in range(pack.batches())]
    half = machine.precision("auto", model.device) == torch.bfloat16
    with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=half):
        return evaluate(objective, batches, shards.bytes / shards.tokens)


def _blimp(pairs: Sequence[minimal.Pair], recipe: Recipe, folder: Path) -> Sequence[float]:
    """The share of minimal pairs judged right, by whatever likelihood the model has for a text."""
    model = load(folder)
    if not model.guesses:
        return []
    totals = [scored.total for scored in model.score([text for pair in pairs for text in (pair.good, pair.bad)])]
    return [minimal.judged(pairs, list(zip(totals[::2], totals[1::2], strict=True))).accuracy]


def _tuned(data: Path, seeds: int, tuning: Sequence[str], recipe: Recipe, folder: Path) -> Sequence[float]:
    """A task of GLUE as `bertsmith finetune` learns it, scored on its dev set."""
    overrides = [f"data.length={min(LENGTH, recipe.model.settings.length)}", *QUICK, *tuning]
    with tempfile.TemporaryDirectory() as place:
        learnt = tune.recipe(folder, data, Path(place), dev=None, task=None, seeds=seeds, overrides=overrides)
        result = tune.finetune(learnt)
    return [one["figures"][result["headline"]] for one in result["runs"]]
