"""The average of the last weights: what it is, that training does not notice it, and that it survives a stop."""

from pathlib import Path

import pytest
import torch
from tiny import assert_same, fail_at, losses, prepared, recipe, weights
from torch import nn

from bertsmith import config
from bertsmith.commands import pretrain
from bertsmith.errors import RecipeError
from bertsmith.models.hf import folder as folders
from bertsmith.recipe import Recipe
from bertsmith.train import checkpoint, log
from bertsmith.train.average import WeightAverage

pytestmark = pytest.mark.slow("trains")

AVERAGED = ("train.average=0.4", "train.average_decay=0.75", "train.evaluations=10")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def averaged(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose last sixteen of forty updates are averaged."""
    out = tmp_path_factory.mktemp("runs") / "averaged"
    pretrain.pretrain(recipe(data, out, *AVERAGED))
    return out


def table(out: Path, name: str = "average") -> dict[str, torch.Tensor]:
    found = checkpoint.load_newest(out / "checkpoints")
    assert found is not None
    return found[0].tensors.get(name, {})


def walk(decay: float, share: float = 0.5, updates: int = 8) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """The average after a run, and the weight after each update."""
    module = nn.Linear(3, 2, bias=False)
    average, seen = WeightAverage(module, share, decay), []
    for number in range(1, updates + 1):
        nn.init.normal_(module.weight, generator=torch.Generator().manual_seed(number))
        seen.append(module.weight.detach().clone())
        average.update(number / updates)
    return average.weights["weight"], seen


def test_with_a_decay_of_one_it_is_the_mean_of_the_last_share() -> None:
    average, seen = walk(1.0)  # updates 4 to 8: half of the run is done after the fourth
    torch.testing.assert_close(average, torch.stack(seen[3:]).mean(0))


def test_it_is_a_mean_at_first_and_then_an_exponential_moving_average() -> None:
    average, seen = walk(0.75, share=1.0)
    expected = torch.stack(seen[:4]).mean(0)  # 1 / (1 - 0.75)
    for weight in seen[4:]:
        expected = 0.75 * expected + 0.25 * weight
    torch.testing.assert_close(average, expected)


def test_the_own_weights_come_back_bit_by_bit_even_after_an_error() -> None:
    module = nn.Linear(3, 2)
    average = WeightAverage(module, 1.0, 0.9)
    average.update(1.0)
    address = module.weight.data_ptr()
    nn.init.ones_(module.weight)
    with pytest.raises(AssertionError, match="inside"), average.applied():
        assert not torch.equal(module.weight, average.weights["weight"]), "inside"
    assert torch.equal(module.weight, torch.ones(2, 3))
    assert module.weight.data_ptr() == address  # which a CUDA graph holds


def test_frozen_weights_are_not_kept() -> None:
    module = nn.Linear(3, 2)
    module.bias.requires_grad_(False)
    average = WeightAverage(module, 1.0, 0.9)
    average.update(1.0)
    assert set(average.weights) == {"weight"}


def test_training_does_not_notice_it(data: Path, averaged: Path, tmp_path: Path) -> None:
    pretrain.pretrain(recipe(data, tmp_path / "plain", "train.evaluations=10"))
    assert_same(averaged, tmp_path / "plain")
    assert not table(tmp_path / "plain")
    first, second = (
        [line["loss"] for line in log.read(out / log.NAME) if line["kind"] == "validation"]
        for out in (averaged, tmp_path / "plain")
    )
    assert first[:6] == second[:6]  # up to step 20: the average begins at step 24
    assert all(one != other for one, other in zip(first[7:], second[7:], strict=True))


def test_the_average_is_exported_and_the_last_figures_are_its_own(data: Path, averaged: Path, tmp_path: Path) -> None:
    exported, average, own = folders.read(averaged / "model").state_dict, table(averaged), table(averaged, "model")
    name = "trunk.layers.0.attention.qkv.weight"
    assert torch.equal(exported[name], average[name])
    assert not torch.equal(average[name], own[name])
    found = checkpoint.load_newest(averaged / "checkpoints")
    assert found is not None
    pretrain.export(recipe(data, averaged, *AVERAGED), found[0], tmp_path)
    assert torch.equal(folders.read(tmp_path / "model").state_dict[name], average[name])


def test_a_run_stopped_anywhere_resumes_exactly(data: Path, averaged: Path, tmp_path: Path) -> None:
    out = tmp_path / "broken"
    for stop in (7, 26, 35):  # before the average begins, and inside of it
        fail_at(stop, recipe(data, out, *AVERAGED))
    pretrain.pretrain(recipe(data, out, *AVERAGED))
    assert_same(averaged, out)
    expected = table(averaged)
    assert expected
    assert all(torch.equal(tensor, expected[name]) for name, tensor in table(out).items())
    pretrain.pretrain(recipe(data, out, *AVERAGED))  # a finished run exports the average again
    name = "trunk.layers.0.attention.qkv.weight"
    assert torch.equal(folders.read(out / "model").state_dict[name], expected[name])


@pytest.mark.exhaustive
def test_a_finished_run_that_is_made_longer_begins_its_average_anew(data: Path, tmp_path: Path) -> None:
    for name, steps in (("longer", (20, 40)), ("once", (40,))):
        for count in steps:
            pretrain.pretrain(
                recipe(data, tmp_path / name, *AVERAGED, f"train.steps={count}", "optimizer.learning_rate=0.0")
            )
    states = [checkpoint.load_newest(tmp_path / name / "checkpoints")[0].state for name in ("longer", "once")]
    assert states[0]["averaged_updates"] == states[1]["averaged_updates"] == 17


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("train.average=1.5", r"average is 1.5. Give a share of the run, from 0 to 1"),
        ("train.average_decay=-1", r"average_decay is -1.0. Give a share, from 0 to 1, usually 0.999"),
    ],
)
def test_settings_without_meaning_are_refused(change: str, said: str) -> None:
    with pytest.raises(RecipeError, match=said):
        config.build(config.override({"train": {"steps": 1}}, [change]), Recipe, "tiny.toml")


@pytest.mark.gpu
def test_a_captured_run_is_not_disturbed_by_evaluating_the_average(data: Path, tmp_path: Path) -> None:
    changes = ("train.precision=auto", "optimizer.hidden_optimizer=muon", "train.evaluations=10")
    pretrain.pretrain(recipe(data, tmp_path / "plain", *changes))
    pretrain.pretrain(recipe(data, tmp_path / "averaged", *changes, "train.average=0.5"))
    seen = [[loss for _, loss in losses(tmp_path / name)] for name in ("plain", "averaged")]
    assert seen[1] == pytest.approx(seen[0], rel=1e-3)
    # Weights are not compared: Muon gives every direction of a gradient the same length, so that those which are only
    # rounding move, too, and differ from run to run.
    own, average = weights(tmp_path / "averaged"), table(tmp_path / "averaged")
    assert average
    assert all(torch.isfinite(weight).all() for weight in average.values())
    assert any(not torch.equal(weight, own[name]) for name, weight in average.items())
