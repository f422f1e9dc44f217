"""A model folder of a vision transformer, as transformers writes and reads it: ViT and DeiT.

Three files: config.json, model.safetensors, and preprocessor_config.json for the preparation of images. As in
`folder.py` files are not trusted, and sizes are compared before memory is taken.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from bertsmith import files
from bertsmith.errors import FolderError, suggest
from bertsmith.files import file_inside, short_repr
from bertsmith.models.hf import manifest
from bertsmith.models.hf.convert import WeightRule
from bertsmith.models.hf.finetuned import labels_of
from bertsmith.models.hf.folder import (
    CONFIG,
    WEIGHTS,
    StoredWeight,
    check_exists,
    check_weight,
    header,
    model_folder,
    read_json,
    weight_files,
)
from bertsmith.models.hf.image_processor import PREPROCESSOR, ImageProcessor, processor_from_json
from bertsmith.models.hf.vision_layout import PARTS, VISION_LAYOUTS, VisionLayout, their_shape, vision_layout_of
from bertsmith.models.hf.weights import write_weights
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_transformer import ImageClassifier, VisionTransformer
from bertsmith.nn.heads import Classifier, Pooler


@dataclass(frozen=True, kw_only=True)
class VisionFolder:
    """The contents of a model folder: our configuration and state dict, labels and the preparation of images."""

    config: VisionConfig
    state_dict: dict[str, Tensor]  # float32 on the CPU, named trunk.*, pooler.*, classifier.* and so on
    parts: frozenset[str]  # pooler, classifier, distillation_classifier
    labels: tuple[str, ...]  # of the classifier, by id
    processor: ImageProcessor
    config_json: dict[str, Any]

    def classifier(self) -> ImageClassifier:
        """The network with its classifiers."""
        if "classifier" not in self.parts:
            raise FolderError(CONFIG, "the model has no classifier", "Fine-tune it first")
        distilled = "distillation_classifier" in self.parts
        model = ImageClassifier(VisionTransformer(self.config), len(self.labels), distilled=distilled)
        model.load_state_dict(self.state_dict)
        return model.eval()

    def trunk(self) -> VisionTransformer:
        """The network without any head."""
        weights = {name: weight for name, weight in self.state_dict.items() if name.startswith("trunk.")}
        trunk = VisionTransformer(self.config)
        trunk.load_state_dict({name.removeprefix("trunk."): weight for name, weight in weights.items()})
        return trunk.eval()


def read(folder: str | Path) -> VisionFolder:
    """Read a folder that transformers or `write` has saved, or the model of a run."""
    folder = model_folder(folder)
    check_exists(folder)
    manifest.verify(folder)
    config_json = read_json(file_inside(folder, CONFIG))
    layout = VISION_LAYOUTS.get(str(config_json.get("model_type")))
    if layout is None:
        fact = f"model_type is {short_repr(config_json.get('model_type'))}"
        raise FolderError(folder / CONFIG, fact, suggest("", VISION_LAYOUTS))
    config = layout.from_config_json(config_json, folder / CONFIG)
    stored = _stored_weights(folder, layout)
    if config.layers > len(stored):
        raise FolderError(folder, f"{CONFIG} names {config.layers} layers for {len(stored)} weights")
    parts = _parts(stored)
    labels = labels_of(config_json, folder / CONFIG) if "classifier" in parts else ()
    expected = _expected_shapes(layout, config, parts, len(labels))
    for rule, shape in expected:
        for name in rule.theirs:
            if name not in stored:
                raise FolderError(folder, f"lacks the weight '{name}'")
            check_weight(stored[name], their_shape(rule.ours, (shape[0] // len(rule.theirs), *shape[1:]), config))
    if unknown := stored.keys() - {name for rule, _ in expected for name in rule.theirs}:
        remedy = "Only the trunk, its pooler and classifiers are known"
        raise FolderError(folder, f"unknown weight {short_repr(min(unknown))}", remedy)
    # `cat` copies: a memory-mapped weight would change, or crash the program, when the file is overwritten.
    state_dict = {
        rule.ours: torch.cat([stored[name].load().flatten() for name in rule.theirs]).view(shape)
        for rule, shape in expected
    }
    processor = layout.processor.for_network(config.image_size, config.channels)
    if (folder / PREPROCESSOR).exists():
        keys = read_json(file_inside(folder, PREPROCESSOR))
        processor = processor_from_json(keys, processor, config.channels, folder / PREPROCESSOR)
    return VisionFolder(
        config=config,
        state_dict=state_dict,
        parts=parts,
        labels=labels,
        processor=processor,
        config_json=config_json,
    )


def is_vision(folder: str | Path) -> bool:
    """Whether a folder, or the model of a run, is of a network of images; whatever else is wrong, `read` says."""
    path = model_folder(folder)
    if not (path / CONFIG).is_file():
        return False
    try:
        return str(read_json(file_inside(path, CONFIG)).get("model_type")) in VISION_LAYOUTS
    except FolderError:
        return False


def write(
    folder: str | Path,
    config: VisionConfig,
    state_dict: Mapping[str, Tensor],
    labels: Sequence[str] = (),
    processor: ImageProcessor | None = None,
    extra: Mapping[str, Any] | None = None,
) -> None:
    """Write the three files into a folder; `labels` name the classes, and `extra` has more keys of config.json."""
    folder = Path(folder)
    with files.explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    layout = vision_layout_of(config)
    parts = frozenset(part for part in PARTS if any(name.startswith(f"{part}.") for name in state_dict))
    expected = _expected_shapes(layout, config, parts, len(labels))

    def theirs(rule: WeightRule, name: str, weight: Tensor) -> tuple[str, Tensor]:
        return layout.full_name(name, parts), weight.reshape(their_shape(rule.ours, tuple(weight.shape), config))

    dtype = write_weights(folder / WEIGHTS, state_dict, expected, theirs)
    named: dict[str, Any] = {}
    if labels:
        named["id2label"] = {str(number): label for number, label in enumerate(labels)}
        named["label2id"] = {label: number for number, label in enumerate(labels)}
    processor = processor or layout.processor.for_network(config.image_size, config.channels)
    files.write_json(folder / PREPROCESSOR, processor.to_json(layout.beginning))
    keys = {**layout.to_config_json(config, parts), "dtype": dtype, **named, **(extra or {})}
    files.write_json(folder / CONFIG, keys)


def _stored_weights(folder: Path, layout: VisionLayout) -> dict[str, StoredWeight]:
    """Every weight of the folder by its plain name."""
    stored: dict[str, StoredWeight] = {}
    for file in weight_files(folder):
        for weight in header(file):
            name = weight.name.removeprefix(layout.prefix)
            if name in stored:
                raise FolderError(file, f"the weight {short_repr(name)} is there twice")
            stored[name] = weight
    return stored


def _parts(stored: Mapping[str, StoredWeight]) -> frozenset[str]:
    """The heads that these weights belong to; without a teacher the one classifier has another name."""
    found = {part for part in PARTS if f"{part}.weight" in stored or f"{part}.dense.weight" in stored}
    return frozenset(found | ({"classifier"} if "distillation_classifier" in found else set()))


def _expected_shapes(
    layout: VisionLayout, config: VisionConfig, parts: frozenset[str], classes: int
) -> list[tuple[WeightRule, tuple[int, ...]]]:
    """Every rule with the shape of our weight, found on the meta device, which takes no memory."""
    with torch.device("meta"):
        # All layers have the same shapes, so one is enough.
        model = nn.ModuleDict({"trunk": VisionTransformer(replace(config, layers=1))})
        for part in parts:
            model[part] = Pooler(config.width) if part == "pooler" else Classifier(config.width, classes, 0.0)
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    rules = layout.weight_rules(config, parts)
    return [(rule, shapes[re.sub(r"^trunk\.layers\.\d+", "trunk.layers.0", rule.ours)]) for rule in rules]
