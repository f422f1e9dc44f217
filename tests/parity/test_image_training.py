"""transformers opens what was trained on images, and predicts the same."""

from pathlib import Path

import pytest
import torch
from tasks.small_images import SETTINGS, pixels, save_folder

import bertsmith
from bertsmith.models.hf import image_classifiers
from bertsmith.models.image_classifier import Normalisation, class_logits, image_classifier

transformers = pytest.importorskip("transformers")


@pytest.mark.parametrize("member", ["vit-tiny", "deit-tiny"])
def test_transformers_predicts_the_same_of_a_trained_folder(member: str, tmp_path: Path) -> None:
    images = save_folder(tmp_path / "images", 12)
    overrides = [*SETTINGS, "train.compile=never", "train.precision=float32", "data.batch_size=4"]
    run = bertsmith.finetune(member, images, tmp_path / "run", steps=4, overrides=overrides)
    model = transformers.AutoModelForImageClassification.from_pretrained(run.folder / "model")
    assert model.config.id2label == {0: "bright", 1: "dark", 2: "middling"}
    found = image_classifiers.read(run.folder)
    own = image_classifier(found.config, 3).eval()
    own.load_state_dict(found.state_dict)
    normalisation = Normalisation(found.processor.mean, found.processor.std)
    mean, std = (torch.tensor(each)[:, None, None] for each in (normalisation.mean, normalisation.std))
    scaled = pixels(12) / 255
    with torch.inference_mode():
        theirs = model((scaled - mean) / std).logits
    torch.testing.assert_close(class_logits(own, scaled, normalisation), theirs, rtol=1e-4, atol=1e-5)
