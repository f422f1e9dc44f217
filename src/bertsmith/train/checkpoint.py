"""Checkpoints: the whole state of a run, in a folder that is complete or does not exist.

A checkpoint is `step-000000100/`: safetensors files, `state.json`, and a `MANIFEST.json` with the size and
SHA-256 of each. It is written under a temporary name, synced, and renamed; it is never changed afterwards.
The newest one is found by names and hashes; no file points to it.
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bertsmith import files
from bertsmith.errors import FolderError, RunError
from bertsmith.files import Digest

FORMAT, VERSION = "bertsmith-checkpoint", 2
OLDER = (1,)  # versions with other names of weights and settings
MANIFEST, STATE = "MANIFEST.json", "state.json"
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


def save(folder: Path, checkpoint: Checkpoint, *, keep: int = 2) -> Path:
    """Write a checkpoint atomically, and remove all but the newest `keep`."""
    final = folder / f"step-{checkpoint.step:09d}"
    with files.explain_os_errors(final, _size(checkpoint)):
        if not folder.exists():
            folder.mkdir(parents=True)
            files.sync_folder(folder.parent)
        for leftover in folder.glob(f"{TEMPORARY}*"):
            shutil.rmtree(leftover)
        if not _is_whole(final):
            _write(final, checkpoint)
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


def _write(final: Path, checkpoint: Checkpoint) -> None:
    temporary = final.with_name(f"{TEMPORARY}new-{final.name}")
    try:
        temporary.mkdir()
        digests: dict[str, Digest] = {}
        for name, tensors in checkpoint.tensors.items():
            with files.Writer(temporary / f"{name}.safetensors") as writer:
                for piece in _safetensors(tensors):
                    writer.write(piece)
                digests[writer.path.name] = writer.close()
        digests[STATE] = files.write(temporary / STATE, _json(checkpoint.state))
        files.write(temporary / MANIFEST, _manifest(checkpoint.step, digests))
        if final.exists():  # damaged, since a whole one is not written again
            _remove(final)
        files.publish(temporary, final)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, RunError) and error.__cause__ is not None:
            raise error.__cause__ from None  # `save` explains it, with the size of the whole checkpoint
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
        tensors = {name.removesuffix(".safetensors"): _tensors(data) for name, data in verified.items()}
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
