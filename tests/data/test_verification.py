"""Shards are verified before a model learns from them: damage is named, and nothing is written of it."""

import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from data.test_shards import flip, made
from tiny import prepared, recipe, write_text

from bertsmith import files
from bertsmith.commands import check, make, pretrain, race
from bertsmith.data.shards import verification
from bertsmith.data.shards.shards import Shards
from bertsmith.data.shards.verification import Verification, verify
from bertsmith.errors import FolderError
from bertsmith.runs import build, race_metrics
from bertsmith.train.trainer import Trainer

RECIPES = Path(__file__).resolve().parents[2] / "src" / "bertsmith" / "recipes" / "tiny"
DAMAGED = r"000000\.{}: is damaged: its SHA-256 is not the one in the manifest\. Delete the folder and prepare the text"


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return prepared(tmp_path)


def in_order(folder: Path) -> None:
    """Change one end of a sentence so that all ends are still in order: only the hash differs."""
    path = folder / "000000.sentences"
    ends = np.fromfile(path, np.int64)
    place = int(np.flatnonzero(np.diff(ends) > 1)[0])
    ends[place] += 1
    ends.tofile(path)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """All text counts as much, and no file is hashed before it is allowed."""
    allowed, digest = threading.Event(), files.digest

    def waiting(path: Path) -> files.Digest:
        if path.suffix != ".json":
            allowed.wait(60)
        return digest(path)

    monkeypatch.setattr(verification, "VERIFIED_AT_ONCE_BYTES", -1)
    monkeypatch.setattr(files, "digest", waiting)
    return allowed


@pytest.mark.parametrize("split", ["train", "valid"])
def test_a_flipped_bit_is_named_before_the_first_step(data: Path, tmp_path: Path, split: str) -> None:
    flip(data / split / "000000.tokens", 0)  # another token of the vocabulary
    with pytest.raises(FolderError, match=DAMAGED.format("tokens")) as caught:
        pretrain.pretrain(recipe(data, tmp_path / "run"))
    assert str(caught.value).startswith(str(data / split))
    assert not (tmp_path / "run" / "log.jsonl").exists()
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_ends_that_are_in_order_and_wrong_are_named(data: Path, tmp_path: Path) -> None:
    in_order(data / "train")
    Shards(data / "train")
    with pytest.raises(FolderError, match=DAMAGED.format("sentences")):
        pretrain.pretrain(recipe(data, tmp_path / "run"))


def test_check_and_a_race_name_a_damaged_shard(data: Path, tmp_path: Path) -> None:
    flip(data / "train" / "000000.tokens", 0)
    with pytest.raises(FolderError, match=DAMAGED.format("tokens")):
        check.check(recipe(data, tmp_path / "run"))
    rules, questions = race.Rules(budget="1s", points=1), race_metrics.MetricsConfig()
    with pytest.raises(FolderError, match=DAMAGED.format("tokens")):
        race.race([str(RECIPES / "bert.toml")], tmp_path / "race", rules=rules, metrics=questions, data=data)


def test_prepare_and_make_name_a_damaged_shard_of_an_earlier_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = [str(write_text(tmp_path / "text.txt"))]

    def stopping(*_: object) -> None:
        raise ConnectionAbortedError

    monkeypatch.setattr(make, "_choose_recipe", stopping)  # the text is prepared by then
    with pytest.raises(ConnectionAbortedError):
        make.make(text, tmp_path / "made", budget="10m")
    flip(tmp_path / "made" / "data" / "train" / "000000.tokens", 0)
    with pytest.raises(FolderError, match=DAMAGED.format("tokens")):
        make.make(text, tmp_path / "made", budget="10m")


def test_much_text_is_verified_during_the_first_steps_and_before_anything_is_written(
    data: Path, tmp_path: Path, slow: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashing waits until the first save has begun to wait for it; then the save is refused."""
    flip(data / "train" / "000000.tokens", 0)
    save, steps = Trainer.save, []

    def saving(self: Trainer) -> None:
        steps.append(self.state.step)
        slow.set()
        save(self)

    monkeypatch.setattr(Trainer, "save", saving)
    with pytest.raises(FolderError, match=DAMAGED.format("tokens")):
        pretrain.pretrain(recipe(data, tmp_path / "run"))
    assert steps == [4]  # the first of ten checkpoints of forty steps
    assert not (tmp_path / "run" / "checkpoints").exists()
    assert not (tmp_path / "run" / "model").exists()


def test_a_run_that_saves_nothing_still_writes_no_model_of_damaged_text(
    data: Path, tmp_path: Path, slow: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hashing waits until the last step is done, so that no batch can find the damage."""
    flip(data / "train" / "000000.tokens", 0)
    update = Trainer.update

    def updating(self: Trainer, *arguments: object) -> None:
        update(self, *arguments)  # type: ignore[arg-type]
        if self.state.step == 2:
            threading.Timer(0.5, slow.set).start()

    monkeypatch.setattr(Trainer, "update", updating)
    with pytest.raises(FolderError, match=DAMAGED.format("tokens")):
        pretrain.pretrain(recipe(data, tmp_path / "run", "train.steps=2", "train.checkpoints=0", "train.evaluations=0"))
    assert not (tmp_path / "run" / "model").exists()


def test_training_stops_at_the_next_batch_after_damage_is_found(
    data: Path, tmp_path: Path, slow: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(data / "train" / "000000.tokens", 0)
    update = Trainer.update

    def updating(self: Trainer, *arguments: object) -> None:
        update(self, *arguments)  # type: ignore[arg-type]
        if self.state.step == 3:
            slow.set()
            assert self.feed.verification is not None
            while self.feed.verification.is_running:
                time.sleep(0.01)

    monkeypatch.setattr(Trainer, "update", updating)
    last = []
    monkeypatch.setattr(Trainer, "save", lambda self: last.append(self.state.step))
    with pytest.raises(FolderError, match=DAMAGED.format("tokens")):
        pretrain.pretrain(recipe(data, tmp_path / "run", "train.checkpoints=1"))
    assert last == []  # what the loader had made ahead was learnt from, and no more


def test_intact_text_verified_during_the_first_steps_changes_nothing(
    data: Path, tmp_path: Path, slow: threading.Event, capsys: pytest.CaptureFixture[str]
) -> None:
    slow.set()
    tokenizer, train, _ = build.load_data(recipe(data, tmp_path / "run"))
    figures = pretrain.pretrain(recipe(data, tmp_path / "run", "train.steps=4"))
    assert figures["step"] == 4
    assert tokenizer.fingerprint == train.tokenizer


def test_a_token_beyond_the_vocabulary_is_named_before_a_network_meets_it(tmp_path: Path) -> None:
    """Where files are verified during the first steps, a batch may meet the damage first."""
    made(tmp_path)
    flip(tmp_path / "000001.tokens", 15)  # the highest bit of its first token
    shards = Shards(tmp_path)
    starts = np.concatenate([[0], shards.sentence_ends[:-1]])
    fact = r"000001\.tokens: is damaged: it holds token 3[23],\d{3}, beyond its vocabulary of 1,000\. Delete the folder"
    with pytest.raises(FolderError, match=fact):
        shards.gather(starts, shards.sentence_ends - starts)
    made(tmp_path / "wide", vocabulary=70_000)
    flip(tmp_path / "wide" / "000000.tokens", 31)
    shards = Shards(tmp_path / "wide")
    with pytest.raises(FolderError, match=r"it holds token 2,147,\d{3},\d{3}, beyond"):
        shards.gather(np.array([0]), np.array([1]))


def test_ends_whose_difference_overflows_are_found_at_opening(tmp_path: Path) -> None:
    made(tmp_path)
    ends = np.fromfile(tmp_path / "000000.sentences", np.int64)
    for value in (-(2**63), 2**63 - 1, 2**62, -1):
        changed = ends.copy()
        changed[2] = value
        changed.tofile(tmp_path / "000000.sentences")
        with pytest.raises(FolderError, match=r"000000\.sentences: is damaged: its ends are not in order"):
            Shards(tmp_path)


def test_text_of_another_tokenizer_is_refused_before_training(data: Path, tmp_path: Path) -> None:
    for name, key in (("tokenizer.json", "lowercase"), ("tokenizer_config.json", "do_lower_case")):
        path = data / "tokenizer" / name
        before = path.read_text(encoding="utf-8")
        assert f'"{key}": true' in before
        path.write_text(before.replace(f'"{key}": true', f'"{key}": false'), encoding="utf-8")
    with pytest.raises(FolderError, match="was prepared with another tokenizer"):
        pretrain.pretrain(recipe(data, tmp_path / "run"))


def test_a_file_is_hashed_once_in_a_process_unless_it_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path)
    old = time.time_ns() - 10**10
    for path in tmp_path.iterdir():
        os.utime(path, ns=(old, old))
    hashed, digest = [], files.digest
    monkeypatch.setattr(files, "digest", lambda path: hashed.append(path.name) or digest(path))
    verify(Shards(tmp_path))
    assert sorted(hashed).count("000000.tokens") == 1
    verify(Shards(tmp_path))
    assert hashed.count("000000.tokens") == 1
    flip(tmp_path / "000000.tokens", 3)
    with pytest.raises(FolderError, match=DAMAGED.format("tokens")):
        verify(Shards(tmp_path))


def test_a_file_as_young_as_the_clock_of_the_disk_is_hashed_again(tmp_path: Path) -> None:
    made(tmp_path)
    verify(Shards(tmp_path))
    before = (tmp_path / "000000.tokens").stat()
    flip(tmp_path / "000000.tokens", 3)
    os.utime(tmp_path / "000000.tokens", ns=(before.st_atime_ns, before.st_mtime_ns))  # within one tick
    with pytest.raises(FolderError, match=DAMAGED.format("tokens")):
        verify(Shards(tmp_path))


def test_whatever_ends_a_thread_ends_the_verification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path)
    shards = Shards(tmp_path)

    def failing(path: Path) -> files.Digest:
        raise MemoryError

    monkeypatch.setattr(files, "digest", failing)
    with pytest.raises(MemoryError):
        Verification(shards).wait()
