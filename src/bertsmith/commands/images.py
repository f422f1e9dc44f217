"""`predict`, `embed` and `search` with a model of images: ViT or DeiT."""

import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith import terminal
from bertsmith.commands.vector_file import VectorFile
from bertsmith.data.images.image_files import list_images
from bertsmith.data.output import Output
from bertsmith.errors import FolderError, RecipeError, TextError
from bertsmith.inference.image_inputs import NamedImage
from bertsmith.inference.image_model import ImageModel
from bertsmith.inference.load import load_image_model
from bertsmith.inference.semantic_search import semantic_search
from bertsmith.insight import image_search
from bertsmith.models.hf import image_classifiers
from bertsmith.runs.inference_output import notice, output_settings, remaining_inputs

CONSOLE = terminal.console()
BATCH_IMAGES = 256  # images between two writes to an output file


def predict(model: Path, inputs: Sequence[str], *, out: Path | None, size: str = "model") -> None:
    """A JSON line for each image, in order, as soon as it is known. An output file is resumed.

    An image that is named must be one. Of those in a folder that cannot be read, the line has the error.
    """
    loaded, images = load_image_model(model), named_images(inputs)
    if loaded.network is None:
        raise FolderError(model, "has no classes", f"Use: bertsmith embed {model} IMAGES --out vectors.npy")
    bad = _BadImages(inputs)
    options: dict[str, Any] = {"size": size, "on_error": bad.result}
    if out is None:
        for prediction in loaded.predict_stream(images, **options):
            print(terminal.json_line(prediction), flush=True)
    else:
        with Output(out, partial(output_settings, loaded, "predict", {"size": size})) as output:
            remaining = remaining_inputs(output, lambda: iter(images), _key, inputs)
            with terminal.ProgressCounter("predictions", output.rows) as counter:
                while batch := list(islice(remaining, BATCH_IMAGES)):
                    found = loaded.predict_stream(batch, **options)
                    rows = "".join(json.dumps(one, ensure_ascii=False) + "\n" for one in found)
                    output.add(map(_key, batch), rows.encode("utf-8", "surrogateescape"))
                    counter.update(output.rows)
            output.finish()
    bad.report()


def embed(model: Path, inputs: Sequence[str], out: Path, **options: Any) -> None:
    """The vectors of images, as .npy or .parquet, by the order of the images. An interrupted file is resumed."""
    images = named_images(inputs)
    loaded = load_image_model(model)
    width = len(loaded.embed([np.zeros((loaded.image_size, loaded.image_size), np.uint8)], **options)[0])
    file = VectorFile(out, width, "image")
    with Output(out, partial(output_settings, loaded, "embed", options), header=file.header()) as output:
        remaining = remaining_inputs(output, lambda: iter(images), _key, inputs)
        with terminal.ProgressCounter("vectors", output.rows) as counter:
            while batch := list(islice(remaining, BATCH_IMAGES)):
                vectors = np.stack(list(loaded.embed_stream(batch, **options)))
                output.add(map(_key, batch), file.block([image.name for image in batch], vectors))
                counter.update(output.rows)
        total, rate = output.rows, counter.rate(output.rows)
        file.finish(output)
    CONSOLE.print(f"{terminal.count_of(total, 'vector')} of {width} dimensions in {out}, {rate:,.0f} per second")


def search(
    model: Path, queries: Sequence[str], corpus: Sequence[str], *, top_k: int, as_json: bool, out: Path | None
) -> None:
    """For each image of the queries the nearest ones of the corpus, by cosine similarity; also as a page."""
    if not queries:
        raise RecipeError("search", "there is no image to search for", "Name one: bertsmith search MODEL photo.jpg ...")
    asked, images = named_images(queries), named_images(corpus)
    loaded, bad = load_image_model(model), _BadImages(corpus)
    rows = list(_vectors(loaded, images, bad))
    images = [image for image, row in zip(images, rows, strict=True) if row is not None]
    vectors = [row for row in rows if row is not None]
    if not vectors:
        raise TextError("--corpus", "holds no image that can be read")
    near = semantic_search(np.stack(vectors), np.stack(list(loaded.embed_stream(asked))), min(top_k, len(vectors)))
    found: list[dict[str, Any]] = []
    for query, cosines, indices in zip(asked, *(part.tolist() for part in near), strict=True):
        neighbours = [{"image": images[at].name, "cosine": cosine} for at, cosine in zip(indices, cosines, strict=True)]
        found.append({"image": query.name, "neighbours": neighbours})
    for one in found:
        if as_json:
            print(terminal.json_line(one), flush=True)
            continue
        CONSOLE.print(f"\n{one['image']}", style="bold")
        for neighbour in one["neighbours"]:
            CONSOLE.print(f"  {neighbour['cosine']:.3f}  {neighbour['image']}")
    bad.report()
    if out is not None:
        image_search.write(out, Path(loaded.path).resolve().name, found)
        notice(f"written {out}")


def named_images(inputs: Sequence[str]) -> list[NamedImage]:
    """The images of files and folders, in a fixed order."""
    if not inputs or "-" in inputs:
        raise RecipeError("images", "none is named", "Name image files, or a folder of them")
    return [NamedImage(str(path), path) for path in list_images(inputs)]


def is_of_images(model: Path, size: str = "model", **others: object) -> bool:
    """Whether a model reads images. Options that are for the other kind of model are refused, in one line."""
    if not image_classifiers.is_image_folder(model):
        if size != "model":
            raise RecipeError("--size", f"is for images, and {model} reads text")
        return False
    for name, value in others.items():
        if value:
            raise RecipeError(f"--{name.replace('_', '-')}", f"is for models of text, and {model} reads images")
    return True


class _BadImages:
    """What becomes of an image that cannot be read: a named one is an error, one of a folder is counted."""

    def __init__(self, inputs: Sequence[str]) -> None:
        self.named, self.count = {str(Path(name)) for name in inputs}, 0

    def result(self, error: Exception) -> dict[str, str]:
        if not isinstance(error, TextError) or error.location in self.named:
            raise error
        self.count += 1
        return {"error": error.fact}

    def report(self) -> None:
        if self.count:
            notice(f"{terminal.count_of(self.count, 'image')} could not be read")


def _vectors(loaded: ImageModel, images: Sequence[NamedImage], bad: _BadImages) -> Iterator[Any]:
    """The vector of each image; None for one of a folder that cannot be read."""

    def none(error: Exception) -> None:
        bad.result(error)

    return loaded.embed_stream(images, on_error=none)


def _key(image: NamedImage) -> str:
    """Whatever a row depends on: an image that was changed since is read again."""
    try:
        found = Path(image.given).stat()
    except OSError:  # a link to nothing, say: its row has the error
        return image.name
    return f"{image.name} {found.st_size} {found.st_mtime_ns}"
