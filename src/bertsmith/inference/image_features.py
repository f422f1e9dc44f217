"""Features: images of any number through a network, in flat batches by their patches, with results in order.

While the device computes a chunk, the next images are decoded and prepared by threads: Pillow leaves the interpreter
to others meanwhile.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from typing import Any, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from bertsmith.data.images.decoding import DecodingConfig
from bertsmith.data.rows import batch_by_length
from bertsmith.inference.embedder import Precision
from bertsmith.inference.image_inputs import NamedImage, pixels_of
from bertsmith.inference.image_preparation import ImageSize, check_size, prepare
from bertsmith.models.convnet import MIN_SIDE
from bertsmith.models.hf.image_classifiers import ImageConfig
from bertsmith.models.hf.image_processor import ImageProcessor
from bertsmith.models.patches import Patches
from bertsmith.models.vision_config import VisionConfig

CHUNK_IMAGES = {"cpu": 32, "cuda": 512}  # images that are prepared together, and then sorted by size
BATCH_PATCHES = {"cpu": 4_096, "cuda": 65_536}  # patches in a batch
THREADS = 16  # that decode, at most

R = TypeVar("R")
Prepared = Float[Tensor, "C _ _"]


def map_images(
    images: Iterable[NamedImage],
    compute: Callable[[Any], list[R]],
    config: ImageConfig,
    processor: ImageProcessor,
    *,
    device: torch.device,
    size: ImageSize = "model",
    precision: Precision = "float32",
    on_error: Callable[[Exception], R] | None = None,
) -> Iterator[R]:
    """The result of `compute` for each image, in order; of one that cannot be read `on_error`, or else its error."""
    channels: Any = config.channels
    decoding = DecodingConfig(channels=channels)

    def prepared(image: NamedImage) -> Prepared | Exception:
        try:
            tensor = prepare(pixels_of(image, decoding), processor, size)
            check_size(image.name, tensor, config)
        except Exception as error:
            return error
        return tensor

    rest = iter(images)
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:

        def submit() -> list[Future[Prepared | Exception]]:
            return [pool.submit(prepared, image) for image in islice(rest, CHUNK_IMAGES[device.type])]

        waiting = submit()
        while waiting:
            chunk = [one.result() for one in waiting]
            waiting = submit()
            for error in chunk:
                if isinstance(error, Exception) and on_error is None:
                    for one in waiting:
                        one.cancel()
                    raise error
            yield from _computed(chunk, compute, config, device, precision, on_error)


def _computed(
    chunk: list[Prepared | Exception],
    compute: Callable[[Any], list[R]],
    config: ImageConfig,
    device: torch.device,
    precision: Precision,
    on_error: Callable[[Exception], R] | None,
) -> list[R]:
    tensors = {at: one for at, one in enumerate(chunk) if isinstance(one, Tensor)}
    places, results = list(tensors), dict[int, R]()
    for batch, read in _batches(list(tensors.values()), config, device):
        with torch.inference_mode(), autocast(device, precision):
            found = compute(read)
        results.update(zip((places[index] for index in batch), found, strict=True))
    for at, one in enumerate(chunk):
        if isinstance(one, Exception):
            assert on_error is not None
            results[at] = on_error(one)
    return [results[at] for at in range(len(chunk))]


def _batches(
    tensors: list[Prepared], config: ImageConfig, device: torch.device
) -> Iterator[tuple[list[int], Patches | Tensor]]:
    """The indices of the images of each batch, and what the network reads: patches, or images of one size."""
    most = BATCH_PATCHES[device.type]
    if isinstance(config, VisionConfig):
        lengths = [one.shape[1] * one.shape[2] // config.patch_size**2 + config.special_tokens for one in tensors]
        for batch in batch_by_length(lengths, most):
            images = [tensors[index] for index in batch]
            yield batch, Patches.from_images(images, config.patch_size, config.special_tokens).to(device)
        return
    by_shape: dict[tuple[int, ...], list[int]] = {}
    for index, tensor in enumerate(tensors):
        by_shape.setdefault(tuple(tensor.shape), []).append(index)
    for shape, indices in by_shape.items():
        for some in batch_by_length([shape[1] * shape[2] // MIN_SIDE**2] * len(indices), most):
            batch = [indices[at] for at in some]
            yield batch, torch.stack([tensors[index] for index in batch]).to(device)


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[Any]:
    """bfloat16 in matrix products where it is asked for; `auto` takes it on GPUs since Ampere."""
    if precision == "auto":
        fast = device.type == "cuda" and torch.cuda.get_device_properties(device).major >= 8
        precision = "bfloat16" if fast else "float32"
    return nullcontext() if precision == "float32" else torch.autocast(device.type, torch.bfloat16)


def pooled(hidden: Float[Tensor, "T D"], patches: Patches, pooling: str, special_tokens: int) -> Float[Tensor, "B D"]:
    """One vector for each image: that of its class token ("first"), or the mean of its patches."""
    if pooling == "first":
        return hidden[patches.bounds[:-1].long()].float()
    lengths = patches.bounds.diff().long() - special_tokens
    return torch.segment_reduce(hidden[patches.slots.long()].float(), "mean", lengths=lengths)
