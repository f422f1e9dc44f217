"""What a run relies on when it goes on: the log, the clock, the counters and the best weights are those it had."""

import errno
import math
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from tiny import assert_same, losses, prepared, recipe, write_text

from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.prepare import prepare
from bertsmith.errors import RunError, StopError
from bertsmith.objectives.base import Term
from bertsmith.objectives.masked import MaskedLM
from bertsmith.recipe import Recipe
from bertsmith.runs import build
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import checkpoint, log, step_metrics
from bertsmith.train.display import Display
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.step import Step
from bertsmith.train.step_metrics import Speed
from bertsmith.train.trainer import Trainer

PULLED = "the plug was pulled"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("tiny"))


def learner(
    recipe: Recipe, measure: Callable[[], dict[str, float]] = dict, *, best: Literal["highest", "lowest"] | None = None
) -> Trainer:
    """The trainer alone, without what a verb does before and after."""
    tokenizer, train, _ = build.load_data(recipe)
    objective = build.objective(recipe, tokenizer)
    return Trainer(
        Step(objective, Optimizer(objective, recipe.optimizer), recipe.train, torch.float32),
        build.feed(recipe, objective, tokenizer, train),
        recipe.schedule,
        recipe.train,
        folder=recipe.out,
        compute_metrics=measure,
        keep_best=best,
        speed=Speed(None, lambda attended: 1.0),
        display=Display("training"),
        tensorboard=False,
    )


def pulled_at(step: int, one: Trainer) -> None:
    """Train until an error comes before the update after this step."""
    update = one.update

    def failing(*arguments: Any) -> None:
        if one.state.step == step:
            raise RuntimeError(PULLED)
        update(*arguments)

    one.update = failing  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match=PULLED):
        one.fit()


@pytest.mark.slow
def test_records_after_the_last_checkpoint_are_logged_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_metrics, "MAX_PENDING", 1)  # every step is in the log as soon as it is taken
    shape = ("train.steps=12", "train.checkpoints=3", "train.evaluations=0")
    learner(recipe(data, tmp_path / "whole", *shape)).fit()
    pulled_at(3, learner(recipe(data, tmp_path / "broken", *shape)))  # before the first checkpoint
    pulled_at(7, learner(recipe(data, tmp_path / "broken", *shape)))  # the last one is of step 4
    assert [step for step, _ in losses(tmp_path / "broken")] == list(range(1, 8))
    learner(recipe(data, tmp_path / "broken", *shape)).fit()
    assert [step for step, _ in losses(tmp_path / "broken")] == list(range(1, 13))
    assert_same(tmp_path / "whole", tmp_path / "broken")


def test_the_log_is_on_the_disk_before_the_checkpoint_that_it_leads_to(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    on_disk: list[tuple[int, int]] = []  # the step of each checkpoint, and the last one in the log that is synced
    fsync, save = os.fsync, checkpoint.save

    def watched(file: int) -> None:
        synced.append(Path(f"/proc/self/fd/{file}").readlink())
        fsync(file)
        if synced[-1].name == log.NAME:
            shutil.copy(synced[-1], tmp_path / "synced.jsonl")

    def saving(folder: Path, saved: checkpoint.Checkpoint, **options: Any) -> Path:
        on_disk.append((saved.step, max(entry["step"] for entry in log.read(tmp_path / "synced.jsonl"))))
        return save(folder, saved, **options)

    monkeypatch.setattr(os, "fsync", watched)
    monkeypatch.setattr(checkpoint, "save", saving)
    learner(recipe(data, tmp_path / "run", "train.steps=4", "train.checkpoints=2", "train.evaluations=0")).fit()
    assert [path.name for path in synced].count(log.NAME) == 2
    assert [step for step, _ in on_disk] == [2, 4]
    assert all(logged >= step for step, logged in on_disk)


def test_a_resumed_run_counts_the_time_it_has_used(data: Path, tmp_path: Path) -> None:
    changes = ("train.steps=8", "train.checkpoints=4", "train.evaluations=0")
    first = learner(recipe(data, tmp_path / "run", *changes))
    start = first.clock.start

    def late() -> None:
        start()
        first.clock._started -= 1000  # type: ignore[operator]

    first.clock.start = late  # type: ignore[method-assign]
    pulled_at(5, first)
    second = learner(recipe(data, tmp_path / "run", *changes))
    second.fit()
    steps = [entry for entry in log.read(tmp_path / "run" / log.NAME) if entry["kind"] == "step"]
    assert all(1000 < entry["seconds"] < 1200 for entry in steps)
    assert second.clock.training_seconds > 1000


def poisoned(monkeypatch: pytest.MonkeyPatch, bad: Callable[[int], bool]) -> None:
    """Losses that are no number, by the number of the call."""
    forward, calls = MaskedLM.forward, iter(range(1, 1000))

    def forwarding(self: MaskedLM, batch: Any) -> dict[str, Term]:
        terms = forward(self, batch)
        if self.training and bad(next(calls)):
            terms["masked"] = Term(terms["masked"].total * math.nan, terms["masked"].correct)
        return terms

    monkeypatch.setattr(MaskedLM, "forward", forwarding)


def test_skipped_steps_before_a_stop_are_counted_after_it(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    poisoned(monkeypatch, lambda call: call in (2, 3, 7))
    changes = ("train.steps=8", "train.checkpoints=2", "train.evaluations=0")
    pulled_at(4, learner(recipe(data, tmp_path / "run", *changes)))
    learner(recipe(data, tmp_path / "run", *changes)).fit()
    steps = [entry["skipped"] for entry in log.read(tmp_path / "run" / log.NAME) if entry["kind"] == "step"]
    assert steps == [0, 1, 2, 2, 2, 2, 3, 3]


def test_bad_steps_in_a_row_are_counted_across_a_stop(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Six before the stop and four after it are ten; counted anew, four would be let pass."""
    poisoned(monkeypatch, lambda call: True)
    changes = ("train.steps=12", "train.checkpoints=2", "train.evaluations=0")
    pulled_at(6, learner(recipe(data, tmp_path / "run", *changes)))
    monkeypatch.undo()
    poisoned(monkeypatch, lambda call: call <= 4)
    with pytest.raises(RunError, match="the gradient was not finite 10 steps in a row"):
        learner(recipe(data, tmp_path / "run", *changes)).fit()


def test_the_best_weights_before_a_stop_are_the_best_after_it(data: Path, tmp_path: Path) -> None:
    """The first validation is the best one. A start after it sees only worse ones, and goes back to the first."""
    changes = ("train.steps=12", "train.checkpoints=3", "train.evaluations=3")
    scores: Iterator[float] = iter([0.9, 0.2, 0.1, 0.1])

    def measure() -> dict[str, float]:
        return {"accuracy": next(scores)}

    first = learner(recipe(data, tmp_path / "run", *changes), measure, best="highest")
    pulled_at(9, first)
    assert first.state.best_metrics == {"accuracy": 0.9, "step": 4}
    best = first.best_weights
    second = learner(recipe(data, tmp_path / "run", *changes), measure, best="highest")
    second.fit()
    assert second.state.best_metrics == {"accuracy": 0.9, "step": 4}
    second.load_best()
    assert best
    for name, weight in second.objective.state_dict().items():
        assert torch.equal(weight, best[name]), name


def test_the_lowest_loss_may_be_the_best(data: Path, tmp_path: Path) -> None:
    losses = iter([9.0, 2.0, 3.0, 2.5])

    def measure() -> dict[str, float]:
        return {"loss": next(losses)}

    one = learner(recipe(data, tmp_path / "run", "train.steps=6", "train.evaluations=3"), measure, best="lowest")
    one.fit()
    assert one.state.best_metrics == {"loss": 2.0, "step": 2}  # after that of the untrained network
    assert one.state.evaluations_since_best == 2


def test_patience_is_counted_across_a_stop(data: Path, tmp_path: Path) -> None:
    changes = ("train.steps=24", "train.checkpoints=6", "train.evaluations=6", "train.patience=3", "keep=best")
    scores = iter([0.9, 0.2, 0.2, 0.1, 0.1, 0.1])
    measure = partial(_next_score, scores)
    pulled_at(13, learner(recipe(data, tmp_path / "run", *changes), measure, best="highest"))
    second = learner(recipe(data, tmp_path / "run", *changes), measure, best="highest")
    second.fit()
    assert second.state.step == 16  # three validations after the best of step 4


def _next_score(scores: Iterator[float]) -> dict[str, float]:
    return {"accuracy": next(scores)}


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("step", [0, 4])
def test_a_signal_during_an_evaluation_saves_the_run_as_it_was_before(
    step: int, name: str, data: Path, tmp_path: Path
) -> None:
    seen = list[str]()

    def measure() -> dict[str, float]:
        if one.state.step == step:
            os.kill(os.getpid(), getattr(signal, name))
            seen.append("after the signal")
        return {"loss": 1.0}

    changes = ("train.steps=8", "train.checkpoints=0", "train.evaluations=2")
    one = learner(recipe(data, tmp_path / "run", *changes), measure)
    with pytest.raises(StopError) as caught:
        one.fit()
    assert not seen
    assert one.signals.received == name
    found = checkpoint.load_newest(tmp_path / "run" / "checkpoints")
    assert found is None if step == 0 else (found[0].step, found[0].state["evaluation_due"]) == (step, True)
    fact = f"stopped at step {step} during an evaluation, saved" if step else "stopped before the first step"
    assert str(caught.value).startswith(f"{tmp_path / 'run'}: {fact}. The same command ")


def test_a_run_is_not_resumed_with_other_data(data: Path, tmp_path: Path) -> None:
    changes = ("train.steps=4", "train.checkpoints=2", "train.evaluations=0")
    pulled_at(3, learner(recipe(data, tmp_path / "run", *changes)))
    tokenizer = Tokenizer.load(data / "tokenizer")
    other = Corpus([str(write_text(tmp_path / "other.txt", documents=50))], layout="lines")
    prepare(other, tokenizer, tmp_path / "other", validation_share=0.1, workers=0)
    with pytest.raises(RunError) as caught:
        learner(recipe(tmp_path / "other", tmp_path / "run", *changes)).fit()
    assert str(caught.value) == (
        f"{tmp_path / 'run'}: was begun with other data. Choose another folder, or give it the same data."
    )
    (tmp_path / "moved").mkdir()
    learner(recipe(prepared(tmp_path / "moved"), tmp_path / "run", *changes)).fit()  # the same data, elsewhere
    assert [step for step, _ in losses(tmp_path / "run")] == [1, 2, 3, 4]


def test_a_tokenizer_is_written_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever has opened the old file reads the old file to its end; a write that fails leaves it as it was."""
    tokenizer = Tokenizer.load(prepared(tmp_path) / "tokenizer")
    folder = tmp_path / "tokenizer"
    tokenizer.save(folder)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    opened = {path.name: path.open("rb") for path in folder.iterdir()}
    tokenizer.save(folder, max_length=17)
    for name, file in opened.items():
        with file:
            assert file.read() == before[name], name
            assert os.fstat(file.fileno()).st_ino != (folder / name).stat().st_ino, name
    after = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert after.keys() == before.keys() == {"tokenizer.json", "tokenizer_config.json"}

    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", refuse)
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(Exception, match=r"No space left on device|disk is full"):
        tokenizer.save(folder, max_length=18)
    assert {name: (folder / name).read_bytes() for name in after} == after
