"""Masked patches: which are masked, and the loss of their pixels."""

import numpy as np
import pytest
import torch
from models.test_masked_patches import FIXED, masked
from models.test_vision import built

from bertsmith.data.images.draws import Draws
from bertsmith.nn.init import initialise
from bertsmith.objectives.masked_patches import MaskedPatches, PatchBatch, choose, squared_error

SIZES = np.array([196, 4, 49, 1, 196])
CONFIG = MaskedPatches.Config(decoder_layers=2, decoder_width=12, decoder_heads=2, decoder_feed_forward=16)


def chosen(seed: int, epoch: int, indices: list[int], sizes: np.ndarray, rate: float = 0.75) -> list[list[bool]]:
    found = choose(Draws(seed, epoch, np.array(indices)), sizes, rate)
    return [part.tolist() for part in np.split(found, np.cumsum(sizes)[:-1])]


def test_the_share_of_each_image_is_exact_and_rounded_up() -> None:
    assert [sum(one) for one in chosen(0, 0, [5, 6, 7, 8, 9], SIZES)] == [147, 3, 37, 1, 147]
    assert [sum(one) for one in chosen(0, 0, [5, 6, 7, 8, 9], SIZES, 0.5)] == [98, 2, 25, 1, 98]


def test_the_mask_is_a_function_of_seed_epoch_and_image_alone() -> None:
    together = chosen(1, 2, [5, 6, 7, 8, 9], SIZES)
    assert chosen(1, 2, [9, 7], np.array([196, 49])) == [together[4], together[2]]
    others = [chosen(2, 2, [5], SIZES[:1]), chosen(1, 3, [5], SIZES[:1]), chosen(1, 2, [6], SIZES[:1])]
    assert all(other[0] != together[0] for other in others)


def test_every_patch_is_masked_as_often_as_any_other() -> None:
    found = choose(Draws(0, 0, np.arange(2000)), np.full(2000, 16), 0.75).reshape(2000, 16)
    assert found.mean(0) == pytest.approx(0.75, abs=0.04)


def test_the_loss_is_the_mean_over_pixels_and_the_sum_over_patches() -> None:
    pixels = torch.tensor([[0.0, 2.0], [5.0, 5.0]])
    predicted = torch.tensor([[1.0, 1.0], [5.0, 8.0]])
    assert squared_error(predicted, pixels, normalised=False) == pytest.approx(1 + 4.5)
    half = 0.5**0.5
    expected = ((1 + half) ** 2 + (1 - half) ** 2) / 2 + (25 + 64) / 2  # a patch of one colour becomes 0
    assert squared_error(predicted, pixels, normalised=True) == pytest.approx(expected, rel=1e-5)


def test_every_weight_is_trained_but_the_positions() -> None:
    objective = MaskedPatches(built(FIXED), CONFIG)
    initialise(objective, 0)
    patches, masking = masked()
    with torch.no_grad():
        for parameter in objective.parameters():
            if parameter.requires_grad:
                parameter.normal_(std=0.3)
    objective(PatchBatch(patches=patches, masking=masking))["pixels"].total.backward()
    without = {name for name, one in objective.named_parameters() if one.grad is None or not one.grad.any()}
    assert without == {"trunk.embedding.positions", "decoder.positions"}
    assert {name.partition(".")[0] for name in objective.hidden_matrices()} == {"trunk", "decoder"}
    assert objective.hidden_matrices().keys() <= dict(objective.named_parameters()).keys()


@pytest.mark.parametrize("rate", [0.0, 1.0, -1.0])
def test_an_impossible_share_is_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=r"mask_rate is .*. Give a share above 0 and below 1, usually 0.75"):
        MaskedPatches.Config(mask_rate=rate)
