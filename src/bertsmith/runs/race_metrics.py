"""The metrics of a race: bits per byte on held-out text, minimal pairs, and GLUE tasks to be fine-tuned on."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bertsmith.data.packing.pack import Packer
from bertsmith.data.shards.shards import Shards
from bertsmith.data.shards.verification import verify
from bertsmith.errors import RecipeError, suggest
from bertsmith.inference import minimal_pairs
from bertsmith.inference.load import load
from bertsmith.insight.leaderboard import BITS_PER_BYTE, BLIMP
from bertsmith.objectives.base import Pretraining
from bertsmith.objectives.masked import MaskedLM
from bertsmith.recipe import Recipe
from bertsmith.runs import build, finetuning, task_recipe
from bertsmith.runs.suites import NO_CHECKPOINTS, glue_folders
from bertsmith.train import hardware
from bertsmith.train.evaluate import evaluate

MASK_RATE = 0.15  # of the pieces of held-out text, whatever a recipe hides
BATCH_TOKENS = 16_384  # in a batch of it; fewer where all are guessed, so that a batch has as many guesses
MAX_LENGTH = 128  # of texts in fine-tuning, or less where the model takes less


@dataclass(frozen=True, kw_only=True)
class MetricsConfig:
    """What the models are asked beside held-out text."""

    glue: Path | None = None
    tasks: Sequence[str] = ()  # of GLUE; all that are there if none is named
    seeds: int = 1
    finetune_overrides: Sequence[str] = ()  # overrides of fine-tuning
    blimp: Path | None = None
    limit: int | None = None  # pairs of each phenomenon


@dataclass(frozen=True)
class Metric:
    """A score: what is asked beside the model, and how. A score that was asked otherwise is taken again."""

    name: str
    settings: Mapping[str, Any]
    compute: Callable[[Recipe, Path], Sequence[float]]  # one a seed; none of a model that has no answer


def build_metrics(config: MetricsConfig) -> list[Metric]:
    """All that the models are asked. What cannot be understood is told before any time is spent."""
    found = [Metric(BITS_PER_BYTE, {"mask_rate": MASK_RATE}, _bits_per_byte)]
    if config.blimp is not None:
        pairs = minimal_pairs.read_minimal_pairs(config.blimp, config.limit)
        how = {"data": str(config.blimp), "limit": config.limit}
        found.append(Metric(BLIMP, how, partial(_blimp, pairs)))
    if config.glue is None:
        if config.tasks:
            raise RecipeError("--tasks", "they are GLUE's", "Say where it lies, with --glue FOLDER")
        return found
    there = glue_folders(config.glue)
    for name in config.tasks or there:
        if name not in there:
            raise RecipeError("--tasks", f"there is no '{name}' in {config.glue}", suggest(name, there))
        learn = partial(_finetuned, there[name], config.seeds, tuple(config.finetune_overrides))
        task_recipe.build_recipe(
            Path(), there[name], Path(), dev=None, task="classify", seeds=1, overrides=config.finetune_overrides
        )
        asked = {"data": str(there[name]), "seeds": config.seeds, "overrides": list(config.finetune_overrides)}
        found.append(Metric(name, asked, learn))
    return found


def _bits_per_byte(recipe: Recipe, folder: Path) -> Sequence[float]:
    figures = held_out_scores(folder, recipe.data.folder / "valid", recipe.data.max_length)
    return [figures["bits_per_byte"]] if "bits_per_byte" in figures else []


def held_out_scores(folder: Path, text: Path, length: int = MAX_LENGTH) -> dict[str, float]:
    """How well a model guesses words of held-out text; nothing of one that guesses none, as ELECTRA.

    Hidden words are asked alike of all models of one vocabulary: 15 % of the pieces, hidden as BERT's were.
    """
    model, shards = load(folder), Shards(text)
    verify(shards).wait()
    objective, tokenizer = model.objective, model.tokenizer
    if not model.has_lm_head or not isinstance(objective, Pretraining):
        return {}
    if isinstance(objective, MaskedLM):
        objective.config = MaskedLM.Config(mask_rate=MASK_RATE, pairs="none")
    length = min(length, model.max_length)
    tokens = max(length, round(BATCH_TOKENS * MASK_RATE / objective.prediction_share))
    ids: dict[str, Any] = {"start": tokenizer.start_id, "stop": tokenizer.stop_id, "padding": tokenizer.padding_id}
    pack = Packer(
        shards, max_length=length, batch_tokens=tokens, pairs="none", seed=build.VALIDATION_SEED, once=True, **ids
    )
    collate = objective.collator(tokenizer)
    batches = [collate(pack(position)).to(model.device) for position in range(pack.batches())]
    half = hardware.select_precision("auto", model.device) == torch.bfloat16
    with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=half):
        return evaluate(objective, batches, shards.bytes / shards.tokens)


def _blimp(pairs: Sequence[minimal_pairs.MinimalPair], recipe: Recipe, folder: Path) -> Sequence[float]:
    """The share of minimal pairs judged right, by whatever likelihood the model has for a text."""
    model = load(folder)
    if not model.has_lm_head:
        return []
    totals = [
        scored.log_likelihood for scored in model.score([text for pair in pairs for text in (pair.good, pair.bad)])
    ]
    return [minimal_pairs.accuracies(pairs, list(zip(totals[::2], totals[1::2], strict=True))).accuracy]


def _finetuned(data: Path, seeds: int, changes: Sequence[str], recipe: Recipe, folder: Path) -> Sequence[float]:
    """A task of GLUE as `bertsmith finetune` learns it, scored on its dev set."""
    overrides = [f"data.max_length={min(MAX_LENGTH, recipe.model.settings.max_length)}", *NO_CHECKPOINTS, *changes]
    with tempfile.TemporaryDirectory() as place:
        learnt = task_recipe.build_recipe(
            folder, data, Path(place), dev=None, task=None, seeds=seeds, overrides=overrides
        )
        result = finetuning.finetune(learnt)
    return [one["metrics"][result["headline"]] for one in result["runs"]]
