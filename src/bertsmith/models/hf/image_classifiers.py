"""Folders of image classifiers: ViT and DeiT as transformers has them, and our own convolutional network.

transformers has no such convolutional network, so its folder is of model_type bertsmith; the rest is alike:
config.json, model.safetensors, preprocessor_config.json, and hashes of all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from bertsmith import files
from bertsmith.config import build
from bertsmith.errors import BertsmithError, FolderError, RecipeError
from bertsmith.files import file_inside, short_repr
from bertsmith.models.convnet import ConvNet, ConvNetClassifier, ConvNetConfig
from bertsmith.models.hf import manifest, vision_folder
from bertsmith.models.hf.finetuned import labels_of
from bertsmith.models.hf.folder import CONFIG, WEIGHTS, check_exists, check_weight, header, model_folder, read_json
from bertsmith.models.hf.image_processor import PREPROCESSOR, ImageProcessor, processor_from_json
from bertsmith.models.hf.native import MODEL_TYPE, VERSION
from bertsmith.models.vision_config import VisionConfig

NETWORK = "convnet"  # in config.json
MAX_WIDTH = 1 << 14
ImageConfig = VisionConfig | ConvNetConfig


@dataclass(frozen=True, kw_only=True)
class ImageFolder:
    """The contents of a folder of a network of images, whatever the network is."""

    config: ImageConfig
    state_dict: dict[str, Tensor]  # float32 on the CPU, named trunk.*, classifier.* and so on
    labels: tuple[str, ...]  # of the classifier, by id; none where there is no classifier
    processor: ImageProcessor


def is_image_folder(path: str | Path) -> bool:
    """Whether a path is the folder of a network of images, or of a run that made one."""
    folder = model_folder(path)
    try:
        config_json = read_json(file_inside(folder, CONFIG)) if (folder / CONFIG).is_file() else {}
    except BertsmithError:  # which is said when the folder is read
        return False
    return vision_folder.is_vision(folder) or _is_convnet(config_json)


def read(path: str | Path) -> ImageFolder:
    """Read such a folder."""
    folder = model_folder(path)
    check_exists(folder)
    config_json = read_json(file_inside(folder, CONFIG))
    if _is_convnet(config_json):
        return _read_convnet(folder, config_json)
    found = vision_folder.read(folder)
    return ImageFolder(config=found.config, state_dict=found.state_dict, labels=found.labels, processor=found.processor)


def write(
    folder: Path,
    config: ImageConfig,
    state_dict: Mapping[str, Tensor],
    labels: Sequence[str],
    processor: ImageProcessor,
    extra: Mapping[str, Any],
) -> None:
    """Write such a folder; `extra` has more keys of config.json."""
    if isinstance(config, VisionConfig):
        vision_folder.write(folder, config, state_dict, labels, processor, extra)
        return
    with files.explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    weights = {name: weight.detach().cpu().contiguous() for name, weight in state_dict.items()}
    files.write(folder / WEIGHTS, safetensors.torch.save(weights, {"format": "pt"}))
    files.write_json(folder / PREPROCESSOR, processor.to_json("ViT"))
    keys = {"model_type": MODEL_TYPE, "version": VERSION, "network": NETWORK, **asdict(config)}
    named = {"id2label": {str(number): label for number, label in enumerate(labels)}}
    files.write_json(folder / CONFIG, {**keys, **named, **extra})


def fingerprint(folder: Path) -> str:
    """A hash of the weights of a folder, which tells a network from another one."""
    return files.digest(file_inside(model_folder(folder), WEIGHTS)).sha256


def _is_convnet(config_json: Mapping[str, Any]) -> bool:
    return config_json.get("model_type") == MODEL_TYPE and config_json.get("network") == NETWORK


def _read_convnet(folder: Path, config_json: dict[str, Any]) -> ImageFolder:
    manifest.verify(folder)
    path = folder / CONFIG
    settings: dict[str, Any] = {one.name: config_json.get(one.name, one.default) for one in fields(ConvNetConfig)}
    if not all(isinstance(size, int) and size <= MAX_WIDTH for size in settings.values()):
        raise FolderError(path, f"has the sizes {short_repr(settings)}", f"Give whole numbers up to {MAX_WIDTH}")
    try:
        config = build(settings, ConvNetConfig, str(path))
    except RecipeError as error:
        raise FolderError(*error.parts) from None
    labels = labels_of(config_json, path)
    stored = {weight.name: weight for weight in header(file_inside(folder, WEIGHTS))}
    if config.blocks > len(stored):  # before a network of so many is built
        raise FolderError(path, f"has {config.blocks} blocks, and the folder {len(stored)} weights")
    with torch.device("meta"):
        expected = ConvNetClassifier(ConvNet(config), len(labels)).state_dict()
    if different := expected.keys() ^ stored.keys():
        fact = "lacks the weight" if min(different) in expected else "has the unknown weight"
        raise FolderError(folder, f"{fact} {short_repr(min(different))}")
    for name, weight in stored.items():
        check_weight(weight, tuple(expected[name].shape))
    keys = read_json(file_inside(folder, PREPROCESSOR))
    default = ImageProcessor(resize=None, mean=(0.5,) * config.channels, std=(0.5,) * config.channels)
    return ImageFolder(
        config=config,
        state_dict={name: weight.load().clone() for name, weight in stored.items()},
        labels=labels,
        processor=processor_from_json(keys, default, config.channels, folder / PREPROCESSOR),
    )
