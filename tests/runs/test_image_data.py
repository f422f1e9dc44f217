"""The images that are held out of training, where there are no others to evaluate on."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from tasks.small_images import CLASSES, labelled, pixels

from bertsmith.runs.image_data import split


@pytest.mark.parametrize("sizes", [(15, 14, 0), (40, 40, 40), (100, 10, 10), (2, 2, 30)])
def test_the_images_that_are_held_out_are_of_all_classes_in_proportion(sizes: tuple[int, ...]) -> None:
    """Images of a folder come class by class."""
    labels = np.repeat(np.arange(len(CLASSES)), sizes)
    whole = replace(labelled(pixels(len(labels))), labels=labels)
    train, dev = split(whole)
    assert len(dev) == max(1, len(labels) // 10)
    assert sorted([*train.locations, *dev.locations]) == sorted(whole.locations)
    held_out = Counter(dev.labels.tolist())
    for label, size in enumerate(sizes):
        assert abs(held_out[label] - size * len(dev) / len(labels)) < 1
        assert held_out[label] < max(1, size), "a class is never held out as a whole"
