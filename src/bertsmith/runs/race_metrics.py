"""The metrics of a race: bits per byte of held-out text, BLiMP's minimal pairs, and GLUE tasks by fine-tuning."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bertsmith.data.packing.pack import Packer
from bertsmith.data.shards.shards import Shards
from bertsmith.data.shards.verification import verify
from bertsmith.errors import RecipeError, suggest
from bertsmith.inference import minimal_pairs
from bertsmith.inference.load import load_text_model
from bertsmith.insight.leaderboard import BITS_PER_BYTE, BLIMP
from bertsmith.objectives.base import Pretraining
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.masking import VALIDATION_MASKING
from bertsmith.recipe import Recipe
from bertsmith.runs import build, finetuning, task_recipe
from bertsmith.runs.suites import NO_CHECKPOINTS, glue_folders
from bertsmith.train import hardware
from bertsmith.train.evaluate import evaluate

BATCH_TOKENS = 16_384  # of a masked model; fewer for a causal one, so that a batch has as many predictions
MAX_LENGTH = 128  # of texts in fine-tuning, or less where the model takes less


@dataclass(frozen=True, kw_only=True)
class MetricsConfig:
    """The metrics besides bits per byte, with their data."""

    glue: Path | None = None
    tasks: Sequence[str] = ()  # of GLUE; by default, all in the folder
    seeds: int = 1
    finetune_overrides: Sequence[str] = ()
    blimp: Path | None = None
    limit: int | None = None  # minimal pairs per phenomenon


@dataclass(frozen=True)
class Metric:
    """A score of a model folder. It is computed again when its settings have changed."""

    name: str
    settings: Mapping[str, Any]
    # One value per seed; none for a model that cannot have this score.
    compute: Callable[[Recipe, Path], Sequence[float]]


def build_metrics(config: MetricsConfig) -> list[Metric]:
    """The metrics of a race. Wrong settings are refused here, before any training."""
    metrics = [Metric(BITS_PER_BYTE, asdict(VALIDATION_MASKING), _bits_per_byte)]
    if config.blimp is not None:
        pairs = minimal_pairs.read_minimal_pairs(config.blimp, config.limit)
        settings: dict[str, Any] = {"data": str(config.blimp), "limit": config.limit}
        metrics.append(Metric(BLIMP, settings, partial(_blimp, pairs)))
    if config.glue is None:
        if config.tasks:
            raise RecipeError("--tasks", "needs GLUE's data", "Give its folder with --glue FOLDER")
        return metrics
    folders = glue_folders(config.glue)
    for name in config.tasks or folders:
        if name not in folders:
            raise RecipeError("--tasks", f"there is no '{name}' in {config.glue}", suggest(name, folders))
        compute = partial(_finetuned, folders[name], config.seeds, tuple(config.finetune_overrides))
        task_recipe.build_recipe(
            Path(), folders[name], Path(), dev=None, task="classify", seeds=1, overrides=config.finetune_overrides
        )
        overrides = list(config.finetune_overrides)
        settings = {"data": str(folders[name]), "seeds": config.seeds, "overrides": overrides}
        metrics.append(Metric(name, settings, compute))
    return metrics


def _bits_per_byte(recipe: Recipe, folder: Path) -> Sequence[float]:
    figures = held_out_scores(folder, recipe.data.local / "valid", recipe.data.max_length)
    return [figures["bits_per_byte"]] if "bits_per_byte" in figures else []


def held_out_scores(folder: Path, text: Path, length: int = MAX_LENGTH) -> dict[str, float]:
    """Loss, accuracy and bits per byte on held-out text; nothing for a model without a language model head (ELECTRA).

    All masked models with the same vocabulary predict the same tokens: 15 %, all of them replaced by [MASK].
    """
    model, shards = load_text_model(folder), Shards(text)
    verify(shards).wait()
    objective, tokenizer = model.objective, model.tokenizer
    if not model.has_lm_head or not isinstance(objective, Pretraining):
        return {}
    share = objective.prediction_share
    if isinstance(objective, MaskedLM):
        objective.config, share = replace(objective.config, pairs="none"), VALIDATION_MASKING.mask_rate
    length = min(length, model.max_length)
    tokens = max(length, round(BATCH_TOKENS * VALIDATION_MASKING.mask_rate / share))
    ids: dict[str, Any] = {
        "start_id": tokenizer.start_id,
        "stop_id": tokenizer.stop_id,
        "padding_id": tokenizer.padding_id,
    }
    pack = Packer(
        shards, max_length=length, batch_tokens=tokens, pairs="none", seed=build.VALIDATION_SEED, once=True, **ids
    )
    collate = objective.validation_collator(tokenizer)
    batches = [collate(pack(position)).to(model.device) for position in range(pack.batches())]
    bfloat16 = hardware.select_precision("auto", model.device) == torch.bfloat16
    with torch.inference_mode(), torch.autocast(model.device.type, torch.bfloat16, enabled=bfloat16):
        return evaluate(objective, batches, shards.bytes / shards.tokens)


def _blimp(pairs: Sequence[minimal_pairs.MinimalPair], recipe: Recipe, folder: Path) -> Sequence[float]:
    """Accuracy on minimal pairs, by the likelihood or pseudo-likelihood of the model."""
    model = load_text_model(folder)
    if not model.has_lm_head:
        return []
    totals = [
        scored.log_likelihood for scored in model.score([text for pair in pairs for text in (pair.good, pair.bad)])
    ]
    return [minimal_pairs.accuracies(pairs, list(zip(totals[::2], totals[1::2], strict=True))).accuracy]


def _finetuned(data: Path, seeds: int, changed: Sequence[str], recipe: Recipe, folder: Path) -> Sequence[float]:
    """The scores of fine-tuning on a GLUE task, on its dev set."""
    overrides = [f"data.max_length={min(MAX_LENGTH, recipe.model.settings.max_length)}", *NO_CHECKPOINTS, *changed]
    with tempfile.TemporaryDirectory() as out:
        finetune_recipe = task_recipe.build_recipe(
            folder, data, Path(out), dev=None, task=None, seeds=seeds, overrides=overrides
        )
        result = finetuning.finetune(finetune_recipe)
    return [one["metrics"][result["headline"]] for one in result["runs"]]
