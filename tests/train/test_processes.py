"""Several processes train as one: the same bits in deterministic runs, from any number of them to any other."""

import errno
import math
import os
import random
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from threading import Timer
from typing import Any

import pytest
import safetensors.torch
import scripts
import torch
import torch.distributed as distributed
from tasks.small_images import save_folder
from tiny import NOUNS, assert_same, losses, prepared, recipe, weights
from train.crew import Job, end, start

import bertsmith
from bertsmith import config
from bertsmith.cli import main
from bertsmith.commands import pretrain, pretrain_images
from bertsmith.errors import BertsmithError, FolderError, RecipeError, RunError
from bertsmith.files import read_json
from bertsmith.objectives.base import Term
from bertsmith.objectives.masked import MaskedLM
from bertsmith.recipe import FineTune, Recipe
from bertsmith.runs import finetuning, task_recipe
from bertsmith.runs.micro_batches import divide
from bertsmith.train import checkpoint, log
from bertsmith.train.gradient_sum import GradientSum
from bertsmith.train.processes import ALONE, Processes, joined
from bertsmith.train.train_config import TrainConfig
from bertsmith.train.trainer import Trainer

SIZES = (1, 2, 4)
OPTIMIZERS = ("optimizer.kind=adamw", "optimizer.kind=lamb", "optimizer.hidden_optimizer=muon")
SHORT = ("train.steps=5", "train.gradient_accumulation=4", "data.batch_tokens=256", "train.evaluations=1")
EXACT = (*SHORT, "train.deterministic=true")
WALK = (1, 1, 2, 2, 4, 4, 1, 4, 2, 1)  # every transition between the sizes
LONG = (*EXACT, f"train.steps={2 * len(WALK)}", "train.checkpoints=1")
TUNED = ("train.epochs=none", "train.steps=3", "train.gradient_accumulation=4", "data.batch_size=4")
slow = pytest.mark.slow("starts processes")


def stopped_at(step: int, given: Recipe) -> None:
    """A run whose last process gets a signal in a step."""
    update = Trainer.update

    def signalled(self: Trainer, *arguments: Any) -> None:
        update(self, *arguments)
        if self.state.step == step and self.processes.rank == self.processes.size - 1:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "update", signalled)
        pretrain.pretrain(given)


def poisoned(given: Recipe) -> None:
    """A run in which one loss of one process is not a number."""
    forward, rank, calls = MaskedLM.forward, int(os.environ["RANK"]), [0]

    def poison(self: MaskedLM, batch: Any) -> dict[str, Term]:
        terms = forward(self, batch)
        calls[0] += self.training
        if rank == 1 and self.training and calls[0] == 3:
            return {name: Term(term.total * math.nan, term.correct) for name, term in terms.items()}
        return terms

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MaskedLM, "forward", poison)
        pretrain.pretrain(given)


def full(given: Recipe) -> None:
    """A run whose last process has no room for its part of the second checkpoint."""
    save, calls = checkpoint.save, iter(range(1, 100))

    def refuse(file: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def saving(*arguments: Any, processes: Processes, **options: Any) -> Path:
        with pytest.MonkeyPatch.context() as patch:
            if next(calls) == 2 and processes.rank == processes.size - 1:
                patch.setattr(os, "write", refuse)
            return save(*arguments, processes=processes, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoint, "save", saving)
        pretrain.pretrain(given)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("tiny"))


def tuned(data: Path, out: Path, change: str) -> FineTune:
    """The recipe of a fine-tuning run on labels that are words of the texts."""
    given = [*TUNED, "train.deterministic=true", "data.max_length=16", "train.precision=float32", change]
    model, table = data.parent / "base" / "model", data.parent / "table.csv"
    return task_recipe.build_recipe(model, table, out, dev=None, task="classify", seeds=1, overrides=given)


SHARED = ["train.gradient_accumulation=4", "train.deterministic=true", "data.batch_size=4", "train.evaluations=1"]


def complete_images(images: Path, out: Path) -> None:
    """A masked autoencoder of a few steps."""
    small = ["model.width=16", "model.feed_forward=32", "objective.decoder_width=16", "train.steps=3", *SHARED]
    pretrain_images.pretrain(pretrain_images.read_recipe("tiny/mae", images, out, small))


def classify_images(images: Path, out: Path) -> None:
    """A small classifier of a few steps, with augmentation."""
    small = ["network.width=16", "network.heads=2", "network.feed_forward=32", "network.layers=1", *SHARED]
    bertsmith.finetune("vit-tiny", images, out, dev=images, overrides=[*small, "train.epochs=3"])


IMAGE_RUNS = {"completed": complete_images, "classified": classify_images}


@pytest.fixture(scope="module")
def base(data: Path) -> Path:
    """A model and a table beside the data, for fine-tuning."""
    pretrain.pretrain(recipe(data, data.parent / "base", "train.steps=1", *SHORT[1:]))
    rows = [f"the {noun} sees the {other} .,{noun}" for noun in NOUNS[:3] for other in NOUNS]
    save_folder(data.parent / "images", 16)
    (data.parent / "table.csv").write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    return data


@pytest.fixture(scope="module")
def done(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    """All runs of several processes, by their folders' names."""
    folder, jobs, data = tmp_path_factory.mktemp("processes"), list[Job](), base

    def add(name: str, size: int, *changes: str, work: Any = pretrain.pretrain, before: tuple[Any, ...] = ()) -> None:
        given = recipe(data, folder / name, *changes)
        jobs.append(Job(size, folder / f"{name}.txt", work, (*before, given)))

    for size in SIZES:
        for number, change in enumerate(OPTIMIZERS):
            add(f"{number}-{size}", size, *EXACT, change)
            out = folder / f"tuned-{number}-{size}"
            jobs.append(Job(size, out.with_suffix(".txt"), finetuning.finetune, (tuned(data, out, change),)))
    for size in SIZES[:2]:
        for name, work in IMAGE_RUNS.items():
            out = folder / f"{name}-{size}"
            jobs.append(Job(size, out.with_suffix(".txt"), work, (base.parent / "images", out)))
        add(f"as they come-{size}", size, *SHORT)
        add(f"muon as they come-{size}", size, *SHORT, OPTIMIZERS[2])
    add("not sharded", 2, *SHORT, "train.shard_optimizer=false")
    add("not sharded in order", 2, *EXACT, OPTIMIZERS[2], "train.shard_optimizer=false")
    add("straight", 1, *LONG)
    add("poisoned", 2, *EXACT, work=poisoned)
    add("full", 2, *EXACT, "train.checkpoints=5", work=full)
    add("full", 4, *EXACT, "train.checkpoints=5")
    for number, size in enumerate(WALK[:-1], 1):
        add("walk", size, *LONG, work=stopped_at, before=(2 * number,))
    add("walk", WALK[-1], *LONG)
    codes = end(start(jobs))
    said = "\n".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.txt.*")))
    assert codes == [0] * len(codes), said
    return {job.output.stem: job for job in jobs}


def folder_of(job: Job) -> Path:
    return job.output.with_suffix("")


@slow
@pytest.mark.parametrize("number", range(len(OPTIMIZERS)), ids=OPTIMIZERS)
def test_a_deterministic_run_has_the_same_bits_on_any_number_of_processes(number: int, done: dict[str, Job]) -> None:
    one, *others = (folder_of(done[f"{number}-{size}"]) for size in SIZES)
    assert len(losses(one)) == 5
    for other in others:
        assert_same(one, other)


@slow
@pytest.mark.parametrize("number", range(len(OPTIMIZERS)), ids=OPTIMIZERS)
def test_so_has_a_fine_tuned_model(number: int, done: dict[str, Job]) -> None:
    first, *others = (folder_of(done[f"tuned-{number}-{size}"]) for size in SIZES)
    one, result = (read(first) for read in (tuned_weights, tuned_summary))
    for out in others:
        assert losses(out / "seed-0") == losses(first / "seed-0")
        other = tuned_weights(out)
        assert one.keys() == other.keys()
        assert all(torch.equal(tensor, other[name]) for name, tensor in one.items())
        assert tuned_summary(out) == result


def tuned_weights(out: Path) -> dict[str, torch.Tensor]:
    return safetensors.torch.load_file(out / "model" / "model.safetensors")


def tuned_summary(out: Path) -> Any:
    return read_json(out / "result.json")["summary"]


@slow
@pytest.mark.parametrize("name", IMAGE_RUNS)
def test_so_has_a_model_of_images(name: str, done: dict[str, Job]) -> None:
    folders = [folder_of(done[f"{name}-{size}"]) for size in SIZES[:2]]
    one, two = (losses(next(folder.rglob("log.jsonl")).parent) for folder in folders)
    assert len(one) == 3
    assert one == two
    first, second = (next(folder.rglob("model.safetensors")).read_bytes() for folder in folders)
    assert first == second


@slow
def test_the_number_of_processes_may_change_at_every_resume(done: dict[str, Job]) -> None:
    assert_same(folder_of(done["straight"]), folder_of(done["walk"]))
    said = done["walk"].said()
    steps = [int(found) for found in re.findall(r"resuming from step (\d+)", said)]
    assert steps == list(range(2, 2 * len(WALK), 2))
    assert len(re.findall(r"stopped at step \d+, saved\.", said)) == len(WALK) - 1


@slow
def test_a_divided_optimizer_makes_the_same_updates_as_a_whole_one(done: dict[str, Job]) -> None:
    assert_same(folder_of(done["2-1"]), folder_of(done["not sharded in order"]))


@slow
@pytest.mark.parametrize(
    "names",
    [
        ("as they come-1", "as they come-2"),
        ("muon as they come-1", "muon as they come-2"),
        ("as they come-2", "not sharded"),
    ],
    ids=["adamw", "muon", "not sharded"],
)
def test_sums_as_they_come_differ_by_rounding_alone(names: tuple[str, str], done: dict[str, Job]) -> None:
    folders = [folder_of(done[name]) for name in names]
    one, other = map(weights, folders)
    for name, tensor in one.items():
        torch.testing.assert_close(other[name], tensor, rtol=0, atol=1e-5, msg=name)
    pairs = zip(*map(losses, folders), strict=True)
    assert all(step == number and math.isclose(a, b, rel_tol=1e-6) for (step, a), (number, b) in pairs)


@slow
def test_a_loss_of_one_process_that_is_no_number_is_skipped_by_all(done: dict[str, Job]) -> None:
    steps = [one for one in log.read(folder_of(done["poisoned"]) / log.NAME) if one["kind"] == "step"]
    assert [one["skipped"] for one in steps] == [0, 1, 1, 1, 1]  # the third micro-batch of a process is in step 2
    assert all(torch.isfinite(tensor).all() for tensor in weights(folder_of(done["poisoned"])).values())


@slow
def test_a_checkpoint_is_written_in_parts_and_all_stop_where_one_has_no_room_for_its_own(done: dict[str, Job]) -> None:
    """The run of four processes goes on from the first checkpoint of two, and ends as if nothing had been."""
    lines = [line for rank in (0, 1) for line in done["full"].said(rank).splitlines() if "the disk is full" in line]
    assert len(lines) == 2
    assert all(re.search(r"step-000000002\S*: the disk is full: [\d,]+ bytes needed", line) for line in lines)
    assert "resuming from step 1" in done["full"].said()
    assert_same(folder_of(done["0-1"]), folder_of(done["full"]))
    [*_, newest] = sorted(folder_of(done["full"]).glob("checkpoints/step-*"))
    for table in ("model", "optimizer"):
        parts = [newest / f"{table}-{rank}-of-4.safetensors" for rank in range(4)]
        assert sorted(newest.glob(f"{table}-*")) == parts
        sizes = [path.stat().st_size for path in parts]
        assert max(sizes) < 0.6 * sum(sizes)


def signalled(rank: int, seconds: float, given: Recipe) -> None:
    """A run in which a process gets a signal, some seconds after training has begun."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # before and after the loop there is nothing to save
    timer = Timer(seconds, os.kill, (os.getpid(), signal.SIGTERM))
    begin = Trainer._begin

    def beginning(self: Trainer) -> None:
        if self.processes.rank == rank:
            timer.start()
        begin(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "_begin", beginning)
        try:
            pretrain.pretrain(given)
        finally:
            timer.cancel()


@slow
@pytest.mark.torture("A7 processes", suite=4, whole=50)
def test_a_signal_at_any_moment_to_one_of_two_processes_changes_no_result(
    data: Path, done: dict[str, Job], tmp_path: Path, times: int, record_property: Callable[[str, object], None]
) -> None:
    """Runs that get some signals each, and are then left in peace. A run that is ended by no signal is at its end."""
    straight = folder_of(done["straight"])
    duration = [one for one in log.read(straight / log.NAME) if one["kind"] == "step"][-1]["seconds"]
    chance, jobs = random.Random(2021), list[Job]()
    for number in range(times):
        out = tmp_path / f"run-{number // 5}"
        given = recipe(data, out, *LONG, "train.checkpoints=7")
        moment = chance.randrange(2), chance.uniform(0, duration / 4)
        jobs.append(Job(2, out.with_suffix(".txt"), signalled, (*moment, given)))
        if number % 5 == 4 or number == times - 1:
            jobs.append(Job(2, out.with_suffix(".txt"), pretrain.pretrain, (given,)))
    assert end(start(jobs)) == [0, 0]
    stops = 0
    for name in {job.output.stem for job in jobs}:
        assert_same(straight, tmp_path / name)
        said = (tmp_path / f"{name}.txt.0").read_text(encoding="utf-8")
        assert (tmp_path / f"{name}.txt.1").read_text(encoding="utf-8").count(": stopped ") == said.count(": stopped ")
        stops += said.count(": stopped ")
    assert stops >= times // 2  # the others came when training was over
    record_property("stops", stops)


def killing(step: int, given: Recipe) -> None:
    """A run whose second process is killed in a step."""
    update = Trainer.update

    def dying(self: Trainer, *arguments: Any) -> None:
        if self.state.step == step and self.processes.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        update(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "update", dying)
        pretrain.pretrain(given)


@slow
@pytest.mark.torture("A9", suite=1, whole=30)
def test_a_dead_process_ends_the_run_and_the_next_start_resumes_it(
    data: Path, tmp_path: Path, times: int, record_property: Callable[[str, object], None]
) -> None:
    changes = (*EXACT, "train.checkpoints=5")
    straight = Job(1, tmp_path / "said", pretrain.pretrain, (recipe(data, tmp_path / "one", *changes),))
    assert end(start([straight])) == [0]
    seconds = list[float]()
    for number in range(times):
        out = tmp_path / f"run-{number}"
        job = Job(2, tmp_path / f"said-{number}", killing, (1 + number % 4, recipe(data, out, *changes)))
        processes = start([job])
        processes[1].join(120)
        assert processes[1].exitcode == -signal.SIGKILL, job.said()
        died = time.monotonic()
        assert end(processes, 10) == [0, -signal.SIGKILL]  # as soon as is promised
        seconds.append(time.monotonic() - died)
        line = r"process 0 of 2 on \S+: lost another process of the run, which ended or cannot be reached\. "
        assert re.search(line + "Its own message says why; the same command resumes the run", job.said())
        again = Job(1, tmp_path / f"again-{number}", pretrain.pretrain, (recipe(data, out, *changes),))
        assert end(start([again])) == [0]
        assert_same(tmp_path / "one", out)
    record_property("seconds_until_the_others_end", round(max(seconds), 2))


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_a_sum_in_order_is_that_of_a_binary_tree(count: int) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1000))
    gradients = [torch.randn(1000, generator=torch.Generator().manual_seed(seed)) for seed in range(count)]
    gradient = GradientSum({"weight": parameter}, ALONE, in_order=True)
    for number, one in enumerate(gradients):
        parameter.grad = one.clone()
        gradient.add(torch.tensor([float(number)]))
    assert gradient.finish().item() == sum(range(count))
    tree = gradients
    while len(tree) > 1:
        tree = [left + right for left, right in zip(tree[::2], tree[1::2], strict=True)]
    assert parameter.grad is not None
    assert torch.equal(parameter.grad, tree[0])


def test_a_parameter_without_a_gradient_in_some_micro_batches_has_that_of_the_others() -> None:
    parameters = {name: torch.nn.Parameter(torch.zeros(1)) for name in ("often", "once", "never")}
    gradient = GradientSum(parameters, ALONE, in_order=True)
    for given in (["often"], ["often", "once"]):
        for name in given:
            parameters[name].grad = torch.ones(1)
        gradient.add(torch.zeros(1))
    gradient.finish()
    grads = {name: None if one.grad is None else one.grad.item() for name, one in parameters.items()}
    assert grads == {"often": 2.0, "once": 1.0, "never": None}


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FolderError("runs/a", "is gone", "Look for it"), r"runs/a: is gone\. Look for it\."),
        (ValueError("odd"), r"process 1 of 2 on \S+: failed \(ValueError: odd\)\. The same command resumes the run\."),
    ],
    ids=["in one line", "unexpected"],
)
def test_what_fails_in_one_process_fails_in_all_with_the_same_line(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = list[Any]()

    def exchange(outcomes: list[Any], own: Any, group: object) -> None:
        given.append(own)
        outcomes[:] = [("done", None), own] if len(given) == 1 else [own, given[0]]

    def fail() -> str:
        raise error

    monkeypatch.setattr(distributed, "all_gather_object", exchange)
    with pytest.raises(type(error)) as raised:
        Processes(1, 2).together(fail)
    assert raised.value is error
    with pytest.raises(BertsmithError, match=line):
        Processes(0, 2).together(lambda: "done")
    given[:] = [("done there", None)]
    assert Processes(0, 2).together(lambda: "done here") == ["done here", "done there"]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 7])
def test_parts_are_all_micro_batches_once_and_in_order(size: int) -> None:
    for count in range(size, 20):
        parts = [Processes(rank, size).part(count) for rank in range(size)]
        assert [number for part in parts for number in part] == list(range(count))
        assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_an_update_stays_as_large_when_its_micro_batches_are_divided(tmp_path: Path) -> None:
    given = recipe(tmp_path, tmp_path / "run", "data.batch_tokens=1024", "train.gradient_accumulation=2")
    assert divide(given, Processes(0, 2)) == given
    divided = divide(given, Processes(3, 8))
    assert (divided.train.gradient_accumulation, divided.data.batch_tokens) == (8, 256)


@pytest.mark.parametrize(
    ("size", "change", "line"),
    [
        (3, "train.gradient_accumulation=2", "data.batch_tokens: an update of 2 x 512 cannot be divided among 3"),
        (64, "train.gradient_accumulation=1", "data.batch_tokens: an update of 1 x 512 cannot be divided among 64"),
        (3, "train.deterministic=true", "train.deterministic: sums in a fixed order are made in pairs, and here are 3"),
    ],
)
def test_what_cannot_be_divided_is_refused(size: int, change: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=re.escape(line)):
        divide(recipe(tmp_path, tmp_path / "run", change), Processes(0, size))


def test_a_resumed_run_keeps_its_micro_batches(data: Path, tmp_path: Path) -> None:
    pretrain.pretrain(recipe(data, tmp_path / "run", "train.steps=1", *SHORT[1:]))
    asked = recipe(data, tmp_path / "run", "train.steps=2", "data.batch_tokens=1024", "train.gradient_accumulation=1")
    kept = divide(asked, Processes(0, 2))
    assert (kept.train.gradient_accumulation, kept.data.batch_tokens) == (4, 256)
    with pytest.raises(RecipeError, match="8 processes are more than the 4 micro-batches of an update"):
        divide(asked, Processes(0, 8))


def test_a_deterministic_run_has_micro_batches_in_pairs(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"deterministic sums are in pairs, and gradient_accumulation is 3\. Give"):
        recipe(tmp_path, tmp_path / "run", "train.deterministic=true", "train.gradient_accumulation=3")


@slow
def test_torchrun_starts_the_processes_of_a_run(data: Path, tmp_path: Path) -> None:
    path = tmp_path / "tiny.toml"
    path.write_text(config.dump(recipe(data, tmp_path / "run", "train.steps=2", "data.batch_tokens=512")))

    start = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "bertsmith"]
    done = scripts.python(*start, "pretrain", str(path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("validation loss of masked words") == 1  # the main process alone speaks
    assert (tmp_path / "run" / "model" / "config.json").exists()


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({}, "RANK and MASTER_ADDR and MASTER_PORT are"),
        ({"RANK": "0", "MASTER_ADDR": "127.0.0.1"}, "MASTER_PORT is"),
    ],
    ids=["the size alone", "no port"],
)
def test_a_number_of_processes_that_torchrun_did_not_start_is_refused_in_one_line(
    given: dict[str, str], missing: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in ({"WORLD_SIZE": "4"} | given).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(RunError) as caught:
        pretrain.pretrain(recipe(data, tmp_path / "run", *SHORT))
    remedy = "Start several processes by torchrun; for one alone, unset WORLD_SIZE"
    assert str(caught.value) == f"WORLD_SIZE=4: is set, but {missing} not. {remedy}."


def test_values_by_which_processes_cannot_connect_are_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {"WORLD_SIZE": "4(x2)", "RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)
    line = r"^WORLD_SIZE=4\(x2\): the processes cannot connect \(invalid literal .*\)\. Start several processes by"
    with pytest.raises(RunError, match=line), joined(torch.device("cpu"), tmp_path / "run", TrainConfig(steps=1)):
        pass


def test_a_deterministic_run_has_the_same_bits_on_any_number_of_threads(data: Path, tmp_path: Path) -> None:
    """Plain, torch takes every core; torchrun gives each process one thread."""
    steps = ("train.steps=2", "train.deterministic=true", "train.gradient_accumulation=2")
    for threads in (1, 3):
        torch.set_num_threads(threads)
        try:
            pretrain.pretrain(recipe(data, tmp_path / str(threads), *steps))
            assert torch.get_num_threads() == threads
        finally:
            torch.set_num_threads(1)
    assert_same(tmp_path / "1", tmp_path / "3")


def test_a_verb_that_works_in_one_process_refuses_more(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(sys, "argv", ["bertsmith", "fill", "runs/demo", "the [MASK] ."])
    with pytest.raises(SystemExit):
        main()
    line = "bertsmith: fill: works in one process, and here are 2. Start it without torchrun.\n"
    assert capsys.readouterr().err == line
