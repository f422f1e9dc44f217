"""ViT and DeiT against transformers: parameters, hidden states, attention and logits, and folders both ways."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from parity.parity import MOST, count, difference
from torch import Tensor

from bertsmith.models.hf import vision_folder
from bertsmith.models.hf.vision_layout import vision_layout_of
from bertsmith.models.patches import Patches
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_family import VISION_FAMILY
from bertsmith.models.vision_transformer import ImageClassifier, VisionTransformer
from bertsmith.nn.heads import Pooler
from bertsmith.nn.pooling import first

LABELS = ("cat", "dog", "bird")
SIZES = [(224, 224), (160, 288), (96, 64), (224, 224), (250, 239)]  # the last is no multiple of 16
CLASSES = {  # the class of transformers: the member, and the heads
    "ViTModel": ("vit-tiny", {"pooler"}),
    "ViTForImageClassification": ("vit-tiny", {"classifier"}),
    "DeiTModel": ("deit-tiny", {"pooler"}),
    "DeiTForImageClassification": ("deit-tiny", {"classifier"}),
    "DeiTForImageClassificationWithTeacher": ("deit-tiny", {"classifier", "distillation_classifier"}),
}
SMALL = {"layers": 2, "norm_eps": 1e-6}


def config_of(config: VisionConfig) -> Any:
    """transformers' configuration of one of ours."""
    layout = vision_layout_of(config)
    keys = layout.to_config_json(config, ())
    table = dict(enumerate(LABELS))
    return getattr(transformers, f"{layout.beginning}Config")(**keys, id2label=table, attn_implementation="eager")


def reference_of(config: VisionConfig, name: str) -> Any:
    """A random model of transformers in which no norm, no bias and no token is trivial."""
    torch.manual_seed(0)
    model = getattr(transformers, name)(config_of(config)).eval()
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.normal_(float("norm" in parameter_name and "weight" in parameter_name), 0.1)
            elif parameter_name.endswith(("_token", "position_embeddings")):
                parameter.normal_(0.0, 0.1)
    return model


def images_of(sizes: list[tuple[int, int]], channels: int = 3) -> list[Tensor]:
    dice = torch.Generator().manual_seed(1)
    return [torch.randn(channels, *size, generator=dice) for size in sizes]


@torch.no_grad()
def said_of(model: Any, images: list[Tensor]) -> list[Any]:
    """What transformers says about each image alone."""
    return [
        model(image[None], interpolate_pos_encoding=True, output_hidden_states=True, output_attentions=True)
        for image in images
    ]


def joined(said: list[Any], states: str) -> list[Tensor]:
    """A tuple of transformers' answers for each layer, the images end to end."""
    return [torch.cat([one[0] for one in layer]) for layer in zip(*(one[states] for one in said), strict=True)]


@torch.no_grad()
def assert_same(config: VisionConfig, opened: vision_folder.VisionFolder, images: list[Tensor], reference: Any) -> None:
    """One flat batch of ours has the numbers that transformers has for each image alone."""
    patches = Patches.from_images(images, config.patch_size, config.special_tokens)
    trunk, said = opened.trunk(), said_of(reference, images)
    theirs = joined(said, "hidden_states")
    theirs[-1] = reference.base_model.layernorm(theirs[-1])
    for kernel in (None, "grouped", "eager", "padded"):
        states = trunk.hidden_states(patches, kernel)
        assert difference(states, theirs) <= MOST
    squares = [weights for layer in trunk.attention_maps(patches) for weights in layer]
    wanted = [one[0] for layer in zip(*(one.attentions for one in said), strict=True) for one in layer]
    assert difference(squares, wanted) <= MOST
    if "pooler" in opened.parts:
        pooler = Pooler(config.width)
        pooler.dense.load_state_dict({name: opened.state_dict[f"pooler.dense.{name}"] for name in ("weight", "bias")})
        pooled = torch.cat([one.pooler_output for one in said])
        assert difference([pooler(first(trunk(patches), patches.bounds))], [pooled]) <= MOST
    if "classifier" in opened.parts:
        logits = opened.classifier()(patches)
        assert logits.mean.abs().max() > 0.1
        assert difference([logits.mean], [torch.cat([one.logits for one in said])]) <= MOST
        if logits.distilled is not None:
            both = [torch.cat([one[key] for one in said]) for key in ("cls_logits", "distillation_logits")]
            assert difference([logits.classes, logits.distilled], both) <= MOST


@pytest.mark.exhaustive(suite=6)
@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[(224, 224)] * 2, [(384, 384)], SIZES], ids=["224", "384", "mixed"])
@pytest.mark.parametrize("name", CLASSES)
def test_every_class_says_the_same_here(name: str, sizes: list[tuple[int, int]], tmp_path: Path) -> None:
    member, parts = CLASSES[name]
    config = replace(VISION_FAMILY[member], **SMALL)
    reference, images = reference_of(config, name), images_of(sizes)
    reference.save_pretrained(tmp_path / "theirs")
    opened = vision_folder.read(tmp_path / "theirs")
    assert opened.config == config
    assert opened.parts == parts
    assert sum(weight.numel() for weight in opened.state_dict.values()) == count(reference)
    assert_same(config, opened, images, reference)


@pytest.mark.parametrize("name", CLASSES)
def test_a_folder_of_ours_opens_in_transformers(name: str, tmp_path: Path) -> None:
    member, _ = CLASSES[name]
    config = replace(VISION_FAMILY[member], **SMALL, image_size=48, channels=1, dropout=0.25, activation="gelu_tanh")
    reference = reference_of(config, name)
    reference.save_pretrained(tmp_path / "theirs")
    opened = vision_folder.read(tmp_path / "theirs")
    vision_folder.write(tmp_path / "ours", opened.config, opened.state_dict, opened.labels, opened.processor)
    again, report = getattr(transformers, name).from_pretrained(
        tmp_path / "ours", output_loading_info=True, attn_implementation="eager"
    )
    assert not any(report.values()), report
    assert again.config.id2label == (dict(enumerate(LABELS)) if opened.labels else {0: "LABEL_0", 1: "LABEL_1"})
    ours = {key: value for key, value in again.config.to_dict().items() if "label2id" != key != "id2label"}
    theirs = reference.config.to_dict()
    assert {key for key, value in ours.items() if theirs[key] != value} <= {"_name_or_path", "encoder_stride", "dtype"}
    mine, before = again.eval().state_dict(), reference.state_dict()
    assert mine.keys() == before.keys()
    assert all(torch.equal(mine[key], before[key]) for key in before)
    images = images_of([(48, 48), (32, 80)], channels=1)
    assert_same(config, opened, images, again)


@pytest.mark.slow("builds seven models")
@pytest.mark.parametrize("name", [name for name in VISION_FAMILY if "mae" not in name])
def test_a_member_counts_as_many_parameters_as_in_transformers(name: str) -> None:
    config = VISION_FAMILY[name]
    kind = f"{vision_layout_of(config).beginning}ForImageClassification"
    with torch.device("meta"):
        reference = getattr(transformers, kind)(config_of(config))
        ours = ImageClassifier(VisionTransformer(config), len(LABELS))
    assert count(ours) == count(reference) == config.parameter_count + len(LABELS) * (config.width + 1)
