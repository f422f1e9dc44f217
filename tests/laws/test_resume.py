"""Law: a run that is broken off resumes with the same bits, whatever the number of its workers."""

from collections.abc import Callable
from pathlib import Path

import pytest
from laws.objectives import FIRST, Case
from tiny import assert_same, fail_at

from bertsmith.commands import pretrain
from bertsmith.train import checkpoint, log

pytestmark = pytest.mark.slow("trains")

CHANGED = {
    "masked_lm": ["train.gradient_accumulation=2"],
    "mixed": ["objective.pairs=nsp", "objective.causal_share=0.125"],
}


@pytest.mark.exhaustive(suite=2)
@pytest.mark.parametrize("case", FIRST, ids=str)
def test_a_broken_run_resumes_exactly_with_more_workers(
    case: Case, data: Callable[[str], Path], tmp_path: Path
) -> None:
    """With validations in between; streams also over the end of an epoch, where their states begin anew."""
    text, changes = data(case.kind), CHANGED.get(case.objective, [])
    whole = case.recipe(text, tmp_path / "whole", *changes, dropout=0.1)
    broken = case.recipe(text, tmp_path / "broken", *changes, "data.workers=2", dropout=0.1)
    pretrain.pretrain(whole)
    for step in (7, 21):
        fail_at(step, broken)
    pretrain.pretrain(broken)
    assert_same(whole.out, broken.out)
    one, other = (
        [line for line in log.read(out / log.NAME) if line["kind"] == "validation"] for out in (whole.out, broken.out)
    )
    assert one == other
    found = checkpoint.load_newest(whole.out / "checkpoints")
    assert found is not None
    epochs = case.built(text)[1].epoch(found[0].state["position"])
    assert epochs > 1 or not case.stateful
