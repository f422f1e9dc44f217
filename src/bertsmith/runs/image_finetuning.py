"""Training on images: once per seed, evaluated on the dev images; the best model, its scores and a report are kept."""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from bertsmith import config, files, terminal
from bertsmith.data.feed import Feed
from bertsmith.data.images.batch import ImageSource
from bertsmith.errors import RecipeError
from bertsmith.insight import evaluation
from bertsmith.insight.model_card import image_card
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import image_classifiers
from bertsmith.models.hf.folder import TRAINED_ON
from bertsmith.models.hf.image_classifiers import ImageConfig, ImageFolder
from bertsmith.models.hf.image_processor import ImageProcessor
from bertsmith.models.image_classifier import AnyImageClassifier, Normalisation, image_classifier
from bertsmith.models.patch_embedding import resized
from bertsmith.models.vision_config import VisionConfig
from bertsmith.nn.init import initialise
from bertsmith.recipe import ImageFineTune, check_kind, settle
from bertsmith.runs import image_data
from bertsmith.runs.finetuning_result import RESULT, best_run, result_of
from bertsmith.runs.image_data import ImageData
from bertsmith.runs.micro_batches import divide
from bertsmith.runs.seeds import check_data, fit, train_seeds
from bertsmith.tasks.image_classification import ImageClassification
from bertsmith.tasks.image_findings import ImageEvaluator
from bertsmith.tasks.teacher import Teacher
from bertsmith.train import hardware, log
from bertsmith.train.forward import should_capture
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.processes import ALONE, Processes, joined
from bertsmith.train.step import Step

CONSOLE = terminal.console()
MAY_CHANGE = frozenset(  # settings that may differ when a run is resumed; the contents of its data may not
    {"out", "data.train", "data.dev", "data.root", "data.workers", "seeds"}
    | {f"train.{name}" for name in ("device", "checkpoints", "keep_checkpoints")}
)
CUDA_EVALUATION_IMAGES, CPU_EVALUATION_IMAGES = 1_024, 128  # images in one forward pass of an evaluation
SECOND = "distillation_classifier.dense"
POSITIONS = "trunk.embedding.positions"


def finetune(recipe: ImageFineTune) -> dict[str, Any]:
    """Train once per seed. Writes the model of the best seed, result.json and a report."""
    device = hardware.select_device(recipe.train.device)
    with joined(device, recipe.out, recipe.train) as processes:
        check_kind(recipe)
        recipe = divide(recipe, processes)
        base = base_folder(recipe)
        shape = network_config(recipe, base)
        data = image_data.read(recipe, shape.patch_size if isinstance(shape, VisionConfig) else 1)
        for line in data.lines():
            CONSOLE.print(line, markup=False)
        normalisation = _normalisation(base, data)
        learnt_from = _fingerprint(recipe, data)
        if processes.main:
            check_data(recipe.out, learnt_from)
            settle(recipe, MAY_CHANGE)  # only now: a recipe with a mistake must not block the corrected one
        processes.wait()
        runs = train_seeds(
            recipe,
            processes,
            learnt_from,
            lambda seeded: run_seed(seeded, base, data, normalisation, processes),
            lambda task, _: export(recipe, task, data),
        )
        if processes.main:
            _write_result(recipe, result_of(runs, _protocol(recipe, data)), best_run(runs))
        processes.wait()
    return files.read_json(recipe.out / RESULT)


def _write_result(recipe: ImageFineTune, result: dict[str, Any], best: int) -> None:
    """Write result.json, the report, and the card of the best seed's model."""
    files.write_json(recipe.out / RESULT, result)
    curves = log.read(recipe.out / f"seed-{best}" / log.NAME)
    evaluation.write(recipe.out, _title(recipe), result, curves)
    if (recipe.out / "model").is_dir():
        card = image_card(_network_name(recipe), result)
        files.write_atomic(recipe.out / "model" / "README.md", card.encode())


def run_seed(
    recipe: ImageFineTune,
    base: ImageFolder | None,
    data: ImageData,
    normalisation: Normalisation,
    processes: Processes = ALONE,
) -> tuple[ImageClassification, dict[str, float], dict[str, Any]]:
    """Train with one seed and evaluate on the dev images: the task, its metrics, and the details for the report."""
    device = hardware.select_device(recipe.train.device)
    precision = hardware.select_precision(recipe.train.precision, device)
    task = build_task(recipe, base, data, normalisation).to(device)
    capturable = processes.size == 1 and should_capture(task, recipe.train, precision, device)
    optimizer = Optimizer(
        task,
        recipe.optimizer,
        capturable=capturable,
        hidden_matrices=task.hidden_matrices(),
        processes=processes if recipe.train.shard_optimizer else ALONE,
    )
    evaluation_images = CUDA_EVALUATION_IMAGES if device.type == "cuda" else CPU_EVALUATION_IMAGES
    evaluator = ImageEvaluator(task, data.dev, device, evaluation_images, data.prior)
    metrics, findings = fit(
        recipe,
        Step(task, optimizer, recipe.train, precision, processes),
        feed(recipe, task, data),
        evaluator,
        title="images",
        flops_per_token=lambda attended: task.model.trunk.config.flops(attended, 0.0),
        evaluate_untrained=True,
    )
    return task.eval(), metrics, findings


def build_task(
    recipe: ImageFineTune, base: ImageFolder | None, data: ImageData, normalisation: Normalisation
) -> ImageClassification:
    """The network with its weights, its classifier and, if there is one, its teacher."""
    labels = data.train.classes
    shape = network_config(recipe, base)
    if shape.channels != recipe.data.channels:
        fact = f"is {recipe.data.channels}, and the network reads {shape.channels}"
        raise RecipeError("data.channels", fact, f"Set data.channels={shape.channels}")
    teacher = None
    if recipe.teacher is not None:
        teacher = Teacher(recipe.teacher, labels, shape.channels, compiles=recipe.train.compile != "never")
    has_token = isinstance(shape, VisionConfig) and shape.distillation_token
    was_taught = base is not None and f"{SECOND}.weight" in base.state_dict
    model = image_classifier(shape, len(labels), distilled=has_token and (teacher is not None or was_taught))
    # From scratch at width**-0.5, as for text: 0.02, which suits a width of 768, is far too little for a small network.
    width = shape.width if isinstance(shape, VisionConfig) else shape.output_width
    initialise(model, recipe.train.seed, width**-0.5 if base is None else 0.02)
    if base is not None:
        model.load_state_dict(_weights(model, shape, base, labels), strict=False)
    return ImageClassification(
        model,
        recipe.task,
        labels,
        augmentation=recipe.augmentation,
        normalisation=normalisation,
        teacher=teacher,
    )


def feed(recipe: ImageFineTune, task: ImageClassification, data: ImageData) -> Feed:
    """Batches of training images by position."""
    source = ImageSource(data.train, recipe.data.batch_size, recipe.train.seed)
    collate = partial(task.collate, images=data.train)
    return Feed(source, collate, _fingerprint(recipe, data), recipe.data.workers)


def _fingerprint(recipe: ImageFineTune, data: ImageData) -> str:
    """Of the images and, if there is one, of the teacher."""
    teacher = "" if recipe.teacher is None else f" taught by {image_classifiers.fingerprint(recipe.teacher)}"
    return data.fingerprint + teacher


def export(recipe: ImageFineTune, task: ImageClassification, data: ImageData) -> None:
    """Write the model folder: weights, config, labels, and how images are prepared."""
    shape = task.model.trunk.config
    square = (recipe.data.size, recipe.data.size)
    processor = ImageProcessor(
        resize=square if recipe.data.fit == "stretch" else None,
        crop=recipe.augmentation.size,
        resample=recipe.data.resample,
        mean=task.normalisation.mean,
        std=task.normalisation.std,
    )
    extra = {"bertsmith": {TRAINED_ON: {"kind": "images", **data.prior.to_dict()}}}
    with folders.atomic_folder(recipe.out / "model") as folder:
        image_classifiers.write(folder, shape, task.model.state_dict(), task.labels, processor, extra)


def base_folder(recipe: ImageFineTune) -> ImageFolder | None:
    """The model folder that a run goes on from; None for a network from scratch."""
    return None if recipe.model is None else image_classifiers.read(recipe.model)


def network_config(recipe: ImageFineTune, base: ImageFolder | None) -> ImageConfig:
    """The configuration of the network, for the size that images are read in: others have other positions.

    The fixed positions of a masked autoencoder are learned from here on, as by He et al. 2021, appendix A.1.
    """
    if base is None:
        assert recipe.network is not None
        settings: ImageConfig = recipe.network.settings
    else:
        settings = base.config
    if not isinstance(settings, VisionConfig):
        return settings
    settings = replace(settings, positions="learned")
    if recipe.data.fit == "keep":
        return settings
    try:
        return replace(settings, image_size=side_read(recipe))
    except ValueError as error:
        raise RecipeError("augmentation.size" if recipe.augmentation.size else "data.size", str(error)) from None


def side_read(recipe: ImageFineTune) -> int:
    """The side of the images that the network reads, in pixels."""
    return recipe.augmentation.size[0] if recipe.augmentation.size else recipe.data.size


def _weights(
    model: AnyImageClassifier,
    shape: ImageConfig,
    base: ImageFolder,
    labels: tuple[str, ...],
) -> Mapping[str, torch.Tensor]:
    """The weights of a folder that fit: the network, and the classifiers if the classes are the same."""
    parts = ("trunk.", "classifier.", "distillation_classifier.") if base.labels == labels else ("trunk.",)
    own = model.state_dict()
    weights = {name: weight for name, weight in base.state_dict.items() if name in own and name.startswith(parts)}
    if isinstance(shape, VisionConfig) and isinstance(base.config, VisionConfig):
        special, square = weights[POSITIONS].tensor_split((shape.special_tokens,))
        grid = base.config.grid
        moved = resized(square.view(grid, grid, -1), (shape.grid, shape.grid)).flatten(0, 1)
        weights[POSITIONS] = torch.cat([special, moved])
    return weights


def _normalisation(base: ImageFolder | None, data: ImageData) -> Normalisation:
    """That of the folder; of a network from scratch, that of its training images."""
    if base is None:
        return image_data.normalisation(data.train)
    return Normalisation(base.processor.mean, base.processor.std)


def _protocol(recipe: ImageFineTune, data: ImageData) -> dict[str, Any]:
    return {
        "selection": "the best of the evaluations on the dev images" if recipe.keep == "best" else "the last step",
        "measured_on": data.dev_source,
        "data": list(data.lines()),
        "examples": {"train": len(data.train), "dev": len(data.dev)},
        "data_sha256": data.fingerprint,
        "recipe": config.dump(recipe),
        "machine": hardware.describe(hardware.select_device(recipe.train.device)),
    }


def _network_name(recipe: ImageFineTune) -> str:
    return recipe.network.kind if recipe.network else evaluation.model_name(recipe.model or recipe.out)


def _title(recipe: ImageFineTune) -> str:
    return f"{_network_name(recipe)}, trained on {recipe.data.train.name}"
