"""Folders of vision transformers: what is refused and why, and the preparation of images as transformers reads it."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import torch
from models.test_vision import DISTILLED, SMALL, built, images
from torch import Tensor

from bertsmith.errors import FolderError
from bertsmith.models.hf import manifest, vision_folder
from bertsmith.models.hf.image_processor import ImageProcessor, processor_from_json
from bertsmith.models.patches import Patches
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_transformer import ImageClassifier

LABELS = ("cat", "dog", "bird")
COLOURED = ImageProcessor(
    resize=(20, 24), crop=(16, 16), resample="bicubic", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225)
)


def saved(folder: Path, config: VisionConfig = SMALL, *, distilled: bool = False, **extra: Any) -> ImageClassifier:
    model = ImageClassifier(built(config), len(LABELS), distilled=distilled).eval()
    vision_folder.write(folder, config, model.state_dict(), LABELS, COLOURED, extra)
    return model


def with_weights(folder: Path, edit: Callable[[dict[str, Tensor]], object]) -> None:
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    edit(tensors)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


@pytest.mark.parametrize(("config", "distilled"), [(SMALL, False), (DISTILLED, False), (DISTILLED, True)])
def test_a_written_folder_is_read_as_it_was(config: VisionConfig, distilled: bool, tmp_path: Path) -> None:
    model = saved(tmp_path, config, distilled=distilled)
    opened = vision_folder.read(tmp_path)
    assert (opened.config, opened.labels, opened.processor) == (config, LABELS, COLOURED)
    patches = Patches.from_images(images([(16, 16), (8, 24)]), 4, config.special_tokens)
    assert torch.equal(opened.classifier()(patches).mean, model(patches).mean)
    assert torch.equal(opened.trunk()(patches), model.trunk(patches))


def test_a_trunk_alone_has_no_classifier(tmp_path: Path) -> None:
    weights = {f"trunk.{name}": weight for name, weight in built(SMALL).state_dict().items()}
    vision_folder.write(tmp_path, SMALL, weights)
    opened = vision_folder.read(tmp_path)
    assert (opened.parts, opened.labels) == (frozenset(), ())
    assert opened.processor == ImageProcessor(resize=(16, 16))
    with pytest.raises(FolderError, match=r"the model has no classifier\. Fine-tune it first"):
        opened.classifier()


def test_a_damaged_folder_is_found_by_its_manifest(tmp_path: Path) -> None:
    saved(tmp_path)
    manifest.write(tmp_path)
    vision_folder.read(tmp_path)
    data = bytearray((tmp_path / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(FolderError, match="is damaged: its SHA-256"):
        vision_folder.read(tmp_path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "swin"}, r"model_type is 'swin'. Known: deit, vit, vit_mae"),
        ({"qkv_bias": False}, r"qkv_bias is False. Only True can be opened"),
        ({"pooler_output_size": 7}, r"pooler_output_size is 7. Only 16 can be opened"),
        ({"hidden_act": "swish"}, r"unknown hidden_act 'swish'"),
        ({"image_size": [16, 16]}, r"image_size is \[16, 16\]. Give a whole number"),
        ({"patch_size": 1 << 20}, r"patch_size is 1048576. Give at most 4096"),
        ({"num_channels": 1 << 20}, r"num_channels is 1048576. Give at most 4096"),
        ({"image_size": 1 << 20}, r"image_size is 1048576. Give at most 16384"),
        ({"hidden_size": 1 << 30}, r"hidden_size is 1073741824. Give a whole number"),
        ({"num_attention_heads": 3}, r"a width of 16 cannot be shared by 3 heads"),
        ({"num_hidden_layers": 1 << 20}, r"config.json names 1048576 layers for 56 weights"),
        ({"num_hidden_layers": 4}, r"lacks the weight 'encoder.layer.3.layernorm_before.weight'"),
        ({"num_hidden_layers": 2}, r"unknown weight 'encoder.layer.2"),
        ({"image_size": 20}, r"'vit.embeddings.position_embeddings' has shape \[1, 17, 16\] where .* \[1, 26, 16\]"),
        ({"patch_size": 2, "image_size": 8}, r"projection.weight' has shape \[16, 3, 4, 4\] .* \[16, 3, 2, 2\]"),
        ({"intermediate_size": 1 << 24}, r"has shape"),
        ({"id2label": {"0": "cat"}}, r"'classifier.weight' has shape \[3, 16\] where config.json says \[1, 16\]"),
        ({"id2label": ["cat"]}, r"id2label is \['cat'\]. Give every id a label"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(tmp_path, **changes)
    with pytest.raises(FolderError, match=message):
        vision_folder.read(tmp_path)


def test_other_weights_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    with_weights(tmp_path, lambda weights: weights.update({"vit.embeddings.mask_token": torch.zeros(1, 1, 16)}))
    with pytest.raises(FolderError, match=r"unknown weight 'embeddings.mask_token'. Only the trunk, its pooler"):
        vision_folder.read(tmp_path)
    saved(tmp_path)
    with_weights(tmp_path, lambda weights: weights.pop("vit.embeddings.cls_token"))
    with pytest.raises(FolderError, match=r"lacks the weight 'embeddings.cls_token'"):
        vision_folder.read(tmp_path)
    saved(tmp_path)
    with_weights(tmp_path, lambda weights: weights.update({"layernorm.bias": torch.zeros(16)}))
    with pytest.raises(FolderError, match=r"the weight 'layernorm.bias' is there twice"):
        vision_folder.read(tmp_path)
    saved(tmp_path)
    with_weights(tmp_path, lambda weights: weights.update({"classifier.bias": torch.zeros(3, dtype=torch.int64)}))
    with pytest.raises(FolderError, match=r"'classifier.bias' holds I64, not floating-point numbers"):
        vision_folder.read(tmp_path)


def test_a_state_dict_that_does_not_fit_is_not_written(tmp_path: Path) -> None:
    weights = ImageClassifier(built(SMALL), 3).state_dict()
    with pytest.raises(FolderError, match=r"the weight 'classifier.dense.weight' has shape \[3, 16\], not \[2, 16\]"):
        vision_folder.write(tmp_path, SMALL, weights, ("cat", "dog"))
    with pytest.raises(FolderError, match=r"the weight 'mask' has no name in transformers"):
        vision_folder.write(tmp_path, SMALL, {**weights, "mask": torch.zeros(1)}, LABELS)
    del weights["trunk.embedding.positions"]
    with pytest.raises(FolderError, match=r"the weight 'trunk.embedding.positions' is missing"):
        vision_folder.write(tmp_path, SMALL, weights, LABELS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"do_rescale": False}, "do_rescale is False. Only True can be opened"),
        ({"rescale_factor": 1.0}, "rescale_factor is 1.0. Only 0.0039"),
        ({"resample": 7}, r"resample is 7, which is not supported. Only 2 \(bilinear\) or 3 \(bicubic\) can be"),
        ({"resample": 0}, r"resample is 0 \(nearest\), which is not supported"),
        ({"do_resize": "yes"}, "do_resize is 'yes'. Give true or false"),
        ({"image_mean": [0.5]}, r"image_mean is \[0.5\]. Give a number for each of 3 channels"),
        ({"image_std": [0.5, float("nan"), 0.5]}, "image_std is nan. Give a number"),
        ({"image_std": [0.5, 0, 0.5]}, r"image_std is \(0.5, 0.0, 0.5\). Give numbers above 0"),
        (
            {"size": {"shortest_edge": 224}},
            r"size names the shortest_edge \(.*\), which is not supported. Only a heigh",
        ),
        ({"crop_size": {"height": 1 << 20, "width": 8}}, "crop_size is .* Give a height and a width of at most 16384"),
    ],
)
def test_a_preparation_that_cannot_be_done_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(tmp_path)
    path = tmp_path / "preprocessor_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    with pytest.raises(FolderError, match=message):
        vision_folder.read(tmp_path)


def test_files_of_older_versions_have_one_number_for_both_sides() -> None:
    keys = {"size": 256, "crop_size": 224, "do_center_crop": True, "resample": 3, "do_normalize": False}
    read = processor_from_json(keys, ImageProcessor(), 3, "here")
    whole = {"resize": (256, 256), "crop": (224, 224), "resample": "bicubic"}
    assert read == ImageProcessor(**whole, mean=(0.0,) * 3, std=(1.0,) * 3)  # type: ignore[arg-type]
    assert processor_from_json({"do_resize": False}, ImageProcessor(), 3, "here").resize is None


def test_another_size_keeps_the_margin_that_is_cut_off() -> None:
    deit = ImageProcessor(resize=(256, 256), crop=(224, 224))
    assert deit.for_network(384, 3) == replace(deit, resize=(438, 438), crop=(384, 384))
    assert ImageProcessor().for_network(32, 1) == ImageProcessor(resize=(32, 32), mean=(0.5,), std=(0.5,))


@pytest.mark.slow("imports transformers")
@pytest.mark.parametrize(("kind", "config"), [("vit", SMALL), ("deit", DISTILLED)])
def test_transformers_prepares_a_image_as_our_file_says(kind: str, config: VisionConfig, tmp_path: Path) -> None:
    from transformers.models.deit.image_processing_pil_deit import DeiTImageProcessorPil
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    saved(tmp_path, config)
    theirs = {"vit": ViTImageProcessorPil, "deit": DeiTImageProcessorPil}[kind].from_pretrained(tmp_path)
    image = np.random.default_rng(0).integers(0, 256, (20, 24, 3), dtype=np.uint8)
    pixels = torch.as_tensor(np.asarray(theirs(image)["pixel_values"][0]))
    middle = torch.from_numpy(image[2:18, 4:20]).permute(2, 0, 1).float() / 255
    mean, std = (torch.tensor(values)[:, None, None] for values in (COLOURED.mean, COLOURED.std))
    torch.testing.assert_close(pixels.float(), (middle - mean) / std, atol=1e-5, rtol=1e-5)
    theirs.save_pretrained(tmp_path)
    assert vision_folder.read(tmp_path).processor == COLOURED
