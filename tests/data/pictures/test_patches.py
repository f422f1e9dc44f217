"""Pictures of mixed sizes become one flat sequence of patches, and come back."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from bertsmith.data.pictures.patches import cut, paste
from bertsmith.errors import RecipeError

GRIDS = st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=6)


def picture(height: int, width: int, seed: int = 0, channels: int = 3) -> torch.Tensor:
    pixels = np.random.default_rng(seed).integers(0, 256, (channels, height, width), dtype=np.uint8)
    return torch.from_numpy(pixels)


@given(GRIDS, st.integers(1, 3), st.sampled_from([1, 3]))
def test_patches_are_those_of_one_picture_after_the_other(
    grids: list[tuple[int, int]], size: int, channels: int
) -> None:
    pictures = [picture(rows * size, columns * size, at, channels) for at, (rows, columns) in enumerate(grids)]
    found, at = cut(pictures, size), 0
    for number, ((rows, columns), one) in enumerate(zip(grids, pictures, strict=True)):
        assert found.bounds[number] == at
        for row in range(rows):
            for place in range(columns):
                square = one[:, row * size : (row + 1) * size, place * size : (place + 1) * size]
                assert torch.equal(found.values[at], square.flatten())  # as a convolution's weights lie
                assert (int(found.rows[at]), int(found.columns[at])) == (row, place)
                at += 1
    assert at == len(found.values) == found.bounds[-1]
    lengths = [rows * columns for rows, columns in grids]
    assert (found.max_length, found.equal_lengths) == (max(lengths), len(set(lengths)) == 1)
    for one, other in zip(pictures, paste(found, size), strict=True):
        assert torch.equal(one, other)


def test_a_batch_of_one_size_is_cut_as_its_pictures_are() -> None:
    batch = torch.stack([picture(4, 6, seed) for seed in range(5)])
    one, other = cut(batch, 2), cut(list(batch), 2)
    for name in ("values", "rows", "columns", "bounds"):
        assert torch.equal(getattr(one, name), getattr(other, name))


def test_a_matrix_product_with_patches_is_a_convolution() -> None:
    weights, batch = torch.randn(8, 3, 4, 4, dtype=torch.float64), torch.randn(2, 3, 8, 12, dtype=torch.float64)
    found = cut(batch, 4).values @ weights.flatten(1).T
    expected = torch.nn.functional.conv2d(batch, weights, stride=4).flatten(2).transpose(1, 2).flatten(0, 1)
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(("height", "width"), [(4, 5), (5, 4), (0, 4)])
def test_a_picture_that_is_no_whole_number_of_patches_is_refused(height: int, width: int) -> None:
    fact = f"patches: a picture of {width} x {height} pixels is no whole number of patches of 4 x 4"
    with pytest.raises(RecipeError, match=fact):
        cut([picture(4, 4), picture(height, width)], 4)


def test_no_pictures_are_refused() -> None:
    with pytest.raises(RecipeError, match="patches: there is no picture"):
        cut([], 4)
