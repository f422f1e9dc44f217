"""`make`, typed again: in a folder that was moved or copied, with another budget, with its own run among the text."""

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands.ticking import tick
from tiny import losses, prepared, recipe, write_text

from bertsmith import terminal
from bertsmith.commands import make, prepare, pretrain
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.errors import RecipeError
from bertsmith.runs import autoconfig
from bertsmith.text.tokenizer import TokenizerConfig
from bertsmith.train import clock as clocks
from bertsmith.train.clock import WallBudget
from bertsmith.train.evaluate import Validation
from bertsmith.train.train_config import TrainConfig

pytestmark = pytest.mark.slow("makes models")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A simulated clock, on which every look at what is left takes 90 seconds."""
    moved = [0.0]

    def left(wall: WallBudget, spent: float) -> float:
        moved[0] += 90
        return wall.budget - moved[0]

    monkeypatch.setattr(WallBudget, "remaining", left)
    return moved


@pytest.mark.exhaustive
def test_a_copied_run_goes_on_in_its_own_folder(tmp_path: Path, clock: list[float]) -> None:
    text, first, second = write_text(tmp_path / "text.txt", documents=300), tmp_path / "first", tmp_path / "second"
    make.make([str(text)], first, budget="10m")
    shutil.copytree(first, second)
    before = losses(first)
    clock[0] = 500.0
    make.make([str(text)], second, budget="12m")
    assert losses(first) == before
    assert losses(second)[-1][0] > before[-1][0]
    shutil.rmtree(first)
    clock[0] = 600.0
    make.make([str(text)], second, budget="14m")  # where its recipe once said another folder
    assert (second / "model" / "model.safetensors").exists()


def test_a_run_is_resumed_with_its_own_budget_and_none_that_is_spent(tmp_path: Path) -> None:
    begun = {"budget": 7200.0, "total_seconds": 3600.0, "finished": False}
    assert make._budget(tmp_path, None, begun) == 7200.0
    assert make._budget(tmp_path, None, None) == autoconfig.budget_seconds("10m")
    assert make._budget(tmp_path, "90m", begun) == 5400.0
    with pytest.raises(RecipeError, match=r"its run has had 1 h 00 min of --budget 2 h 00 min, and not 10m. Give it"):
        make._budget(tmp_path, "10m", begun)
    assert make._budget(tmp_path, "10m", begun | {"finished": True}) == 600.0  # said to be finished, and left alone


def test_a_name_that_is_no_utf8_is_a_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    write_text(texts / "a.txt", documents=40)
    (texts / "a.txt").rename(texts / os.fsdecode(b"caf\xe9.txt"))
    prepare.new_or_extended([str(texts)], tmp_path / "tokenizer", {"vocabulary": 300}, model=None, new_tokens=None)
    prepare.prepare([str(texts)], tmp_path / "data", tmp_path / "tokenizer")
    assert (tmp_path / "data" / "summary.json").exists()
    assert terminal.escape_control(os.fsdecode(b"caf\xe9.txt")) == "caf\\udce9.txt"


@pytest.mark.parametrize(
    ("settings", "model", "new_tokens", "message"),
    [
        (
            {"vocabulary": 40_000},
            "nowhere",
            None,
            "--vocabulary: is for a new tokenizer, and --extend adds to",
        ),
        ({"strip_accents": True}, "nowhere", 5, "--strip-accents: is for a new tokenizer"),
        ({}, None, 500, "--new-tokens: is how many tokens --extend adds. Name the model: --extend MODEL"),
        ({"kind": "bpe", "lowercase": True}, None, None, "--lowercase: byte-level BPE keeps case and accents. Leave"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    settings: dict[str, object], model: str | None, new_tokens: int | None, message: str, tmp_path: Path
) -> None:
    text = write_text(tmp_path / "text.txt", documents=20)
    base = None if model is None else tmp_path / model
    with pytest.raises(RecipeError) as caught:
        prepare.new_or_extended([str(text)], tmp_path / "out", settings, model=base, new_tokens=new_tokens)
    assert str(caught.value).startswith(message)


def test_a_run_of_no_time_is_refused() -> None:
    with pytest.raises(ValueError, match=r"the length of a run is 0s. Give more than 0"):
        TrainConfig(budget="0s")


def test_text_that_is_slow_to_read_counts_its_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pages of PDF do, which take longer to read than to tokenise."""
    corpus = Corpus([str(write_text(tmp_path / "text.txt", documents=20))])
    lines = list(corpus.lines())

    def slowly(_: Corpus) -> Iterator[str]:
        for line in lines:
            time.sleep(0.002)
            yield line

    monkeypatch.setattr(Corpus, "lines", slowly)
    settings = TokenizerConfig(vocabulary=200, lowercase=True, strip_accents=True)
    found = prepare.train_tokenizer(corpus, settings, tmp_path / "tokenizer", 60.0)
    assert found.characters == sum(map(len, lines))
    assert found.seconds_per_character > 2 * 0.002 * len(lines) / found.characters


@pytest.mark.exhaustive
def test_a_run_that_stopped_early_is_finished_until_it_gets_more_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tick(monkeypatch)
    measure, losses_seen = Validation.__call__, iter([5.0, 4.0, *(6.0 for _ in range(40))])
    monkeypatch.setattr(Validation, "__call__", lambda self: {**measure(self), "loss": next(losses_seen)})
    changes = ("train={budget='30s',precision='float32',evaluations=40,checkpoints=4,patience=2}", "keep=best")
    made = recipe(prepared(tmp_path), tmp_path / "run", *changes)

    def trained(budget: float) -> dict[str, Any]:
        pretrain.pretrain(made, WallBudget(started=clocks.time.monotonic(), budget=budget, reserve=1.0))
        return make._budget_before(made.out) or {}

    first = trained(30.0)
    assert first["finished"]
    assert first["stopped_early"]
    assert first["total_seconds"] < 20
    assert "stopped early: 2 evaluations brought nothing better" in capsys.readouterr().out
    steps = len(losses(made.out))
    said = make._resume_message(made.out / "recipe.toml", first, 30.0)
    assert said.endswith("it stopped early, since its validation loss no longer fell. A longer --budget continues it")
    trained(30.0)
    assert len(losses(made.out)) == steps
    assert "trains for another" in make._resume_message(made.out / "recipe.toml", first, 60.0)
    assert trained(60.0)["stopped_early"]
    assert len(losses(made.out)) > steps
