"""Two runs cannot share a folder, whichever verb made them; and a run that was killed leaves no lock."""

import fcntl
import os
import signal
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import scripts
from commands.test_finetune import table
from tasks.small import shape, tokenizer
from tiny import prepared, recipe, write_text
from typer.testing import CliRunner

from bertsmith import config
from bertsmith.cli import app
from bertsmith.commands import make, pretrain, race, word2vec
from bertsmith.data.shards import prepare as preparation
from bertsmith.errors import RunError
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.nn.init import initialise
from bertsmith.objectives.masked import MaskedLM
from bertsmith.runs import finetuning, race_metrics
from bertsmith.train.lock import Lock

# Every verb that writes a run's folder, as people type it, with more to do than a test waits for. {} is the folder.
VERBS = {
    "pretrain": "pretrain {}/recipe.toml out={}/out train.steps=1000000",
    "finetune": "finetune {}/base {}/train.csv --out {}/out train.epochs=100000 train.device=cpu data.max_length=16",
    "make": "make {}/text.txt --out {}/out --budget 1h --layout lines",
    "word2vec": "word2vec {}/text.txt --out {}/out --width 8 --epochs 1000000",
    "prepare": "prepare - --out {}/out --tokenizer {}/data/tokenizer --workers 0",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the verbs read: text, shards, a recipe, a model and labelled texts."""
    folder = tmp_path_factory.mktemp("sharing")
    data = prepared(folder)
    (folder / "recipe.toml").write_text(config.dump(recipe(data, folder / "out")), encoding="utf-8")
    write_text(folder / "text.txt", documents=400)
    objective = MaskedLM(Transformer(shape(max_length=32)), MaskedLM.Config(pairs="nsp"))
    initialise(objective, 0)
    folders.write(folder / "base", shape(max_length=32), objective.state_dict())
    tokenizer().save(folder / "base")
    table(folder / "train.csv", 48, 0)
    return folder


def arguments(verb: str, folder: Path) -> list[str]:
    return VERBS[verb].replace("{}", str(folder)).split()


def is_held(verb: str, folder: Path) -> bool:
    """Whether the verb has the folder in its hands: by a file, and `prepare` by a lock of the folder itself."""
    if verb != "prepare":
        return (folder / ".lock").exists() and bool((folder / ".lock").read_bytes())
    if not folder.exists():
        return False
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(opened)
    return False


@pytest.fixture
def running(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Iterator[BaseProcess]:
    """The verb in a process of its own, with the folder in its hands."""
    verb, held = request.param, folder / "out"
    paths = [tmp_path / name for name in ("stdin", "stdout", "stderr")]
    os.mkfifo(paths[0])
    process = scripts.server().Process(
        target=scripts._forked, args=(("-m", "bertsmith", *arguments(verb, folder)), paths)
    )
    process.start()
    with paths[0].open("w"):  # a text that never ends, for who reads it
        began = time.monotonic()
        while not is_held(verb, held) and process.is_alive() and time.monotonic() - began < 120:
            time.sleep(0.01)
        assert process.is_alive(), paths[2].read_text()
        yield process
        process.kill()
        process.join()
    for path in sorted(held.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    held.rmdir()


class ReachedError(Exception):
    """A start that has got past the lock."""


@pytest.fixture
def stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """No start here goes further than the first thing that its verb does with a folder of its own."""

    def reached(*_: object, **__: object) -> None:
        raise ReachedError

    for place, name in (
        *((pretrain, "settle"), (word2vec, "settle"), (make, "_prepare"), (preparation, "Journal")),
        *((finetuning.task_data, "read"), (finetuning.folders, "read")),
    ):
        monkeypatch.setattr(place, name, reached)


@pytest.mark.slow
@pytest.mark.usefixtures("stopped")
@pytest.mark.parametrize(("running", "verb"), [(verb, verb) for verb in VERBS], indirect=["running"], ids=list(VERBS))
def test_a_second_start_is_refused_at_once_and_a_killed_one_leaves_no_lock(
    running: BaseProcess, verb: str, folder: Path
) -> None:
    def start() -> None:
        CliRunner().invoke(app, arguments(verb, folder), catch_exceptions=False, input="one line of text\n")

    seconds = []
    by = "another run is preparing" if verb == "prepare" else rf"another run \(process {running.pid}\) is using it"
    for _ in range(3):  # a machine that is busy with other things may take its time once
        began = time.monotonic()
        with pytest.raises(RunError, match=rf"^{folder / 'out'}: {by}"):
            start()
        seconds.append(time.monotonic() - began)
    assert min(seconds) < 1, seconds
    assert running.pid is not None
    os.kill(running.pid, signal.SIGKILL)
    running.join()
    with pytest.raises(ReachedError):
        start()


def test_a_second_race_is_refused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reached(*_: object) -> None:
        raise ReachedError

    monkeypatch.setattr(race.pretrain, "training_cost", reached)
    entry = [str(folder / "recipe.toml")]
    asked = {
        "rules": race.Rules(budget="1s", points=1),
        "metrics": race_metrics.MetricsConfig(),
        "data": folder / "data",
    }
    with Lock(tmp_path / "race"), pytest.raises(RunError, match=r"another run \(process \d+\) is using it"):
        race.race(entry, tmp_path / "race", **asked)  # type: ignore[arg-type]
    with pytest.raises(ReachedError):
        race.race(entry, tmp_path / "race", **asked)  # type: ignore[arg-type]
