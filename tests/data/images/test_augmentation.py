"""An image is augmented by its seed, epoch and index alone, and every batched operation does what it does to one."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from bertsmith.data.images import colours, geometry
from bertsmith.data.images.augmentation import AugmentationConfig, augment, normalise
from bertsmith.data.images.draws import Draws, Purpose, column
from bertsmith.data.images.mixing import erase, mix_images, soft_targets
from bertsmith.data.images.rand_augment import COLOURS, NAMES, apply, rand_augment
from bertsmith.errors import RecipeError

ALL = AugmentationConfig(brightness=0.4, contrast=0.4, saturation=0.4, operations=2, strength=15.0, erasing=0.5)
CPU = torch.device("cpu")


def images(count: int, height: int = 9, width: int = 12, channels: int = 3) -> Tensor:
    """Noise upon a slope, so that colours differ in range from image to image."""
    random = np.random.default_rng(count)
    noise = random.integers(0, 120, (count, channels, height, width))
    slope = np.arange(width) * 10 * np.arange(count)[:, None, None, None] // max(count, 1)
    return torch.from_numpy((noise + slope).clip(0, 255).astype(np.uint8))


def draws(count: int, seed: int = 5, epoch: int = 2) -> Draws:
    return Draws(seed, epoch, np.arange(100, 100 + count))


def take(some: Draws, rows: Any) -> Draws:
    return replace(some, indices=some.indices[rows])


def operated(name: str, batch: Tensor, levels: np.ndarray) -> Tensor:
    """One operation on all images."""
    return apply(batch, np.full(len(batch), NAMES.index(name)), levels)


def mixed(batch: Tensor, some: Draws) -> Tensor:
    """An image of every batch mixed with its augmented partner, as training does."""
    dataset = images(200)
    other = some.partners(200)
    parts = [augment(dataset[each.indices], each, ALL).float() for each in (some, other)]
    return mix_images(parts[0] + 0 * batch.float(), parts[1], some, mixup=0.8, cutmix=1.0)[0]


@pytest.mark.parametrize("change", [lambda batch, some: augment(batch, some, ALL), mixed])
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_a_image_has_the_same_bits_in_whatever_batch_it_comes(
    change: Callable[[Tensor, Draws], Tensor], data: st.DataObject
) -> None:
    batch, some = images(24), draws(24)
    whole = change(batch, some)
    rows = data.draw(st.lists(st.integers(0, 23), min_size=1, max_size=30))
    assert torch.equal(change(batch[rows], take(some, rows)), whole[rows])


def test_another_seed_epoch_or_index_is_another_augmentation() -> None:
    batch = images(1).expand(40, -1, -1, -1)
    one = augment(batch, draws(40), ALL)
    assert len({image.numpy().tobytes() for image in one}) > 30
    for other in (draws(40, seed=6), draws(40, epoch=3), Draws(5, 2, np.arange(40))):
        same = (augment(batch, other, ALL) == one).flatten(1).all(1)
        assert int(same.sum()) < 5


def test_no_two_purposes_share_their_numbers() -> None:
    some = draws(1000)
    numbers = {(purpose, turn): some.uniform(purpose, turn) for purpose in Purpose for turn in range(2)}
    table = np.corrcoef(np.stack(list(numbers.values())))
    assert np.abs(table - np.eye(len(table))).max() < 0.2


@pytest.mark.gpu
def test_an_accelerator_gives_the_bits_of_the_processor() -> None:
    batch, some = images(200), draws(200)
    assert torch.equal(augment(batch.cuda(), some, ALL).cpu(), augment(batch, some, ALL))


@pytest.mark.parametrize("padding", [0, 4, 30])  # the last reflects several times
@pytest.mark.parametrize("size", [(9, 12), (5, 7)])
def test_a_crop_is_a_window_of_the_padded_image(padding: int, size: tuple[int, int]) -> None:
    batch, some = images(20), draws(20)
    found = geometry.crop(batch, some, size, padding=padding, flip=True)
    flipped = 0
    for row, image in enumerate(batch.numpy()):
        one = take(some, [row])
        padded = np.pad(image, ((0, 0), (padding, padding), (padding, padding)), mode="reflect")
        top = int(one.uniform(Purpose.CROP_ROW)[0] * (9 + 2 * padding - size[0] + 1))
        left = int(one.uniform(Purpose.CROP_COLUMN)[0] * (12 + 2 * padding - size[1] + 1))
        window = padded[:, top : top + size[0], left : left + size[1]]
        if one.uniform(Purpose.FLIP)[0] < 0.5:
            window, flipped = window[:, :, ::-1], flipped + 1
        np.testing.assert_array_equal(found[row].numpy(), window)
    assert 3 < flipped < 17


def test_a_window_that_is_too_large_is_refused() -> None:
    message = (
        r"crop: a window of 12 x 12 pixels is not inside 12 x 9 padded by 1\. Make it smaller, or the padding larger\."
    )
    with pytest.raises(RecipeError, match=message):
        geometry.crop(images(1), draws(1), (12, 12), padding=1)
    with pytest.raises(RecipeError, match="a window of 13 x 9 pixels is not inside 12 x 9"):
        geometry.centre_crop(images(1), (9, 13))


def test_the_centre_of_a_image() -> None:
    image = torch.arange(35, dtype=torch.uint8).reshape(1, 5, 7)
    assert geometry.centre_crop(image, (1, 3)).tolist() == [[[16, 17, 18]]]
    assert geometry.centre_crop(image[None], (5, 7)).equal(image[None])


def moved(image: np.ndarray, matrix: list[float]) -> np.ndarray:
    """The affine map of one image, pixel by pixel."""
    _, height, width = image.shape
    a, b, c, d, e, f = (np.float32(number) for number in matrix)
    result = np.full_like(image, 128)
    for row in range(height):
        for place in range(width):
            x, y = np.float32(place + 0.5 - width / 2), np.float32(row + 0.5 - height / 2)
            column_, row_ = (
                math.floor(a * x + b * y + c + np.float32(width / 2)),
                math.floor(d * x + e * y + f + np.float32(height / 2)),
            )
            if 0 <= row_ < height and 0 <= column_ < width:
                result[:, row, place] = image[:, row_, column_]
    return result


def test_affine_maps_are_those_of_one_image_pixel_by_pixel() -> None:
    batch, levels = images(6), np.linspace(-1, 1, 6)
    for number, level in enumerate(levels.tolist()):
        turn = math.radians(30 * level)
        sine, cosine = math.sin(turn), math.cos(turn)
        expected = {
            "rotate": [cosine, -sine, 0, sine, cosine, 0],
            "shear_x": [1, 0.3 * level, 0, 0, 1, 0],
            "shear_y": [1, 0, 0, 0.3 * level, 1, 0],
            "translate_x": [1, 0, -150 / 331 * 12 * level, 0, 1, 0],
            "translate_y": [1, 0, 0, 0, 1, -150 / 331 * 9 * level],
        }
        for name, matrix in expected.items():
            found = operated(name, batch, levels)[number].numpy()
            np.testing.assert_array_equal(found, moved(batch[number].numpy(), matrix), err_msg=name)


def test_a_quarter_turn_is_anticlockwise() -> None:
    square = torch.tensor([[1, 2], [3, 4]], dtype=torch.uint8)[None, None]
    assert geometry.move(square, geometry.rotations(np.array([90.0])))[0, 0].tolist() == [[2, 4], [1, 3]]


def by_pillow(name: str, image: np.ndarray, level: float) -> np.ndarray:
    """An operation on one image, by Pillow."""
    pillow = pytest.importorskip("PIL.Image", reason="Pillow is not installed here")
    from PIL import ImageEnhance, ImageOps

    pil, factor = pillow.fromarray(image.transpose(1, 2, 0)), 1 + 0.9 * level
    match name:
        case "brightness":
            done = ImageEnhance.Brightness(pil).enhance(factor)
        case "contrast":
            done = ImageEnhance.Contrast(pil).enhance(factor)
        case "saturation":
            done = ImageEnhance.Color(pil).enhance(factor)
        case "sharpness":
            done = ImageEnhance.Sharpness(pil).enhance(factor)
        case "posterize":
            done = ImageOps.posterize(pil, 8 - round(4 * abs(level)))
        case "solarize":
            done = ImageOps.solarize(pil, math.ceil(255 * (1 - abs(level))))
        case "auto_contrast":
            done = ImageOps.autocontrast(pil)
        case "equalize":
            done = ImageOps.equalize(pil)
        case _:
            done = pil
    return np.asarray(done).transpose(2, 0, 1)


@pytest.mark.parametrize("name", COLOURS)
def test_colours_are_changed_as_pillow_changes_one_image(name: str) -> None:
    batch, levels = images(7, 40, 40), np.array([-1, -0.7, -0.3, 0, 0.3, 0.6, 1.0])
    found = operated(name, batch, levels).numpy()
    for image, level, one in zip(batch.numpy(), levels.tolist(), found, strict=True):
        away = np.abs(one.astype(int) - by_pillow(name, image, level))
        if name == "auto_contrast":  # whole numbers here, and rounded down from floating point there
            assert away.max() <= 1
            low, high = (function(image, (1, 2), keepdims=True).astype(int) for function in (np.min, np.max))
            np.testing.assert_array_equal(one, (image - low) * 255 // (high - low))
        else:
            assert away.max() == 0


def test_every_operation_of_rand_augment_is_compared_with_another_implementation() -> None:
    assert {*COLOURS, "rotate", "shear_x", "shear_y", "translate_x", "translate_y"} == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("size", [(1, 1), (2, 5), (3, 3)])
@pytest.mark.parametrize("channels", [1, 3])
def test_operations_take_grey_tiny_and_even_images(name: str, size: tuple[int, int], channels: int) -> None:
    for batch in (images(3, *size, channels), torch.full((3, channels, *size), 7, dtype=torch.uint8)):
        found = operated(name, batch, np.array([-1.0, 0.5, 1.0]))
        assert (found.shape, found.dtype) == (batch.shape, torch.uint8)
        for row, level in enumerate([-1.0, 0.5, 1.0]):
            assert torch.equal(operated(name, batch[row : row + 1], np.array([level]))[0], found[row])


def test_jitter_stays_within_its_bounds_and_does_nothing_by_default() -> None:
    batch, some = torch.full((300, 3, 2, 2), 100, dtype=torch.uint8), draws(300)
    assert torch.equal(colours.jitter(batch, some), batch)
    found = colours.jitter(batch, some, brightness_by=0.2)[:, 0, 0, 0].numpy()
    assert 79 <= found.min() < 84
    assert 116 < found.max() <= 120


def test_rand_augment_is_its_operations_on_one_image_after_the_other() -> None:
    batch, some, seen = images(60), draws(60), set()
    found = rand_augment(batch, some, operations=3, strength=12)
    for row in range(60):
        one, image = take(some, [row]), batch[row : row + 1]
        for turn in range(3):
            name = NAMES[int(one.uniform(Purpose.OPERATION, turn)[0] * len(NAMES))]
            sign = -1 if one.uniform(Purpose.SIGN, turn)[0] < 0.5 else 1
            image = operated(name, image, np.array([sign * 12 / 30]))
            seen.add(name)
        assert torch.equal(found[row], image[0])
    assert seen == set(NAMES)


def test_erasing_puts_one_box_of_one_colour_into_its_share_of_the_images() -> None:
    batch, some = images(400, 16, 20), draws(400)
    found, erased = erase(batch, some, probability=0.25), 0
    for row, (image, result) in enumerate(zip(batch.numpy(), found.numpy(), strict=True)):
        one = take(some, [row])
        if one.uniform(Purpose.ERASE)[0] < 0.25:
            area = (0.02 + 0.31 * one.uniform(Purpose.ERASE_AREA)[0]) * 320
            aspect = 0.3 ** (1 - 2 * one.uniform(Purpose.ERASE_ASPECT)[0])
            height = min(max(round(math.sqrt(area * aspect)), 1), 16)
            width = min(max(round(math.sqrt(area / aspect)), 1), 20)
            top = int(one.uniform(Purpose.ERASE_ROW)[0] * (16 - height + 1))
            left = int(one.uniform(Purpose.ERASE_COLUMN)[0] * (20 - width + 1))
            image = image.copy()
            for channel in range(3):
                colour = int(one.uniform(Purpose.ERASE_COLOUR, channel)[0] * 256)
                image[channel, top : top + height, left : left + width] = colour
            erased += 1
        np.testing.assert_array_equal(result, image)
    assert 60 < erased < 140


def test_mixup_adds_images_and_cutmix_cuts_them() -> None:
    batch, other, some = images(100).float(), 255 - images(100).float(), draws(100)
    found, shares = mix_images(batch, other, some, mixup=0.8, cutmix=1.0)
    cut = some.uniform(Purpose.MIX_KIND) < 0.5
    for row in range(100):
        if cut[row]:
            box = (found[row] == other[row]).all(0) & (batch[row] != other[row]).all(0)
            assert torch.equal(found[row], torch.where(box, other[row], batch[row]))
            rows, columns = np.flatnonzero(box.any(1)), np.flatnonzero(box.any(0))
            if len(rows):
                assert box[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1].all()
            assert shares[row] == pytest.approx(1 - float(box.float().mean()))
        else:
            share = np.float32(shares[row])
            assert torch.equal(found[row], share * batch[row] + (1 - share) * other[row])
    assert 30 < cut.sum() < 70
    assert mix_images(batch, other, some)[0] is batch


@pytest.mark.parametrize("alpha", [0.05, 0.2, 0.8, 1.0])
def test_shares_have_their_distribution(alpha: float) -> None:
    empty = torch.zeros(20_000, 1, 1, 1)
    shares = mix_images(empty, empty, draws(20_000), mixup=alpha)[1]
    assert shares.mean() == pytest.approx(0.5, abs=0.015)
    assert shares.var() == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.05)


@pytest.mark.parametrize("alpha", [0.01, 1.5, -1.0])
def test_a_distribution_that_cannot_be_drawn_from_is_refused(alpha: float) -> None:
    with pytest.raises(RecipeError, match=r"mixup, cutmix: alpha is not between 0\.05 and 1\.0\. Use 0 for without\."):
        mix_images(images(2).float(), images(2).float(), draws(2), cutmix=alpha)


@pytest.mark.parametrize("name", ["padding", "brightness", "operations", "strength", "erasing"])
@pytest.mark.parametrize("value", [-1, 1 << 20])
def test_settings_out_of_their_range_are_refused(name: str, value: int) -> None:
    with pytest.raises(RecipeError, match=rf"^augmentation\.{name}: {value} is not between 0 and \d+\. Choose another"):
        AugmentationConfig(**{name: value})


def test_partners_are_a_permutation_of_the_dataset_in_every_epoch() -> None:
    epochs = [Draws(0, epoch, np.arange(50)).partners(50).indices for epoch in range(2)]
    assert [sorted(partners.tolist()) for partners in epochs] == [list(range(50))] * 2
    assert epochs[0].tolist() != epochs[1].tolist()
    assert Draws(0, 0, np.array([7])).partners(50).indices.tolist() == [epochs[0][7]]


def test_targets_are_shared_between_both_labels_and_smoothed() -> None:
    labels, others, shares = torch.tensor([0, 1]), torch.tensor([2, 1]), np.array([0.75, 0.5])
    assert soft_targets(labels, others, shares, 4).tolist() == [[0.75, 0, 0.25, 0], [0, 1, 0, 0]]
    smooth = soft_targets(labels, others, shares, 4, smoothing=0.1)
    torch.testing.assert_close(smooth[0], torch.tensor([0.7, 0.025, 0.25, 0.025]))


def test_normalised_images_have_mean_zero_and_deviation_one() -> None:
    batch = images(50)
    share = batch.double() / 255
    mean, deviation = share.mean((0, 2, 3)).tolist(), share.std((0, 2, 3), correction=0).tolist()
    found = normalise(batch, mean, deviation)
    torch.testing.assert_close(found.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(found.std((0, 2, 3), correction=0), torch.ones(3), atol=1e-5, rtol=0)
    assert torch.equal(normalise(batch[3], mean, deviation), found[3])
    with pytest.raises(RecipeError, match="normalise: 1 means and 3 deviations for 3 channels"):
        normalise(batch, [0.5], deviation)


def test_a_column_holds_a_number_for_each_image() -> None:
    assert column(np.array([1.5, 2]), CPU).shape == (2, 1, 1, 1)
