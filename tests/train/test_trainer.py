"""The loop obeys its laws: sums divided once, exact resumption, bad steps left out."""

import errno
import itertools
import math
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from tiny import assert_same, fail_at, losses, prepared, recipe, weights, write_text

from bertsmith.commands import pretrain
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.prepare import prepare
from bertsmith.errors import RunError
from bertsmith.objectives.base import Term
from bertsmith.objectives.masked import MaskedBatch, MaskedLM
from bertsmith.recipe import Recipe
from bertsmith.runs import build
from bertsmith.text.tokenizer import TokenizerConfig, train
from bertsmith.train import log
from bertsmith.train.clock import Clock, Extent, format_duration, parse_duration
from bertsmith.train.optimizers import Optimizer, OptimizerConfig
from bertsmith.train.schedules import ScheduleConfig, learning_rate_factor

pytestmark = pytest.mark.slow("trains")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def whole(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that nobody disturbs."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    pretrain.pretrain(recipe(data, out))
    return out


def test_a_run_learns_and_writes_all_its_files(data: Path, tmp_path: Path) -> None:
    figures = pretrain.pretrain(recipe(data, tmp_path / "run", "train.steps=120", "model.dropout=0.0"))
    records = log.read(tmp_path / "run" / log.NAME)
    first = next(entry for entry in records if entry["kind"] == "validation")
    assert first["step"] == 0
    assert figures["masked_loss"] < first["masked_loss"] - 0.5
    assert {"masked_accuracy", "nsp_accuracy", "bits_per_byte", "loss"} <= figures.keys()
    for name in (
        "recipe.toml",
        "log.jsonl",
        "report.html",
        "model/config.json",
        "model/model.safetensors",
        "model/README.md",
    ):
        assert (tmp_path / "run" / name).stat().st_size > 0, name


def test_micro_batches_do_not_change_the_step(data: Path, tmp_path: Path) -> None:
    """Three uneven micro-batches give the gradient of their union: losses are sums, divided once."""
    built = recipe(data, tmp_path, "model.dropout=0.0", "model.attention_dropout=0.0", "data.batch_tokens=256")
    tokenizer, train, _ = build.load_data(built)
    objective = build.objective(built, tokenizer)
    feed = build.feed(built, objective, tokenizer, train)
    parts, position = [], feed.first_position()
    for _ in range(3):
        parts.append(feed(position))
        position = feed.next_position(position)
    parts[1] = _cut(parts[1], keep=10)
    counts = {name: sum(part.counts[name] for part in parts) for name in ("masked", "nsp")}
    union = _joined(parts)

    def gradients(batches: list[MaskedBatch]) -> list[torch.Tensor]:
        objective.zero_grad()
        for batch in batches:
            sum(term.total / counts[name] for name, term in objective(batch).items()).backward()
        return [parameter.grad.clone() for parameter in objective.parameters()]

    for one, other in zip(gradients(parts), gradients([union]), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def _cut(batch: MaskedBatch, keep: int) -> MaskedBatch:
    from dataclasses import replace

    return replace(
        batch,
        target_positions=batch.target_positions[:keep],
        targets=batch.targets[:keep],
        counts={**batch.counts, "masked": keep},
    )


def _joined(parts: list[MaskedBatch]) -> MaskedBatch:
    from dataclasses import replace

    sizes = [len(part.tokens.ids) for part in parts]
    offsets = [sum(sizes[:index]) for index in range(len(parts))]
    tokens = parts[0].tokens
    bounds = [part.tokens.bounds[:-1] + offset for part, offset in zip(parts, offsets, strict=True)]
    joined = {
        name: torch.cat([getattr(part.tokens, name) for part in parts]) for name in ("ids", "positions", "segments")
    }
    ends = torch.tensor([sum(sizes)], dtype=torch.int32)
    return MaskedBatch(
        tokens=replace(tokens, bounds=torch.cat([*bounds, ends]).int(), **joined),
        target_positions=torch.cat(
            [part.target_positions + offset for part, offset in zip(parts, offsets, strict=True)]
        ),
        targets=torch.cat([part.targets for part in parts]),
        labels=torch.cat([part.labels for part in parts]),
    )


def test_gradient_accumulation_sees_the_same_data_as_a_larger_batch(data: Path, tmp_path: Path) -> None:
    pretrain.pretrain(recipe(data, tmp_path / "two", "train.steps=4", "train.gradient_accumulation=2"))
    tokens = [entry["tokens"] for entry in log.read(tmp_path / "two" / log.NAME) if entry["kind"] == "step"]
    assert all(980 < after - before <= 1024 for before, after in zip([0, *tokens], tokens, strict=False))


def test_the_number_of_workers_does_not_change_a_run(data: Path, tmp_path: Path) -> None:
    pretrain.pretrain(recipe(data, tmp_path / "none", "data.workers=0", "train.steps=12"))
    pretrain.pretrain(recipe(data, tmp_path / "three", "data.workers=3", "train.steps=12"))
    assert_same(tmp_path / "none", tmp_path / "three")


def test_a_run_stopped_anywhere_resumes_exactly(data: Path, whole: Path, tmp_path: Path) -> None:
    """Stopped by an error at steps 7, 15 and 23; each start goes on from the newest checkpoint."""
    for stop in (7, 15, 23):
        fail_at(stop, recipe(data, tmp_path / "broken"))
    pretrain.pretrain(recipe(data, tmp_path / "broken"))
    assert_same(whole, tmp_path / "broken")


@pytest.mark.parametrize("poison", ["loss", "gradient"])
def test_a_step_with_a_non_finite_gradient_changes_nothing_and_is_counted(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, poison: str
) -> None:
    forward, calls = MaskedLM.forward, []

    def poisoned(self: MaskedLM, batch: MaskedBatch) -> dict[str, Term]:
        terms = forward(self, batch)
        if self.training:
            calls.append({name: tensor.clone() for name, tensor in self.state_dict().items()})
            if len(calls) == 3 and poison == "loss":
                terms["masked"] = Term(terms["masked"].total * math.nan, terms["masked"].correct)
            if len(calls) == 3 and poison == "gradient":
                terms["masked"].total.register_hook(lambda gradient: gradient * math.inf)
        return terms

    monkeypatch.setattr(MaskedLM, "forward", poisoned)
    pretrain.pretrain(recipe(data, tmp_path / "run", "train.steps=5"))
    skipped = [entry["skipped"] for entry in log.read(tmp_path / "run" / log.NAME) if entry["kind"] == "step"]
    assert skipped == [0, 0, 1, 1, 1]
    assert all(torch.equal(calls[2][name], calls[3][name]) for name in calls[2])  # step 3 moved nothing
    assert any(not torch.equal(calls[3][name], calls[4][name]) for name in calls[3])
    assert all(torch.isfinite(tensor).all() for tensor in weights(tmp_path / "run").values())


def test_ten_bad_steps_in_a_row_end_the_run(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    forward = MaskedLM.forward

    def poisoned(self: MaskedLM, batch: MaskedBatch) -> dict[str, Term]:
        terms = forward(self, batch)
        return {
            name: Term(term.total * math.nan if self.training else term.total, term.correct)
            for name, term in terms.items()
        }

    monkeypatch.setattr(MaskedLM, "forward", poisoned)
    with pytest.raises(RunError, match=r"not finite .* steps in a row"):
        pretrain.pretrain(recipe(data, tmp_path / "run", "train.steps=200"))


@pytest.mark.exhaustive
def test_a_run_by_budget_ends_in_time_and_its_learning_rate_follows_the_time(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that goes on whenever it is looked at, since a busy machine takes its time for a step."""
    looks = itertools.count()
    monkeypatch.setattr("bertsmith.train.clock.time", SimpleNamespace(monotonic=lambda: 0.01 * next(looks)))
    pretrain.pretrain(_by("budget", '"2s"', data, tmp_path / "run"))
    steps = [entry for entry in log.read(tmp_path / "run" / log.NAME) if entry["kind"] == "step"]
    assert 1.8 < steps[-1]["seconds"] < 2.2
    assert steps[-1]["learning_rate"] < 0.1 * max(entry["learning_rate"] for entry in steps)


def test_a_run_by_epochs_sees_the_text_so_often(data: Path, tmp_path: Path) -> None:
    pretrain.pretrain(_by("epochs", "1", data, tmp_path / "run"))
    tokens = [entry["tokens"] for entry in log.read(tmp_path / "run" / log.NAME) if entry["kind"] == "step"][-1]
    _, train, _ = build.load_data(recipe(data, tmp_path))
    assert train.tokens < tokens < 3 * train.tokens  # random second texts and special tokens come on top


def _by(kind: str, value: str, data: Path, out: Path) -> Recipe:
    from dataclasses import replace

    built = recipe(data, out)
    given = {"steps": None, "epochs": None, "budget": None} | {
        kind: value.strip('"') if kind == "budget" else float(value)
    }
    return replace(built, train=replace(built.train, **given))


def test_validation_text_of_one_document_is_measured_without_pairs(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt", documents=6)
    corpus = Corpus([str(text)], layout="lines")
    prepare(
        corpus,
        train(corpus.lines(), TokenizerConfig(vocabulary=100, min_frequency=1)),
        tmp_path / "data",
        validation_share=0.0001,
    )
    figures = pretrain.pretrain(recipe(tmp_path / "data", tmp_path / "run", "train.steps=2"))
    assert "masked_loss" in figures
    assert "nsp_loss" not in figures


def test_a_batch_without_pair_labels_still_has_a_masked_loss(tmp_path: Path) -> None:
    """Documents of one sentence, and a last one of two: most updates have no pair, and none is left out for it."""
    text = tmp_path / "text.txt"
    single = ["the cat sees the dog in the garden .\n"] * 10
    lines = [f"{number} {line}" for number, line in enumerate(single * 40)]
    text.write_text("\n".join(lines) + "\none sentence .\nand another .\n")
    corpus = Corpus([str(text)], layout="lines")
    prepare(
        corpus, train(corpus.lines(), TokenizerConfig(vocabulary=100, min_frequency=1)), tmp_path / "data", workers=1
    )
    changes = ["objective.pairs=sop", "train.steps=6", "data.validation_tokens=512"]
    figures = pretrain.pretrain(recipe(tmp_path / "data", tmp_path / "run", *changes))
    assert "sop_loss" not in figures  # of the validation text no document has two sentences
    steps = [entry for entry in log.read(tmp_path / "run" / log.NAME) if entry["kind"] == "step"]
    assert steps[-1]["skipped"] == 0
    assert any(entry["terms"]["sop"] == 0 for entry in steps)
    assert all(entry["terms"]["masked"] > 0 for entry in steps)


def test_a_disk_that_fills_up_stops_the_run_in_one_line_and_loses_nothing(
    data: Path, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk takes no more after the second checkpoint; with room again, the run ends as if nothing had happened."""
    write = os.write

    def full(file: int, piece: bytes) -> int:
        if len(list((tmp_path / "full" / "checkpoints").glob("step-*"))) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(file, piece)

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(
        RunError, match=r"the disk is full: [\d,]+ bytes needed, [\d,]+ free. Free space and run the same"
    ):
        pretrain.pretrain(recipe(data, tmp_path / "full"))
    monkeypatch.setattr(os, "write", write)
    pretrain.pretrain(recipe(data, tmp_path / "full"))
    assert_same(whole, tmp_path / "full")


def test_the_folder_of_another_recipe_is_refused(data: Path, tmp_path: Path) -> None:
    pretrain.pretrain(recipe(data, tmp_path / "run", "train.steps=2"))
    with pytest.raises(RunError, match=r"was begun with another recipe: optimizer.learning_rate was 0.003, is 0.1"):
        pretrain.pretrain(recipe(data, tmp_path / "run", "train.steps=2", "optimizer.learning_rate=0.1"))
    pretrain.pretrain(recipe(data, tmp_path / "run", "train.steps=4"))  # a longer run is the same run
    assert losses(tmp_path / "run")[-1][0] == 4


def test_decay_spares_biases_and_norms() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))
    groups = Optimizer(module, OptimizerConfig(weight_decay=0.5)).base.param_groups
    decayed = {id(parameter): group["weight_decay"] for group in groups for parameter in group["params"]}
    assert {name: decayed[id(parameter)] for name, parameter in module.named_parameters()} == {
        "0.weight": 0.5,
        "0.bias": 0.0,
        "1.weight": 0.0,
        "1.bias": 0.0,
    }


def test_the_learning_rate_rises_and_falls_linearly() -> None:
    schedule = ScheduleConfig(warmup=0.1)
    assert [round(learning_rate_factor(share, schedule), 6) for share in (0, 0.05, 0.1, 0.55, 1.0)] == [
        0,
        0.5,
        1,
        0.5,
        0,
    ]
    with pytest.raises(ValueError, match="warmup is a share"):
        ScheduleConfig(warmup=1.5)


@pytest.mark.parametrize(
    ("written", "value"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("2d", 172_800), ("1.5h", 5400)]
)
def test_durations_are_read_as_people_write_them(written: str, value: float) -> None:
    assert parse_duration(written) == value


@pytest.mark.parametrize("written", ["", "10", "ten minutes", "m", "5 m x"])
def test_a_text_that_is_no_duration_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match=r"is not a duration. Write 90s, 10m"):
        parse_duration(written)


def test_durations_are_said_as_people_say_them() -> None:
    assert [format_duration(value) for value in (9.4, 245, 7805)] == ["9 s", "4 min 05 s", "2 h 10 min"]


def test_the_clock_resumes_with_the_time_that_is_left() -> None:
    assert Clock(Extent(budget=100.0), training_seconds=25.0).progress(0, 0.0) == pytest.approx(0.25)
    assert Clock(Extent(steps=10)).progress(5, 0.0) == 0.5
    assert Clock(Extent(epochs=4.0)).progress(5, 1.0) == 0.25
