"""The first losses of the tiny masked autoencoder, kept as JSON and rewritten only on purpose.

BERTSMITH_GOLDEN=write python -m pytest tests/golden/test_mae.py
"""

import json
import os
from pathlib import Path

import pytest
from data.images.gratings import write_gratings

from bertsmith.commands import pretrain_images
from bertsmith.train import log

pytestmark = pytest.mark.slow("trains")

HERE = Path(__file__).parent
STEPS = 16


def test_the_tiny_masked_autoencoder_learns_as_it_always_has(tmp_path: Path) -> None:
    images = write_gratings(tmp_path / "images", 200)
    changes = [f"train.steps={STEPS}", "data.batch_size=32", "train.evaluations=0", "train.checkpoints=0"]
    figures = pretrain_images.pretrain(pretrain_images.read_recipe("tiny/mae", images, tmp_path / "run", changes))
    steps = [entry["loss"] for entry in log.read(tmp_path / "run" / log.NAME) if entry["kind"] == "step"]
    seen = {"losses": [round(loss, 5) for loss in steps], "valid": round(figures["loss"], 5)}
    kept = HERE / "mae.json"
    if os.environ.get("BERTSMITH_GOLDEN") == "write":
        kept.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")
    golden = json.loads(kept.read_text(encoding="utf-8"))
    assert steps == pytest.approx(golden["losses"], abs=2e-2)  # another processor adds up in another order
    assert steps[:6] == pytest.approx(golden["losses"][:6], abs=1e-3)
    assert figures["loss"] == pytest.approx(golden["valid"], abs=2e-2)
    assert golden["valid"] < golden["losses"][0] - 0.02
