"""Masked autoencoders: the tokens that the encoder reads, the pixels that the decoder predicts, and folders refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models.test_vision import SIZES, SMALL, built, images
from torch import Tensor

from bertsmith.data.images.draws import Draws
from bertsmith.errors import FolderError
from bertsmith.models.hf import vision_folder
from bertsmith.models.hf.mae_layout import output_to_ours, output_to_theirs
from bertsmith.models.masked_patches import Masking
from bertsmith.models.patch_decoder import PatchDecoder, PatchDecoderConfig
from bertsmith.models.patches import Patches
from bertsmith.nn.init import initialise
from bertsmith.objectives.masked_patches import choose

FIXED = replace(SMALL, positions="sinusoidal")
SIZE = PatchDecoderConfig(width=12, layers=2, heads=2, feed_forward=16)
COUNTS = np.array([height * width // 16 for height, width in SIZES])


def masked(sizes: list[tuple[int, int]] = SIZES, first: int = 0) -> tuple[Patches, Masking]:
    """Images of these sizes, with three quarters of their patches masked; `first`: the index of the first image."""
    counts = np.array([height * width // 16 for height, width in sizes])
    chosen = choose(Draws(3, 1, np.arange(first, first + len(sizes))), counts, 0.75)
    return Patches.from_images(images(sizes), 4), Masking.of(chosen, counts, 1)


def decoder_of() -> PatchDecoder:
    torch.manual_seed(1)
    decoder = PatchDecoder(FIXED, SIZE)
    for parameter in decoder.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return decoder.eval()


def predicted(patches: Patches, masking: Masking) -> Tensor:
    return decoder_of()(built(FIXED)(masking.visible_patches(patches)), patches, masking)


def test_the_encoder_reads_special_tokens_and_visible_patches_only() -> None:
    patches, masking = masked()
    visible = masking.visible_patches(patches)
    assert sorted([*masking.visible.tolist(), *masking.masked.tolist()]) == [*range(len(patches.pixels))]
    assert visible.bounds.diff().tolist() == [1 + int(count / 4) for count in COUNTS]
    assert len(visible.position_rows) == int(visible.bounds[-1])  # nothing is padded
    assert torch.equal(visible.pixels, patches.pixels[masking.visible])
    assert torch.equal(masking.visible_tokens[visible.slots], patches.slots[masking.visible])
    assert torch.equal(masking.visible_tokens[visible.bounds[:-1].long()], patches.bounds[:-1].long())
    assert torch.equal(visible.position_rows, patches.position_rows[masking.visible_tokens])
    assert (visible.max_length, visible.equal_lengths) == (5, False)
    equal = masked([(16, 16)] * 2)
    assert equal[1].visible_patches(equal[0]).equal_lengths


@torch.no_grad()
def test_masked_pixels_are_never_read() -> None:
    patches, masking = masked()
    other = replace(patches, pixels=patches.pixels.index_fill(0, masking.masked, 7.0))
    assert torch.equal(predicted(patches, masking), predicted(other, masking))
    seen = replace(patches, pixels=patches.pixels.index_fill(0, masking.visible[:1], 7.0))
    assert not torch.equal(predicted(patches, masking), predicted(seen, masking))


@torch.no_grad()
def test_an_image_is_predicted_alike_alone_and_among_others() -> None:
    together = predicted(*masked())
    all_images = images(SIZES)
    alone = []
    for index, (image, count) in enumerate(zip(all_images, COUNTS, strict=True)):
        chosen = choose(Draws(3, 1, np.array([index])), np.array([count]), 0.75)
        alone.append(predicted(Patches.from_images([image], 4), Masking.of(chosen, np.array([count]), 1)))
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-5, rtol=1e-5)


def test_positions_are_fixed_waves_of_column_and_row() -> None:
    network, decoder = built(FIXED), PatchDecoder(FIXED, SIZE)
    row, column = 1, 2
    for module, positions in ((network, network.embedding.positions), (decoder, decoder.positions)):
        initialise(module, 5)
        quarter = positions.shape[1] // 4
        rates = 10_000.0 ** -(np.arange(quarter) / quarter)
        waves = [function(place * rates) for place in (column, row) for function in (np.sin, np.cos)]
        torch.testing.assert_close(positions[1 + row * 4 + column], torch.from_numpy(np.concatenate(waves)).float())
        assert not positions[0].any()
        assert not positions.requires_grad


def test_the_rows_of_the_output_are_reordered_and_back() -> None:
    weight = torch.arange(48.0)
    theirs = output_to_theirs(weight, SMALL)
    assert theirs[:3].tolist() == [0, 16, 32]  # the three channels of the first pixel
    assert torch.equal(output_to_ours(theirs, SMALL), weight)


def saved(folder: Path, **extra: Any) -> None:
    model = {f"trunk.{name}": weight for name, weight in built(FIXED).state_dict().items()}
    model |= {f"decoder.{name}": weight for name, weight in decoder_of().state_dict().items()}
    vision_folder.write(folder, FIXED, model, extra=extra, decoder=SIZE)


def test_a_written_folder_is_read_as_it_was(tmp_path: Path) -> None:
    saved(tmp_path, mask_ratio=0.5)
    opened = vision_folder.read(tmp_path)
    assert (opened.config, opened.decoder_config, opened.config_json["mask_ratio"]) == (FIXED, SIZE, 0.5)
    patches, masking = masked()
    with torch.no_grad():
        again = opened.decoder()(opened.trunk()(masking.visible_patches(patches)), patches, masking)
        assert torch.equal(again, predicted(patches, masking))
    assert json.loads((tmp_path / "preprocessor_config.json").read_text())["image_processor_type"] == (
        "ViTImageProcessor"
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"decoder_num_hidden_layers": 1 << 20}, r"config.json names 1048579 layers for 94 weights"),
        ({"decoder_num_hidden_layers": 3}, r"lacks the weight 'decoder.decoder_layers.2.layernorm_before.weight'"),
        ({"decoder_hidden_size": 14}, r"the decoder: a width of 14 cannot be shared by four waves"),
        ({"decoder_num_attention_heads": 5}, r"the decoder: a width of 12 cannot be shared by 5 heads"),
        ({"decoder_intermediate_size": "wide"}, r"decoder_intermediate_size is 'wide'. Give a whole number"),
        ({"hidden_size": 18}, r"a width of 18 cannot be shared by four waves. Take a multiple of 4"),
    ],
)
def test_a_decoder_that_does_not_fit_is_refused(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    saved(tmp_path, **changes)
    with pytest.raises(FolderError, match=message):
        vision_folder.read(tmp_path)


def test_only_a_masked_autoencoder_has_a_decoder(tmp_path: Path) -> None:
    weights = {f"trunk.{name}": weight for name, weight in built(FIXED).state_dict().items()}
    vision_folder.write(tmp_path, FIXED, weights)
    assert vision_folder.read(tmp_path).parts == set()
    with pytest.raises(FolderError, match=r"the model has no decoder. Pretrain one: bertsmith pretrain mae-small"):
        vision_folder.read(tmp_path).decoder()
