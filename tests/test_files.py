"""Files that survive a crash, and what the user reads when the disk refuses."""

import errno
import hashlib
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bertsmith import files
from bertsmith.errors import FolderError, RunError


def refuse(monkeypatch: pytest.MonkeyPatch, call: str, code: int, after: int = 0) -> None:
    """Make a call of `os` fail, once it has worked `after` times."""
    real, times = getattr(os, call), iter(range(after))

    def failing(*arguments: Any) -> Any:
        if next(times, None) is None:
            raise OSError(code, os.strerror(code))
        return real(*arguments)

    monkeypatch.setattr(os, call, failing)


def test_a_written_file_has_the_digest_that_was_returned(tmp_path: Path) -> None:
    data = os.urandom(3 * files.HASHED_BYTES + 17)
    digest = files.write(tmp_path / "data", data)
    assert (tmp_path / "data").read_bytes() == data
    assert digest == files.Digest(len(data), hashlib.sha256(data).hexdigest()) == files.digest(tmp_path / "data")


def test_pieces_make_the_same_file_as_one_write(tmp_path: Path) -> None:
    with files.Writer(tmp_path / "pieces") as writer:
        for piece in (b"one", bytearray(b"two"), memoryview(b"three")):
            writer.write(piece)
        assert writer.close() == files.write(tmp_path / "whole", b"onetwothree")


def test_a_disk_that_takes_little_at_a_time_still_gets_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:7]))
    files.write(tmp_path / "data", bytes(range(256)))
    assert (tmp_path / "data").read_bytes() == bytes(range(256))


def test_every_file_and_its_folder_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced, real = [], os.fsync

    def fsync(file: int) -> None:
        synced.append(str(Path(f"/proc/self/fd/{file}").readlink()))
        real(file)

    monkeypatch.setattr(os, "fsync", fsync)
    files.write_json(tmp_path / "note.json", {})
    assert synced == [str(tmp_path / "note.json.writing"), str(tmp_path)]
    (tmp_path / "new").mkdir()
    files.publish(tmp_path / "new", tmp_path / "final")
    assert synced[2:] == [str(tmp_path / "new"), str(tmp_path)]


@pytest.mark.parametrize(("call", "after"), [("open", 0), ("write", 0), ("fsync", 0), ("replace", 0), ("fsync", 1)])
def test_json_is_old_or_new_whichever_call_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, after: int
) -> None:
    path = tmp_path / "note.json"
    files.write_json(path, {"age": "old"})
    refuse(monkeypatch, call, errno.EIO, after)
    with pytest.raises(RunError, match="the disk failed"):
        files.write_json(path, {"age": "new"})
    renamed = (call, after) == ("fsync", 1)  # only the folder's own sync failed
    assert json.loads(path.read_bytes()) == {"age": "new" if renamed else "old"}


def test_json_comes_back_as_it_was_written(tmp_path: Path) -> None:
    value = {"word": "Größe", "counts": [1, 2], "nothing": None}
    assert files.write_json(tmp_path / "note.json", value) == files.digest(tmp_path / "note.json")
    assert files.read_json(tmp_path / "note.json") == value


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (None, "note.json: is missing."),
        (b"{", "note.json: cannot be read as JSON"),
        (b"\xff\xfe", "note.json: cannot be read as JSON"),
        (b"[" * 100_000, "note.json: cannot be read as JSON"),
        (b"[1]", "note.json: does not hold a JSON object."),
    ],
)
def test_broken_json_is_named(tmp_path: Path, content: bytes | None, fact: str) -> None:
    if content is not None:
        (tmp_path / "note.json").write_bytes(content)
    with pytest.raises(FolderError) as caught:
        files.read_json(tmp_path / "note.json")
    assert fact in str(caught.value)


@pytest.mark.parametrize(
    ("code", "line"),
    [
        (
            errno.ENOSPC,
            "the disk is full: 9 bytes needed, 77 free. Free space and run the same command again.",
        ),
        (
            errno.EDQUOT,
            "your disk quota is used up: 9 bytes needed. Free space and run the same command again.",
        ),
        (errno.EROFS, "the disk is read-only. Choose a folder on another disk."),
        (errno.EACCES, "may not be written. Choose a folder that is yours."),
        (errno.EIO, "the disk failed (input/output error). Check the disk and run the same command again."),
    ],
)
def test_what_the_disk_refuses_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, line: str
) -> None:
    monkeypatch.setattr(files.shutil, "disk_usage", lambda path: SimpleNamespace(free=77))
    refuse(monkeypatch, "write", code)
    with pytest.raises(RunError) as caught:
        files.write(tmp_path / "data", b"nine byte")
    assert str(caught.value) == f"{tmp_path / 'data'}: {line}"


@pytest.mark.parametrize("name", ["s3://bucket/x", "gs://bucket/x/y.npy"])
def test_an_address_is_refused_where_files_are_written_to_the_disk(name: str, tmp_path: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        for check in (files.check_folder, files.check_file):
            with pytest.raises(RunError) as caught:
                check(Path(name))
            remedy = "Name a folder or a file here."
            assert str(caught.value) == f"{name}: is an address, and this is written to this machine's disk. {remedy}"
        Path(name).mkdir(parents=True)  # a folder of that name is no address
        files.check_folder(Path(name))


def test_an_address_is_refused_where_only_files_of_this_machine_are_read(tmp_path: Path) -> None:
    with pytest.raises(FolderError) as caught:
        files.check_local(Path("s3://bucket/model"))
    fact = "is an address, from which only text and prepared text are read"
    assert str(caught.value) == f"s3://bucket/model: {fact}. Copy it here first."
    files.check_local(tmp_path / "model")


def test_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "unmounted")
    with pytest.raises(FolderError, match=r"link is a link that leads nowhere\. Mount its disk"):
        files.check_folder(tmp_path / "link" / "run")


def test_a_full_device_is_told_with_what_is_free() -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("this system has no /dev/full")
    with pytest.raises(RunError, match=r"/dev/full: the disk is full: 5 bytes needed, [\d,]+ free\. Free space"):
        files.write(full, b"hello")


def test_a_mistake_of_the_code_keeps_its_traceback(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.write(tmp_path / "no" / "folder", b"")


def test_publishing_moves_a_folder_and_overwrites_nothing(tmp_path: Path) -> None:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        files.write(tmp_path / name / "data", name.encode())
    files.publish(tmp_path / "first", tmp_path / "final")
    with pytest.raises(FolderError, match=r"final: exists already\. Choose another name\."):
        files.publish(tmp_path / "second", tmp_path / "final")
    assert (tmp_path / "final" / "data").read_bytes() == b"first"
    assert (tmp_path / "second").exists()


def test_no_file_stays_open_when_writing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    refuse(monkeypatch, "fsync", errno.ENOSPC)
    with pytest.raises(RunError):
        files.write(tmp_path / "data", b"data")
    assert set(Path("/proc/self/fd").iterdir()) == before
