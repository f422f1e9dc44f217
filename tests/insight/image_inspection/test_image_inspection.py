"""Figures of an image: attention and rollout against plain references, classes by layer, completeness, and limits."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inference import photos
from models.test_masked_patches import FIXED, SIZE, decoder_of
from models.test_vision import DISTILLED, SMALL

from bertsmith.errors import BertsmithError, TextError
from bertsmith.inference.image_model import ImageModel
from bertsmith.inference.load import load_image_model
from bertsmith.insight.image_inspection import attention as attentions
from bertsmith.insight.image_inspection.attention import ImageAttention, block_rows
from bertsmith.insight.image_inspection.inspection import ImageInspection
from bertsmith.insight.inspection import encoded
from bertsmith.models.hf import vision_folder
from bertsmith.models.vision_transformer import ImageClassifier

GREY = np.full((16, 16, 3), 124, np.uint8)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ImageModel:
    """A DeiT with its two classifiers."""
    return load_image_model(photos.model(tmp_path_factory.mktemp("deit"), DISTILLED, distilled=True), "cpu")


@pytest.fixture(scope="module")
def found(model: ImageModel) -> ImageInspection:
    return model.inspect(photos.pixels(18, 27), size="own")


def stored(figures: dict[str, Any]) -> np.ndarray:
    """The weights as the page reads them."""
    shape = figures["heads"], figures["rows"], figures["tokens"]
    return np.stack([(encoded.decode(one, *shape) / 255) ** 2 for one in figures["weights"]])


def test_attention_is_that_of_the_network_and_of_the_page(found: ImageInspection) -> None:
    [one] = found.images
    assert one.attention.grid == (4, 6)
    assert one.image.pixels.shape == (3, 16, 24)
    weights = one.attention.weights
    assert weights.shape == (3, 2, 26, 26)
    assert np.allclose(weights.sum(-1), 1, atol=1e-5)
    maps = found.subject.trunk.attention_maps(one.image.patches(found.subject))
    assert np.allclose(weights, torch.stack([layer[0] for layer in maps]).detach().numpy(), atol=1e-6)
    figures = json.loads(found.json())["images"][0]["attention"]
    assert np.abs(stored(figures) - weights).max() <= 1 / 255


def test_rollout_is_the_product_of_the_mean_heads_with_the_residual(found: ImageInspection) -> None:
    [one] = found.images
    expected, product = [], np.eye(26)
    for layer in one.attention.weights:
        product = (0.5 * layer.mean(0) + 0.5 * np.eye(26)) @ product
        expected.append(product)
    assert np.allclose(one.attention.rollout, expected, atol=1e-5)
    figures = json.loads(found.json())["images"][0]["attention"]
    kept = (encoded.decode(figures["rollout"], 3, 26, 26) / 255) ** 2
    assert np.abs(kept - np.stack(expected)).max() <= 1 / 255


@pytest.mark.slow("imports transformers")
@pytest.mark.parametrize("kind", ["ViTForImageClassification", "DeiTForImageClassificationWithTeacher"])
def test_attention_and_classes_are_those_of_transformers(kind: str, tmp_path: Path) -> None:
    import transformers

    distilled = kind.startswith("DeiT")
    photos.model(tmp_path, DISTILLED if distilled else SMALL, distilled=distilled)
    reference = getattr(transformers, kind).from_pretrained(tmp_path, attn_implementation="eager").eval()
    [one] = load_image_model(tmp_path, "cpu").inspect(photos.pixels(30, 40)).images
    said = reference(one.image.values[None], output_attentions=True, output_hidden_states=True)
    true = torch.stack([layer[0] for layer in said.attentions]).detach().numpy()
    assert np.abs(one.attention.weights - true).max() < 1e-5
    assert np.abs(stored(one.attention.figures()) - true).max() <= 1 / 255
    assert one.classes is not None
    norm, heads = reference.base_model.layernorm, [reference.cls_classifier if distilled else reference.classifier]
    for layer, states in enumerate(said.hidden_states):
        shares = heads[0](norm(states)[0, 0]).softmax(-1).detach().numpy()
        assert np.allclose(one.classes.probabilities[0, layer], shares, atol=1e-5)
    assert np.allclose(one.classes.probabilities[-1, -1], said.logits[0].softmax(-1).detach().numpy(), atol=1e-5)


def test_the_last_layer_says_what_predict_says(found: ImageInspection, model: ImageModel) -> None:
    classes = found.images[0].classes
    assert classes is not None
    assert classes.names == ("class token", "distillation token", "both")
    expected = model.predict(photos.pixels(18, 27), size="own")
    assert classes.label == expected.label
    assert dict(classes.top(2, 3)) == pytest.approx(expected.probabilities, abs=1e-3)
    figures = classes.figures()
    assert figures["course"][2][-1] == pytest.approx(expected.probability, abs=1e-3)
    assert figures["layers"] == ["embeddings", "1", "2", "3"]


def test_attributions_are_complete_and_those_of_a_riemann_sum(found: ImageInspection) -> None:
    [one] = found.images
    attribution = one.attribution
    assert attribution is not None
    assert sum(attribution.scores) == pytest.approx(attribution.output - attribution.baseline, rel=0.01)
    assert attribution.gap < 0.01
    network = found.subject.classifier
    assert isinstance(network, ImageClassifier)
    label, patches = found.subject.labels.index(attribution.label), one.image.patches(found.subject)
    sums = torch.zeros(len(patches.pixels))
    for step in range(50):  # the middle of each of 50 parts of the path
        pixels = (patches.pixels * (step + 0.5) / 50).requires_grad_()
        shares = network(replace(patches, pixels=pixels)).mean[0].softmax(-1)[label]
        (gradient,) = torch.autograd.grad((shares / (1 - shares)).log(), pixels)
        sums += (gradient * patches.pixels).sum(-1) / 50
    assert attribution.scores == pytest.approx(sums.tolist(), abs=1e-3)


def test_large_networks_keep_mean_rows_of_blocks_of_patches(monkeypatch: pytest.MonkeyPatch) -> None:
    dice = np.random.default_rng(0)
    weights = dice.dirichlet(np.ones(16), (2, 3, 16)).astype(np.float32)  # one special token, 3 x 5 patches
    attention = ImageAttention(weights, 1, (3, 5))
    assert attention.block == 1
    monkeypatch.setattr(attentions, "MAX_WEIGHTS", 2 * 3 * 16 * 8)
    figures = attention.figures()
    assert (attention.block, figures["rows"]) == (2, 1 + 2 * 3)
    kept = stored(figures)
    patches = weights[:, :, 1:].reshape(2, 3, 3, 5, 16)
    assert np.abs(kept[:, :, 0] - weights[:, :, 0]).max() <= 1 / 255
    assert np.abs(kept[:, :, 1] - patches[:, :, :2, :2].mean((2, 3))).max() <= 1 / 255
    assert np.abs(kept[:, :, 6] - patches[:, :, 2, 4]).max() <= 1 / 255
    assert (block_rows(weights[0], 1, (3, 5), 1) == weights[0]).all()


def test_a_network_without_classes_shows_attention_alone(tmp_path: Path) -> None:
    state = {f"trunk.{name}": one for name, one in photos.built(SMALL).state_dict().items()}
    vision_folder.write(tmp_path, SMALL, state)
    found = load_image_model(tmp_path, "cpu").inspect(GREY)
    assert found.images[0].classes is None
    assert found.images[0].attribution is None
    assert found.summary() == [f"{tmp_path.name}: image, 16 patches of 4 x 4 pixels"]


def test_a_masked_autoencoder_shows_its_reconstruction(tmp_path: Path) -> None:
    state = {f"trunk.{name}": one for name, one in photos.built(FIXED).state_dict().items()}
    state |= {f"decoder.{name}": one for name, one in decoder_of().state_dict().items()}
    vision_folder.write(tmp_path / "mae", FIXED, state, decoder=SIZE)
    model = load_image_model(tmp_path / "mae", "cpu")
    [one] = model.inspect(photos.pixels(16, 24), size="own").images
    assert one.image.reconstruction is not None
    masked, rebuilt, original = one.image.reconstruction
    assert (original == one.image.pixels).all()
    seen = (masked == original).all(0)
    assert 0.2 < seen.mean() < 0.3
    assert (rebuilt == original)[:, seen].all()
    assert len(one.figures()["reconstruction"]) == 3
    again = load_image_model(model.save(tmp_path / "copy"), "cpu")
    assert np.array_equal(again.inspect(photos.pixels(16, 24), size="own").images[0].image.reconstruction[1], rebuilt)


def test_without_attributions_there_are_none(model: ImageModel) -> None:
    assert model.inspect(GREY, attribute=False).images[0].attribution is None


def test_names_and_labels_cannot_end_the_script(tmp_path: Path) -> None:
    labels = ("</script><script>alert(1)</script>", "dog", "bird")
    config = SMALL
    network = ImageClassifier(photos.built(config), 3)
    vision_folder.write(tmp_path, config, network.state_dict(), labels)
    html = load_image_model(tmp_path, "cpu").inspect(GREY).page()
    assert html.count("</script>") == 2
    assert "default-src 'none'" in html
    assert "https://" not in html


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        ([], {}, r"images: are 0, and a page shows 1 to 12"),
        (np.zeros((160, 160), np.uint8), {"size": "own"}, r"has 1,602 patches and special tokens, and a page shows"),
        (GREY, {"size": "huge"}, r"size: is 'huge'. Known: model, own"),
    ],
)
def test_what_a_page_cannot_show_is_refused(model: ImageModel, given: Any, options: Any, message: str) -> None:
    with pytest.raises(BertsmithError, match=message):
        model.inspect(given, **options)


def test_a_file_of_another_ending_is_refused(found: ImageInspection, tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"has the unknown ending '.png'. Use .html or .json"):
        found.save(tmp_path / "inside.png")
    assert found.save(tmp_path / "new" / "inside.json").read_text() == found.json()
    assert found._repr_html_().startswith('<iframe sandbox="allow-scripts"')
