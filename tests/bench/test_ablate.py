"""An ablation evaluates every variant alike: mixed objectives by their masked part, averaged weights by the average."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import prepared

pytestmark = pytest.mark.slow("trains")
BENCH = Path(__file__).parents[2] / "bench"
TINY = "model.layers=1 model.width=32 model.heads=2 model.feed_forward=64 data.batch_tokens=512 data.max_length=32"
MIXED = "objective.kind=mixed objective.causal_share=0.125"


@pytest.mark.exhaustive
def test_variants_are_evaluated_on_the_same_masked_tokens(tmp_path: Path) -> None:
    data, out = prepared(tmp_path), tmp_path / "ablate.json"
    variants = ["", "train.average=0.5 train.average_decay=1", MIXED]
    command = [sys.executable, str(BENCH / "ablate.py"), "smith-base", str(data), *variants]
    command += ["--extent", "train.steps=6", "--base", TINY, "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    rows = json.loads(out.read_text())["rows"]
    assert [row["variant"] for row in rows] == variants
    assert all("next_token_loss" not in row for row in rows)
    assert rows[0]["tokens"] == rows[1]["tokens"]  # the same training
    assert rows[0]["masked_loss"] != rows[1]["masked_loss"]  # and another evaluation
