"""The Python API: the verbs of the command line as functions."""

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from inspect import signature
from pathlib import Path
from typing import Any

from bertsmith import config, recipes
from bertsmith.commands import arguments, entrants
from bertsmith.commands import clean as cleaning
from bertsmith.commands import evaluate as measuring
from bertsmith.commands import export as exporting
from bertsmith.commands import finetune as tuning
from bertsmith.commands import inspect as looking
from bertsmith.commands import make as making
from bertsmith.commands import prepare as preparing
from bertsmith.commands import pretrain as pretraining
from bertsmith.commands import pretrain_images as pretraining_images
from bertsmith.commands.results import Evaluation, Export, Run
from bertsmith.data.address import Address, is_address
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.cache import is_prepared
from bertsmith.errors import RecipeError
from bertsmith.inference.image_model import ImageModel
from bertsmith.inference.inputs import known_options, short_repr
from bertsmith.inference.load import load_image_model
from bertsmith.inference.model import Model
from bertsmith.insight.image_inspection.inspection import ImageInspection
from bertsmith.insight.inspection.assembly import inspect as assemble
from bertsmith.insight.inspection.inspection import Inspection
from bertsmith.insight.inspection.subject import Subject
from bertsmith.insight.table import Results
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import image_classifiers
from bertsmith.models.vision_family import IMAGE_FAMILY
from bertsmith.models.word2vec import KIND
from bertsmith.recipe import FineTune, ImageFineTune, ImagePretraining, Recipe
from bertsmith.runs import candidates, checkpoint_models, finetuning, image_finetuning, suites
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig

PathLike = str | Path
Paths = PathLike | Iterable[PathLike]


def make(texts: Paths, out: PathLike, *, budget: str | None = None, seed: int | None = None, **options: Any) -> Run:
    """Train a BERT on your own text within a time budget: tokenizer, recipe, pretraining, validation and report.

    `texts` is a file, a folder, a glob, or a list of these; `out` the folder of the run; `budget` a duration such as
    "2h", by default "10m"; `options` are those of `bertsmith make`, such as `lowercase`.

    >>> run = bertsmith.make("texts/", "runs/made", budget="10m")
    >>> run.scores["loss"] > 0
    True
    """
    given, folder = arguments.as_paths(texts, "texts"), arguments.as_path(out, "out")
    arguments.check_options(options, making.make, Corpus)
    time = None if budget is None else arguments.as_text(budget, "budget")
    return Run(folder, making.make(given, folder, budget=time, seed=seed, **options))


def clean(texts: Paths, out: PathLike, **options: Any) -> Path:
    """Clean text for pretraining, and return the folder of cleaned text, which `make` and `prepare` read.

    Near-duplicates, other languages, rubbish and repeated lines are dropped; `clean.html` shows examples of each rule.
    `options` are those of `bertsmith clean`, such as `decontaminate`, a list of evaluation files.

    >>> folder = bertsmith.clean("texts/", "cleaned", personal=True)
    >>> (folder / "clean.html").exists()
    True
    """
    given, folder = arguments.as_paths(texts, "texts"), arguments.as_path(out, "out")
    arguments.check_options(options, cleaning.clean, Corpus)
    for name in ("skip", "decontaminate"):
        options[name] = arguments.as_paths(options[name], name) if options.get(name) else []
    cleaning.clean(given, folder, **options)
    return folder


def tokenizer(texts: Paths, out: PathLike, *, kind: str = "wordpiece", vocabulary: int = 30_522, **options: Any) -> Any:
    """Train a tokenizer (WordPiece, byte-level BPE, Unigram, words) on text, save it, and return it.

    `vocabulary` is its size at most; `options` are the other settings of a tokenizer, such as `lowercase`.

    >>> wordpiece = bertsmith.tokenizer("texts/", "wordpiece", vocabulary=120)
    >>> wordpiece.vocabulary <= 120
    True
    """
    given, folder = arguments.as_paths(texts, "texts"), arguments.as_path(out, "out")
    arguments.check_options(options, TokenizerConfig, Corpus)
    own = {name: options.pop(name) for name in list(options) if name in signature(TokenizerConfig).parameters}
    settings = config.build({"kind": kind, "vocabulary": vocabulary, **own}, TokenizerConfig, "tokenizer")
    preparing.tokenizer(given, folder, settings, **options)
    return Tokenizer.load(folder)


def prepare(texts: Paths, out: PathLike, tokenizer: PathLike | Tokenizer, **options: Any) -> PathLike:
    """Tokenise text once, into shards that `pretrain` reads, and return their folder.

    `texts` and `out` may be addresses, such as "s3://bucket/texts". `tokenizer` is a tokenizer or its folder; `options`
    are those of `bertsmith prepare`, such as `validation_share`, or `on`, a Ray cluster.

    >>> shards = bertsmith.prepare("texts/", "shards", "runs/mine/model", validation_share=0.1)
    >>> (shards / "train" / "index.json").exists()
    True
    """
    given, folder = arguments.as_paths(texts, "texts"), arguments.as_path(out, "out")
    arguments.check_options(options, preparing.prepare, Corpus)
    which = tokenizer if isinstance(tokenizer, Tokenizer) else arguments.as_path(tokenizer, "tokenizer")
    preparing.prepare(given, folder, which, **options)
    return str(Address(folder)) if is_address(folder) else folder


def pretrain(
    recipe: PathLike | Recipe | ImagePretraining,
    data: Paths | None = None,
    out: PathLike | None = None,
    *,
    overrides: Iterable[str] = (),
    **options: Any,
) -> Run:
    """Pretrain a model from a recipe: a name of `bertsmith.models()`, a TOML file or a `Recipe`.

    `data` is a folder that `prepare` wrote, or text, which is then prepared in the run's folder; or images, for a
    recipe such as mae-small. `options`: steps,
    epochs, budget, learning_rate, weight_decay, batch_tokens, gradient_accumulation, max_length, seed, device, start;
    `overrides` set any key of the recipe, such as "model.layers=2".

    >>> run = bertsmith.pretrain("bert-tiny", data="texts/", out="runs/bert", steps=2, batch_tokens=512, max_length=32)
    >>> run.scores["loss"] > 0
    True
    """
    changes = [*arguments.options_as_overrides(options, arguments.PRETRAIN_KEYS), *arguments.as_overrides(overrides)]
    if isinstance(recipe, ImagePretraining):
        if changes or data is not None or out is not None:
            raise RecipeError("pretrain", "an ImagePretraining takes no options", "Change it with dataclasses.replace")
        return Run(recipe.out, pretraining_images.pretrain(recipe))
    if not isinstance(recipe, Recipe) and pretraining_images.reads_images(recipe):
        images = None if data is None else arguments.as_path(data, "data")
        whole = pretraining_images.read_recipe(recipe, images, None if out is None else Path(out), changes)
        return Run(whole.out, pretraining_images.pretrain(whole))
    if isinstance(recipe, Recipe):
        if changes:
            raise RecipeError("pretrain", "a Recipe takes no options", "Change it with dataclasses.replace")
        read = recipe
    else:
        read = pretraining.read_recipe(recipe, changes)
    folder = arguments.as_path(out, "out") if out is not None else read.out
    prepared = None if data is None else _prepared_folder(arguments.as_paths(data, "data"), folder, read)
    read = pretraining.with_paths(read, prepared, folder)
    return Run(read.out, pretraining.pretrain(read))


def finetune(
    model: Any,
    data: PathLike | None = None,
    out: PathLike | None = None,
    *,
    dev: PathLike | None = None,
    task: str | None = None,
    seeds: int | None = None,
    overrides: Iterable[str] = (),
    **options: Any,
) -> Run:
    """Fine-tune a model on labelled texts or images; the task is guessed from the data, or named by `task`.

    `model` is a folder, a `Model`, a `Run`, the name of a member or recipe, or a complete `FineTune` recipe; `data` a
    labelled file, a folder of them, or images such as a folder by class; `dev` a dev set, else a share of the data is
    held out; `seeds` the number of runs for a confidence interval. `options`: epochs, steps, learning_rate, batch_size,
    max_length, seed, device and others; `overrides` set any key of the recipe, such as "adapt.kind=lora".

    >>> run = bertsmith.finetune("runs/mine", "reviews.csv", out="runs/lora", steps=2, overrides=["adapt.kind=lora"])
    >>> run.model.predict("I liked it.").label
    '...'
    """
    changes = [*arguments.options_as_overrides(options, arguments.FINETUNE_KEYS), *arguments.as_overrides(overrides)]
    if isinstance(model, FineTune | ImageFineTune):
        if changes or data is not None or out is not None:
            raise RecipeError("finetune", "a FineTune takes no options", "Change it with dataclasses.replace")
        out_folder = model.out
        result = finetuning.finetune(model) if isinstance(model, FineTune) else image_finetuning.finetune(model)
    else:
        if seeds is not None and (not isinstance(seeds, int) or seeds < 1):
            raise RecipeError("seeds", f"is {short_repr(seeds)}", "Give 1 or more")
        held, folder = None if dev is None else arguments.as_path(dev, "dev"), _model_path(model)
        given, out_folder = arguments.as_path(data, "data"), arguments.as_path(out, "out")
        result = tuning.run(folder, given, out_folder, dev=held, task=task, seeds=seeds, overrides=changes)
    return Run(out_folder, _mean_scores(result), result)


def evaluate(
    model: Any,
    data: PathLike,
    out: PathLike | None = None,
    *,
    suite: str | None = None,
    seeds: int | None = None,
    limit: int | None = None,
    overrides: Iterable[str] = (),
) -> Evaluation | Results:
    """Evaluate a fine-tuned model on a labelled file, or any model on a suite such as "glue" or "blimp".

    `out` is the folder for result.json and the page, which a suite needs; `seeds` (3 by default) and `limit` (of
    minimal pairs or examples) are for suites that have them; `overrides` set keys of the data or of the suite.

    >>> evaluation = bertsmith.evaluate("runs/reviews", "reviews.csv", out="evaluated")
    >>> sorted(evaluation.scores)
    ['accuracy', ...]
    """
    folder, changes = _model_path(model), arguments.as_overrides(overrides)
    out_folder = None if out is None else arguments.as_path(out, "out")
    if suite is not None:
        if out_folder is None:
            raise RecipeError("out", f"the suite {suite} writes a folder", "Name it: out='runs/evaluated'")
        return suites.run_suite(
            suite, folder, arguments.as_path(data, "data"), out_folder, seeds=seeds, limit=limit, overrides=changes
        )
    measuring.refuse_suite_options({"seeds": seeds, "limit": limit})
    result = measuring.evaluate_file(folder, arguments.as_path(data, "data"), out_folder, overrides=changes)
    return Evaluation(_mean_scores(result), result, out_folder)


def export(model: Any, out: PathLike, onnx: bool = True, int8: bool = False, data: PathLike | None = None) -> Export:
    """Export a model to ONNX, for ONNX Runtime and optimum, and compare the graph with the model.

    `model` is a folder, a `Model` or a `Run`; `out` the folder of the graph. `int8` adds a graph in int8, which is
    refused if it loses more than 1 % of the task's score on `data`, a labelled file.

    >>> exported = bertsmith.export("runs/reviews", "runs/onnx", int8=True, data="reviews.csv")
    >>> exported.model.predict("I liked it.").label
    '...'
    """
    held, folder = None if data is None else arguments.as_path(data, "data"), arguments.as_path(out, "out")
    return Export(folder, exporting.export(_model_path(model), folder, onnx=onnx, int8=int8, data=held))


def inspect(models: Any, texts: Any = (), **options: Any) -> Inspection | ImageInspection:
    """What models look at, predict and know of texts, as figures and as one page that compares them.

    With one model of images, `texts` are images, and `options` those of `ImageModel.inspect`: size and attribute.

    `models` is a folder, a `Model`, a `Run`, the `checkpoints` folder of a run, or a list of these; `texts` a text, a
    pair of texts as a tuple, or a list. `options` are those of `Model.inspect`: target, max_length, attribute,
    map_file, word and passage.

    >>> inspection = bertsmith.inspect(["runs/mine", "runs/reviews"], "the cat sees the dog .")
    >>> [len(reading.attributions) for reading in inspection.readings]
    [0, 1]
    """
    if isinstance(models, str | Path | ImageModel | Run) and image_classifiers.is_image_folder(_model_path(models)):
        model = models if isinstance(models, ImageModel) else load_image_model(_model_path(models))
        return model.inspect(texts, **known_options(model.inspect, options))
    given = [models] if isinstance(models, str | Path | Model | Run) else models
    subjects: list[Subject] = []
    for one in given:
        subjects += [one.subject()] if isinstance(one, Model) else looking.open_subjects(_inspected_path(one))
    if not subjects:
        raise RecipeError("models", "is an empty list", "Give at least one model")
    return assemble(subjects, texts, **known_options(assemble, options))


def models(pattern: str = "*") -> list[str]:
    """The names of models and recipes that match a pattern; `pretrain` or `finetune` takes them.

    >>> bertsmith.models("bert-t*")
    ['bert-tiny']
    """
    known = dict.fromkeys([KIND, *FAMILY, *IMAGE_FAMILY, *recipes.names()])
    return [name for name in known if fnmatchcase(name, arguments.as_text(pattern, "pattern"))]


def _prepared_folder(given: list[str], out: Path, recipe: Recipe) -> Path:
    """The given folder of shards; or new shards of the given text, by a tokenizer of the recipe's kind."""
    if len(given) == 1 and is_prepared(given[0]):
        return Path(given[0])
    kind = candidates.tokenizer_kind(recipe.model.kind, recipe.model.settings)
    return entrants.prepare_text(given, out, kind, True)


def _model_path(model: Any) -> Path:
    if isinstance(model, Run):
        return folders.model_folder(model.folder)
    return Path(model.path) if isinstance(model, Model | ImageModel) else arguments.as_path(model, "model")


def _inspected_path(model: Any) -> Path:
    """A model folder, or checkpoints."""
    path = _model_path(model)
    return path if isinstance(model, Run) or checkpoint_models.is_checkpoint(path) else folders.model_folder(path)


def _mean_scores(result: Mapping[str, Any]) -> dict[str, float]:
    return {name: found["mean"] for name, found in result["summary"].items()}
