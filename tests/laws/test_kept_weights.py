"""Law: the weights that a run keeps are those that were measured, also averaged ones of tied parameters."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from laws.objectives import FIRST, Case

from bertsmith.commands import pretrain
from bertsmith.train import checkpoint
from bertsmith.train.average import averaged_weights
from bertsmith.train.trainer import Trainer

pytestmark = pytest.mark.slow("trains")

AVERAGED = ("train.average=0.9", "train.average_decay=1.0", "train.evaluations=4", "train.keep_checkpoints=9")


@pytest.mark.exhaustive(suite=3)
@pytest.mark.parametrize("case", FIRST, ids=str)
def test_the_weights_of_the_best_validation_give_its_figures_again(
    case: Case, data: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, load = [], Trainer.load_best

    def load_and_measure(self: Trainer) -> None:
        load(self)
        self.objective.eval()
        with torch.inference_mode():
            seen.append((self.state.best_metrics, self.compute_metrics(), self))

    monkeypatch.setattr(Trainer, "load_best", load_and_measure)
    recipe = case.recipe(data(case.kind), tmp_path, *AVERAGED, "keep=best", "optimizer.learning_rate=0.02")
    pretrain.pretrain(recipe)
    [(best, again, trainer)] = seen
    assert trainer.state.step > best["step"] or trainer.train_step.average.count > 1
    assert {name: best[name] for name in again} == again
    kept = {name: weight.clone() for name, weight in trainer.objective.state_dict().items()}
    found = checkpoint.load_newest(recipe.out / "checkpoints")
    assert found is not None
    tables = found[0].tensors
    for name, weight in tables["best_model"].items():
        assert torch.equal(weight, kept[name]), name
    trainer.objective.load_state_dict(averaged_weights(trainer.objective, tables))
    for name, weight in trainer.objective.named_parameters():
        assert torch.equal(weight, tables["average"][name]), name
