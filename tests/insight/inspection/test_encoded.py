"""Arrays survive the way into JSON and back."""

import numpy as np
import pytest
from insight.inspection.small import stored

from bertsmith.insight.inspection import encoded


def test_bytes_are_decoded_as_a_browser_would() -> None:
    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    text = encoded.encode(values)
    assert np.array_equal(stored(text, 2, 3, 4), values)
    assert np.array_equal(encoded.decode(text, 2, 3, 4), values)
    assert encoded.encode(values[:, ::2]) == encoded.encode(values[:, ::2].copy())


def test_weights_are_within_half_a_step_and_in_a_long_text_within_a_step() -> None:
    dice = np.random.default_rng(0)
    for size, most in ((20, 0.51 / 255), (129, 1 / 255)):
        weights = dice.dirichlet(np.full(size, 0.05), (1, size)).astype(np.float32)
        back = encoded.attention_bytes(weights) / 255
        assert np.abs(back - weights).max() <= most + 1e-6
    assert (encoded.attention_bytes(weights)[weights < 0.999 / 255] == 0).all()


def test_what_is_no_number_is_zero() -> None:
    assert encoded.to_bytes(np.array([np.nan, -1, 2, np.inf], np.float32)).tolist() == [0, 0, 255, 255]
    assert encoded.number(float("nan")) is encoded.number(None) is None
    assert encoded.numbers([0.123456, 1e-9, 12345.6]) == [0.1235, 1e-9, 12350.0]


@pytest.mark.parametrize("size", [1, 5, 32, 33, 100])
def test_thumbnails_are_block_maxima_scaled_to_the_largest(size: int) -> None:
    weights = np.random.default_rng(size).random((2, 3, size, size)).astype(np.float32) / 4
    small = encoded.thumbnails(weights)
    side = min(size, 32)
    assert small.shape == (2, 3, side, side)
    assert (small.max((2, 3)) == 255).all()
    starts = [number * size // side for number in range(side)] + [size]
    block = weights[1, 2, starts[side - 1] :, : starts[1]].max() / weights[1, 2].max()
    assert abs(int(small[1, 2, -1, 0]) - 255 * block) <= 0.51


def test_a_row_of_zeros_stays_zero() -> None:
    assert encoded.scaled_bytes(np.zeros((1, 2, 2), np.float32)).max() == 0
