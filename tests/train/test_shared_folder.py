"""Several processes read what the main one has written or chosen, also where they see a shared folder differently."""

import shutil
from pathlib import Path
from typing import Any

import pytest
from letters import letters
from tiny import assert_same, losses, prepared, recipe
from train.crew import Job, end, start

from bertsmith.commands import pretrain
from bertsmith.errors import FolderError
from bertsmith.files import read_json
from bertsmith.recipe import FineTune, Recipe
from bertsmith.runs import finetuning, task_recipe
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import checkpoint
from bertsmith.train.trainer import Trainer

pytestmark = pytest.mark.slow("starts processes")
STEPS = ("train.steps=4", "train.gradient_accumulation=2", "train.deterministic=true", "train.evaluations=1")
SMALL = ("network.width=16", "network.hidden=24", "network.max_length=16", "tokenizer.vocabulary=200")
QUICK = ("data.max_length=12", "data.batch_size=8", "task.max_new_tokens=4", "train.epochs=none", "train.steps=2")


def outcome(codes: list[int | None], job: Job) -> str:
    """What all processes of a job have said, if all have ended well."""
    said = "".join(job.said(rank) for rank in range(job.size))
    assert codes == [0] * len(codes), said
    return said


def from_scratch(given: FineTune) -> None:
    """A run that says when it trains a tokenizer."""
    train = finetuning.train_tokenizer

    def saying(*arguments: Any) -> Tokenizer:
        print("trains a tokenizer", flush=True)
        return train(*arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finetuning, "train_tokenizer", saying)
        finetuning.finetune(given)


def test_the_main_process_alone_trains_the_tokenizer_of_a_network_from_scratch(tmp_path: Path) -> None:
    data = letters(tmp_path / "letters", 60, 10)
    changes = ['data.texts=["src"]', "data.label=tgt", "train.device=cpu", "train.precision=float32", *SMALL, *QUICK]
    changes.append("train.gradient_accumulation=2")
    given = task_recipe.build_recipe(
        Path("lstm-attention"), data, tmp_path / "run", dev=None, task=None, seeds=1, overrides=changes
    )
    job = Job(2, tmp_path / "said", from_scratch, (given,))
    outcome(end(start([job])), job)
    assert [job.said(rank).count("trains a tokenizer") for rank in range(2)] == [1, 0]
    assert read_json(given.out / "result.json")["summary"]


def without_newest(given: Recipe) -> None:
    """A run whose second process lists the folder as it was before the newest checkpoint."""
    real = checkpoint._list_newest_first

    def listed(folder: Path) -> list[tuple[int, Path]]:
        return real(folder)[1:]

    hidden(given, "_list_newest_first", listed)


def with_unreadable_newest(given: Recipe) -> None:
    """A run whose second process cannot read the newest checkpoint."""
    real = checkpoint._read

    def read(path: Path) -> checkpoint.Checkpoint:
        if path.name == "step-000000002":
            raise FolderError(path, "cannot be read (OSError: Stale file handle)")
        return real(path)

    hidden(given, "_read", read)


def hidden(given: Recipe, name: str, replacement: Any) -> None:
    """A run in whose second process a function of the module of checkpoints is another one when it resumes."""
    resume = Trainer._resume

    def resuming(self: Trainer) -> None:
        with pytest.MonkeyPatch.context() as patch:
            if self.processes.rank == 1:
                patch.setattr(checkpoint, name, replacement)
            resume(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_resume", resuming)
        pretrain.pretrain(given)


def test_all_processes_resume_from_the_checkpoint_that_the_main_one_finds(tmp_path: Path) -> None:
    data = prepared(tmp_path / "tiny")
    whole, stopped, steps = (
        tmp_path / "whole",
        tmp_path / "stopped",
        [*STEPS, "train.checkpoints=4", "train.keep_checkpoints=9"],
    )
    runs = [
        Job(1, tmp_path / f"said {out.name}", pretrain.pretrain, (recipe(data, out, *steps),))
        for out in (whole, stopped)
    ]
    outcome(end(start(runs)), runs[0])
    for step in (3, 4):
        shutil.rmtree(stopped / "checkpoints" / f"step-{step:09d}", ignore_errors=True)
    shutil.copytree(stopped, unread := tmp_path / "unread")
    jobs = [
        Job(2, tmp_path / "blind.txt", without_newest, (recipe(data, stopped, *steps),)),
        Job(2, tmp_path / "unread.txt", with_unreadable_newest, (recipe(data, unread, *steps),)),
    ]
    codes = end(start(jobs))
    assert "resuming from step 2" in outcome(codes, jobs[0])
    assert_same(whole, stopped)
    fact = r"step-000000002: cannot be read (OSError: Stale file handle), for process 1 of 2 on "
    remedy = "but the main process reads it. All processes need the same folder; the same command resumes the run."
    for rank in range(2):
        assert fact in jobs[1].said(rank)
        assert remedy in jobs[1].said(rank)
    assert len(losses(unread)) == 4  # nothing was trained, and nothing lost from the log
