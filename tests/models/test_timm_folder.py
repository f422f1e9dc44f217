"""Folders of timm's ViT and DeiT, both ways: names of weights, sizes by the architecture, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from models.test_vision import DISTILLED, SMALL, built, images

from bertsmith.errors import FolderError
from bertsmith.models.hf import image_classifiers, timm_folder, vision_folder
from bertsmith.models.hf.image_processor import ImageProcessor
from bertsmith.models.hf.timm_layout import NORM_EPS, TIMM
from bertsmith.models.patches import Patches
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_family import vision_member
from bertsmith.models.vision_transformer import ImageClassifier

LABELS = ("cat", "dog", "bird")
PROCESSOR = ImageProcessor(resize=(20, 20), crop=(16, 16), resample="bicubic")
# The names of timm's documentation, with the shapes for SMALL.
NAMES = {
    "cls_token": [1, 1, 16],
    "pos_embed": [1, 17, 16],
    "patch_embed.proj.weight": [16, 3, 4, 4],
    "patch_embed.proj.bias": [16],
    "norm.weight": [16],
    "norm.bias": [16],
    "head.weight": [3, 16],
    "head.bias": [3],
}
BLOCK = {
    "norm1.weight": [16],
    "norm1.bias": [16],
    "attn.qkv.weight": [48, 16],
    "attn.qkv.bias": [48],
    "attn.proj.weight": [16, 16],
    "attn.proj.bias": [16],
    "norm2.weight": [16],
    "norm2.bias": [16],
    "mlp.fc1.weight": [24, 16],
    "mlp.fc1.bias": [24],
    "mlp.fc2.weight": [16, 24],
    "mlp.fc2.bias": [16],
}


def saved(folder: Path, config: VisionConfig = SMALL, **changes: Any) -> ImageClassifier:
    """A classifier in timm's format, with changes of its config.json."""
    distilled = config.distillation_token
    model = ImageClassifier(built(replace(config, norm_eps=NORM_EPS)), len(LABELS), distilled=distilled).eval()
    timm_folder.write(folder, config, model.state_dict(), LABELS, PROCESSOR)
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return model


def test_the_weights_have_timms_names(tmp_path: Path) -> None:
    blocks = {f"blocks.{n}.{name}": shape for n in range(SMALL.layers) for name, shape in BLOCK.items()}
    saved(tmp_path)
    stored = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert {name: list(weight.shape) for name, weight in stored.items()} == NAMES | blocks
    saved(tmp_path, DISTILLED)
    stored = safetensors.torch.load_file(tmp_path / "model.safetensors")
    two = {"dist_token": [1, 1, 16], "head_dist.weight": [3, 16], "head_dist.bias": [3], "pos_embed": [1, 18, 16]}
    assert {name: list(weight.shape) for name, weight in stored.items()} == NAMES | blocks | two


@pytest.mark.parametrize("config", [SMALL, DISTILLED, replace(SMALL, activation="gelu_tanh")])
@torch.no_grad()
def test_a_written_folder_is_read_as_it_was(config: VisionConfig, tmp_path: Path) -> None:
    model = saved(tmp_path, config)
    opened = vision_folder.read(tmp_path)
    assert (opened.config, opened.labels, opened.processor) == (replace(config, norm_eps=NORM_EPS), LABELS, PROCESSOR)
    assert image_classifiers.is_image_folder(tmp_path)
    assert image_classifiers.read(tmp_path).labels == LABELS
    patches = Patches.from_images(images([(16, 16)] * 2), 4, config.special_tokens)
    assert torch.equal(opened.classifier()(patches).mean, model(patches).mean)


@pytest.mark.parametrize(
    ("architecture", "member"),
    [
        ("vit_tiny_patch16_224", "vit-tiny"),
        ("vit_small_patch16_224.augreg_in21k_ft_in1k", "vit-small"),
        ("vit_base_patch16_224", "vit-base"),
        ("vit_large_patch16_224", "vit-large"),
        ("deit_small_patch16_224.fb_in1k", "vit-small"),
        ("deit_tiny_distilled_patch16_224", "deit-tiny"),
        ("deit_small_distilled_patch16_224", "deit-small"),
        ("deit_base_distilled_patch16_224", "deit-base"),
    ],
)
def test_the_architecture_tells_the_sizes(architecture: str, member: str) -> None:
    config = TIMM.from_config_json({"architecture": architecture}, "here")
    assert config == replace(vision_member(member), norm_eps=NORM_EPS)


def test_sizes_that_differ_are_named() -> None:
    keys = {"architecture": "vit_base_patch32_384", "pretrained_cfg": {"input_size": [1, 384, 384]}}
    config = TIMM.from_config_json(keys, "here")
    assert (config.patch_size, config.image_size, config.channels) == (32, 384, 1)
    square = {"img_size": [48, 48], "patch_size": 8, "num_classes": 3, "global_pool": "token"}  # as timm 1.0 writes it
    config = TIMM.from_config_json(keys | {"model_args": square}, "here")
    assert (config.patch_size, config.image_size) == (8, 48)
    written = TIMM.to_config_json(vision_member("deit-small"), {"classifier"}, LABELS, ImageProcessor())
    assert written["architecture"] == "deit_small_distilled_patch16_224"
    assert "model_args" not in written
    assert TIMM.labels({"num_classes": 2}, "here") == ("LABEL_0", "LABEL_1")
    assert TIMM.labels({"num_classes": 2, "label_names": {"0": "n1", "1": "n2"}}, "here") == ("n1", "n2")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "swin_base"}, r"architecture is 'swin_base'. Only those as vit_base_patch16_224"),
        ({"architecture": ["vit"]}, r"architecture is \['vit'\]. Only those"),
        ({"architecture": "vit_base_patch16_clip_224"}, r"architecture is 'vit_base_patch16_clip_224'. Only those"),
        ({"architecture": "deit_large_distilled_patch16_224"}, r"architecture is 'deit_large_distilled"),
        ({"global_pool": "avg"}, r"global_pool is 'avg'. Only 'token' can be opened"),
        ({"model_args": 7}, r"model_args is 7. Give a table of arguments"),
        ({"model_args": {"init_values": 1e-5}}, r"model_args has 'init_values'. Only img_size, patch_size"),
        ({"model_args": {"depth": "two"}}, r"depth is 'two'. Give a whole number"),
        ({"model_args": {"img_size": [8, 9]}}, r"img_size is \[8, 9\]. Give a whole number"),
        ({"model_args": {"num_heads": 5}}, r"a width of 768 cannot be shared by 5 heads"),
        ({"model_args": {"act_layer": "swish"}}, r"act_layer is 'swish'. Only gelu, gelu_tanh"),
        ({"model_args": {"img_size": 1 << 20}}, r"image_size is 1048576. Give at most 16384"),
        ({"pretrained_cfg": 1}, r"pretrained_cfg is 1. Give a table of settings"),
        ({"model_args": {}, "pretrained_cfg": {"input_size": [3, 8, 9]}}, r"input_size is \[3, 8, 9\]. Give channels"),
        ({"model_args": {}}, r"config.json names 12 layers|'.*' has shape"),
        ({"label_names": ["cat"]}, r"label_names is \['cat'\]. Give 3 names"),
        ({"num_classes": 1 << 20}, r"num_classes is 1048576. Give at most 100000"),
        ({"pretrained_cfg": {"crop_pct": 0}}, r"crop_pct is 0.0. Give a share of at least 0.1"),
        ({"pretrained_cfg": {"interpolation": "lanczos"}}, r"interpolation is 'lanczos'. Only bilinear or bicubic"),
        ({"pretrained_cfg": {"mean": [0.5]}}, r"mean is \[0.5\]. Give a number for each of 3 channels"),
        ({"pretrained_cfg": {"std": [0.5, 0, 0.5]}}, r"std is \(0.5, 0.0, 0.5\). Give numbers above 0"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(tmp_path, **changes)
    with pytest.raises(FolderError, match=message):
        vision_folder.read(tmp_path)


def test_weights_of_other_networks_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    weights = safetensors.torch.load_file(tmp_path / "model.safetensors")
    safetensors.torch.save_file(weights | {"blocks.0.ls1.gamma": torch.ones(16)}, tmp_path / "model.safetensors")
    with pytest.raises(FolderError, match=r"unknown weight 'blocks.0.ls1.gamma'"):
        vision_folder.read(tmp_path)


def test_one_classifier_of_a_deit_has_no_place_in_timm(tmp_path: Path) -> None:
    weights = ImageClassifier(built(DISTILLED), 3).state_dict()
    with pytest.raises(FolderError, match=r"timm's DeiT has two classifiers, and this one has one"):
        timm_folder.write(tmp_path, DISTILLED, weights, LABELS)


@pytest.mark.slow("imports timm, where it is installed")
@pytest.mark.parametrize("config", [SMALL, DISTILLED, replace(SMALL, activation="gelu_tanh")])
@torch.no_grad()
def test_timm_says_the_same(config: VisionConfig, tmp_path: Path) -> None:
    timm = pytest.importorskip("timm")
    model = saved(tmp_path, config)
    keys = json.loads((tmp_path / "config.json").read_text())
    theirs = timm.create_model(keys["architecture"], num_classes=3, **keys["model_args"]).eval()
    theirs.load_state_dict(safetensors.torch.load_file(tmp_path / "model.safetensors"))
    batch = images([(16, 16)] * 3)
    ours = model(Patches.from_images(batch, 4, config.special_tokens)).mean
    torch.testing.assert_close(theirs(torch.stack(batch)), ours, atol=1e-5, rtol=1e-5)
