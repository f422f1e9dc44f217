"""The recipe of training on images: what the command line does not give follows from the images and the network."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bertsmith import config, recipes, terminal
from bertsmith.data.images.listed import part_folder
from bertsmith.data.images.listing import missing_images
from bertsmith.data.images.survey import Survey, holds_images, survey
from bertsmith.errors import RecipeError, TextError
from bertsmith.models.convnet import ConvNetConfig
from bertsmith.models.hf import image_classifiers
from bertsmith.models.hf.folder import check_exists, model_folder
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_family import IMAGE_FAMILY
from bertsmith.recipe import EXTENTS, ImageFineTune

CONSOLE = terminal.console()
TASK = "image-classification"  # the field's name of it
DEFAULTS: dict[str, dict[str, Any]] = {  # for a folder that goes on
    "data": {"batch_size": 64},
    "optimizer": {"learning_rate": 1e-4, "weight_decay": 0.05},
    "schedule": {"kind": "cosine", "warmup": 0.1},
    "train": {"epochs": 10.0, "evaluations": 10, "checkpoints": 5},
}
FROM_SCRATCH: dict[str, dict[str, Any]] = {  # Touvron et al. 2020, table 9, for few images and small batches
    "task": {"label_smoothing": 0.1},
    "data": {"batch_size": 128},
    "optimizer": {"learning_rate": 1e-3, "betas": [0.9, 0.95], "weight_decay": 0.05},
    "schedule": {"kind": "cosine", "warmup": 0.1},
    "train": {"epochs": 100.0, "evaluations": 10, "checkpoints": 10, "average": 0.2, "average_decay": 0.99},
}
COLOURED = {"operations": 2, "strength": 9.0, "erasing": 0.25}  # augmentation from scratch; none of grey images
GREY_EPOCHS = 30.0  # digits and letters are learnt sooner than photographs
UPDATES, SMALLEST_BATCH = 8, 8  # of an epoch, which a few images get in smaller batches; none is smaller than this
PROBE_LEARNING_RATE = 1e-2  # of a linear classifier alone
LARGE_SIDE, LARGE_SIZE = 160, 224  # images from this side on are read in the size of the papers
PATCHES, LARGEST_PATCH = ((48, 4), (96, 8)), 16  # patches of images with sides below these: there are some fifty


def reads_images(model: Path) -> bool:
    """Whether a model is a network of images: a member, a model folder, or a recipe."""
    if model.exists() and model.suffix != ".toml":
        return image_classifiers.is_image_folder(model)
    if str(model) in IMAGE_FAMILY:
        return True
    return _names_recipe(model) and _is_of_images(config.read_toml(recipes.find(model)))


def build_recipe(
    model: Path, data: Path, out: Path, *, dev: Path | None, seeds: int | None, overrides: Sequence[str]
) -> ImageFineTune:
    """The recipe of a run. `model` is a model folder, a member that is trained from scratch, or a recipe."""
    if not data.exists():
        raise TextError(data, "does not exist", "Name a folder with a folder of images for each class")
    if not holds_images(data):
        raise missing_images(data, str(model))
    paths = {"train": str(data), **({"dev": str(found)} if (found := dev or _dev_folder(data)) else {})}
    written = {"out": str(out)} | ({} if seeds is None else {"seeds": seeds})
    if _names_recipe(model):
        values = config.read_toml(recipes.find(model))
        values["data"] = {**_section(values, "data"), **paths}
        return config.build(config.override(values | written, overrides, EXTENTS), ImageFineTune, str(model))
    given = config.override({}, overrides)
    seen = survey(data, columns=_columns(given), root=_root(given))
    if seen is None:
        raise TextError(data, "holds no image that can be opened", "Look at the files: the endings promise images")
    values = _from_scratch(str(model), seen, given) if not model.exists() else _from_folder(model, seen, given)
    values["data"] = {**values["data"], **paths}
    built = config.build(config.override(values | written, overrides, EXTENTS), ImageFineTune, "finetune")
    CONSOLE.print(_message(built, seen), markup=False)
    return built


def refuse_images(model: Path, data: Path) -> None:
    """Refuse images as the data of a network of text, before they are taken for a table."""
    if holds_images(data, alone=True):
        fact = f"holds images, and '{model}' reads text"
        raise TextError(data, fact, "Use a network such as vit-small, or a folder that was trained on images")


def _from_scratch(member: str, seen: Survey, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a member on images like these."""
    section = _section(given, "data")
    size, channels = section.get("size", fitting_size(seen)), section.get("channels", 1 if seen.grey else 3)
    values: dict[str, Any] = {name: dict(settings) for name, settings in FROM_SCRATCH.items()}
    values["network"] = {"kind": member, "channels": channels}
    # A vision transformer on MNIST, after two epochs of 10,000 images: 91 % accuracy, where AdamW alone has 84 %.
    values["optimizer"] |= {"hidden_optimizer": "muon"}
    if isinstance(IMAGE_FAMILY[member], VisionConfig):
        values["network"] |= {"image_size": size, "patch_size": fitting_patch(size)}
    values["data"] |= {"size": size, "channels": channels, "batch_size": _batch_size(values, seen)}
    values["train"] |= {"epochs": GREY_EPOCHS} if seen.grey else {}
    values["augmentation"] = _augmentation(size, seen) | ({} if seen.grey else COLOURED)
    # After four epochs of 10,000 images of CIFAR-10: 74 % accuracy by Muon at 0.05, 69 % at 0.02, 58 % by AdamW.
    if isinstance(IMAGE_FAMILY[member], ConvNetConfig):
        values["optimizer"] |= {"learning_rate": 2e-3, "muon_learning_rate": 0.05}
        values["augmentation"] |= {"operations": 0, "erasing": 0.0}
        values["train"] |= {"epochs": min(values["train"]["epochs"], 30.0)}
    return values


def _from_folder(model: Path, seen: Survey, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings for a model folder that goes on, in the size that its images had."""
    check_exists(model_folder(model))
    found = image_classifiers.read(model)
    section = _section(given, "data")
    if isinstance(found.config, VisionConfig):
        default = found.config.image_size
    else:  # a convolutional network reads any size, and its folder says which it was trained on
        trained = found.processor.crop or found.processor.resize
        default = fitting_size(seen) if trained is None else trained[0]
    size = section.get("size", default)
    values: dict[str, Any] = {name: dict(settings) for name, settings in DEFAULTS.items()}
    values["model"] = str(model)
    values["data"] |= {"size": size, "channels": found.config.channels, "resample": found.processor.resample}
    values["data"] |= {"batch_size": _batch_size(values, seen)}
    values["augmentation"] = _augmentation(size, seen)
    if _section(given, "task").get("linear_probe"):
        values["optimizer"] |= {"learning_rate": PROBE_LEARNING_RATE, "weight_decay": 0.0}
    return values


def _batch_size(values: Mapping[str, Any], seen: Survey) -> int:
    """The batch size of many images, or of a few a power of two with which an epoch has some updates."""
    largest: int = values["data"]["batch_size"]
    return min(largest, 1 << max(SMALLEST_BATCH, seen.count // UPDATES).bit_length() - 1)


def fitting_size(seen: Survey) -> int:
    """The size in which images like these are read: their own, or that of the papers for large ones."""
    side = min(seen.height, seen.width)
    if side >= LARGE_SIDE:
        return LARGE_SIZE
    patch = fitting_patch(side)
    return max(patch, side // patch * patch)


def fitting_patch(size: Any) -> int:
    """The size of patches that suits images that are read in this size."""
    return next((patch for limit, patch in PATCHES if isinstance(size, int) and size < limit), LARGEST_PATCH)


def _augmentation(size: Any, seen: Survey) -> dict[str, Any]:
    """Crops, and mirror images unless the images are grey: a mirrored letter is another one."""
    padding = max(1, size // 8) if isinstance(size, int) else 4
    return {"padding": padding, "flip": not seen.grey}


def _message(recipe: ImageFineTune, seen: Survey) -> str:
    """What was chosen, in a line."""
    own = f"{seen.width} x {seen.height} pixels" + ("" if seen.one_size else " in the middle")
    read = f"read as {recipe.data.size} x {recipe.data.size}" if recipe.data.fit == "stretch" else "read as they are"
    colours = "grey" if recipe.data.channels == 1 else "in colour"
    network = recipe.network.settings if recipe.network else None
    patches = f", patches of {network.patch_size}" if isinstance(network, VisionConfig) else ""
    return f"Images of {own}, {read}, {colours}{patches}"


def _dev_folder(data: Path) -> Path | None:
    """The folder of dev images beside `train`, which wins over a test part; None where there is none."""
    if not data.is_dir() or part_folder(data, "train") is None:
        return None
    return part_folder(data, "dev")


def _names_recipe(model: Path) -> bool:
    """Whether a recipe is given: a TOML file, or the name of one that is no member."""
    return model.suffix == ".toml" or (
        not model.exists() and str(model) not in IMAGE_FAMILY and str(model) in recipes.names()
    )


def _is_of_images(values: Mapping[str, Any]) -> bool:
    """Whether a recipe trains on images."""
    network = values.get("network")
    kind = network.get("kind") if isinstance(network, Mapping) else None
    return "augmentation" in values or kind in IMAGE_FAMILY


def _columns(given: Mapping[str, Any]) -> tuple[str | None, str | None]:
    section = _section(given, "data")
    path, label = (None if (name := section.get(key)) is None else str(name) for key in ("path", "label"))
    return path, label


def _root(given: Mapping[str, Any]) -> Path | None:
    root = _section(given, "data").get("root")
    return None if root is None else Path(str(root))


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    section = values.get(name, {})
    if not isinstance(section, Mapping):
        raise RecipeError(name, "is a section of settings", f"Write {name}.key=value")
    return section
