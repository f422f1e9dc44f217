"""The verbs as Python calls: paths as strings, options in the field's words, and results that know their model.

import bertsmith

mine = bertsmith.make("texts/", "runs/mine", budget="10m")
mine.model.fill("The capital of France is [MASK].")
reviews = bertsmith.finetune(mine, "reviews.csv", out="runs/reviews", epochs=3)
reviews.scores, reviews.model.predict("I liked it.")
"""

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any

from bertsmith import config, recipes
from bertsmith.commands import entrants
from bertsmith.commands import evaluate as measuring
from bertsmith.commands import make as making
from bertsmith.commands import prepare as preparing
from bertsmith.commands import pretrain as pretraining
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.errors import RecipeError, suggest
from bertsmith.inference.inputs import short_repr
from bertsmith.inference.load import load
from bertsmith.inference.model import Model
from bertsmith.insight.table import Results
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.models.word2vec import KIND
from bertsmith.recipe import FineTune, Recipe
from bertsmith.runs import finetuning, suites, task_recipe
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig

PathLike = str | Path
Paths = PathLike | Iterable[PathLike]
PRETRAIN_KEYS = {  # the field's words: keys of a recipe
    "steps": "train.steps",
    "epochs": "train.epochs",
    "budget": "train.budget",
    "learning_rate": "optimizer.learning_rate",
    "weight_decay": "optimizer.weight_decay",
    "batch_tokens": "data.batch_tokens",
    "gradient_accumulation": "train.gradient_accumulation",
    "max_length": "data.max_length",
    "seed": "train.seed",
    "device": "train.device",
    "start": "start",
}
FINETUNE_KEYS = {name: key for name, key in PRETRAIN_KEYS.items() if name not in ("batch_tokens", "start")} | {
    "batch_size": "data.batch_size"
}


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run: its folder, its scores, its report, and its model, which is loaded when first asked for."""

    folder: Path
    scores: dict[str, float]  # of pretraining, on held-out text; of fine-tuning, on the dev set
    result: dict[str, Any] = field(default_factory=dict)  # everything there is to know, as in result.json

    @cached_property
    def model(self) -> Model:
        """The trained model, on the fastest device there is."""
        return load(self.folder / "model")

    @property
    def report(self) -> Path:
        """The page about the run."""
        return self.folder / "report.html"

    def __repr__(self) -> str:
        return f"Run('{self.folder}', {_format_scores(self.scores)})"


@dataclass(frozen=True, repr=False)
class Evaluation:
    """How good a model is on a labelled file."""

    scores: dict[str, float]
    result: dict[str, Any]  # by class, calibration and mistakes, as in result.json
    folder: Path | None = None  # where result.json and the page are, if asked for

    def __repr__(self) -> str:
        return f"Evaluation({_format_scores(self.scores)})"


def make(texts: Paths, out: PathLike, *, budget: str = "10m", seed: int | None = None, **options: Any) -> Run:
    """From text to a trained, validated model, in a given time: `make("texts/", "runs/mine", budget="10m")`.

    `texts` is a file, a folder, a glob, or a list of these; `options` are those of the command line, as `lowercase`.
    """
    given, folder = _paths(texts, "texts"), _path(out, "out")
    _check_options(options, making.make, Corpus)
    return Run(folder, making.make(given, folder, budget=_text(budget, "budget"), seed=seed, **options))


def tokenizer(texts: Paths, out: PathLike, *, kind: str = "wordpiece", vocabulary: int = 30_522, **options: Any) -> Any:
    """Train a tokenizer: `tokenizer("texts/", "words", kind="bpe", vocabulary=8192)`."""
    given, folder = _paths(texts, "texts"), _path(out, "out")
    _check_options(options, TokenizerConfig, Corpus)
    own = {name: options.pop(name) for name in list(options) if name in inspect.signature(TokenizerConfig).parameters}
    settings = config.build({"kind": kind, "vocabulary": vocabulary, **own}, TokenizerConfig, "tokenizer")
    preparing.tokenizer(given, folder, settings, **options)
    return Tokenizer.load(folder)


def prepare(texts: Paths, out: PathLike, tokenizer: PathLike, **options: Any) -> Path:
    """Tokenise text once, into shards that `pretrain` reads: `prepare("texts/", "data", "words", valid=0.01)`."""
    given, folder = _paths(texts, "texts"), _path(out, "out")
    _check_options(options, preparing.prepare, Corpus)
    preparing.prepare(given, folder, _path(tokenizer, "tokenizer"), **options)
    return folder


def pretrain(
    recipe: PathLike | Recipe,
    data: Paths | None = None,
    out: PathLike | None = None,
    *,
    overrides: Iterable[str] = (),
    **options: Any,
) -> Run:
    """Pretrain what a recipe describes: `pretrain("bert-base", data="data", out="runs/x", steps=1000)`.

    The recipe is a name (`bertsmith.models()`), a TOML file or a `Recipe`. `data` is a folder that `prepare` wrote, or
    text, which is then prepared in the run's folder. Options are steps, epochs, budget, learning_rate, batch_tokens,
    max_length, seed, device and others; `overrides` are any keys of the recipe, as "model.layers=2".
    """
    changes = [*_as_overrides(options, PRETRAIN_KEYS), *_overrides(overrides)]
    if isinstance(recipe, Recipe):
        if changes:
            raise RecipeError("pretrain", "a Recipe says everything itself", "Change it with dataclasses.replace")
        read = recipe
    else:
        read = pretraining.read_recipe(recipe, changes)
    folder = _path(out, "out") if out is not None else read.out
    prepared = None if data is None else _prepared_folder(_paths(data, "data"), folder, read)
    read = pretraining.with_paths(read, prepared, folder)
    return Run(read.out, pretraining.pretrain(read))


def finetune(
    model: Any,
    data: PathLike | None = None,
    out: PathLike | None = None,
    *,
    dev: PathLike | None = None,
    task: str | None = None,
    seeds: int = 1,
    overrides: Iterable[str] = (),
    **options: Any,
) -> Run:
    """Teach a model a task: `finetune("runs/mine", "reviews.csv", out="runs/reviews", epochs=3).scores`.

    `model` is a folder, a `Model`, a `Run`, a member or recipe by name, or a `FineTune` recipe, which says everything
    itself. `data` is a labelled file or a folder of them. Options are epochs, steps, learning_rate, batch_size,
    max_length, seed, device and others; `overrides` are any keys of the recipe, as "adapt.kind=lora".
    """
    changes = [*_as_overrides(options, FINETUNE_KEYS), *_overrides(overrides)]
    if isinstance(model, FineTune):
        if changes or data is not None or out is not None:
            raise RecipeError("finetune", "a FineTune says everything itself", "Change it with dataclasses.replace")
        recipe = model
    else:
        if not isinstance(seeds, int) or seeds < 1:
            raise RecipeError("seeds", f"is {short_repr(seeds)}", "Give 1 or more")
        held = None if dev is None else _path(dev, "dev")
        folder, place = _model_path(model), _path(out, "out")
        task_recipe.check(folder, task)
        recipe = task_recipe.build_recipe(
            folder, _path(data, "data"), place, dev=held, task=task, seeds=seeds, overrides=changes
        )
    result = finetuning.finetune(recipe)
    return Run(recipe.out, _mean_scores(result), result)


def evaluate(
    model: Any,
    data: PathLike,
    out: PathLike | None = None,
    *,
    suite: str | None = None,
    seeds: int = 3,
    limit: int | None = None,
    overrides: Iterable[str] = (),
) -> Evaluation | Results:
    """Measure a fine-tuned model on a labelled file: `evaluate("runs/reviews", "test.csv").scores`.

    With `suite`, as "glue" or "blimp", measure any model by a whole benchmark, which leaves its table in `out`.
    """
    folder, place, changes = _model_path(model), None if out is None else _path(out, "out"), _overrides(overrides)
    if suite is not None:
        if place is None:
            raise RecipeError("out", f"the suite {suite} leaves a folder", "Name it: out='runs/measured'")
        return suites.run_suite(suite, folder, _path(data, "data"), place, seeds=seeds, limit=limit, overrides=changes)
    result = measuring.evaluate_file(folder, _path(data, "data"), place, overrides=changes)
    return Evaluation(_mean_scores(result), result, place)


def models(pattern: str = "*") -> list[str]:
    """The names of all members and recipes that match: `models("bert*")`; recipes are what `pretrain` takes."""
    known = dict.fromkeys([KIND, *FAMILY, *recipes.names()])
    return [name for name in known if fnmatchcase(name, _text(pattern, "pattern"))]


# ------------------------------------------------------------------------------------------ what people hand in


def _prepared_folder(given: list[str], out: Path, recipe: Recipe) -> Path:
    """The one folder of shards that is named; or shards of the text that is, in the tokens the recipe reads."""
    if len(given) == 1 and (Path(given[0]) / "train").is_dir():
        return Path(given[0])
    return entrants.prepare_text(given, out, entrants.tokenizer_kind(recipe.model.settings), True)


def _model_path(model: Any) -> Path:
    if isinstance(model, Run):
        return folders.model_folder(model.folder)
    return Path(model.path) if isinstance(model, Model) else _path(model, "model")


def _paths(given: Any, name: str) -> list[str]:
    """One path or several as a list: a string is a path, and not its letters."""
    if isinstance(given, str | Path):
        return [str(_path(given, name))]
    if given is None or not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
        raise RecipeError(name, f"is {short_repr(given)}", "Give a path, or a list of paths")
    found = [str(_path(one, name)) for one in given]
    if not found:
        raise RecipeError(name, "is an empty list", "Give at least one path")
    return found


def _path(given: Any, name: str) -> Path:
    if not isinstance(given, str | Path) or not str(given):
        raise RecipeError(name, "is missing" if given is None else f"is {short_repr(given)}", "Give a path")
    return Path(given)


def _text(given: Any, name: str) -> str:
    if not isinstance(given, str):
        raise RecipeError(name, f"is {short_repr(given)}", "Give a text")
    return given


def _overrides(given: Any) -> list[str]:
    return _paths(given, "overrides") if isinstance(given, str) or given else []


def _as_overrides(options: Mapping[str, Any], known: Mapping[str, str]) -> list[str]:
    """Options in the field's words as changes to a recipe; what is None is not said."""
    for name, value in options.items():
        if name not in known:
            raise RecipeError(name, "is not an option here", f"{suggest(name, known)} Any other key: overrides=[...]")
        if value is not None and not isinstance(value, str | int | float | Path):
            raise RecipeError(name, f"is {short_repr(value)}", "Give a number or a text")
    said = {known[name]: str(one) if isinstance(one, Path) else one for name, one in options.items() if one is not None}
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in said.items()]


def _check_options(options: Mapping[str, Any], *takers: Callable[..., Any]) -> None:
    """That each option is one that somebody takes."""
    known = {
        name
        for taker in takers
        for name, one in inspect.signature(taker).parameters.items()
        if one.kind is one.KEYWORD_ONLY or (one.default is not one.empty and one.kind is one.POSITIONAL_OR_KEYWORD)
    }
    for name in options:
        if name not in known:
            raise RecipeError(name, "is not an option here", suggest(name, known))


def _mean_scores(result: Mapping[str, Any]) -> dict[str, float]:
    return {name: found["mean"] for name, found in result["summary"].items()}


def _format_scores(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={value:.4g}" for name, value in scores.items())
