"""The losses of word vectors on the text in the package, kept as JSON and rewritten only on purpose.

BERTSMITH_GOLDEN=write python -m pytest tests/golden/test_word2vec.py
"""

import json
import os
from importlib import resources
from pathlib import Path

import pytest

from bertsmith.commands import word2vec
from bertsmith.train import log

pytestmark = pytest.mark.slow("trains")

HERE = Path(__file__).parent
KINDS = ("skip-gram", "cbow")


@pytest.mark.parametrize("kind", KINDS)
def test_word_vectors_are_learnt_as_they_always_have_been(kind: str, tmp_path: Path) -> None:
    recipe = word2vec.build_recipe(
        tmp_path / "run", model={"kind": kind, "width": 50}, train={"epochs": 1.0, "checkpoints": 0, "device": "cpu"}
    )
    with resources.as_file(resources.files("bertsmith.text") / "sample" / "sample.txt.xz") as sample:
        word2vec.train_vectors([str(sample)], recipe, layout="lines")
    losses = [entry["loss"] for entry in log.read(tmp_path / "run" / log.NAME)]
    kept = HERE / f"word2vec-{kind}.json"
    if os.environ.get("BERTSMITH_GOLDEN") == "write":
        kept.write_text(json.dumps({"losses": [round(loss, 5) for loss in losses]}, indent=1) + "\n", encoding="utf-8")
    golden = json.loads(kept.read_text(encoding="utf-8"))["losses"]
    assert losses == pytest.approx(golden, abs=1e-3)
    assert losses[-1] < 0.8 * losses[0]
