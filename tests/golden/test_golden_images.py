"""The first losses of the tiny recipes of images on drawn shapes, kept as JSON and rewritten only on purpose.

BERTSMITH_GOLDEN=write python -m pytest tests/golden
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

import bertsmith
from bertsmith.data.images.shapes import write
from bertsmith.train import log

pytest.importorskip("PIL")
pytestmark = pytest.mark.slow("trains")

HERE = Path(__file__).parent
STEPS = 12
# The same numbers on every CPU; the teacher's own recipe is chosen by the size of the images.
SAME = ["train.precision=float32", "train.compile=never", "train.evaluations=1", "train.checkpoints=0"]
SMALL = [*SAME, "data.batch_size=32"]


@pytest.fixture(scope="module")
def shapes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shapes")
    write(folder, 20, 4)
    return folder


def losses(run: bertsmith.Run) -> dict[str, Any]:
    steps = [entry["loss"] for entry in log.read(run.folder / "seed-0" / log.NAME) if entry["kind"] == "step"]
    return {"losses": [round(loss, 5) for loss in steps], "accuracy": run.scores["accuracy"]}


@pytest.fixture(scope="module")
def teacher(shapes: Path, tmp_path_factory: pytest.TempPathFactory) -> bertsmith.Run:
    out = tmp_path_factory.mktemp("teacher") / "run"
    return bertsmith.finetune("convnet-small", shapes, out, steps=STEPS, overrides=[*SMALL, "network.width=16"])


@pytest.mark.parametrize("name", ["convnet", "shapes", "deit"])
def test_a_tiny_recipe_of_images_learns_as_it_always_has(
    name: str, shapes: Path, teacher: bertsmith.Run, tmp_path: Path
) -> None:
    if name == "convnet":
        run = teacher
    else:
        options: dict[str, Any] = {"teacher": teacher.folder} if name == "deit" else {}
        # A class that a teacher is in two minds about is another one on another CPU; its probabilities are not.
        soft = ["task.distillation=soft"] if name == "deit" else []
        overrides = [*SMALL, *soft]
        run = bertsmith.finetune(f"tiny/{name}", shapes, tmp_path / "run", steps=STEPS, overrides=overrides, **options)
    seen, kept = losses(run), HERE / f"images-{name}.json"
    if os.environ.get("BERTSMITH_GOLDEN") == "write":
        kept.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")
    golden = json.loads(kept.read_text(encoding="utf-8"))
    assert len(seen["losses"]) == STEPS
    assert seen["losses"] == pytest.approx(golden["losses"], abs=2e-2)
    assert seen["losses"][:6] == pytest.approx(golden["losses"][:6], abs=1e-3)


def test_the_recipe_of_digits_takes_the_files_of_mnist(shared: Path, tmp_path: Path) -> None:
    mnist = shared / "data" / "mnist"
    run = bertsmith.finetune("tiny/vit", mnist, tmp_path / "run", steps=2, overrides=[*SAME, "network.layers=1"])
    assert run.result["protocol"]["examples"] == {"train": 10_000, "dev": 2_000}


@pytest.mark.parametrize("recipe", ["vit-cifar10", "deit-cifar10", "convnet-cifar10"])
def test_the_recipes_of_cifar_take_its_files(recipe: str, shared: Path, tmp_path: Path) -> None:
    small = ["network.width=32"]
    if recipe != "convnet-cifar10":
        small += ["network.layers=1", "network.heads=2", "network.feed_forward=32"]
    run = bertsmith.finetune(
        recipe, shared / "data" / "cifar10", tmp_path / "run", steps=2, overrides=[*SAME, *small, "data.batch_size=16"]
    )
    assert run.result["protocol"]["examples"] == {"train": 1_000, "dev": 300}
    assert run.result["details"]["classes"][0]["label"] == "airplane"
