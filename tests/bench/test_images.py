"""The bench of images: ratios are of our best to the best of the others, and tokens that padding adds are counted."""

from types import SimpleNamespace

import pytest
import torch
from bench.script import script

from bertsmith.models.vision_config import VisionConfig

script("record")
images = script("images")
SMALL = VisionConfig(image_size=112, patch_size=16, width=16, layers=1, heads=2, feed_forward=16)


def test_the_ratio_is_of_our_best_to_the_best_of_the_others() -> None:
    seconds = {"bertsmith": [2.0, 2.0], "bertsmith, dense": [1.0, 1.0], "a": [3.0, 3.0], "b": [1.5, 2.5]}
    found = images.figures(seconds, 8)
    assert found["bertsmith, dense"]["images_per_second"] == 8
    assert found["ratio"] == {"of": "bertsmith, dense", "to": "b", "median": 2.0, "least": 1.5}
    assert "ratio" not in images.figures({"bertsmith": [1.0]}, 8)


@pytest.mark.slow("measures")
def test_mixed_sizes_are_not_padded() -> None:
    found = images.mixed(SMALL, SimpleNamespace(batch=4, rounds=1, clock="wall"), torch.device("cpu"))
    assert found["padded"]["flat"] == 0 < found["padded"]["padded"]
    for part in ("inference", "training"):
        assert all(one["images_per_second"] > 0 for one in found[part].values())


def test_attention_is_measured_by_the_number_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(images, "LENGTHS", (5, 17))
    found = images.attention(SMALL, SimpleNamespace(rounds=1), torch.device("cpu"))
    assert {*found} == {"5", "17"}
    assert found["5"].keys() == {"tiled", "dense", "grouped"}
