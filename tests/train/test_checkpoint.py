"""A checkpoint is whole or not there: whatever is killed, refused, torn, flipped, cut or swapped."""

import errno
import hashlib
import json
import os
import pickle
import random
import re
import shutil
import signal
import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import safetensors.torch
import torch

from bertsmith import files
from bertsmith.errors import FolderError, RunError
from bertsmith.files import Digest
from bertsmith.train import checkpoint
from bertsmith.train.checkpoint import Checkpoint, load_newest, save

FILES = ["MANIFEST.json", "state.json", "model.safetensors", "optimizer.safetensors"]
# Every way in which a save touches the disk.
CALLS = ("open", "write", "fsync", "close", "replace", "mkdir", "stat", "lstat", "scandir", "unlink", "rmdir")


def made(step: int, width: int = 5) -> Checkpoint:
    """A small checkpoint with every kind of tensor that a run has."""
    numbers = torch.arange(width * width, dtype=torch.float32).reshape(width, width) + step
    model = {
        "weight": numbers,
        "half": numbers.to(torch.bfloat16),
        "turned": numbers.T,
        "every other": numbers[:, ::2],
        "nothing": torch.zeros(0, 3),
        "flags": numbers > 3,
        "single": torch.tensor(step, dtype=torch.int64),
    }
    model["tied"] = model["weight"]
    optimizer = {"step": torch.tensor(float(step)), "random": torch.arange(9, dtype=torch.uint8)}
    state = {"position": 2**62 + step, "seconds": 0.1 + step, "metrics": {"loss": 1 / 3}, "name": "naïve"}
    return Checkpoint(step, {"model": model, "optimizer": optimizer}, state)


def same(one: Checkpoint, other: Checkpoint) -> bool:
    """Whether two checkpoints agree bit for bit."""
    if (one.step, one.state, one.tensors.keys()) != (other.step, other.state, other.tensors.keys()):
        return False
    for name, tensors in one.tensors.items():
        theirs = other.tensors[name]
        if tensors.keys() != theirs.keys():
            return False
        if any(bits(tensor) != bits(theirs[key]) for key, tensor in tensors.items()):
            return False
    return True


def bits(tensor: torch.Tensor) -> tuple[torch.dtype, torch.Size, bytes]:
    return tensor.dtype, tensor.shape, tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def found(folder: Path) -> Checkpoint:
    result = load_newest(folder)
    assert result is not None
    return result[0]


def broken(folder: Path) -> set[str]:
    """The checkpoints that look whole by their name, and are not."""
    return {path.name for path in folder.glob("step-*") if not checkpoint._is_whole(path)}


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def flip(path: Path, bit: int) -> None:
    """Turn one bit of a file round, in place."""
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ (1 << bit % 8)]))


def test_a_checkpoint_comes_back_bit_for_bit(tmp_path: Path) -> None:
    before = made(100)
    path = save(tmp_path / "deep" / "checkpoints", before)
    after = found(path.parent)
    assert path.name == "step-000000100"
    assert same(before, after)
    assert after.tensors["model"]["single"].shape == ()
    assert all(tensor.device.type == "cpu" for tensor in after.tensors["model"].values())
    assert list(after.state) == list(before.state)


def test_loaded_tensors_may_be_changed(tmp_path: Path) -> None:
    save(tmp_path, made(1))
    loaded = found(tmp_path)
    loaded.tensors["model"]["weight"].add_(1)
    loaded.tensors["optimizer"]["step"].zero_()
    assert same(found(tmp_path), made(1))


def test_the_files_are_true_safetensors(tmp_path: Path) -> None:
    path = save(tmp_path, made(1))
    opened = safetensors.torch.load_file(path / "model.safetensors")
    assert same(Checkpoint(1, {"model": opened}, {}), Checkpoint(1, {"model": made(1).tensors["model"]}, {}))


def test_parameters_are_saved_without_their_gradients(tmp_path: Path) -> None:
    layer = torch.nn.Linear(3, 2)
    layer(torch.ones(1, 3)).sum().backward()
    save(tmp_path, Checkpoint(1, {"model": dict(layer.named_parameters())}, {}))
    assert torch.equal(found(tmp_path).tensors["model"]["weight"], layer.weight.detach())


def test_an_empty_or_missing_folder_has_no_checkpoint(tmp_path: Path) -> None:
    assert load_newest(tmp_path) is None
    assert load_newest(tmp_path / "nowhere") is None


def test_the_newest_is_the_one_with_the_highest_step(tmp_path: Path) -> None:
    for step in (9, 10, 2_000_000_000):
        save(tmp_path, made(step), keep=9)
    (tmp_path / "step-by-step.txt").write_text("a note of the user's")
    assert found(tmp_path).step == 2_000_000_000


def test_only_the_newest_are_kept(tmp_path: Path) -> None:
    for step in range(1, 6):
        save(tmp_path, made(step), keep=2)
    assert names(tmp_path) == ["step-000000004", "step-000000005"]
    save(tmp_path, made(6), keep=1)
    assert names(tmp_path) == ["step-000000006"]


def test_a_checkpoint_of_a_later_step_does_not_push_out_good_ones(tmp_path: Path) -> None:
    for step in (1, 2, 9):
        save(tmp_path, made(step), keep=3)
    flip(tmp_path / "step-000000009" / "state.json", 3)
    save(tmp_path, made(3), keep=2)
    assert names(tmp_path) == ["step-000000002", "step-000000003", "step-000000009"]
    assert found(tmp_path).step == 3


def test_saving_the_same_step_again_changes_nothing(tmp_path: Path) -> None:
    path = save(tmp_path, made(1))
    before = {name: (path / name).stat().st_mtime_ns for name in names(path)}
    assert save(tmp_path, made(1)) == path
    assert {name: (path / name).stat().st_mtime_ns for name in names(path)} == before


def test_a_broken_checkpoint_of_the_same_step_is_replaced(tmp_path: Path) -> None:
    path = save(tmp_path, made(1))
    flip(path / "model.safetensors", 1000)
    save(tmp_path, made(1))
    assert same(found(tmp_path), made(1))
    assert names(tmp_path) == ["step-000000001"]


def test_leftovers_of_a_kill_are_swept_at_the_next_save(tmp_path: Path) -> None:
    for name in (".temporary-new-step-000000001", ".temporary-old-step-000000000"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(b"half")
    save(tmp_path, made(1))
    assert names(tmp_path) == ["step-000000001"]


# Crash points -------------------------------------------------------------------------------------


@contextmanager
def watched(act: Callable[[int, str, Callable[..., Any], tuple[Any, ...]], Any]) -> Iterator[None]:
    """Hand every call to the disk, counted from 1, to `act` instead."""
    originals = {name: getattr(os, name) for name in CALLS}
    count = 0

    def wrapped(name: str) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            return act(count, name, lambda *given: originals[name](*given, **options), arguments)

        return call

    try:
        for name in CALLS:
            setattr(os, name, wrapped(name))
        yield
    finally:
        for name, original in originals.items():
            setattr(os, name, original)


def two_and_litter(folder: Path) -> Checkpoint:
    """Two checkpoints and a leftover. A third save sweeps, writes, renames and removes the first."""
    save(folder, made(1))
    save(folder, made(2))
    shutil.copytree(folder / "step-000000001", folder / ".temporary-old-step-000000001")
    return made(3)


def one_and_a_broken_one(folder: Path) -> Checkpoint:
    """A checkpoint and a broken one, which a save of the same step replaces."""
    save(folder, made(1))
    flip(save(folder, made(2)) / "model.safetensors", 999)
    return made(2)


SCENES = [two_and_litter, one_and_a_broken_one]


def trace(scene: Callable[[Path], Checkpoint], folder: Path) -> list[tuple[str, tuple[Any, ...], Any]]:
    """The calls of one save: name, arguments, result."""
    calls: list[tuple[str, tuple[Any, ...], Any]] = []

    def act(count: int, name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        result = call(*arguments)
        calls.append((name, arguments, result))
        return result

    new = scene(folder)
    with watched(act):
        save(folder, new)
    return calls


def check(folder: Path, new: Checkpoint, *, saved: bool | None = None) -> None:
    """The old or the new checkpoint is there, bit for bit, and the next save works."""
    old = made(new.step - 1)
    after = found(folder)
    assert same(after, new) or (same(after, old) and not saved)
    save(folder, made(7))
    assert same(found(folder), made(7))
    assert not [name for name in names(folder) if name.startswith(".")]
    assert len(names(folder)) == 2


@pytest.mark.exhaustive(suite=1)
@pytest.mark.slow
@pytest.mark.parametrize("scene", SCENES)
def test_a_kill_at_any_call_harms_no_checkpoint(scene: Callable[[Path], Checkpoint], tmp_path: Path) -> None:
    template = tmp_path / "template"
    calls = trace(scene, tmp_path / "trial")
    new = scene(template)
    outcomes = set()
    for point in range(1, len(calls) + 1):
        for torn in (False, True):
            if torn and calls[point - 1][0] != "write":
                continue
            folder = tmp_path / f"{point}{torn}"
            shutil.copytree(template, folder)
            assert _killed_at(point, folder, new, torn=torn) == 9
            outcomes.add(found(folder).step == new.step)
            assert broken(folder) <= broken(template)
            check(folder, new)
            shutil.rmtree(folder)
    assert outcomes == {True, False}  # or the kills came all too early or all too late


def _killed_at(point: int, folder: Path, new: Checkpoint, *, torn: bool) -> int:
    """Save in a child that dies before the given call, or in the middle of it. Returns how it ended."""

    def act(count: int, name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if count == point:
            if torn:
                file, data = arguments
                call(file, data[: len(data) // 2])
            os._exit(9)
        return call(*arguments)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other tests' threads are no matter here
        child = os.fork()
    if child == 0:
        try:
            signal.alarm(60)
            with watched(act):
                save(folder, new)
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.slow
@pytest.mark.parametrize("lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO], ids=["full", "failing"])
@pytest.mark.parametrize("scene", SCENES)
def test_an_error_at_any_call_harms_no_checkpoint(
    scene: Callable[[Path], Checkpoint], code: int, lasting: bool, tmp_path: Path
) -> None:
    template = tmp_path / "template"
    calls = trace(scene, tmp_path / "trial")
    new = scene(template)
    name = f"step-{new.step:09d}"
    refused: list[str] = []
    for point in range(1, len(calls) + 1):
        folder = tmp_path / str(point)
        shutil.copytree(template, folder)

        def act(count: int, name: str, call: Callable[..., Any], arguments: tuple[Any, ...], point: int = point) -> Any:
            # Looking still works on a full disk, and giving room back does too.
            changing = code == errno.EIO or name in ("open", "write", "fsync", "replace", "mkdir")
            if count == point or (lasting and count > point and changing):
                raise OSError(code, os.strerror(code))
            return call(*arguments)

        saved = False
        try:
            with watched(act):
                save(folder, new)
                saved = True
        except RunError as error:
            refused.append(str(error))
        check(folder, new, saved=saved)
        shutil.rmtree(folder)
    assert len(refused) > len(calls) // 2
    assert all(re.match(rf"{tmp_path}/\d+/{name}: the disk", line) for line in refused)


@pytest.mark.parametrize("taken", [1, 100])
def test_a_disk_that_takes_less_than_it_is_given_is_given_the_rest(taken: int, tmp_path: Path) -> None:
    def act(count: int, name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name == "write":
            file, data = arguments
            return call(file, data[:taken])
        return call(*arguments)

    with watched(act):
        save(tmp_path, made(1))
    assert same(found(tmp_path), made(1))


def test_all_is_on_the_disk_before_it_gets_its_name(tmp_path: Path) -> None:
    paths: dict[int, Path] = {}
    synced: set[Path] = set()
    written: set[Path] = set()
    renamed = False
    for name, arguments, result in trace(two_and_litter, tmp_path):
        if name == "open":
            paths[result] = Path(arguments[0])
            if arguments[1] & os.O_CREAT:
                written.add(paths[result])
        elif name == "fsync":
            synced.add(paths[arguments[0]])
        elif name == "replace" and Path(arguments[1]).name == "step-000000003":
            temporary = Path(arguments[0])
            assert written == {temporary / file for file in FILES}
            assert synced >= written | {temporary}
            assert tmp_path not in synced
            renamed = True
        elif name == "replace":  # an old one goes only when the new one's name is on the disk too
            assert Path(arguments[0]).name == "step-000000001"
            assert tmp_path in synced
    assert renamed


# Damage -------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.torture("A5 checkpoints", suite=1_000, whole=10_000)
def test_every_flipped_bit_is_found_and_the_checkpoint_before_is_used(tmp_path: Path, times: int) -> None:
    save(tmp_path, made(1))
    path = save(tmp_path, made(2))
    places = [(file, bit) for file in sorted(path.iterdir()) for bit in range(8 * file.stat().st_size)]
    for file, bit in random.Random(0).sample(places, times):
        flip(file, bit)
        result = load_newest(tmp_path)
        assert result is not None
        assert result[0].step == 1, (file.name, bit)
        assert result[1][0].startswith(f"{path}: ")
        assert len(result[1]) == 1
        flip(file, bit)
    assert found(tmp_path).step == 2


def test_without_the_hash_a_flipped_bit_would_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path, made(1))
    flip(path / "model.safetensors", 8 * (path / "model.safetensors").stat().st_size - 500)

    def trusting(path: Path, name: str, digest: Digest) -> torch.Tensor:
        return torch.frombuffer(bytearray((path / name).read_bytes()), dtype=torch.uint8)

    monkeypatch.setattr(checkpoint, "_verified", trusting)
    assert not same(found(tmp_path), made(1))


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_file_cut_off_anywhere_is_found(name: str, tmp_path: Path) -> None:
    save(tmp_path, made(1))
    path = save(tmp_path, made(2))
    whole = (path / name).read_bytes()
    for length in range(len(whole)):
        (path / name).write_bytes(whole[:length])
        assert found(tmp_path).step == 1
    (path / name).write_bytes(whole + b"\n")
    assert found(tmp_path).step == 1


@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_checkpoint_is_found(name: str, tmp_path: Path) -> None:
    for step in (1, 2, 3):
        save(tmp_path, made(step), keep=3)
    shutil.move(tmp_path / "step-000000003" / name, tmp_path / "kept")
    shutil.move(tmp_path / "step-000000002" / name, tmp_path / "step-000000003" / name)
    shutil.move(tmp_path / "kept", tmp_path / "step-000000002" / name)
    result = load_newest(tmp_path)
    assert result is not None
    assert result[0].step == 1
    assert len(result[1]) == 2


def test_a_checkpoint_under_another_name_is_found(tmp_path: Path) -> None:
    save(tmp_path, made(1)).rename(tmp_path / "step-000000008")
    save(tmp_path, made(2))
    assert found(tmp_path).step == 2


def test_the_lines_about_broken_checkpoints_say_what_is_wrong(tmp_path: Path) -> None:
    for step in (1, 2, 3, 4, 5):
        save(tmp_path, made(step), keep=5)
    flip(tmp_path / "step-000000005" / "model.safetensors", 2000)
    with (tmp_path / "step-000000004" / "state.json").open("ab") as file:
        file.write(b"x")
    (tmp_path / "step-000000003" / "MANIFEST.json").write_text('{"files": {}}')
    (tmp_path / "step-000000002" / "optimizer.safetensors").unlink()
    size = (tmp_path / "step-000000001" / "state.json").stat().st_size
    result = load_newest(tmp_path)
    assert result is not None
    assert result[0].step == 1
    wrong = "model.safetensors is damaged (its SHA-256 is not the one in MANIFEST.json)."
    assert result[1][:3] == [
        f"{tmp_path}/step-000000005: {wrong}",
        f"{tmp_path}/step-000000004: state.json has {size + 1} bytes and should have {size}.",
        f"{tmp_path}/step-000000003: MANIFEST.json is damaged, or of another checkpoint or version.",
    ]
    assert result[1][3].startswith(f"{tmp_path}/step-000000002: cannot be read (FileNotFoundError: ")


def test_a_checkpoint_of_an_older_version_is_refused_and_not_skipped(tmp_path: Path) -> None:
    for step in (1, 2):
        manifest = save(tmp_path, made(step)) / "MANIFEST.json"
    manifest.write_text(manifest.read_text().replace('"version": 2', '"version": 1'))
    with pytest.raises(FolderError) as refused:
        load_newest(tmp_path)
    assert str(refused.value) == (
        f"{tmp_path}/step-000000002: was written by an older bertsmith (this one reads version 2 of its format). "
        "Resume with the version that wrote it, or start again in another folder."
    )


def test_a_run_with_only_damaged_checkpoints_does_not_start_again_unasked(tmp_path: Path) -> None:
    for step in (1, 2):
        flip(save(tmp_path, made(step)) / "state.json", 5)
    both = r"no checkpoint in it is whole \(.*02: state.json.*01: state.json"
    with pytest.raises(FolderError, match=both) as caught:
        load_newest(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}: ")
    assert str(caught.value).endswith(". Remove the folder to start again.")


class Payload:
    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, (str(self.mark),))


def forge(path: Path, contents: dict[str, bytes], step: int) -> None:
    """A checkpoint of any bytes, with a manifest that is right."""
    path.mkdir()
    digests = {name: files.write(path / name, data) for name, data in contents.items()}
    (path / "MANIFEST.json").write_bytes(checkpoint._manifest(step, digests))


def test_no_code_runs_from_a_checkpoint(tmp_path: Path) -> None:
    mark = tmp_path / "it ran"
    state, payload = b'{"position": 0}', pickle.dumps(Payload(mark))
    forge(tmp_path / "step-000000001", {"state.json": state, "model.safetensors": payload}, 1)
    forge(tmp_path / "step-000000002", {"state.json": payload}, 2)
    torch.save(Payload(mark), tmp_path / "archive")
    archive = (tmp_path / "archive").read_bytes()
    forge(tmp_path / "step-000000003", {"state.json": state, "optimizer.safetensors": archive}, 3)
    with pytest.raises(FolderError, match="no checkpoint in it is whole"):
        load_newest(tmp_path)
    assert not mark.exists()


@pytest.mark.parametrize(
    "header",
    [
        b"[]",
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4000000000]}}',
        b'{"a": {"dtype": "F32", "shape": [1000000000000], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": ["x"], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [-9, "x"]}}',
        b"[" * 100_000,
        b"\xff\xfe",
    ],
)
def test_a_forged_header_is_refused(header: bytes, tmp_path: Path) -> None:
    data = len(header).to_bytes(8, "little") + header + bytes(4)
    forge(tmp_path / "step-000000001", {"state.json": b"{}", "model.safetensors": data}, 1)
    with pytest.raises(FolderError, match="cannot be read"):
        load_newest(tmp_path)


def test_a_manifest_that_points_outside_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, made(1))
    outside = files.write(tmp_path / "outside.safetensors", b"x")
    listed = {"state.json": files.digest(path / "state.json"), "../outside.safetensors": outside}
    (path / "MANIFEST.json").write_bytes(checkpoint._manifest(1, listed))
    with pytest.raises(FolderError, match=r"MANIFEST\.json is damaged"):
        load_newest(tmp_path)


# A full disk --------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 128 kB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_gives_one_line_and_nothing_is_lost(small_disk: Path) -> None:
    folder = small_disk / "checkpoints"
    save(folder, made(1))
    large = made(2, width=150)
    with pytest.raises(RunError) as caught:
        save(folder, large)
    free = shutil.disk_usage(folder).free
    needed = sum(tensor.nbytes for tensors in large.tensors.values() for tensor in tensors.values())
    assert str(caught.value) == (
        f"{folder}/step-000000002: the disk is full: {needed:,} bytes needed, {free:,} free. "
        "Free space and run the same command again."
    )
    assert names(folder) == ["step-000000001"]
    assert same(found(folder), made(1))
    save(folder, made(3))
    assert same(found(folder), made(3))


def test_a_read_only_disk_gives_one_line(small_disk: Path) -> None:
    save(small_disk, made(1))
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)
    with pytest.raises(RunError) as caught:
        save(small_disk, made(2))
    place = f"{small_disk}/step-000000002"
    assert str(caught.value) == f"{place}: the disk is read-only. Choose a folder on another disk."
    assert same(found(small_disk), made(1))


@pytest.mark.parametrize(
    ("refused", "code", "line"),
    [
        ("mkdir", errno.EACCES, "may not be written. Choose a folder that is yours."),
        ("write", errno.EDQUOT, "your disk quota is used up: 456 bytes needed. Free space and run the same"),
        ("fsync", errno.EIO, "the disk failed (input/output error). Check the disk and run the same command"),
    ],
)
def test_errors_of_the_disk_give_one_line(refused: str, code: int, line: str, tmp_path: Path) -> None:
    def act(count: int, name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name == refused:
            raise OSError(code, os.strerror(code))
        return call(*arguments)

    save(tmp_path, made(1))
    with watched(act), pytest.raises(RunError) as caught:
        save(tmp_path, made(2))
    assert str(caught.value).startswith(f"{tmp_path}/step-000000002: {line}")
    assert same(found(tmp_path), made(1))


def test_an_old_checkpoint_that_cannot_be_removed_does_not_stop_the_run(tmp_path: Path) -> None:
    def act(count: int, name: str, call: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        if name == "unlink":
            raise OSError(errno.EIO, "Input/output error")
        return call(*arguments)

    save(tmp_path, made(1), keep=1)
    with watched(act):
        save(tmp_path, made(2), keep=1)
    assert same(found(tmp_path), made(2))
    save(tmp_path, made(3), keep=1)
    assert names(tmp_path) == ["step-000000003"]


def test_restoring_hashes_every_byte_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash runs at 1.2 GB/s, so that 440 MB are restored well under a second."""
    path, hashed = save(tmp_path, made(1, width=700)), list[int]()

    class Counted:
        def __init__(self) -> None:
            self.hash = hashlib.sha256()

        def update(self, data: memoryview) -> None:
            hashed.append(len(data))
            self.hash.update(data)

        def hexdigest(self) -> str:
            return self.hash.hexdigest()

    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "hashlib", SimpleNamespace(sha256=Counted))
        restored = found(tmp_path)
    assert same(restored, made(1, width=700))
    assert sum(hashed) == sum((path / name).stat().st_size for name in names(path) if name != "MANIFEST.json")


def test_the_manifest_has_size_and_hash_of_every_file(tmp_path: Path) -> None:
    path = save(tmp_path, made(12))
    manifest = json.loads((path / "MANIFEST.json").read_text())
    assert {key: manifest[key] for key in ("format", "version", "step")} == {
        "format": "bertsmith-checkpoint",
        "version": 2,
        "step": 12,
    }
    assert {name: Digest(**entry) for name, entry in manifest["files"].items()} == {
        name: files.digest(path / name) for name in names(path) if name != "MANIFEST.json"
    }
