"""Writing a vision transformer as timm names it: config.json and model.safetensors. `vision_folder` reads them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from bertsmith import files
from bertsmith.errors import FolderError
from bertsmith.models.hf.convert import WeightRule
from bertsmith.models.hf.folder import CONFIG, WEIGHTS
from bertsmith.models.hf.image_processor import ImageProcessor
from bertsmith.models.hf.timm_layout import HEADS, TIMM
from bertsmith.models.hf.vision_folder import expected_shapes
from bertsmith.models.hf.vision_layout import their_form, vision_layout_of
from bertsmith.models.hf.weights import write_weights
from bertsmith.models.vision_config import VisionConfig


def write(
    folder: str | Path,
    config: VisionConfig,
    state_dict: Mapping[str, Tensor],
    labels: Sequence[str] = (),
    processor: ImageProcessor | None = None,
) -> None:
    """Write the two files into a folder. timm's DeiT has both classifiers, or none."""
    folder = Path(folder)
    parts = frozenset(part for part in HEADS if any(name.startswith(f"{part}.") for name in state_dict))
    if config.distillation_token and parts == {"classifier"}:
        raise FolderError(folder, "timm's DeiT has two classifiers, and this one has one", "Distil it from a teacher")
    with files.explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)

    def theirs(rule: WeightRule, name: str, weight: Tensor) -> tuple[str, Tensor]:
        return name, their_form(rule.ours, weight, config)

    write_weights(folder / WEIGHTS, state_dict, expected_shapes(TIMM, config, parts, len(labels)), theirs)
    usual = vision_layout_of(config).processor.for_network(config.image_size, config.channels)
    files.write_json(folder / CONFIG, TIMM.to_config_json(config, parts, labels, processor or usual))
