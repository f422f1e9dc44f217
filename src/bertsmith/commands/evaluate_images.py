"""`evaluate` with a model of images: accuracy, classes, confusions and calibration on labelled images."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.progress import Progress

from bertsmith import files, terminal
from bertsmith.data.images.bad_images import ImageError
from bertsmith.data.images.decoding import DecodingConfig
from bertsmith.data.labelled.examples import Example
from bertsmith.errors import BertsmithError, FolderError, RecipeError, RunError, TextError
from bertsmith.inference.image_inputs import NamedImage, pixels_of
from bertsmith.inference.image_model import ImageModel
from bertsmith.inference.load import load_image_model
from bertsmith.inference.loaded_image_model import check_single_label
from bertsmith.insight import evaluation
from bertsmith.insight.thumbnail import thumbnail
from bertsmith.models.hf import folder as folders
from bertsmith.runs.image_test_set import ImageTestSet, read_test_set
from bertsmith.runs.label_names import match_labels, unknown_labels
from bertsmith.tasks.class_findings import ClassificationFindings
from bertsmith.tasks.findings import warnings
from bertsmith.train import hardware

CONSOLE = terminal.console()
RESULT = "result.json"
SETTINGS = ("data.path", "data.label", "data.root")


def evaluate_images(
    model: Path, data: Path, out: Path | None = None, *, overrides: Sequence[str] = ()
) -> dict[str, Any]:
    """The scores of a classifier of images on labelled ones; with an output folder also a page with the mistakes.

    `overrides` say how a table is read: data.path and data.label name its columns, paths begin at data.root.
    """
    given = _settings(overrides)
    if out is not None:
        check_folder(out)
    loaded = load_image_model(model)
    if loaded.network is None:
        raise FolderError(model, "has no classes", "Fine-tune it first, on labelled images")
    check_single_label(loaded, "evaluated on images")
    columns = given.get("data.path"), given.get("data.label")
    root = Path(given["data.root"]) if "data.root" in given else None
    found = read_test_set(data, loaded.config.channels, columns=columns, root=root)
    names = match_labels(loaded.labels, tuple(dict.fromkeys(found.labels)))
    if names is None:
        raise unknown_labels(loaded.labels, tuple(dict.fromkeys(found.labels)), data)
    true = [names[label] for label in found.labels]
    findings, left_out = _findings(loaded, found, true)
    if left_out == len(found.images):
        raise TextError(data, "holds no image that can be read", "Look at its files, or set data.root for a table")
    result = _result(findings, loaded, data, found, left_out)
    if out is not None:
        with files.explain_os_errors(out):
            out.mkdir(parents=True, exist_ok=True)
        files.write_json(out / RESULT, result)
        title = f"{evaluation.model_name(Path(loaded.path))} on {data.name}"
        evaluation.write(out, title, _with_thumbnails(result, found))
    return result


def _settings(overrides: Sequence[str]) -> dict[str, str]:
    """The settings of an evaluation by their keys."""
    given = {key.strip(): value.strip().strip("\"'") for key, _, value in (text.partition("=") for text in overrides)}
    for key in given.keys() - SETTINGS:
        raise RecipeError(key, "is no setting here", f"An evaluation on images has {', '.join(SETTINGS)}")
    return given


def check_folder(out: Path) -> None:
    """Refuse a folder in which another run's result or a model would be overwritten."""
    if out.exists() and not out.is_dir():
        raise RunError(out, "is a file", "Name a folder")
    for name, kind in (("recipe.toml", "a run"), (folders.CONFIG, "a model")):
        if (out / name).exists():
            raise RunError(out, f"is the folder of {kind}", "Choose another folder for the evaluation")


def _findings(loaded: ImageModel, found: ImageTestSet, true: Sequence[str]) -> tuple[dict[str, Any], int]:
    """Predictions compared with the true classes, and how many images could not be read."""
    findings, left_out = ClassificationFindings(loaded.labels, None), 0
    options: dict[str, Any] = {"top_k": len(loaded.labels), "on_error": _error}
    for image, label, prediction in zip(found.images, true, _stream(loaded, found, options), strict=True):
        if "error" in prediction:
            left_out += 1
        else:
            findings.add([_example(image, label)], [prediction])
    return findings.to_dict(), left_out


def _stream(loaded: ImageModel, found: ImageTestSet, options: dict[str, Any]) -> Iterator[Any]:
    """Predictions, with a progress bar on a terminal."""
    with Progress(console=CONSOLE, transient=True, disable=not CONSOLE.is_terminal) as progress:
        bar = progress.add_task("evaluating", total=len(found.images))
        for prediction in loaded.predict_stream(found.images, **options):
            yield prediction
            progress.advance(bar)


def _error(error: Exception) -> dict[str, str]:
    if not isinstance(error, TextError):  # of an image; others, such as a missing library, are of all
        raise error
    return {"error": error.fact}


def _example(image: NamedImage, label: str) -> Example:
    return Example(location=image.name, texts=(), label=label)


def _result(
    findings: dict[str, Any], loaded: ImageModel, data: Path, found: ImageTestSet, left_out: int
) -> dict[str, Any]:
    metrics = findings["metrics"]
    summary = {name: {"mean": one, "deviation": 0.0, "low": None, "high": None} for name, one in metrics.items()}
    lines = [f"{terminal.count_of(len(found.images), 'image')} of {len(set(found.labels))} classes"]
    lines += [f"left out: {found.bad}"] if found.bad else []
    lines += [f"left out: {terminal.count_of(left_out, 'image')} that could not be read"] if left_out else []
    for line in lines:
        CONSOLE.print(line, markup=False)
    protocol = {
        "model": loaded.path,
        "measured_on": str(data),
        "data": lines,
        "machine": hardware.describe(loaded.device),
    }
    return {
        "headline": "accuracy",
        "summary": summary,
        "details": findings,
        "warnings": warnings(findings, "accuracy", metrics["accuracy"]),
        "protocol": protocol,
    }


def _with_thumbnails(result: dict[str, Any], found: ImageTestSet) -> dict[str, Any]:
    """The same with the images of the mistakes, for the page alone."""
    images = {image.name: image for image in found.images}
    mistakes = []
    for one in result["details"].get("mistakes", ()):
        try:
            pixels = pixels_of(images[one["location"]], DecodingConfig())
        except (BertsmithError, ImageError, KeyError):  # it was there before
            mistakes.append(one)
            continue
        mistakes.append({**one, "image": thumbnail(pixels)})
    return {**result, "details": {**result["details"], "mistakes": mistakes}}
