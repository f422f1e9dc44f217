"""Fine-tuning from files to a model folder: guesses, training, resuming, seeds and the result with its protocol."""

import json
import os
import re
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.torch
import tiny
import torch
from tasks.small import CASES, shape, tokenizer
from torch import Tensor
from typer.testing import CliRunner

import bertsmith
from bertsmith.cli import app
from bertsmith.commands import predict
from bertsmith.commands import pretrain as pretraining
from bertsmith.commands.finetune import show
from bertsmith.data.labelled import examples
from bertsmith.errors import FolderError, RecipeError, RunError, StopError, TextError
from bertsmith.inference.model import Model
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.finetuned import FinetunedTask
from bertsmith.models.transformer import Transformer
from bertsmith.nn.init import initialise
from bertsmith.objectives.masked import MaskedLM
from bertsmith.recipe import FineTune
from bertsmith.runs import finetuning, task_data, task_recipe
from bertsmith.tasks import items
from bertsmith.tasks.adapter import load as read_adapter
from bertsmith.tasks.base import Task
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.measure import DevEvaluator
from bertsmith.train import log
from bertsmith.train.trainer import Trainer

pytestmark = pytest.mark.slow("fine-tunes in nearly every test")

FAST = ["train.device=cpu", "train.precision=float32", "data.batch_size=16", "data.max_length=16", "data.workers=1"]
LEARN = [*FAST, "optimizer.learning_rate=0.003", "train.steps=36"]
OTHERS = ["river", "garden", "the", "old", "green", "in"]


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with random weights."""
    folder = tmp_path_factory.mktemp("base")
    objective = MaskedLM(Transformer(shape(max_length=32)), MaskedLM.Config(pairs="nsp"))
    initialise(objective, 0)
    folders.write(folder, shape(max_length=32), objective.state_dict())
    tokenizer().save(folder)
    return folder


def table(path: Path, count: int, seed: int) -> Path:
    """Texts with a cat in them, or a dog."""
    dice = np.random.default_rng(seed)
    lines = ["text,label"]
    for number in range(count):
        words = [*dice.choice(OTHERS, dice.integers(2, 8)), "dog" if number % 2 else "cat"]
        dice.shuffle(words)
        lines.append(f"{' '.join(words)},{'bark' if number % 2 else 'purr'}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    table(folder / "train.csv", 96, 0)
    table(folder / "dev.csv", 40, 1)
    return folder


def recipe(base: Path, data: Path, out: Path, *overrides: str, seeds: int = 1, task: str | None = None) -> FineTune:
    return task_recipe.build_recipe(base, data, out, dev=None, task=task, seeds=seeds, overrides=overrides or LEARN)


def weights(out: Path) -> dict[str, Tensor]:
    return folders.read(out / "model").state_dict


def assert_equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    assert one.keys() == other.keys()
    for name, weight in one.items():
        assert torch.equal(weight, other[name]), name


def losses(out: Path) -> list[float]:
    return [entry["loss"] for entry in log.read(out / "seed-0" / log.NAME) if entry["kind"] == "step"]


@pytest.fixture(scope="module")
def learnt(base: Path, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without interruption."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    finetuning.finetune(recipe(base, data, out))
    return out


# ---------------------------------------------------------------------------------------------------- guesses


def guessed(path: Path, *overrides: str, **said: Any) -> FineTune:
    how = {"dev": None, "task": None, "seeds": 1, **said}
    return task_recipe.build_recipe(Path("model"), path, Path("out"), overrides=overrides, **how)


def test_a_glue_folder_is_recognised_by_its_name_and_its_columns(tmp_path: Path) -> None:
    cola = tmp_path / "CoLA"
    cola.mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (cola / name).write_text("gj04\t1\t\tThe cat sees.\ngj04\t0\t*\tSees cat the.\n")
    found = guessed(cola)
    assert (found.data.train, found.data.dev) == (cola / "train.tsv", cola / "dev.tsv")
    assert found.task.kind == "classify"
    assert (found.task.settings.problem, found.task.settings.metric) == ("single_label", "matthews")


@pytest.mark.parametrize(
    ("name", "header", "row", "settings"),
    [
        ("STS-B", "index\tsentence1\tsentence2\tscore", "1\ta cat\ta dog\t2.5", {"problem": "regression"}),
        ("MRPC", "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "1\t2\t3\ta cat\ta dog", {"metric": "accuracy_f1"}),
        ("RTE", "index\tsentence1\tsentence2\tlabel", "0\ta cat\ta dog\tentailment", {"metric": "accuracy"}),
    ],
)
def test_glue_tasks_have_glues_own_metrics(
    name: str, header: str, row: str, settings: dict[str, str], tmp_path: Path
) -> None:
    folder = tmp_path / name
    folder.mkdir()
    for file in ("train.tsv", "dev.tsv"):
        (folder / file).write_text(f"{header}\n{row}\n{row}\n")
    found = guessed(folder)
    for key, value in settings.items():
        assert getattr(found.task.settings, key) == value
    assert guessed(folder, task="embed").task.kind == "embed"


@pytest.mark.parametrize(
    ("name", "kind", "length"),
    [
        ("train.csv", "classify", 128),
        ("train.jsonl", "classify", 128),
        ("eng.train.conll", "tag", 128),
        ("eng.train.iob2.xz", "tag", 128),
        ("train-v1.1.json", "answer", 384),
        ("train-v2.0.json.gz", "answer", 384),
    ],
)
def test_the_task_is_guessed_by_the_kind_of_file(name: str, kind: str, length: int, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    for path in (tmp_path / name, tmp_path):
        found = guessed(path)
        assert (found.task.kind, found.data.max_length, found.data.train) == (kind, length, tmp_path / name)
        assert found.data.dev is None


def test_the_dev_file_of_a_folder_is_found_and_another_may_be_named(tmp_path: Path) -> None:
    for name in ("train.csv", "valid.csv", "test.csv"):
        (tmp_path / name).write_text("")
    assert guessed(tmp_path).data.dev == tmp_path / "valid.csv"
    assert guessed(tmp_path, dev=tmp_path / "test.csv").data.dev == tmp_path / "test.csv"


def test_given_settings_take_precedence_over_guesses(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("")
    found = guessed(
        tmp_path,
        "train.steps=7",
        "data.max_length=64",
        "task.problem=multi_label",
        "optimizer.learning_rate=1e-4",
        seeds=3,
    )
    assert (found.train.steps, found.train.epochs, found.seeds) == (7, None, 3)
    assert (found.data.max_length, found.task.settings.problem, found.optimizer.learning_rate) == (
        64,
        "multi_label",
        1e-4,
    )
    plain = guessed(tmp_path)
    assert (plain.train.epochs, plain.optimizer.learning_rate, plain.schedule.warmup, plain.keep) == (
        3.0,
        5e-5,
        0.1,
        "best",
    )


def test_a_folder_without_a_training_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters.csv").write_text("")
    with pytest.raises(TextError) as caught:
        guessed(tmp_path)
    remedy = "Name it train.tsv, .csv, .jsonl, .parquet, .conll or .json."
    assert str(caught.value) == f"{tmp_path}: holds no training file. {remedy}"


# ------------------------------------------------------------------------------------------------- end to end


def test_separable_classes_are_learnt_and_the_model_folder_classifies(learnt: Path) -> None:
    result = json.loads((learnt / "result.json").read_text())
    assert result["headline"] == "accuracy"
    assert result["summary"]["accuracy"]["mean"] > 0.9
    assert result["summary"]["accuracy"]["low"] is None  # one run has no interval
    model = bertsmith.load(learnt / "model")
    said = model.classify(["the old cat in the garden", "green river dog"])
    assert [one["label"] for one in said] == ["purr", "bark"]


def test_the_training_columns_are_kept_in_the_model_folder_and_a_run_opens_as_its_model(
    learnt: Path, base: Path, data: Path, tmp_path: Path
) -> None:
    model = bertsmith.load(learnt)  # the folder of the run
    assert model.path == str(learnt / "model")
    said = json.loads((learnt / "model" / "config.json").read_text())["bertsmith"]["trained_on"]
    columns = {"kind": "classify", "texts": ["text"], "label": "label", "context_columns": 1}
    measured = {"max_length": 16, "counts": {"bark": 48, "purr": 48}, "mean": None, "temperature": said["temperature"]}
    assert said == columns | measured
    assert 0.1 <= said["temperature"] <= 10
    assert recipe(learnt, data, tmp_path).model == learnt / "model"


def test_the_result_has_its_protocol(learnt: Path, base: Path, data: Path) -> None:
    result = json.loads((learnt / "result.json").read_text())
    protocol = result["protocol"]
    assert protocol["examples"] == {"train": 96, "dev": 40}
    assert protocol["measured_on"] == str(data / "dev.csv")
    assert protocol["selection"] == "the best of the evaluations on the dev set"
    assert len(protocol["data_sha256"].split()) == 2
    assert 'kind = "classify"' in protocol["recipe"]
    (run,) = result["runs"]
    assert run["seed"] == 0
    assert 0 < run["metrics"]["step"] <= 36
    assert run["metrics"]["accuracy"] == result["summary"]["accuracy"]["mean"]
    card = (learnt / "model" / "README.md").read_text()
    assert f"{run['metrics']['accuracy']:.4f}" in card
    assert not (learnt / "seed-0" / "checkpoints").exists()
    assert len(losses(learnt)) == 36


def test_the_metrics_are_those_of_the_exported_model(learnt: Path, data: Path) -> None:
    rows = [line.rsplit(",", 1) for line in (data / "dev.csv").read_text().splitlines()[1:]]
    said = bertsmith.load(learnt / "model").classify([text for text, _ in rows])
    right = np.mean([one["label"] == label for one, (_, label) in zip(said, rows, strict=True)])
    assert right == json.loads((learnt / "result.json").read_text())["summary"]["accuracy"]["mean"]


def test_a_finished_run_is_not_repeated(learnt: Path, base: Path, data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = (learnt / "result.json").read_text()
    monkeypatch.setattr(finetuning, "run_seed", lambda *parts: pytest.fail("it ran again"))
    finetuning.finetune(recipe(base, data, learnt))
    assert (learnt / "result.json").read_text() == before


def test_another_recipe_in_the_same_folder_is_refused(learnt: Path, base: Path, data: Path) -> None:
    with pytest.raises(RunError) as caught:
        finetuning.finetune(recipe(base, data, learnt, *LEARN, "optimizer.learning_rate=0.001"))
    assert str(caught.value) == (
        f"{learnt}: was begun with another recipe: optimizer.learning_rate was 0.003, is 0.001. "
        "Choose another folder, or remove this one."
    )


def test_other_data_in_the_same_folder_is_refused_and_moved_data_is_not(
    learnt: Path, base: Path, data: Path, tmp_path: Path
) -> None:
    out, moved = shutil.copytree(learnt, tmp_path / "run"), shutil.copytree(data, tmp_path / "moved")
    assert finetuning.finetune(recipe(base, moved, out))["runs"] == finetuning.finetune(recipe(base, data, out))["runs"]
    kept = (out / "result.json").read_text()
    for name in ("train.csv", "dev.csv"):
        other = shutil.copytree(data, tmp_path / f"other-{name}")
        table(other / name, 32, 7)
        for seeds in (1, 2):
            with pytest.raises(RunError) as caught:
                finetuning.finetune(recipe(base, other, out, *LEARN, seeds=seeds))
            fact = "was begun with other data. Choose another folder, or give it the same data."
            assert str(caught.value) == f"{out}: {fact}"
    assert (out / "result.json").read_text() == kept


def test_a_dev_file_that_repeats_the_training_file_is_other_data_than_a_held_out_tenth(
    base: Path, data: Path, tmp_path: Path
) -> None:
    path, rest = data / "train.csv", {"task": None, "seeds": 1, "overrides": [*FAST, "train.steps=1"]}
    finetuning.finetune(task_recipe.build_recipe(base, path, tmp_path, dev=None, **rest))
    with pytest.raises(RunError, match="was begun with other data"):
        finetuning.finetune(task_recipe.build_recipe(base, path, tmp_path, dev=path, **rest))


def test_labels_in_another_order_are_other_data(base: Path, data: Path, tmp_path: Path) -> None:
    found = task_data.read(recipe(base, data, tmp_path))
    assert replace(found, labels=found.labels[::-1]).identity != found.identity


@pytest.mark.exhaustive
def test_several_seeds_have_an_interval_and_the_best_model_is_kept(base: Path, data: Path, tmp_path: Path) -> None:
    short = [*FAST, "optimizer.learning_rate=0.001", "train.steps=6"]
    first = finetuning.finetune(recipe(base, data, tmp_path, *short, seeds=1))
    result = finetuning.finetune(recipe(base, data, tmp_path, *short, seeds=3))
    assert result["runs"][0] == first["runs"][0]  # the first was not run again
    assert [run["seed"] for run in result["runs"]] == [0, 1, 2]
    values = [run["metrics"]["accuracy"] for run in result["runs"]]
    assert len({tuple(losses_of(tmp_path, seed)) for seed in range(3)}) == 3
    summary = result["summary"]["accuracy"]
    assert summary["mean"] == pytest.approx(np.mean(values))
    assert summary["deviation"] == pytest.approx(np.std(values, ddof=1))
    half = 4.302653 * np.std(values, ddof=1) / np.sqrt(3)
    assert (summary["high"] - summary["low"]) / 2 == pytest.approx(half, rel=1e-5)
    rows = [line.rsplit(",", 1) for line in (data / "dev.csv").read_text().splitlines()[1:]]
    said = bertsmith.load(tmp_path / "model").classify([text for text, _ in rows])
    right = np.mean([one["label"] == label for one, (_, label) in zip(said, rows, strict=True)])
    assert right == max(values)


def losses_of(out: Path, seed: int) -> list[float]:
    return [entry["loss"] for entry in log.read(out / f"seed-{seed}" / log.NAME) if entry["kind"] == "step"]


# ------------------------------------------------------------------------------------------------- interrupted


def test_a_killed_run_resumes_and_ends_with_the_same_weights(
    learnt: Path, base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save, saved = Trainer.save, []

    def dying(self: Trainer) -> None:
        if saved:
            raise KeyboardInterrupt
        save(self)
        saved.append(self.state.step)

    monkeypatch.setattr(Trainer, "save", dying)
    with pytest.raises(KeyboardInterrupt):
        finetuning.finetune(recipe(base, data, tmp_path))
    monkeypatch.undo()
    assert 0 < saved[0] < 36
    assert not (tmp_path / "model").exists()
    finetuning.finetune(recipe(base, data, tmp_path))
    assert losses(tmp_path) == losses(learnt)
    assert_equal(weights(tmp_path), weights(learnt))
    one, other = (json.loads((out / "result.json").read_text())["summary"] for out in (tmp_path, learnt))
    assert one == other


@pytest.mark.exhaustive
def test_an_interrupted_run_saves_and_resumes(
    learnt: Path, base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    update = Trainer.update

    def disturbed(self: Trainer, *parts: Any) -> None:
        update(self, *parts)
        if self.state.step == 17:
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(Trainer, "update", disturbed)
    with pytest.raises(RunError) as caught:
        finetuning.finetune(recipe(base, data, tmp_path))
    monkeypatch.undo()
    assert str(caught.value) == (f"{tmp_path}/seed-0: stopped at step 17, saved. The same command resumes it.")
    finetuning.finetune(recipe(base, data, tmp_path))
    assert losses(tmp_path) == losses(learnt)
    assert_equal(weights(tmp_path), weights(learnt))


@pytest.mark.exhaustive(suite=1)
@pytest.mark.parametrize("number", [0, 2])
def test_a_signal_stops_an_evaluation_at_once_and_the_resumed_run_does_it(
    number: int, learnt: Path, base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the evaluation before training there is nothing to save; in a later one the step is saved."""
    outputs, evaluations, passes = SequenceClassification.outputs, iter(range(9)), list[int]()
    measure = DevEvaluator.__call__

    def counted(self: DevEvaluator) -> dict[str, float]:
        passes.append(next(evaluations))
        return measure(self)

    def disturbed(self: SequenceClassification, *parts: Any) -> Any:
        if passes and passes[-1] == number:
            assert passes.count(number) == 1
            passes.append(number)  # a second batch would fail here
            os.kill(os.getpid(), signal.SIGTERM)
        return outputs(self, *parts)

    monkeypatch.setattr(DevEvaluator, "__call__", counted)
    monkeypatch.setattr(SequenceClassification, "outputs", disturbed)
    monkeypatch.setattr(finetuning, "CPU_EVALUATION_TOKENS", 64)  # several batches
    with pytest.raises(StopError) as caught:
        finetuning.finetune(recipe(base, data, tmp_path))
    monkeypatch.undo()
    expected = (
        "stopped before the first step. The same command begins again."
        if number == 0
        else "stopped at step 24 during an evaluation, saved. The same command resumes it."
    )
    assert str(caught.value) == f"{tmp_path}/seed-0: {expected}"
    finetuning.finetune(recipe(base, data, tmp_path))
    assert losses(tmp_path) == losses(learnt)
    assert_equal(weights(tmp_path), weights(learnt))
    kinds = ("untrained", "validation")
    first, second = (
        [record for record in log.read(out / "seed-0" / log.NAME) if record["kind"] in kinds]
        for out in (tmp_path, learnt)
    )
    assert first == second


# ------------------------------------------------------------------------------------- which weights, how long


class Scripted:
    """A metric with given values, which records the weights of each evaluation.

    Before the first step it is asked, too, and scores best of all: a baseline whose weights nobody keeps.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *scores: float) -> None:
        self.scores, self.seen, self.untrained = list(scores), list[dict[str, Tensor]](), 0
        monkeypatch.setattr(DevEvaluator, "__call__", lambda measure: self.score(measure.task))

    def score(self, task: Task) -> dict[str, float]:
        if not self.untrained:
            self.untrained += 1
            return {"accuracy": 0.95}
        self.seen.append({name: weight.detach().clone() for name, weight in task.state_dict().items()})
        return {"accuracy": self.scores[len(self.seen) - 1]}


@pytest.mark.parametrize(("keep", "kept"), [("best", 1), ("last", 3)])
def test_the_weights_of_the_best_or_the_last_evaluation_are_kept(
    keep: str, kept: int, base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Scripted(monkeypatch, 0.3, 0.8, 0.8, 0.5)
    settings = [*LEARN, "train.steps=8", "train.evaluations=4", f"keep={keep}"]
    result = finetuning.finetune(recipe(base, data, tmp_path, *settings))
    assert len(script.seen) == 4
    assert_equal(weights(tmp_path), script.seen[kept])
    (run,) = result["runs"]
    assert run["metrics"]["accuracy"] == script.scores[kept]
    assert run["metrics"]["step"] == (4 if keep == "best" else 8)


@pytest.mark.exhaustive
def test_early_stopping_after_evaluations_without_a_better_score(
    base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = Scripted(monkeypatch, 0.5, 0.6, 0.6, 0.4, 0.9, 0.9)
    settings = [*LEARN, "train.steps=24", "train.evaluations=6", "train.patience=2"]
    result = finetuning.finetune(recipe(base, data, tmp_path, *settings))
    assert len(script.seen) == 4
    assert len(losses(tmp_path)) == 16
    assert result["summary"]["accuracy"]["mean"] == 0.6
    assert_equal(weights(tmp_path), script.seen[1])


# -------------------------------------------------------------------------------------------------- what learns


def moved(out: Path, base: Path) -> set[str]:
    """The weights of the trunk that have changed."""
    before, after = folders.read(base).state_dict, weights(out)
    return {name for name in after if name.startswith("trunk.") and not torch.equal(before[name], after[name])}


def test_a_frozen_trunk_does_not_change_by_a_bit(base: Path, data: Path, tmp_path: Path) -> None:
    finetuning.finetune(recipe(base, data, tmp_path, *LEARN, "adapt.kind=frozen", "train.steps=5"))
    assert moved(tmp_path, base) == set()
    assert not torch.equal(
        weights(tmp_path)["pooler.dense.weight"], folders.read(base).state_dict["pooler.dense.weight"]
    )


def test_lora_is_merged_into_the_model_and_written_as_an_adapter(base: Path, data: Path, tmp_path: Path) -> None:
    settings = ["adapt.kind=lora", "adapt.rank=2", "train.steps=5"]
    finetuning.finetune(recipe(base, data, tmp_path, *LEARN, *settings))
    assert moved(tmp_path, base) == {f"trunk.layers.{n}.attention.qkv.weight" for n in range(2)}
    whole = bertsmith.load(tmp_path / "model")
    task = SequenceClassification(
        Transformer(shape(max_length=32)), SequenceClassification.Config(), ("bark", "purr")
    ).eval()
    task.load_state_dict(
        {**task.state_dict(), **{k: v for k, v in folders.read(base).state_dict.items() if k[:5] == "trunk"}}
    )
    assert read_adapter(tmp_path / "seed-0" / "adapter", task).rank == 2
    (said,) = whole.classify(["the old cat"])
    again = Model(task, tokenizer(), "here")
    assert again.classify(["the old cat"])[0]["probabilities"] == pytest.approx(said["probabilities"], abs=1e-5)


def test_layer_decay_lowers_the_learning_rate_of_deeper_layers(base: Path, data: Path, tmp_path: Path) -> None:
    settings = ["adapt.layer_decay=0.1", "train.steps=1", "schedule.warmup=0", "optimizer.learning_rate=0.001"]
    finetuning.finetune(recipe(base, data, tmp_path, *LEARN, *settings, "keep=last"))
    before, after = folders.read(base).state_dict, weights(tmp_path)

    def far(name: str) -> float:
        return float((after[name] - before[name]).abs().max())

    # The first step of Adam is as long as the learning rate.
    assert far("pooler.dense.bias") == pytest.approx(1e-3, rel=0.05)
    assert far("trunk.layers.1.attention.output.bias") == pytest.approx(1e-4, rel=0.05)
    assert far("trunk.layers.0.attention.output.bias") == pytest.approx(1e-5, rel=0.05)
    assert far("trunk.embedding_norm.bias") == pytest.approx(1e-6, rel=0.05)


def test_a_head_of_the_same_task_and_labels_is_kept(tmp_path: Path) -> None:
    def kept(name: str, labels: tuple[str, ...], kind: str = "classify") -> set[str]:
        task = CASES[name].task()
        folders.write(tmp_path / name, shape(), task.state_dict(), finetuned=FinetunedTask(task=kind, labels=labels))
        found = finetuning._pretrained_weights(CASES[name].task(), folders.read(tmp_path / name))
        return {part.split(".")[0] for part in found}

    assert kept("class", ("no", "so-so", "yes")) == {"trunk", "pooler", "classifier"}
    assert kept("class", ("a", "b", "c")) == {"trunk", "pooler"}
    assert kept("answer", (), "answer") == {"trunk", "span"}


# -------------------------------------------------------------------------------------------------------- data


def test_without_a_dev_file_a_tenth_is_held_out(base: Path, data: Path, tmp_path: Path) -> None:
    alone = recipe(base, data / "train.csv", tmp_path)
    assert alone.data.dev is None
    one, again = task_data.read(alone), task_data.read(alone)
    assert (len(one.train.examples), len(one.dev.examples)) == (87, 9)
    places = [{example.location for example in part.examples} for part in (one.train, one.dev)]
    assert len(places[0] | places[1]) == 96
    assert [example.location for example in again.dev.examples] == [example.location for example in one.dev.examples]
    result = finetuning.finetune(recipe(base, data / "train.csv", tmp_path, *LEARN, "train.steps=2"))
    assert result["protocol"]["examples"] == {"train": 87, "dev": 9}
    assert result["protocol"]["measured_on"] == str(data / "train.csv")


@pytest.mark.exhaustive
def test_examples_spooled_to_disk_give_the_same_weights(
    learnt: Path, base: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(examples, "MAX_EXAMPLES_IN_MEMORY", 10)
    monkeypatch.setattr(items, "CHUNK_EXAMPLES", 7)
    made = task_data.encode(
        chosen := recipe(base, data, tmp_path), shape(max_length=32), tokenizer(), task_data.read(chosen)
    )
    assert isinstance(made.train, items.ItemSpool)
    finetuning.finetune(chosen)
    assert losses(tmp_path) == losses(learnt)
    assert_equal(weights(tmp_path), weights(learnt))


def test_truncated_texts_are_counted_and_reported(
    base: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = recipe(base, data, tmp_path, *LEARN, "train.steps=1", "data.max_length=8")
    lengths = [
        len(tokenizer().encode([line.rsplit(",", 1)[0]])[0]) + 2
        for name in ("train.csv", "dev.csv")
        for line in (data / name).read_text().splitlines()[1:]
    ]
    cut = [sum(length > 8 for length in part) for part in (lengths[:96], lengths[96:])]
    assert min(cut) > 0
    result = finetuning.finetune(found)
    assert result["protocol"]["truncated"] == sum(cut)
    said = capsys.readouterr().out
    assert f"{cut[0]} of 96 training texts are longer than 8 tokens and are truncated" in said
    assert f"{cut[1]} of 40 dev texts are longer than 8 tokens and are truncated" in said
    assert "96 training examples: texts from 'text', label from 'label'" in said


def test_sequences_longer_than_the_model_are_refused(base: Path, data: Path, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        finetuning.finetune(recipe(base, data, tmp_path, *LEARN, "data.max_length=33"))
    assert str(caught.value) == (
        "data.max_length: sequences of 33 tokens do not fit a model of 32 positions. Give at most 32."
    )


def test_the_default_length_is_at_most_the_models(base: Path, data: Path, tmp_path: Path) -> None:
    said = [one for one in LEARN if not one.startswith("data.max_length")]
    assert recipe(base, data, tmp_path, *said).data.max_length == 32


def test_a_label_that_only_the_dev_file_has_is_refused_with_its_line(base: Path, tmp_path: Path) -> None:
    table(tmp_path / "train.csv", 8, 0)
    path = table(tmp_path / "dev.csv", 4, 1)
    path.write_text(path.read_text() + "the cat,pure\n")
    with pytest.raises(TextError) as caught:
        finetuning.finetune(recipe(base, tmp_path, tmp_path / "out"))
    fact = "the label 'pure' is not among those learnt. Did you mean 'purr'?"
    assert re.fullmatch(rf".*dev\.csv:\d+: {re.escape(fact)}", str(caught.value))


def test_one_class_is_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("text,label\n" + "the cat,purr\n" * 20)
    with pytest.raises(RecipeError) as caught:
        finetuning.finetune(recipe(base, tmp_path, tmp_path / "out"))
    assert str(caught.value) == "task: there is only one class, ('purr',). Give examples of at least two."
    with pytest.raises(RecipeError, match="there is only one class"):
        finetuning.finetune(recipe(base, tmp_path, tmp_path / "several", *LEARN, "task.problem=multi_label"))


def test_the_held_out_set_is_stratified_by_class(base: Path, tmp_path: Path) -> None:
    labels = ["purr"] * 75 + ["bark"] * 20 + ["hiss"] * 4 + ["moo"]
    path = tmp_path / "train.csv"
    path.write_text("text,label\n" + "".join(f"the cat {row},{label}\n" for row, label in enumerate(labels)))
    chosen = recipe(base, path, tmp_path / "out")
    one, again = task_data.read(chosen), task_data.read(chosen)
    held = [example.label for example in one.dev.examples]
    assert (held.count("purr"), held.count("bark"), len(held)) == (8, 2, 10)
    assert "moo" not in held
    assert [example.location for example in one.dev.examples] == [example.location for example in again.dev.examples]
    assert one.dev.description == "10 of the training examples, held out, stratified by class"
    assert {one.location for part in (one.train, one.dev) for one in part.examples} == {
        f"{path}:{n}" for n in range(2, 102)
    }


def test_a_model_folder_is_named_only_where_there_is_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = {"headline": "f1", "summary": {"f1": {"mean": 0.5, "low": None}}}
    show(result, tmp_path)
    said = " ".join(capsys.readouterr().out.split())
    assert "model folder" in said.rpartition("report.html. ")[2]
    assert f"model {tmp_path}" not in said
    (tmp_path / "model").mkdir()
    show(result, tmp_path)
    said = " ".join(capsys.readouterr().out.split())
    assert f"model {tmp_path / 'model'}, scores" in said
    assert "not kept" not in said


def test_the_guessed_task_and_the_defaults_for_few_rows_are_printed(
    base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "prices.csv"
    path.write_text("text,price\n" + "".join(f"the old cat {row},{row * 3}.5\n" for row in range(200)))
    found = task_recipe.build_recipe(base, path, tmp_path / "out", dev=None, task=None, seeds=1, overrides=[])
    assert found.task.settings.problem == "regression"
    assert (found.train.epochs, found.data.batch_size, found.optimizer.learning_rate) == (20.0, 8, 2e-4)
    assert capsys.readouterr().out == (
        "Task: regression, numbers from 0.5 to 597.5 in 'price', the only column left; "
        "task.problem=single_label makes a class of each number\n"
        "200 rows are few: 20 epochs, batch size 8, learning rate 0.0002; "
        "epochs, batch size and learning rate can be given\n"
    )
    said = ["train.epochs=2", "data.batch_size=4", "optimizer.learning_rate=1e-3", "task.problem=single_label"]
    found = task_recipe.build_recipe(base, path, tmp_path / "out", dev=None, task=None, seeds=1, overrides=said)
    assert found.task.settings.problem == "single_label"
    assert (found.train.epochs, found.data.batch_size, found.optimizer.learning_rate) == (2.0, 4, 1e-3)
    assert "are few" not in capsys.readouterr().out
    said[0] = "train.steps=2"  # as much a choice as epochs
    task_recipe.build_recipe(base, path, tmp_path / "out", dev=None, task=None, seeds=1, overrides=said)
    assert "are few" not in capsys.readouterr().out


def test_steps_can_be_given_in_the_place_of_epochs(base: Path, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["finetune", str(base), str(data), "--out", str(out), "--steps", "2", "--batch-size", "4", *FAST]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    assert [record["step"] for record in log.read(out / "seed-0" / log.NAME) if "loss" in record][-1] == 2


@pytest.mark.parametrize(
    ("length", "updates"), [("epochs=1", 3), ("epochs=2", 6), ("epochs=0.2", 1), ("steps=1", 1), ("steps=5", 5)]
)
def test_a_run_of_few_updates_says_so(
    length: str, updates: int, base: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [*FAST, "data.batch_size=16", "train.gradient_accumulation=2", f"train.{length}"]
    finetuning.finetune(recipe(base, data, tmp_path, *settings))
    said = " ".join(capsys.readouterr().out.split())
    remedy = "Give more epochs (train.epochs) or a smaller batch (data.batch_size)"
    line = f"only {updates} update{'' if updates == 1 else 's'}: too few to learn from. {remedy}"
    assert (line in said) is (updates < 5)
    assert ("only" in said) is (updates < 5)
    assert len(losses(tmp_path)) == updates


def test_many_rows_and_glue_keep_the_defaults(base: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table(tmp_path / "many.csv", 3000, 0)
    for path in (tmp_path / "many.csv", tmp_path / "RTE"):
        if path.suffix == "":
            path.mkdir()
            for name in ("train.tsv", "dev.tsv"):
                (path / name).write_text("index\tsentence1\tsentence2\tlabel\n" + "0\ta cat\ta dog\tentailment\n" * 3)
        found = task_recipe.build_recipe(base, path, tmp_path / "out", dev=None, task=None, seeds=1, overrides=[])
        assert (found.train.epochs, found.data.batch_size, found.optimizer.learning_rate) == (3.0, 32, 5e-5)
    assert capsys.readouterr().out.endswith(
        "Task: classification, 2 classes: these are the files of RTE, a task of GLUE\n"
    )


def test_pairs_of_texts_train_sentence_embeddings(base: Path, tmp_path: Path) -> None:
    rows = [f"the cat {row},a cat of {row}" for row in range(20)]
    (tmp_path / "train.csv").write_text("\n".join(["question,answer", *rows]) + "\n")
    chosen = recipe(base, tmp_path, tmp_path / "out", *BRIEF)
    assert chosen.task.kind == "embed"
    assert finetuning.finetune(chosen)["headline"] == "accuracy"


def test_a_file_that_is_not_utf8_says_so(base: Path, tmp_path: Path) -> None:
    path = table(tmp_path / "train.csv", 20, 0)
    path.write_bytes(path.read_bytes() + "schöne cat,purr\n".encode("latin-1"))
    lines = task_data.summary_lines(task_data.read(recipe(base, path, tmp_path / "out")))
    assert lines[1] == "  left out: 1 row with bad bytes (the file is not UTF-8: save it as UTF-8)"


# ------------------------------------------------------------------------------------------------- other tasks


def predicted(run: Path, file: Path) -> list[dict[str, Any]]:
    """The predictions of a run's model on a file."""
    predict.predict(run, [str(file)], out=run / "said.jsonl")
    return [json.loads(line) for line in (run / "said.jsonl").read_text().splitlines()]


BRIEF = [*FAST, "optimizer.learning_rate=0.003", "train.steps=3"]


def test_token_classification(base: Path, tmp_path: Path) -> None:
    for name in ("train.conll", "dev.conll"):
        (tmp_path / name).write_text("the O\ncat B-PET\n\nold O\ndog B-PET\nriver O\n\n" * 8)
    result = finetuning.finetune(recipe(base, tmp_path, tmp_path / "out", *LEARN))
    assert result["headline"] == "f1"
    assert result["summary"]["f1"]["mean"] > 0.9
    (said,) = bertsmith.load(tmp_path / "out" / "model").tag(["old dog river"])
    assert said["tags"] == ["O", "B-PET", "O"]
    found = predicted(tmp_path / "out", tmp_path / "dev.conll")
    assert [one["words"] for one in found] == [["the", "cat"], ["old", "dog", "river"]] * 8
    assert found[1]["tags"] == ["O", "B-PET", "O"]


def test_question_answering(base: Path, tmp_path: Path) -> None:
    passage = "the old cat sees the green river"
    asked = [
        {"id": str(n), "question": "who sees ?", "answers": [{"text": "cat", "answer_start": 8}]} for n in range(8)
    ]
    for name in ("train-v1.1.json", "dev-v1.1.json"):
        content = {"version": "1.1", "data": [{"paragraphs": [{"context": passage, "qas": asked}]}]}
        (tmp_path / name).write_text(json.dumps(content))
    settings = [
        "data.max_length=32",
        "task.overlap=4",
        "task.max_question_length=8",
        "train.steps=20",
        "task.null_threshold=1.5",
        "task.max_answer_length=3",
        "task.n_best=7",
    ]
    result = finetuning.finetune(recipe(base, tmp_path, tmp_path / "out", *LEARN, *settings))
    assert result["headline"] == "f1"
    model = bertsmith.load(tmp_path / "out" / "model")
    config: Any = model.objective.config
    assert (config.null_threshold, config.max_answer_length, config.n_best, config.overlap) == (1.5, 3, 7, 4)
    assert model.answer("who sees ?", passage)["best_span"] == "cat"
    found = predicted(tmp_path / "out", tmp_path / "dev-v1.1.json")
    assert [(one["id"], one["best_span"]) for one in found] == [(str(number), "cat") for number in range(8)]


def test_multiple_choice(base: Path, tmp_path: Path) -> None:
    rows = ["context,ending0,ending1,label"] + ["the cat,likes,dog,0", "old river,dog,likes,1"] * 8
    for name in ("train.csv", "dev.csv"):
        (tmp_path / name).write_text("\n".join(rows) + "\n")
    result = finetuning.finetune(recipe(base, tmp_path, tmp_path / "out", *LEARN, task="choose"))
    assert result["summary"]["accuracy"]["mean"] > 0.9
    assert bertsmith.load(tmp_path / "out" / "model").choose("the cat", ["dog", "likes"])["ending"] == "likes"
    assert {one["ending"] for one in predicted(tmp_path / "out", tmp_path / "dev.csv")} == {"likes"}


def test_sentence_embeddings_are_pooled_as_the_folder_says(base: Path, tmp_path: Path) -> None:
    rows = ["sentence1\tsentence2"] + ["the cat\ta cat", "old dog\tdog", "river green\tgreen river"] * 6
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text("\n".join(rows) + "\n")
    settings = [*BRIEF, "task.pooling=first"]
    result = finetuning.finetune(recipe(base, tmp_path, tmp_path / "out", *settings, task="embed"))
    assert result["headline"] == "accuracy"
    model = bertsmith.load(tmp_path / "out" / "model")
    assert (model.sentence_config.pooling, model.sentence_config.normalise, model.sentence_config.length) == (
        "first",
        True,
        16,
    )
    assert model.embed(["the cat"], precision="float32").shape == (1, 32)
    tensors = safetensors.torch.load_file(tmp_path / "out" / "model" / "model.safetensors")
    assert not any("cls." in name for name in tensors)


def test_multi_label_classification_and_regression(base: Path, tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text(
        "\n".join(json.dumps({"text": text, "labels": labels}) for text, labels in
                  [("the cat", ["pet", "soft"]), ("old dog", ["pet"]), ("river", [])] * 8)
    )  # fmt: skip
    result = finetuning.finetune(
        recipe(base, tmp_path, tmp_path / "labels", *BRIEF, "task.problem=multi_label", "task.threshold=0.9")
    )
    kept: Any = bertsmith.load(tmp_path / "labels").objective.config
    assert kept.threshold == 0.9
    assert result["headline"] == "micro_f1"
    (said,) = bertsmith.load(tmp_path / "labels" / "model").classify(["the cat"])
    assert list(said["probabilities"]) == ["pet", "soft"]
    (tmp_path / "numbers").mkdir()
    (tmp_path / "numbers" / "train.csv").write_text("text,score\n" + "the cat,4.5\nold dog,1\nriver,0\n" * 8)
    result = finetuning.finetune(
        recipe(base, tmp_path / "numbers", tmp_path / "out", *BRIEF, "task.problem=regression")
    )
    assert result["headline"] == "spearman"
    assert list(bertsmith.load(tmp_path / "out" / "model").classify(["the cat"])[0]) == ["number"]


def test_a_mistake_can_be_corrected_in_the_same_folder(tmp_path: Path, base: Path) -> None:
    (tmp_path / "a.csv").write_text("text,label\n" + "the cat,a\nthe dog,b\n" * 8)
    given = {"dev": None, "task": None, "seeds": 1}
    with pytest.raises(RecipeError, match=r"^data\.max_length: sequences of 600 tokens do not fit"):
        finetuning.finetune(
            task_recipe.build_recipe(
                base, tmp_path / "a.csv", tmp_path / "out", **given, overrides=["data.max_length=600"]
            )
        )
    mended = ["train.steps=1", "train.evaluations=1", "data.max_length=16"]
    finetuning.finetune(task_recipe.build_recipe(base, tmp_path / "a.csv", tmp_path / "out", **given, overrides=mended))
    changed = [*mended[:2], "data.max_length=32"]
    with pytest.raises(RunError, match=r"was begun with another recipe: data\.max_length was 16, is 32"):
        finetuning.finetune(
            task_recipe.build_recipe(base, tmp_path / "a.csv", tmp_path / "out", **given, overrides=changed)
        )


@pytest.mark.exhaustive
def test_a_native_network_is_pretrained_and_fine_tuned(data: Path, tmp_path: Path) -> None:
    """Pretrained with NSP, whose head its folder layout lacks; then classification by mean pooling."""
    small = ["width=32", "heads=2", "layers=2", "feed_forward=48", "max_length=32"]
    changes = ["kind=smith-base", *small]
    text = tiny.prepared(tmp_path)
    built = tiny.recipe(
        text, tmp_path / "made", *(f"model.{change}" for change in changes), "optimizer.hidden_optimizer=muon"
    )
    pretraining.pretrain(built)
    opened = folders.read(tmp_path / "made" / "model")
    assert opened.parts == {"mlm_head"}
    assert opened.config_json["model_type"] == "modernbert"
    words = json.loads((tmp_path / "made" / "model" / "tokenizer_config.json").read_text())
    assert words["model_input_names"] == ["input_ids", "attention_mask"]
    assert opened.config_json["cls_token_id"] == opened.config_json["bos_token_id"] == 2
    more = ["task.pooling=mean", "dropout=0.2", "optimizer.hidden_optimizer=muon", "optimizer.muon_learning_rate=0.01"]
    chosen = recipe(tmp_path / "made" / "model", data, tmp_path / "tuned", *LEARN, *more)
    results = finetuning.finetune(chosen)
    assert results["summary"]["accuracy"]["mean"] > 0.9
    model = bertsmith.load(tmp_path / "tuned" / "model")
    assert model.objective.config.pooling == "mean"
    assert model.trunk.config.dropout == model.trunk.config.attention_dropout == 0.2
    assert [said["label"] for said in model.classify(["the old dog", "in the garden the cat"])] == ["bark", "purr"]
    begun = finetuning._pretrained_weights(task_data.build_task(chosen, opened.config, task_data.read(chosen)), opened)
    assert torch.equal(begun["pooler.dense.weight"], opened.state_dict["mlm_head.dense.weight"])


def test_simcse_without_dropout_is_refused(data: Path, tmp_path: Path) -> None:
    still = shape(max_length=32, dropout=0.0, attention_dropout=0.0)
    objective = MaskedLM(Transformer(still), MaskedLM.Config(pairs="none"))
    folders.write(tmp_path / "still", still, objective.state_dict())
    tokenizer().save(tmp_path / "still")
    chosen = [*FAST, "train.steps=1", "task.loss=dropout"]
    with pytest.raises(RecipeError, match=r"^task.loss: the model has no dropout, .* Add dropout=0\.1\.$"):
        finetuning.finetune(recipe(tmp_path / "still", data, tmp_path / "out", *chosen, task="embed"))
    result = finetuning.finetune(
        recipe(tmp_path / "still", data, tmp_path / "out", *chosen, "dropout=0.1", task="embed")
    )
    assert result["runs"]


# -------------------------------------------------------------------------------------------------- refusals first


def test_a_missing_model_is_refused_before_a_task_is_guessed(base: Path, data: Path, tmp_path: Path) -> None:
    for missing in (tmp_path / "nowhere", Path("bert-nowhere")):
        result = CliRunner().invoke(app, ["finetune", str(missing), str(data), "--out", str(tmp_path / "out")])
        assert result.exit_code == 1
        assert "Task:" not in result.output
        assert "few" not in result.output
        assert isinstance(result.exception, FolderError)
        assert f"{missing}: is missing." in str(result.exception)
    for there in (base, Path("transformer-tiny"), Path("recipe.toml")):
        task_recipe.check(there)
