"""Several processes read what the main one has written."""

from pathlib import Path
from typing import Any

import pytest
from letters import letters
from train.crew import Job, end, start

from bertsmith.files import read_json
from bertsmith.recipe import FineTune
from bertsmith.runs import finetuning, task_recipe
from bertsmith.text.tokenizer import Tokenizer

pytestmark = pytest.mark.slow("starts processes")
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
