"""Masked autoencoders against transformers' ViTMAE: parameters, hidden states, pixels, loss, and folders both ways."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from parity.parity import MOST, count, difference
from parity.test_vision import images_of
from torch import Tensor

from bertsmith.data.images.draws import Draws
from bertsmith.models.hf import vision_folder
from bertsmith.models.hf.vision_layout import VISION_LAYOUTS
from bertsmith.models.masked_patches import Masking
from bertsmith.models.patch_decoder import PatchDecoder, PatchDecoderConfig
from bertsmith.models.patches import Patches
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_family import VISION_FAMILY
from bertsmith.models.vision_transformer import ImageClassifier, VisionTransformer
from bertsmith.objectives.masked_patches import choose, squared_error

DECODER = PatchDecoderConfig(width=48, layers=2, heads=4, feed_forward=96)
SMALL = replace(VISION_FAMILY["mae-tiny"], layers=2, norm_eps=1e-6, image_size=96)


def reference_of(config: VisionConfig, decoder: PatchDecoderConfig = DECODER, **settings: Any) -> Any:
    """A random model of transformers in which no norm, no bias and no token is trivial."""
    keys = VISION_LAYOUTS["vit_mae"].to_config_json(config, (), decoder)
    torch.manual_seed(0)
    theirs = transformers.ViTMAEConfig(**keys, **settings, attn_implementation="eager")
    model = transformers.ViTMAEForPreTraining(theirs).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1 or name.endswith("_token"):
                parameter.normal_(float("norm" in name and "weight" in name), 0.1)
    return model


def noise_of(chosen: np.ndarray, images: int) -> Tensor:
    """The noise by which transformers masks the chosen patches, and keeps the others in their order."""
    masked = torch.from_numpy(chosen).view(images, -1)
    return masked.float() + torch.arange(masked.shape[1]) / masked.shape[1]


@pytest.mark.parametrize("normalised", [False, True], ids=["pixels", "normalised"])
@torch.no_grad()
def test_pixels_and_loss_are_those_of_transformers(normalised: bool, tmp_path: Path) -> None:
    reference = reference_of(SMALL, norm_pix_loss=normalised)
    reference.save_pretrained(tmp_path / "theirs")
    opened = vision_folder.read(tmp_path / "theirs")
    assert (opened.config, opened.decoder_config, opened.parts) == (SMALL, DECODER, {"decoder"})
    assert sum(weight.numel() for weight in opened.state_dict.values()) == count(reference)
    images, sizes = images_of([(96, 96)] * 3), np.full(3, 36)
    chosen = choose(Draws(7, 0, np.arange(3)), sizes, 0.75)
    said = reference(torch.stack(images), noise=noise_of(chosen, 3), output_hidden_states=True)
    patches, masking = Patches.from_images(images, 16), Masking.of(chosen, sizes, 1)
    trunk, decoder = opened.trunk(), opened.decoder()
    visible = masking.visible_patches(patches)
    states = trunk.hidden_states(visible)
    theirs = [state.flatten(0, 1) for state in said.hidden_states]
    assert difference(states[:-1], theirs[:-1]) <= MOST
    assert said.mask.flatten().bool().equal(torch.from_numpy(chosen))
    everything = decoder(states[-1], patches, masking, torch.arange(len(patches.pixels)))
    pixels = everything.view(3, -1, 3, 16, 16).permute(0, 1, 3, 4, 2).flatten(2)  # in their order
    assert difference([pixels], [said.logits]) <= MOST
    predicted = decoder(states[-1], patches, masking)
    assert difference([predicted], [everything[masking.masked]]) <= MOST
    loss = squared_error(predicted, patches.pixels[masking.masked], normalised=normalised) / int(chosen.sum())
    assert difference([loss], [said.loss]) <= MOST


@torch.no_grad()
def test_the_encoder_reads_images_of_any_size_as_in_transformers(tmp_path: Path) -> None:
    reference = reference_of(SMALL).vit
    reference.save_pretrained(tmp_path)
    opened = vision_folder.read(tmp_path)
    assert opened.parts == set()
    sizes = [(96, 96), (160, 64), (48, 80)]
    images, counts = images_of(sizes), np.array([height * width // 256 for height, width in sizes])
    chosen = choose(Draws(7, 0, np.arange(3)), counts, 0.75)
    parts = np.split(chosen, np.cumsum(counts)[:-1])
    said = [
        reference(image[None], noise=noise_of(part, 1), interpolate_pos_encoding=True).last_hidden_state[0]
        for image, part in zip(images, parts, strict=True)
    ]
    visible = Masking.of(chosen, counts, 1).visible_patches(Patches.from_images(images, 16))
    assert difference([opened.trunk()(visible)], [torch.cat(said)]) <= MOST


def test_a_folder_of_ours_opens_in_transformers(tmp_path: Path) -> None:
    reference = reference_of(replace(SMALL, channels=1, image_size=48), mask_ratio=0.5, norm_pix_loss=True)
    reference.save_pretrained(tmp_path / "theirs")
    opened = vision_folder.read(tmp_path / "theirs")
    extra = {key: opened.config_json[key] for key in ("mask_ratio", "norm_pix_loss")}
    vision_folder.write(tmp_path / "ours", opened.config, opened.state_dict, extra=extra, decoder=opened.decoder_config)
    again, report = transformers.ViTMAEForPreTraining.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    ours, theirs = again.config.to_dict(), reference.config.to_dict()
    assert {key for key, value in ours.items() if theirs[key] != value} <= {"_name_or_path", "dtype"}
    mine, before = again.eval().state_dict(), reference.state_dict()
    assert mine.keys() == before.keys()
    assert all(torch.equal(mine[key], before[key]) for key in before)
    assert torch.equal(vision_folder.read(tmp_path / "ours").decoder().output.bias, opened.decoder().output.bias)


@torch.no_grad()
def test_a_classifier_starts_from_the_encoder(tmp_path: Path) -> None:
    reference_of(SMALL).save_pretrained(tmp_path / "mae")
    opened = vision_folder.read(tmp_path / "mae")
    trunk = VisionTransformer(replace(opened.config, positions="learned"))
    trunk.load_state_dict(opened.trunk().state_dict())
    assert trunk.embedding.positions.requires_grad
    model = ImageClassifier(trunk, 3)
    vision_folder.write(tmp_path / "vit", trunk.config, model.state_dict(), ("a", "b", "c"))
    theirs = transformers.ViTForImageClassification.from_pretrained(tmp_path / "vit").eval()
    images = images_of([(96, 96)] * 2)
    said = theirs(torch.stack(images)).logits
    assert difference([model.eval()(Patches.from_images(images, 16)).mean], [said]) <= MOST


@pytest.mark.slow("builds four models")
@pytest.mark.parametrize("name", [name for name in VISION_FAMILY if name.startswith("mae")])
def test_a_member_counts_as_many_parameters_as_in_transformers(name: str) -> None:
    config, decoder = VISION_FAMILY[name], PatchDecoderConfig()
    keys = VISION_LAYOUTS["vit_mae"].to_config_json(config, ())
    with torch.device("meta"):
        reference = transformers.ViTMAEForPreTraining(transformers.ViTMAEConfig(**keys))
        ours = count(VisionTransformer(config)) + count(PatchDecoder(config, decoder))
    assert ours == count(reference)
    assert config.parameter_count == count(reference.vit)
