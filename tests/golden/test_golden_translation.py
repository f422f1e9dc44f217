"""The losses of the tiny translators, kept as JSON and rewritten only on purpose; and that they make no mistake.

BERTSMITH_GOLDEN=write python -m pytest tests/golden
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from letters import letters

import bertsmith
from bertsmith.runs import finetuning, task_recipe
from bertsmith.train import log

pytestmark = pytest.mark.slow("trains")

HERE = Path(__file__).parent
STEPS = 40  # of which the losses are kept
NETWORKS = {"transformer": "transformer-tiny", "seq2seq": "lstm-attention"}


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", NETWORKS)
def test_letters_are_learnt_without_a_mistake_as_they_always_were(name: str, tmp_path: Path) -> None:
    path = HERE.parents[1] / "src" / "bertsmith" / "recipes" / "tiny" / f"{name}.toml"
    changes = ["train.device=cpu", "data.workers=1"]
    data, out = letters(tmp_path / "data"), tmp_path / "run"
    result = finetuning.finetune(
        task_recipe.build_recipe(path, data, out, dev=None, task=None, seeds=1, overrides=changes)
    )
    entries = [entry for entry in log.read(out / "seed-0" / log.NAME) if entry["kind"] == "step"]
    losses = [entry["loss"] for entry in entries]
    kept = HERE / f"{name}.json"
    if os.environ.get("BERTSMITH_GOLDEN") == "write":
        seen = {"losses": [round(loss, 5) for loss in losses[:STEPS]]}
        kept.write_text(json.dumps(seen, indent=1) + "\n", encoding="utf-8")
    golden = json.loads(kept.read_text(encoding="utf-8"))["losses"]
    assert losses[:10] == pytest.approx(golden[:10], abs=1e-3)
    # Another processor adds up in another order; early on that is far less than a change of the maths would be.
    assert losses[:STEPS] == pytest.approx(golden, abs=5e-2)
    figures = {name: found["mean"] for name, found in result["summary"].items()}
    assert figures["exact"] == 1.0
    assert figures["bleu"] == pytest.approx(100)
    if name == "transformer":
        assert figures["loss"] < 0.2  # of what was smoothed while it was learnt, and is not when it is measured
    model = bertsmith.load(out / "model")
    assert model.translate(["back a b c d", "", "same e d c"]) == ["d c b a", "", "e d c"]
    assert f"# A {NETWORKS[name]} fine-tuned to write" in (out / "model" / "README.md").read_text()
    if name == "seq2seq":  # what is said from the last to the first is looked at from the last to the first
        found = model.translate("back a b c d", full=True, num_beams=1)
        looks = model.align(found)
        assert looks.source == ["back", "a", "b", "c", "d", "[SEP]"]
        assert looks.target[:4] == ["d", "c", "b", "a"]
        assert np.argmax(looks.weights[:4], 1).tolist() == [4, 3, 2, 1]
