"""A model folder of a vision transformer, as transformers writes and reads it: ViT, DeiT and ViTMAE; or as timm does.

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
from bertsmith.models.hf.mae_layout import LAYERS, LAYERS_IN_5, decoder_from_json
from bertsmith.models.hf.timm_layout import TIMM, TimmLayout, is_timm
from bertsmith.models.hf.vision_layout import (
    PARTS,
    VISION_LAYOUTS,
    VisionLayout,
    our_form,
    their_form,
    their_shape,
    vision_layout_of,
)
from bertsmith.models.hf.weights import write_weights
from bertsmith.models.patch_decoder import PatchDecoder, PatchDecoderConfig
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_transformer import ImageClassifier, VisionTransformer
from bertsmith.nn.heads import Classifier, Pooler


@dataclass(frozen=True, kw_only=True)
class VisionFolder:
    """The contents of a model folder: our configuration and state dict, labels and the preparation of images."""

    config: VisionConfig
    state_dict: dict[str, Tensor]  # float32 on the CPU, named trunk.*, pooler.*, classifier.* and so on
    parts: frozenset[str]  # pooler, classifier, distillation_classifier, decoder
    labels: tuple[str, ...]  # of the classifier, by id
    processor: ImageProcessor
    config_json: dict[str, Any]
    decoder_config: PatchDecoderConfig | None = None  # of a masked autoencoder

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
        trunk = VisionTransformer(self.config)
        trunk.load_state_dict(self._weights_of("trunk."))
        return trunk.eval()

    def decoder(self) -> PatchDecoder:
        """The decoder of a masked autoencoder."""
        if self.decoder_config is None:
            raise FolderError(CONFIG, "the model has no decoder", "Pretrain one: bertsmith pretrain mae-small IMAGES")
        decoder = PatchDecoder(self.config, self.decoder_config)
        decoder.load_state_dict(self._weights_of("decoder."))
        return decoder.eval()

    def _weights_of(self, part: str) -> dict[str, Tensor]:
        names = (name for name in self.state_dict if name.startswith(part))
        return {name.removeprefix(part): self.state_dict[name] for name in names}


def read(folder: str | Path) -> VisionFolder:
    """Read a folder that transformers or `write` has saved, or the model of a run."""
    folder = model_folder(folder)
    check_exists(folder)
    manifest.verify(folder)
    config_json = read_json(file_inside(folder, CONFIG))
    layout = _layout_of(config_json, folder / CONFIG)
    config = layout.from_config_json(config_json, folder / CONFIG)
    stored = _stored_weights(folder, layout)
    parts = layout.parts(stored)
    decoder = decoder_from_json(config_json, folder / CONFIG) if "decoder" in parts else None
    if (layers := config.layers + (decoder.layers if decoder else 0)) > len(stored):
        raise FolderError(folder, f"{CONFIG} names {layers} layers for {len(stored)} weights")
    labels = layout.labels(config_json, folder / CONFIG) if "classifier" in parts else ()
    try:
        expected = expected_shapes(layout, config, parts, len(labels), decoder)
    except ValueError as error:
        raise FolderError(folder / CONFIG, f"the decoder: {error}") from None
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
        rule.ours: our_form(
            rule.ours, torch.cat([stored[name].load().flatten() for name in rule.theirs]).view(shape), config
        )
        for rule, shape in expected
    }
    processor = layout.processor_of(config_json, config, folder / CONFIG)
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
        decoder_config=decoder,
    )


def is_vision(folder: str | Path) -> bool:
    """Whether a folder, or the model of a run, is of a network of images; whatever else is wrong, `read` says."""
    path = model_folder(folder)
    if not (path / CONFIG).is_file():
        return False
    try:
        config_json = read_json(file_inside(path, CONFIG))
    except FolderError:
        return False
    return is_timm(config_json) or str(config_json.get("model_type")) in VISION_LAYOUTS


def write(
    folder: str | Path,
    config: VisionConfig,
    state_dict: Mapping[str, Tensor],
    labels: Sequence[str] = (),
    processor: ImageProcessor | None = None,
    extra: Mapping[str, Any] | None = None,
    decoder: PatchDecoderConfig | None = None,
) -> None:
    """Write the three files into a folder; `labels` name the classes, and `extra` has more keys of config.json.

    A masked autoencoder is written with its decoder if that is in the state dict.
    """
    folder = Path(folder)
    with files.explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    layout = vision_layout_of(config)
    parts = frozenset(part for part in PARTS if any(name.startswith(f"{part}.") for name in state_dict))
    decoder = decoder if "decoder" in parts else None
    expected = expected_shapes(layout, config, parts, len(labels), decoder)

    def theirs(rule: WeightRule, name: str, weight: Tensor) -> tuple[str, Tensor]:
        return layout.full_name(name, parts), their_form(rule.ours, weight, config)

    dtype = write_weights(folder / WEIGHTS, state_dict, expected, theirs)
    named: dict[str, Any] = {}
    if labels:
        named["id2label"] = {str(number): label for number, label in enumerate(labels)}
        named["label2id"] = {label: number for number, label in enumerate(labels)}
    processor = processor or layout.processor.for_network(config.image_size, config.channels)
    files.write_json(folder / PREPROCESSOR, processor.to_json(layout.processor_beginning))
    keys = {**layout.to_config_json(config, parts, decoder), "dtype": dtype, **named, **(extra or {})}
    files.write_json(folder / CONFIG, keys)


def _layout_of(config_json: dict[str, Any], path: Path) -> VisionLayout | TimmLayout:
    """The layout of a folder: transformers', by its model type, or timm's."""
    if is_timm(config_json):
        return TIMM
    name = config_json.get("model_type")
    if (layout := VISION_LAYOUTS.get(str(name))) is None:
        raise FolderError(path, f"model_type is {short_repr(name)}", suggest("", VISION_LAYOUTS))
    return layout


def _stored_weights(folder: Path, layout: VisionLayout | TimmLayout) -> dict[str, StoredWeight]:
    """Every weight of the folder by its plain name."""
    stored: dict[str, StoredWeight] = {}
    for file in weight_files(folder):
        for weight in header(file):
            name = weight.name.removeprefix(layout.prefix).replace(LAYERS_IN_5, LAYERS)
            if name in stored:
                raise FolderError(file, f"the weight {short_repr(name)} is there twice")
            stored[name] = weight
    return stored


def expected_shapes(
    layout: VisionLayout | TimmLayout,
    config: VisionConfig,
    parts: frozenset[str],
    classes: int,
    decoder: PatchDecoderConfig | None = None,
) -> list[tuple[WeightRule, tuple[int, ...]]]:
    """Every rule with the shape of our weight, found on the meta device, which takes no memory."""
    with torch.device("meta"):
        # All layers have the same shapes, so one is enough.
        model = nn.ModuleDict({"trunk": VisionTransformer(replace(config, layers=1))})
        if decoder is not None:
            model["decoder"] = PatchDecoder(config, replace(decoder, layers=1))
        for part in parts - {"decoder"}:
            model[part] = Pooler(config.width) if part == "pooler" else Classifier(config.width, classes, 0.0)
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    rules = layout.weight_rules(config, parts, decoder)
    return [(rule, shapes[re.sub(r"^(trunk|decoder)\.layers\.\d+", r"\1.layers.0", rule.ours)]) for rule in rules]
