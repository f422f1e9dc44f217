"""`inspect` with a model of images: what it looks at, predicts by layer, and decides by, as one page."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from bertsmith import files, terminal
from bertsmith.commands.images import named_images
from bertsmith.errors import RecipeError
from bertsmith.inference.load import load_image_model
from bertsmith.insight.image_inspection.inspection import MAX_IMAGES, ImageInspection, check_ending
from bertsmith.models.hf import image_classifiers

CONSOLE = terminal.console()


def inspect_images(
    paths: Sequence[Path],
    out: Path,
    *,
    attribute: bool = True,
    as_json: bool = False,
    size: str = "model",
    of_text: Mapping[str, object],
) -> ImageInspection | None:
    """Write the page of a model and images, the first of the paths and the others; None if no model reads images.

    `of_text` are the options of models of text, which are refused here.
    """
    if not any(image_classifiers.is_image_folder(path) for path in paths):
        if size != "model":
            raise RecipeError("--size", "is for images, and the model reads text")
        return None
    model, *images = paths
    if not image_classifiers.is_image_folder(model) or any(image_classifiers.is_image_folder(path) for path in images):
        raise RecipeError("inspect", "a page shows one model of images", "Name it first, and then its images")
    for name, value in of_text.items():
        if value:
            raise RecipeError(f"--{name}", f"is for models of text, and {model} reads images")
    check_ending(out)
    files.check_file(out)
    named = named_images([str(path) for path in images])
    if len(named) > MAX_IMAGES:
        raise RecipeError("inspect", f"there are {len(named):,} images, and a page shows {MAX_IMAGES}", "Give a few")
    found = load_image_model(model).inspect([image.given for image in named], size=size, attribute=attribute)
    written = [found.save(out)]
    if as_json and out.suffix.lower() != ".json":
        written.append(found.save(out.with_suffix(".json")))
    for line in (*found.summary(), *(f"written {path}" for path in written)):
        CONSOLE.print(line, markup=False, highlight=False)
    return found
