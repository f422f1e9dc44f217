"""Checkpoints: the whole state of a run, in a folder that is complete or does not exist.

A checkpoint is `step-000000100/`: safetensors files, `state.json`, and a `MANIFEST.json` with the size and
SHA-256 of each. It is written under a temporary name, synced, and renamed; it is never changed afterwards.
The newest one is found by names and hashes; no file points to it.

Several processes write a part each, `model-0-of-2.safetensors` and so on; any number of them reads it.
"""

import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertsmith import files
from bertsmith.errors import FolderError, RunError
from bertsmith.files import Digest
from bertsmith.train.processes import ALONE, Processes

FORMAT, VERSION = "bertsmith-checkpoint", 2
OLDER = (1,)  # versions with other names of weights and settings
MANIFEST, STATE = "MANIFEST.json", "state.json"
PART = r"(-\d+-of-\d+)?\.safetensors"  # the end of a file's name, after that of its table
TEMPORARY = ".temporary-"  # prefix of folders that are half written or half removed

_UNREADABLE = (OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError)
_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_TYPES = {name: dtype for dtype, name in _DTYPES.items()}


class OlderVersionError(FolderError):
    """A checkpoint of an older format: it is not damaged, so it is refused and not skipped."""


@dataclass(frozen=True)
class Checkpoint:
    """A run at one moment: tables of named tensors by file name, and a state of plain JSON values."""

    step: int
    tensors: dict[str, dict[str, Tensor]]  # {"model": ..., "optimizer": ...}
    state: dict[str, Any]


def save(folder: Path, checkpoint: Checkpoint, *, keep: int = 2, processes: Processes = ALONE) -> Path:
    """Write a checkpoint atomically, and remove all but the newest `keep`.

    Each process gives the tensors that it is to write; the state is the main one's. If one of them fails, all do.
    """
    final = path_of(folder, checkpoint.step)
    with _explained(final, _size(checkpoint)):
        [temporary, *_] = processes.together(lambda: _begin(final) if processes.main else None)
        if temporary is not None:
            _write(temporary, final, checkpoint, processes)
        if processes.main:
            earlier = [path for step, path in _list_newest_first(folder) if step <= checkpoint.step]
            for path in earlier[keep:]:
                with suppress(OSError):  # the next save tries again
                    _remove(path)
    return final


def load_newest(folder: Path) -> tuple[Checkpoint, list[str]] | None:
    """The newest checkpoint that verifies, and a line for each damaged one that was skipped."""
    broken: list[str] = []
    for _, path in _list_newest_first(folder):
        try:
            return _read(path), broken
        except OlderVersionError:
            raise
        except FolderError as error:
            broken.append(str(error))
    if broken:
        remedy = "Remove the folder to start again"
        raise FolderError(folder, f"no checkpoint in it is whole ({'; '.join(broken)})", remedy)
    return None


def load(path: Path) -> Checkpoint:
    """One checkpoint by its folder, verified."""
    return _read(path)


def load_all(folder: Path) -> Iterator[Checkpoint]:
    """All checkpoints that verify, the earliest first, read one at a time."""
    for _, path in reversed(_list_newest_first(folder)):
        with suppress(FolderError):
            yield _read(path)


def path_of(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step is."""
    return folder / f"step-{step:09d}"


def _begin(final: Path) -> Path | None:
    """A temporary folder for a checkpoint; None if it is there already. What a kill has left is removed."""
    folder = final.parent
    if not folder.exists():
        folder.mkdir(parents=True)
        files.sync_folder(folder.parent)
    for leftover in folder.glob(f"{TEMPORARY}*"):
        shutil.rmtree(leftover)
    if _is_whole(final):
        return None
    # A new name each time: a process of a killed run may still write into the folder of its last checkpoint.
    temporary = final.with_name(f"{TEMPORARY}new-{final.name}-{secrets.token_hex(4)}")
    temporary.mkdir()
    return temporary


def _write(temporary: Path, final: Path, checkpoint: Checkpoint, processes: Processes) -> None:
    """Write the parts of all processes, and give the folder its name."""
    try:
        parts = processes.together(lambda: _write_tensors(temporary, checkpoint.tensors, processes))
        processes.together(lambda: _finish(temporary, final, checkpoint, parts) if processes.main else None)
    except BaseException:
        if processes.main:
            shutil.rmtree(temporary, ignore_errors=True)
        raise


def _write_tensors(
    temporary: Path, tables: Mapping[str, Mapping[str, Tensor]], processes: Processes
) -> dict[str, Digest]:
    """The files of this process, with their digests."""
    part = f"-{processes.rank}-of-{processes.size}" if processes.size > 1 else ""
    digests: dict[str, Digest] = {}
    for name, tensors in tables.items():
        with files.Writer(temporary / f"{name}{part}.safetensors") as writer:
            for piece in _safetensors(tensors):
                writer.write(piece)
            digests[writer.path.name] = writer.close()
    return digests


def _finish(temporary: Path, final: Path, checkpoint: Checkpoint, parts: Sequence[Mapping[str, Digest]]) -> None:
    """Write state and manifest, and give the folder its name."""
    digests = {name: digest for part in parts for name, digest in part.items()}
    digests[STATE] = files.write(temporary / STATE, _json(checkpoint.state))
    files.write(temporary / MANIFEST, _manifest(checkpoint.step, digests))
    if final.exists():  # damaged, since a whole one is not written again
        _remove(final)
    files.publish(temporary, final)


@contextmanager
def _explained(final: Path, needed: int) -> Iterator[None]:
    """Errors of the disk in one line about the whole checkpoint, and not about one of its files."""
    with files.explain_os_errors(final, needed):
        try:
            yield
        except RunError as error:
            if isinstance(error.__cause__, OSError):
                raise error.__cause__ from None
            raise


def _read(path: Path) -> Checkpoint:
    """The checkpoint in a folder. No byte of a file is used before its hash is verified."""
    try:
        manifest = (path / MANIFEST).read_bytes()
        digests = {name: Digest(**entry) for name, entry in json.loads(manifest)["files"].items()}
        step = int(path.name.removeprefix("step-"))
        if manifest in [_manifest(step, digests, version) for version in OLDER]:
            fact = f"was written by an older bertsmith (this one reads version {VERSION} of its format)"
            raise OlderVersionError(
                path, fact, "Resume with the version that wrote it, or start again in another folder"
            )
        if manifest != _manifest(step, digests) or any(Path(name).name != name for name in digests):
            raise FolderError(path, f"{MANIFEST} is damaged, or of another checkpoint or version")
        verified = {name: _verified(path, name, digest) for name, digest in digests.items()}
        state = json.loads(verified.pop(STATE).numpy().tobytes())
        tensors: dict[str, dict[str, Tensor]] = {}
        for name, data in verified.items():
            tensors.setdefault(re.sub(PART + "$", "", name), {}).update(_tensors(data))
    except _UNREADABLE as error:
        raise FolderError(path, f"cannot be read ({type(error).__name__}: {error})") from None
    return Checkpoint(step, tensors, state)


def _verified(path: Path, name: str, digest: Digest) -> Tensor:
    """The bytes of a file, verified by the size and hash in the manifest."""
    if (size := (path / name).stat().st_size) != digest.size:
        raise FolderError(path, f"{name} has {size:,} bytes and should have {digest.size:,}")
    data = torch.empty(size, dtype=torch.uint8)
    view, sha256 = data.numpy().data, hashlib.sha256()
    with (path / name).open("rb", buffering=0) as file:
        while view and (taken := file.readinto(view[: files.HASHED_BYTES])):
            sha256.update(view[:taken])  # while it is still in the processor's cache
            view = view[taken:]
    if sha256.hexdigest() != digest.sha256:
        raise FolderError(path, f"{name} is damaged (its SHA-256 is not the one in {MANIFEST})")
    return data


def _is_whole(path: Path) -> bool:
    try:
        _read(path)
    except FolderError:
        return False
    return True


def _remove(path: Path) -> None:
    """Remove a checkpoint by renaming it first, so that a kill leaves no partial checkpoint under its name."""
    doomed = path.with_name(f"{TEMPORARY}old-{path.name}")
    path.replace(doomed)
    shutil.rmtree(doomed)


def _list_newest_first(folder: Path) -> list[tuple[int, Path]]:
    """The checkpoints in a folder by step, newest first."""
    named = ((re.fullmatch(r"step-(\d{9,})", path.name), path) for path in folder.glob("step-*"))
    return sorted(((int(name[1]), path) for name, path in named if name), reverse=True)


def _manifest(step: int, digests: Mapping[str, Digest], version: int = VERSION) -> bytes:
    """The manifest in a canonical form, so that any changed bit is detected."""
    listed = {name: asdict(digest) for name, digest in digests.items()}
    return _json({"format": FORMAT, "version": version, "step": step, "files": listed})


def _json(value: Any) -> bytes:
    return (json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode()


def _safetensors(tensors: Mapping[str, Tensor]) -> Iterator[bytes | memoryview]:
    """A safetensors file in pieces, so that saving needs no second copy of the model."""
    header, end = {}, 0
    # The widest dtypes first, so that every tensor is aligned.
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    for name, tensor in ordered:
        begin, end = end, end + tensor.nbytes
        header[name] = {
            "dtype": _DTYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    yield len(text).to_bytes(8, "little") + text
    for _, tensor in ordered:
        if tensor.nbytes:
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            yield flat.view(torch.uint8).numpy().data


def _tensors(data: Tensor) -> dict[str, Tensor]:
    """The tensors in a safetensors file, as views of the verified bytes."""
    begin = 8 + int.from_bytes(data[:8].numpy().tobytes(), "little")
    header = json.loads(data[8:begin].numpy().tobytes())
    named = {}
    for name, entry in header.items():
        first, last = (begin + offset for offset in entry["data_offsets"])
        named[name] = data[first:last].view(_TYPES[entry["dtype"]]).reshape(entry["shape"])
    return named


def _size(checkpoint: Checkpoint) -> int:
    """The size of a checkpoint in bytes, about."""
    return sum(tensor.nbytes for tensors in checkpoint.tensors.values() for tensor in tensors.values())
