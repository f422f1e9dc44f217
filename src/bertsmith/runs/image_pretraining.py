"""The parts of pretraining on images: the recipe for these images, the images, the objective, batches, the folder."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertsmith import config, files, recipes, terminal
from bertsmith.data.batch import Batch
from bertsmith.data.feed import Feed
from bertsmith.data.images.batch import ImageSource
from bertsmith.data.images.draws import Draws
from bertsmith.data.images.labelled_images import LabelledImages
from bertsmith.data.images.survey import survey
from bertsmith.errors import RecipeError, TextError
from bertsmith.insight.model_card import pretrained_card
from bertsmith.insight.report import RunSummary
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import vision_folder
from bertsmith.models.hf.image_processor import ImageProcessor
from bertsmith.models.image_classifier import Normalisation
from bertsmith.models.vision_transformer import VisionTransformer
from bertsmith.nn.init import initialise
from bertsmith.objectives.masked_patches import MaskedImageBatch, MaskedPatches, squared_error
from bertsmith.recipe import EXTENTS, ImagePretraining
from bertsmith.runs import image_data
from bertsmith.runs.image_dev_split import hold_out
from bertsmith.runs.image_recipe import fitting_patch, fitting_size

CONSOLE = terminal.console()
VALIDATION_SEED = 1  # fixed masks for validation, whatever the run's own seed
MIN_IMAGES = 4


def reads_images(values: Mapping[str, Any]) -> bool:
    """Whether the values of a recipe are for pretraining on images."""
    section = values.get("objective")
    return isinstance(section, Mapping) and section.get("kind") == "masked_patches"


def read_recipe(
    recipe: str | Path, images: Path | None, out: Path | None, overrides: Sequence[str]
) -> ImagePretraining:
    """The recipe of a run: sizes that it leaves open follow from the images."""
    values = config.override(config.read_toml(recipes.find(recipe)), overrides, EXTENTS)
    for section in ("model", "data", "augmentation"):
        if not isinstance(values.setdefault(section, {}), Mapping):
            raise RecipeError(recipe, f"'{section}' is a value, not a section", f"Write {section}.key=value")
    if images is not None:
        values["data"] = {**values["data"], "train": str(images)}
    if out is not None:
        values["out"] = str(out)
    if "train" not in values["data"]:
        fact = "names no images"
        raise RecipeError(recipe, fact, f"Give their folder: bertsmith pretrain {recipe} IMAGES --out DIR")
    path = Path(str(values["data"]["train"]))
    if not path.exists():
        raise TextError(path, "does not exist", "Name a folder of images")
    root = values["data"].get("root")
    columns = (values["data"].get("path"), None)
    seen = survey(path, columns=columns, root=None if root is None else Path(str(root)), labelled=False)
    if seen is None:
        raise TextError(path, "holds no image that can be opened", "Give a folder with images in it")
    size = values["data"].get("size", values["model"].get("image_size", fitting_size(seen)))
    channels = values["data"].get("channels", 1 if seen.grey else 3)
    values["data"] = {"size": size, "channels": channels} | values["data"]
    values["model"] = {"patch_size": fitting_patch(size), "channels": channels} | values["model"] | {"image_size": size}
    padding = max(1, size // 8) if isinstance(size, int) else 4
    values["augmentation"] = {"padding": padding, "flip": not seen.grey} | values["augmentation"]
    built = config.build(values, ImagePretraining, str(recipe))
    shape = built.model.settings
    colours = "grey" if shape.channels == 1 else "in colour"
    CONSOLE.print(
        f"Images of {seen.width} x {seen.height} pixels, read as {size} x {size}, {colours}; "
        f"patches of {shape.patch_size}, {built.objective.settings.mask_rate:.0%} of them masked",
        markup=False,
    )
    return built


@dataclass(frozen=True)
class UnlabelledImages:
    """The images of a run, most of them for training."""

    train: LabelledImages
    valid: LabelledImages

    @property
    def fingerprint(self) -> str:
        return f"{self.train.fingerprint} {self.valid.fingerprint}"

    def facts(self) -> dict[str, str]:
        """What was read, for people."""
        facts = {"images": f"{len(self.train):,} for training, {len(self.valid):,} for validation"}
        if self.train.bad:
            facts["left out"] = self.train.bad
        return facts | {"images SHA-256": self.train.fingerprint}


def read(recipe: ImagePretraining) -> UnlabelledImages:
    """The images for training, and those for validation: of `data.dev`, or a tenth. Labels are not used."""
    given = recipe.data
    how: dict[str, Any] = {"labelled": False, "patch": recipe.model.settings.patch_size}
    whole = image_data.read_part(given, recipe.out, given.train, "train", **how)
    if len(whole) < MIN_IMAGES:
        fact = f"holds {terminal.count_of(len(whole), 'image')}"
        raise TextError(given.train, fact, f"Give at least {MIN_IMAGES}, better some thousands")
    if given.dev is not None:
        return UnlabelledImages(whole, image_data.read_part(given, recipe.out, given.dev, "train", **how))
    return UnlabelledImages(*hold_out(whole)[:2])


def objective(recipe: ImagePretraining, images: UnlabelledImages) -> MaskedPatches:
    """The objective with its network and decoder, initialised from the seed."""
    built = _objective(recipe, image_data.normalisation(images.train))
    initialise(built, recipe.train.seed)
    return built


def _objective(recipe: ImagePretraining, normalisation: Normalisation) -> MaskedPatches:
    network, settings = recipe.model.settings, recipe.objective.settings
    try:
        return MaskedPatches(VisionTransformer(network), settings, recipe.augmentation, normalisation)
    except ValueError as error:  # impossible sizes of the decoder
        raise RecipeError("objective", f"the decoder: {error}") from None


def feed(recipe: ImagePretraining, objective: MaskedPatches, images: UnlabelledImages) -> Feed:
    """Batches of training images by position."""
    source = ImageSource(images.train, recipe.data.batch_size, recipe.train.seed)
    return Feed(source, partial(objective.collate, images=images.train), images.fingerprint, recipe.data.workers)


def validation_batches(
    recipe: ImagePretraining, objective: MaskedPatches, images: UnlabelledImages
) -> list[MaskedImageBatch]:
    """The validation images, not augmented, with the same masks for every run."""
    ends = range(recipe.data.batch_size, len(images.valid), recipe.data.batch_size)
    parts = np.split(np.arange(len(images.valid)), list(ends))
    return [objective.collate_unchanged(Draws(VALIDATION_SEED, 0, rows), images.valid) for rows in parts]


@torch.no_grad()
def baseline(objective: MaskedPatches, batches: Sequence[Batch]) -> float:
    """The loss of predicting the mean of each masked patch for all of its pixels: what can be had without learning."""
    device, total, count = next(objective.parameters()).device, 0.0, 0
    for batch in batches:
        prepared = objective.prepare(batch, device)
        pixels = prepared.patches.pixels.index_select(0, prepared.masking.masked)
        relative = objective.config.normalise_pixels
        means = torch.zeros_like(pixels) if relative else pixels.mean(1, keepdim=True).expand_as(pixels)
        total += float(squared_error(means, pixels, normalised=relative))
        count += len(pixels)
    return total / count


def export(recipe: ImagePretraining, objective: MaskedPatches, run: RunSummary) -> None:
    """Write the model folder: encoder and decoder, how images are prepared, and the model card."""
    square, settings = (recipe.data.size, recipe.data.size), objective.config
    processor = ImageProcessor(
        resize=square if recipe.data.fit == "stretch" else None,
        crop=recipe.augmentation.size,
        resample=recipe.data.resample,
        mean=objective.normalisation.mean,
        std=objective.normalisation.std,
    )
    extra = {"mask_ratio": settings.mask_rate, "norm_pix_loss": settings.normalise_pixels}
    state, shape = objective.state_dict(), objective.trunk.config
    with folders.atomic_folder(recipe.out / "model") as folder:
        vision_folder.write(folder, shape, state, processor=processor, extra=extra, decoder=settings.decoder)
        files.write(folder / "README.md", pretrained_card(run, use="masked_autoencoder").encode())
