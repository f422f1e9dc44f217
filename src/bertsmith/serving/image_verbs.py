"""The verbs of a loaded model of images: predict, embed and inspect, each for the bytes of image files."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from bertsmith.inference.image_model import ImageModel
from bertsmith.models.convnet import MIN_SIDE
from bertsmith.models.vision_config import VisionConfig
from bertsmith.serving.wire import ServedModel, created

CLASSIFICATION = "image-classification"  # the task, as Hugging Face names it

Options = dict[str, Any]


def _predict(model: ImageModel, inputs: Sequence[bytes], options: Options) -> list[Any]:
    """Predictions without the names of the images, which have none."""
    found = model.predict(list(inputs), **options)
    return [{name: value for name, value in one.items() if name != "image"} for one in found]


def _embed(model: ImageModel, inputs: Sequence[bytes], options: Options) -> list[Any]:
    """Embeddings that are not normalised yet: the front does it after it has shortened them."""
    return [vector.tobytes() for vector in model.embed(list(inputs), normalise=False, **options)]


def _inspect(model: ImageModel, inputs: Sequence[bytes], options: Options) -> list[Any]:
    """Pages, one for each image. Attributions need gradients."""
    with torch.inference_mode(False):
        return [model.inspect(one, **options).page() for one in inputs]


IMAGE_VERBS: dict[str, Callable[[ImageModel, Sequence[bytes], Options], list[Any]]] = {
    "predict": _predict,
    "embed": _embed,
    "inspect": _inspect,
}


def describe_images(name: str, model: ImageModel) -> ServedModel:
    """What fronts need to know of a model of images. Its tokens are the patches of an image of its own size."""
    classifies, config = model.network is not None, model.config
    patched = isinstance(config, VisionConfig)
    tokens = (model.image_size // MIN_SIDE) ** 2  # of a convolutional network, its last positions
    if isinstance(config, VisionConfig):
        tokens = config.special_tokens + config.grid**2
    return ServedModel(
        name=name,
        folder=model.path,
        verbs=["predict"] * classifies + ["embed"] + ["inspect"] * patched,
        task=CLASSIFICATION if classifies else "",
        labels=list(model.labels),
        sentence=False,
        reranks=False,
        columns=[],
        description=model.description,
        max_length=tokens,
        width=model.vector_width,
        normalise=True,
        images=True,
        created=created(model.path),
    )
