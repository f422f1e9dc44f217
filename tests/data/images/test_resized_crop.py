"""Random resized crops: windows as Pillow stretches them, in bytes that no order of adding up changes."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from data.images.test_augmentation import draws, images, take

from bertsmith.data.images.augmentation import AugmentationConfig, augment
from bertsmith.data.images.resized_crop import random_resized_crop, resize_windows


@pytest.mark.parametrize("size", [(9, 12), (20, 31), (4, 5)])
def test_a_window_is_stretched_as_by_pillow(size: tuple[int, int]) -> None:
    pictures = images(3)
    windows = np.array([[0.0, 9, 0, 12], [2, 5, 3, 8], [1, 8, 0, 7]])
    found = resize_windows(pictures, windows, size)
    for image, (top, height, left, width), one in zip(pictures, windows.astype(int), found, strict=True):
        window = image[None, :, top : top + height, left : left + width].float()
        wanted = F.interpolate(window, size, mode="bilinear", antialias=True)[0]
        assert (one.float() - wanted).abs().max() <= 1.0


def test_the_whole_image_at_its_own_size_is_the_image() -> None:
    pictures = images(2)
    same = resize_windows(pictures, np.array([[0.0, 9, 0, 12]] * 2), (9, 12), np.array([False, True]))
    assert torch.equal(same[0], pictures[0])
    assert torch.equal(same[1], pictures[1].flip(2))


def test_windows_have_their_share_of_the_area_and_stay_inside() -> None:
    row = torch.arange(200, dtype=torch.uint8).view(1, 1, 1, 200).expand(300, 1, 100, 200)
    found = random_resized_crop(row, draws(300), (10, 10), min_area=0.2)[:, 0, 0].float()
    shares = (found[:, -1] - found[:, 0]) / 200 / 0.9  # of the width
    assert 0.3 < shares.min() < 0.5
    assert shares.max() <= 1.01
    assert shares.std() > 0.1
    again = random_resized_crop(row[:7], take(draws(300), np.arange(7)), (10, 10), min_area=0.2)[:, 0, 0]
    assert torch.equal(again.float(), found[:7])


def test_a_crop_of_less_than_the_whole_area_is_resized() -> None:
    pictures = images(6)
    config = AugmentationConfig(min_area=0.3, size=(8, 8))
    found = augment(pictures, draws(6), config)
    assert torch.equal(found, random_resized_crop(pictures, draws(6), (8, 8), min_area=0.3, flip=True))
    alone = augment(pictures[2:3], take(draws(6), [2]), config)
    assert torch.equal(alone, found[2:3])


@pytest.mark.gpu
def test_a_gpu_gives_the_bytes_of_the_processor() -> None:
    pictures = images(9, 30, 40)
    found = random_resized_crop(pictures.cuda(), draws(9), (24, 24), min_area=0.2, flip=True)
    assert torch.equal(found.cpu(), random_resized_crop(pictures, draws(9), (24, 24), min_area=0.2, flip=True))
