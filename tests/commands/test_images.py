"""`predict`, `embed`, `search` and `evaluate` with a model of images: files, folders, pages, and what is refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from inference import photos
from PIL import Image
from typer.testing import CliRunner

import bertsmith
from bertsmith.cli import app
from bertsmith.commands import embed, evaluate_images, images
from bertsmith.commands import predict as predicting
from bertsmith.errors import BertsmithError, FolderError, RecipeError, RunError, TextError
from bertsmith.inference.image_model import ImageModel


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("photos")
    photos.images(folder / "images")
    photos.model(folder / "model")
    return folder


@pytest.fixture(scope="module")
def model(home: Path) -> ImageModel:
    return bertsmith.load(home / "model", device="cpu")


def invoked(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(one) for one in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def test_predict_writes_a_line_for_each_image(home: Path, model: ImageModel, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in invoked("predict", home / "model", home / "images").splitlines()]
    expected = model.predict(home / "images")
    assert [row["image"] for row in rows] == [one.image for one in expected]
    for row, one in zip(rows, expected, strict=True):
        assert row["label"] == one.label
        assert row["probabilities"] == pytest.approx(one.probabilities)
    invoked("predict", home / "model", home / "images", "--size", "own", "--out", tmp_path / "own.jsonl")
    own = [json.loads(line) for line in (tmp_path / "own.jsonl").read_text().splitlines()]
    assert [one["probability"] for one in own] == pytest.approx(
        [one.probability for one in model.predict(home / "images", size="own")]
    )
    assert own != rows


def test_predict_resumes_after_the_rows_that_are_there(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(images, "BATCH_IMAGES", 1)
    out, whole = tmp_path / "rows.jsonl", ImageModel.predict_stream
    calls: list[int] = []

    def stops(self: ImageModel, given: list, **options: object) -> object:
        calls.append(len(given))
        if len(calls) == 2:
            raise RunError("test", "a kill")
        return whole(self, given, **options)

    with monkeypatch.context() as patched:
        patched.setattr(ImageModel, "predict_stream", stops)
        with pytest.raises(RunError, match="a kill"):
            predicting.predict(home / "model", [str(home / "images")], out=out)
    predicting.predict(home / "model", [str(home / "images")], out=out)
    assert "resuming after 1 rows" in capsys.readouterr().err
    assert len(out.read_text().splitlines()) == 2


def test_a_broken_image_in_a_folder_has_its_error_and_a_named_one_is_refused(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos.images(tmp_path / "mixed")
    (tmp_path / "mixed" / "broken.png").write_bytes(b"none")
    predicting.predict(home / "model", [str(tmp_path / "mixed")], out=None)
    told = capsys.readouterr()
    rows = [json.loads(line) for line in told.out.splitlines()]
    assert [sorted(row) for row in rows[:2]] == [["error", "image"], ["image", "label", "probabilities", "probability"]]
    assert "1 image could not be read" in told.err
    with pytest.raises(TextError, match=r"broken.png: is no image of a known format"):
        predicting.predict(home / "model", [str(tmp_path / "mixed" / "broken.png")], out=None)
    with pytest.raises(TextError, match=r"broken.png: is no image of a known format"):
        embed.embed(home / "model", [str(tmp_path / "mixed")], tmp_path / "vectors.npy")


def test_embed_writes_vectors_with_the_paths(home: Path, model: ImageModel, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    expected = model.embed(home / "images", pooling="mean")
    told = invoked("embed", home / "model", home / "images", "--pooling", "mean", "--out", tmp_path / "v.npy")
    assert "2 vectors of 16 dimensions" in told
    assert np.allclose(np.load(tmp_path / "v.npy"), expected, atol=1e-5)
    embed.embed(home / "model", [str(home / "images")], tmp_path / "v.parquet", pooling="mean")
    table = parquet.read_table(tmp_path / "v.parquet")
    assert [Path(name).name for name in table["image"].to_pylist()] == ["cat.png", "dog.png"]
    assert np.allclose(np.stack(table["vector"].to_pylist()), expected, atol=1e-5)


def test_search_finds_the_image_itself_first_and_writes_a_page(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = photos.images(tmp_path / "<b>corpus</b>")
    (folder / "broken.jpg").write_bytes(b"none")
    query, page = str(home / "images" / "dog.png"), tmp_path / "found.html"
    invoked("search", home / "model", query, "--corpus", folder, "--out", page)
    embed.search(home / "model", [query], [str(folder)], top_k=5, as_json=True)
    told = capsys.readouterr()
    [found] = map(json.loads, told.out.splitlines())
    assert [Path(one["image"]).name for one in found["neighbours"]] == ["dog.png", "cat.png"]
    assert found["neighbours"][0]["cosine"] == pytest.approx(1, abs=1e-5)
    assert "1 image could not be read" in told.err
    html = page.read_text()
    assert html.count('src="data:image/jpeg;base64,') == 3
    assert "&lt;b&gt;corpus" in html
    assert "<b>corpus" not in html
    assert "default-src 'none'" in html


@pytest.fixture
def labelled(tmp_path: Path) -> Path:
    """Images by class, whose names are written in another way than the model has them."""
    for at, name in enumerate(("Cat", "Dog", "Cat", "Bird", "Dog", "Cat")):
        (tmp_path / "labelled" / "test" / name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(photos.pixels(20 + at, 24, at)).save(tmp_path / "labelled" / "test" / name / f"{at}.png")
    (tmp_path / "labelled" / "test" / "Cat" / "broken.png").write_bytes(b"none")
    return tmp_path / "labelled"


def test_evaluate_counts_what_predict_says(home: Path, model: ImageModel, labelled: Path, tmp_path: Path) -> None:
    out = tmp_path / "evaluated"
    told = invoked("evaluate", home / "model", labelled, "--out", out)
    files = [path for path in sorted(labelled.rglob("*.png")) if path.name != "broken.png"]
    right = [model.predict(path).label == path.parent.name.lower() for path in files]
    result = json.loads((out / "result.json").read_text())
    assert result["summary"]["accuracy"]["mean"] == pytest.approx(sum(right) / 6)
    assert sum(map(sum, result["details"]["confusion"]["counts"])) == 6
    assert "left out: 1 image that could not be read" in told
    assert result["details"]["calibration"]["error_before"] > 0
    html = (out / "report.html").read_text()
    assert html.count('src="data:image/jpeg;base64,') == 6 - sum(right) == len(result["details"]["mistakes"])
    assert "data:image" not in (out / "result.json").read_text()


def test_evaluate_reads_a_table_and_indices_as_labels(home: Path, labelled: Path, model: ImageModel) -> None:
    rows = [f"test/{path.parent.name}/{path.name},{('Cat', 'Dog', 'Bird').index(path.parent.name)}"
            for path in sorted(labelled.rglob("?.png"))]  # fmt: skip
    (labelled / "test.csv").write_text("\n".join(["path,label", *rows]) + "\n")
    by_table = evaluate_images.evaluate_images(home / "model", labelled / "test.csv")
    assert by_table["summary"] == evaluate_images.evaluate_images(home / "model", labelled)["summary"]


def test_inspect_writes_a_page_and_its_figures(home: Path, tmp_path: Path) -> None:
    image, page = home / "images" / "cat.png", tmp_path / "inside.html"
    told = invoked("inspect", home / "model", image, "--out", page, "--json", "--size", "own")
    assert "cat.png, 70 patches of 4 x 4 pixels" in told
    assert f"written {page}" in told
    figures = json.loads((tmp_path / "inside.json").read_text())
    assert [one["grid"] for one in figures["images"]] == [[10, 7]]
    assert page.read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["predict", "MODEL", "--text", "hello"], r"--text: is for models of text, and .* reads images"),
        (["predict", "MODEL"], r"images: none is named. Name image files, or a folder"),
        (["predict", "MODEL", "mising.png"], r"mising.png: does not exist"),
        (
            ["embed", "MODEL", "IMAGES", "--pooling", "last", "--out", "v.npy"],
            r"pooling: is 'last'. Known: first, mean",
        ),
        (["embed", "MODEL", "IMAGES", "--out", "v.csv"], r"v.csv: has the unknown ending '.csv'"),
        (["search", "MODEL", "--corpus", "IMAGES"], r"search: there is no image to search for"),
        (["evaluate", "MODEL", "nowhere"], r"nowhere: does not exist. Name a folder of images by class"),
        (["evaluate", "MODEL", "IMAGES"], r"images: holds no labelled image. Give a folder with a folder for each"),
        (["evaluate", "MODEL", "IMAGES", "data.size=8"], r"data.size: is no setting here. An evaluation on images has"),
        (["evaluate", "MODEL", "IMAGES", "--out", "MODEL"], r"is the folder of a model. Choose another"),
        (["fill", "MODEL", "a [MASK]"], r"is a model of images, and takes no text"),
        (["inspect", "MODEL", "--out", "p.html"], r"images: none is named"),
        (["inspect", "MODEL", "IMAGES", "--out", "p.png"], r"p.png: has the unknown ending '.png'. Use .html or .json"),
        (["inspect", "MODEL", "IMAGES", "--text", "x", "--out", "p.html"], r"--text: is for models of text, and"),
        (["inspect", "MODEL", "MODEL", "--out", "p.html"], r"inspect: a page shows one model of images. Name it first"),
        (["inspect", "TEXT", "CAT", "--out", "p.html"], r"cat.png: is an image, and all models here read text"),
        (["inspect", "TEXT", "--size", "own", "--out", "p.html"], r"--size: is for images, and the model reads text"),
        (["predict", "TEXT", "CAT", "--size", "own"], r"--size: is for images, and .* reads text"),
        (["predict", "TEXT-gone", "IMAGES"], r"-gone: is missing"),
        (["embed", "TEXT-gone", "CAT", "--out", "v.npy"], r"-gone: is missing"),
        (["predict", "TEXT", "IMAGES"], r"images: is of images, and the model reads text. Take a model folder of ViT"),
    ],
)
def test_what_does_not_fit_is_one_line(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "config.json").write_text('{"model_type": "bert"}')
    names = {"MODEL": str(home / "model"), "IMAGES": str(home / "images"), "TEXT": str(tmp_path / "text")}
    names["CAT"] = str(home / "images" / "cat.png")
    result = CliRunner().invoke(app, [names.get(one, one) for one in arguments])
    assert isinstance(result.exception, BertsmithError), result.output
    with pytest.raises(BertsmithError, match=message):
        raise result.exception


def test_unknown_classes_and_networks_without_classes_are_refused(home: Path, tmp_path: Path) -> None:
    for name in ("ox", "elk"):
        (tmp_path / "zoo" / name).mkdir(parents=True)
        Image.fromarray(photos.pixels(8, 8)).save(tmp_path / "zoo" / name / "one.png")
    with pytest.raises(
        TextError, match=r"none of its labels \(elk, ox\) is one that the model knows \(bird, cat, dog\)"
    ):
        evaluate_images.evaluate_images(home / "model", tmp_path / "zoo")
    (tmp_path / "mixed").mkdir()
    with pytest.raises(RecipeError, match=r"--out: is for images"):
        embed.search(tmp_path / "mixed", ["a"], ["b"], top_k=1, as_json=False, out=tmp_path / "x.html")
    weights = bertsmith.load(home / "model").trunk.state_dict()
    from bertsmith.models.hf import vision_folder

    config = vision_folder.read(home / "model").config
    vision_folder.write(tmp_path / "trunk", config, {f"trunk.{name}": one for name, one in weights.items()})
    with pytest.raises(FolderError, match=r"trunk: has no classes. Use: bertsmith embed"):
        predicting.predict(tmp_path / "trunk", [str(home / "images")], out=None)
    with pytest.raises(FolderError, match=r"trunk: has no classes. Fine-tune it first"):
        evaluate_images.evaluate_images(tmp_path / "trunk", tmp_path / "zoo")
