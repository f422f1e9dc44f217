"""`demo --images`: draw shapes into a folder by class, and train a vision transformer to name them."""

import json
from pathlib import Path
from typing import Any

from bertsmith import config, files, recipes, terminal
from bertsmith.commands.finetune import show
from bertsmith.data.images import shapes
from bertsmith.recipe import EXTENTS, ImageFineTune
from bertsmith.runs import image_finetuning

CONSOLE = terminal.console()
RECIPE = "tiny/shapes"
TRAIN, TEST = 400, 60  # images of each shape
IMAGES, DONE = "images", "drawn.json"  # the folder of the images, and the file that says that all are there


def demo(out: Path, *, budget: str) -> dict[str, Any]:
    """Draw the images unless they are there, train within the budget, and show the scores."""
    _draw(out / IMAGES)
    values = config.read_toml(recipes.find(RECIPE))
    values |= {"out": str(out)}
    values["data"] |= {"train": str(out / IMAGES)}
    values = config.override(values, [f"train.budget={json.dumps(budget)}"], EXTENTS)
    result = image_finetuning.finetune(config.build(values, ImageFineTune, RECIPE))
    show(result, out)
    CONSOLE.print("Now with your own images, in a folder for each class:")
    CONSOLE.print("bertsmith finetune vit-tiny my-images/ --out runs/mine")
    return result


def _draw(folder: Path) -> None:
    """All images; an interrupted drawing begins again, and gives the same ones."""
    settings = {"shapes": list(shapes.SHAPES), "train": TRAIN, "test": TEST}
    done = folder / DONE
    if not (done.is_file() and files.read_json(done) == settings):
        CONSOLE.print(f"drawing {TRAIN + TEST} images of each of {len(shapes.SHAPES)} shapes: {folder}", markup=False)
        shapes.write(folder, TRAIN, TEST)
        files.write_json(done, settings)
