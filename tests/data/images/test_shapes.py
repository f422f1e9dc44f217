"""Drawn shapes are the same for everybody, and differ from each other; PNG files hold what was put into them."""

import io
from pathlib import Path

import numpy as np
import pytest

from bertsmith.data.images import reader
from bertsmith.data.images.png import data_uri, encode
from bertsmith.data.images.shapes import CONTRAST, SHAPES, SIDE, draw, write

Image = pytest.importorskip("PIL.Image")


@pytest.mark.parametrize("channels", [1, 3])
def test_a_png_file_holds_the_pixels(channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (channels, 5, 7)).astype(np.uint8)
    with Image.open(io.BytesIO(encode(pixels))) as image:
        assert image.mode == ("L" if channels == 1 else "RGB")
        assert np.array_equal(np.asarray(image).reshape(5, 7, channels).transpose(2, 0, 1), pixels)


def test_an_image_of_a_page_is_small() -> None:
    large = np.zeros((3, 400, 200), np.uint8)
    assert data_uri(large) == data_uri(np.zeros((3, 80, 40), np.uint8))


@pytest.mark.parametrize("name", SHAPES)
def test_a_shape_is_a_function_of_seed_and_number(name: str) -> None:
    one = draw(name, 0, 7)
    assert (one.shape, one.dtype) == ((3, SIDE, SIDE), np.uint8)
    assert np.array_equal(one, draw(name, 0, 7))
    assert not np.array_equal(one, draw(name, 0, 8))
    assert not np.array_equal(one, draw(name, 1, 7))


def test_shape_and_ground_differ_in_brightness() -> None:
    for number in range(20):
        image = draw("circle", 0, number).astype(float).mean(0)
        ground = np.concatenate([image[0], image[-1]]).mean()
        assert np.abs(image - ground).max() > CONTRAST / 2


def test_a_folder_of_shapes_has_both_parts(tmp_path: Path) -> None:
    write(tmp_path, 2, 1)
    train = reader.read(tmp_path)
    test = reader.read(tmp_path, "test", classes=train.classes)
    assert train.classes == SHAPES
    assert (len(train), len(test)) == (16, 8)
    assert np.array_equal(test.images[0].numpy(), draw("circle", 0, 0))
