"""Models of images: every form of an image gives the same answer, in order, and what cannot be read is one line."""

import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from inference import photos
from models.test_vision import DISTILLED, SMALL, built
from models.test_vision_folder import COLOURED
from PIL import Image

import bertsmith
from bertsmith.commands.evaluate_images import evaluate_images
from bertsmith.errors import BertsmithError, FolderError, RecipeError, TextError
from bertsmith.inference.image_features import map_images
from bertsmith.inference.image_inputs import NamedImage
from bertsmith.inference.image_model import ImageModel
from bertsmith.inference.image_preparation import middle, prepare, resized
from bertsmith.inference.load import load_image_model, load_text_model
from bertsmith.models.hf import vision_folder
from bertsmith.models.patches import Patches


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    photos.images(folder / "images")
    photos.model(folder / "model")
    return folder


@pytest.fixture(scope="module")
def model(home: Path) -> ImageModel:
    loaded = bertsmith.load(home / "model", device="cpu")
    assert isinstance(loaded, ImageModel)
    return loaded


def test_every_form_of_an_image_gives_the_same_answer(model: ImageModel, home: Path) -> None:
    path = home / "images" / "cat.png"
    array = np.asarray(Image.open(path))
    tensor = torch.from_numpy(array.copy()).permute(2, 0, 1)
    forms: list[Any] = [str(path), path.read_bytes(), Image.open(path), array, tensor, tensor / 255, array / 255.0]
    forms += [bytearray(path.read_bytes()), np.moveaxis(array, -1, 0)]
    first = model.predict(path)
    for form in forms:
        found = model.predict(form)
        assert found.probabilities == first.probabilities
    for found in model.predict(forms):
        assert found.probabilities == pytest.approx(first.probabilities, abs=1e-6)
    assert [one["image"] for one in model.predict([path, array])] == [str(path), "image 2"]


def test_the_probabilities_are_those_of_the_network(model: ImageModel, home: Path) -> None:
    opened = vision_folder.read(home / "model")
    whole = np.asarray(Image.open(home / "images" / "cat.png").resize((24, 20), Image.Resampling.BICUBIC))
    middle_part = torch.from_numpy(whole[2:18, 4:20].copy()).permute(2, 0, 1).float() / 255
    mean, std = (torch.tensor(values)[:, None, None] for values in (COLOURED.mean, COLOURED.std))
    logits = opened.classifier()(Patches.from_images([(middle_part - mean) / std], 4)).mean
    found = model.predict(home / "images" / "cat.png", top_k=2)
    best = torch.softmax(logits, -1)[0].topk(2)
    assert list(found.probabilities) == [opened.labels[index] for index in best.indices.tolist()]
    assert list(found.probabilities.values()) == pytest.approx(best.values.tolist(), abs=1e-5)
    assert (found.label, found.probability) == next(iter(found.probabilities.items()))


def test_a_folder_is_its_images_in_order_and_neighbours_change_nothing(model: ImageModel, home: Path) -> None:
    folder = home / "images"
    for size in ("model", "own"):
        together = model.predict(folder, size=size)
        assert [Path(one.image).name for one in together] == ["cat.png", "dog.png"]
        alone = [model.predict(one.image, size=size) for one in together]
        for one, other in zip(together, alone, strict=True):
            assert one.probability == pytest.approx(other.probability, abs=1e-5)
    assert not np.allclose(model.probabilities(folder), model.probabilities(folder, size="own"), atol=1e-3)


def test_many_images_of_all_sizes_come_back_in_order(model: ImageModel) -> None:
    many = [photos.pixels(4 * (2 + at % 7), 4 * (3 + at % 5), at) for at in range(70)]  # three chunks
    rows = model.probabilities(many, size="own")
    for at in (0, 31, 32, 69):
        assert np.allclose(rows[at], model.probabilities(many[at], size="own")[0], atol=1e-5)


def test_embeddings_are_those_of_the_hidden_states(model: ImageModel, home: Path) -> None:
    image = photos.pixels(16, 16)
    patches = Patches.from_images([prepare(image.transpose(2, 0, 1), model.processor, "own")], 4)
    states = model.trunk.hidden_states(patches)
    first = model.embed(image, normalise=False, size="own")
    assert np.allclose(first, states[-1][0].detach().numpy(), atol=1e-5)
    chosen: dict[str, Any] = {"layers": (0, 2), "layer_join": "concatenate", "normalise": False, "size": "own"}
    mean = model.embed([image], pooling="mean", **chosen)
    expected = torch.cat([states[layer][1:].mean(0) for layer in (0, 2)]).detach().numpy()
    assert mean.shape == (1, 32)
    assert np.allclose(mean[0], expected, atol=1e-5)
    rows = model.embed(home / "images")
    assert np.allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    assert model.embed([]).shape == (0, 16)


def test_a_distilled_model_reads_both_tokens_and_pools_patches_alone(tmp_path: Path) -> None:
    photos.model(tmp_path, DISTILLED, distilled=True)
    loaded = load_image_model(tmp_path, "cpu")
    image = photos.pixels(16, 16)
    patches = Patches.from_images([prepare(image.transpose(2, 0, 1), loaded.processor, "own")], 4, 2)
    assert loaded.network is not None
    both = loaded.network(patches)
    assert both.distilled is not None
    expected = torch.softmax((both.classes + both.distilled) / 2, -1)[0].tolist()
    assert loaded.probabilities(image, size="own")[0].tolist() == pytest.approx(expected, abs=1e-5)
    mean = loaded.trunk(patches)[2:].mean(0).detach().numpy()
    assert np.allclose(loaded.embed(image, pooling="mean", normalise=False, size="own"), mean, atol=1e-5)
    assert "deit" in repr(loaded)


def test_a_model_saves_itself_with_labels_preparation_and_weights(
    model: ImageModel, home: Path, tmp_path: Path
) -> None:
    copy = load_image_model(model.save(tmp_path / "copy"), "cpu")
    path = home / "images" / "dog.png"
    assert copy.predict(path) == model.predict(path)
    assert (copy.labels, copy.processor, copy.config) == (model.labels, model.processor, model.config)
    assert repr(model).startswith("ImageModel(vit, 3 layers of width 16, ")


def test_grey_images_become_coloured_and_the_reverse(model: ImageModel, tmp_path: Path) -> None:
    grey = photos.pixels(20, 20)[..., 0]
    assert model.predict(grey).probabilities == model.predict(np.repeat(grey[..., None], 3, 2)).probabilities
    config = replace(SMALL, channels=1)
    vision_folder.write(tmp_path, config, {f"trunk.{name}": one for name, one in built(config).state_dict().items()})
    trunk = load_image_model(tmp_path, "cpu")
    assert trunk.embed(photos.pixels(20, 20)).shape == (16,)
    with pytest.raises(FolderError, match=r"was not fine-tuned to predict anything. Take its vectors: embed"):
        trunk.predict(grey)


def wide(folder: Path) -> bytes:
    """A PNG whose header names more pixels than are read."""
    data = bytearray((folder / "images" / "cat.png").read_bytes())
    data[16:24] = (20_000).to_bytes(4, "big") * 2
    data[29:33] = zlib.crc32(data[12:29]).to_bytes(4, "big")
    return bytes(data)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("missing.png", r"^missing.png: does not exist. Give an image"),
        ("https://x.org/cat.png", r"is an address, and no file. Download it"),
        (b"", r"^image: is no image of a known format"),
        (b"GIF89a", r"^image: is no image of a known format|cannot be decoded"),
        (["missing.png"], r"^missing.png: does not exist"),
        (7, r"^images: is 7. Give a path, bytes"),
        ([7], r"^image 1: is 7. Give a path, bytes"),
        ({"image": 1}, r"^images: is {'image': 1}"),
        (np.zeros((2, 8, 8)), r"^image: has the shape \(2, 8, 8\); give height, width and 1, 3 or 4 channels"),
        (np.zeros((8, 8, 3), np.int64), r"^image: holds torch.int64; give bytes"),
        (np.full((8, 8, 3), 2.0), r"^image: holds fractions outside of 0 to 1"),
        (np.full((8, 8, 3), np.nan), r"^image: holds fractions outside of 0 to 1"),
        (np.zeros((0, 8, 3), np.uint8), r"^image: has the shape \(0, 8, 3\)"),
        ("x" * 5000, r"is no path|does not exist|File name too long"),
    ],
)
def test_what_is_no_image_is_one_line(model: ImageModel, given: Any, message: str) -> None:
    with pytest.raises(TextError, match=message):
        model.predict(given)


def test_sizes_that_cannot_be_read_are_refused(model: ImageModel, home: Path) -> None:
    with pytest.raises(TextError, match=r"^image: has more than 64,000,000 pixels"):
        model.predict(wide(home))
    small = np.zeros((3, 8, 3), np.uint8)
    with pytest.raises(TextError, match=r"^image: has 8 x 3 pixels, and a patch 4 x 4. Make it larger"):
        model.predict(small, size="own")
    assert model.predict(small).label in model.labels
    with pytest.raises(TextError, match=r"which are 16,641 patches and more than 16,384. Scale it down"):
        model.predict(np.zeros((516, 516), np.uint8), size="own")


def test_an_empty_folder_is_refused(model: ImageModel, tmp_path: Path) -> None:
    with pytest.raises(TextError, match=r"holds no image. Give a folder of .bmp"):
        model.predict(tmp_path)


@pytest.mark.parametrize(
    ("call", "options", "message"),
    [
        ("predict", {"top_k": 0}, r"^top_k: is 0. Give 1 or more"),
        ("predict", {"size": "onw"}, r"^size: is 'onw'. Did you mean 'own'\?"),
        ("embed", {"pooling": "max"}, r"^pooling: is 'max'. Known: first, mean"),
        ("embed", {"layers": (9,)}, r"^layers: there is no 9. They go from 0, the patch embedding, to 3"),
        ("embed", {"layers": ()}, r"^layers: none is chosen"),
        ("embed", {"precision": "int8"}, r"^precision: is 'int8'. Known: auto, bfloat16, float32"),
    ],
)
def test_unknown_options_are_refused(model: ImageModel, call: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(RecipeError, match=message):
        getattr(model, call)(photos.pixels(8, 8), **options)


def test_bfloat16_changes_little(model: ImageModel) -> None:
    image = photos.pixels(16, 16)
    exact, rounded = (model.embed(image, precision=name) for name in ("float32", "bfloat16"))
    assert 0.99 < float(exact @ rounded) < 1


def test_an_error_can_become_a_result_in_its_place(model: ImageModel, home: Path) -> None:
    given = [NamedImage(name, home / "images" / name) for name in ("cat.png", "notes.txt", "dog.png")]
    found = list(model.predict_stream(given, on_error=lambda error: {"error": error.fact}))
    assert [one.get("label") in model.labels for one in found] == [True, False, True]
    assert found[1].error.startswith("is no image of a known format")
    with pytest.raises(TextError, match=r"notes.txt: is no image"):
        list(map_images(given, lambda _: [], model.config, model.processor, device=model.device))


def test_a_model_of_text_takes_no_images_and_the_reverse(home: Path, tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"is a model of images, and takes no text. Use predict, embed"):
        load_text_model(home / "model")
    with pytest.raises(RecipeError, match=r"backend: is 'onnx'. Models of images have 'torch' alone"):
        bertsmith.load(home / "model", backend="onnx")
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(FolderError, match=r"is a model of text, and takes no images. Give a folder of ViT or DeiT"):
        load_image_model(tmp_path)
    for load in (load_image_model, load_text_model, bertsmith.load):
        with pytest.raises(BertsmithError, match=r"folder: is ''. Give the path of a model folder"):
            load("")


def test_preparation_is_that_of_transformers() -> None:
    pixels = photos.pixels(20, 24).transpose(2, 0, 1)
    assert resized(pixels, COLOURED).tolist() == pixels[:, 2:18, 4:20].tolist()
    small = middle(pixels[:, :3, :6], (6, 4))
    assert small.shape == (3, 6, 4)
    assert not small[:, [0, 1, 5]].any()  # black, with one row more above than below
    assert (small[:, 2:5] == pixels[:, :3, 1:5]).all()


def test_a_convolutional_network_is_used_alike(home: Path, tmp_path: Path) -> None:
    loaded = bertsmith.load(photos.convnet(tmp_path / "convnet"), device="cpu")
    assert repr(loaded).startswith("ImageModel(convnet, width 16, ")
    image = photos.pixels(16, 16)
    tensor = prepare(image.transpose(2, 0, 1), loaded.processor)[None]
    expected = torch.softmax(loaded.network(tensor).mean, -1)[0].tolist()
    assert loaded.probabilities(image)[0].tolist() == pytest.approx(expected, abs=1e-5)
    many = [photos.pixels(8 + at % 3, 12, at) for at in range(10)]
    rows = loaded.embed(many, size="own")
    assert rows.shape == (10, 2 * 8 * 16)
    assert np.allclose(rows[4], loaded.embed(many[4], size="own"), atol=1e-5)
    copy = bertsmith.load(loaded.save(tmp_path / "copy"), device="cpu")
    assert copy.predict(home / "images") == loaded.predict(home / "images")
    with pytest.raises(TextError, match=r"^image: has 8 x 7 pixels, and the least is 8 x 8"):
        loaded.predict(photos.pixels(7, 8), size="own")
    with pytest.raises(RecipeError, match=r"a convolutional network has one vector for each image"):
        loaded.embed(image, pooling="mean")
    with pytest.raises(FolderError, match=r"is a convolutional network, and has no attention to look at"):
        loaded.inspect(image)
    with pytest.raises(FolderError, match=r"is a model of images, and takes no text"):
        load_text_model(tmp_path / "convnet")


@pytest.mark.gpu
def test_a_gpu_gives_what_a_cpu_gives(model: ImageModel, home: Path) -> None:
    fast = load_image_model(home / "model", "cuda")
    many = [photos.pixels(4 * (2 + at % 7), 4 * (3 + at % 5), at) for at in range(70)]
    for size in ("model", "own"):
        assert np.allclose(fast.probabilities(many, size=size), model.probabilities(many, size=size), atol=1e-3)
        for pooling in ("first", "mean"):
            options: dict[str, Any] = {"size": size, "pooling": pooling}
            rows = fast.embed(many, **options)
            assert (rows * model.embed(many, precision="float32", **options)).sum(1).min() > 0.999
    fast_page, page = (one.inspect(many[0], size="own").images[0] for one in (fast, model))
    assert np.allclose(fast_page.attention.weights, page.attention.weights, atol=1e-4)
    assert fast_page.attribution is not None
    assert fast_page.attribution.gap < 0.01


def test_the_labels_of_a_multi_label_model_have_probabilities_of_their_own(home: Path, tmp_path: Path) -> None:
    photos.model(tmp_path / "several", problem_type="multi_label_classification")
    several, plain = (bertsmith.load(path, device="cpu") for path in (tmp_path / "several", home / "model"))
    images = home / "images"
    shares = several.probabilities(images)
    odds = shares / (1 - shares)
    np.testing.assert_allclose(odds / odds.sum(1, keepdims=True), plain.probabilities(images), atol=1e-5)
    found = several.predict(images / "cat.png", top_k=1)
    assert found.labels == [name for name, share in zip(several.labels, shares[0], strict=True) if share >= 0.5]
    assert (len(found.probabilities), found.probability) == (1, pytest.approx(shares[0].max()))
    again = bertsmith.load(several.save(tmp_path / "copy"), device="cpu")
    assert again.problem == "multi_label"
    with pytest.raises(
        FolderError, match="was trained for multi-label, and only models of one class an image are insp"
    ):
        several.inspect(images / "cat.png")
    with pytest.raises(FolderError, match="only models of one class an image are evaluated"):
        evaluate_images(tmp_path / "several", images)


def test_a_regression_on_images_is_refused(home: Path, tmp_path: Path) -> None:
    photos.model(tmp_path / "number", problem_type="regression")
    with pytest.raises(FolderError, match=r"predicts numbers, which is not supported for images. Use embed"):
        bertsmith.load(tmp_path / "number", device="cpu").predict(home / "images" / "cat.png")


def test_classes_of_the_same_name_are_told_apart_by_their_ids(home: Path, tmp_path: Path) -> None:
    photos.model(tmp_path / "same", id2label={"0": "x", "1": "y", "2": "x"})
    model = bertsmith.load(tmp_path / "same", device="cpu")
    found = model.predict(home / "images" / "cat.png")
    assert {*found.probabilities} == {"x (0)", "y", "x (2)"}
    assert sum(found.probabilities.values()) == pytest.approx(1)
    kept = vision_folder.read(model.save(tmp_path / "copy"))
    assert kept.labels == ("x", "y", "x")
