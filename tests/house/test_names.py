"""Nothing outside a folder is touched: whatever name a file in it gives, what lies elsewhere is not opened."""

import json
import os
import random
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors
from data.test_shards import made as made_shards
from data.test_shards import rewrite
from models.small import saved
from train.test_checkpoint import made as made_checkpoint

from bertsmith import files
from bertsmith.data.shards.shards import Shards
from bertsmith.data.shards.verification import verify
from bertsmith.errors import BertsmithError
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import sentence_transformers
from bertsmith.train import checkpoint

OURS = tuple(str(Path(place).resolve()) for place in (sys.prefix, sys.base_prefix, Path(__file__).parents[2] / "src"))
PIECES = [
    *("..", ".", "/", "//", "\\", "\0", "~", "%2e%2e", "out", "secret", "loop", "in", "model", "config.json", "\ud800"),
    *(
        "/dev/zero",
        "/dev/stdin",
        "/proc/self/mem",
        "CON",
        "NUL",
        "C:",
        "file://",
        "000000.tokens",
        "x" * 300,
        "\n",
        "．．",
    ),
]
watched: list[str] | None = None  # what is opened, listed, made or removed while it is a list


def _hear(event: str, arguments: tuple[Any, ...]) -> None:
    if watched is not None and (event == "open" or event.startswith(("os.", "shutil."))):
        paths = arguments[: 1 if event == "open" else 2]  # what follows there is a mode
        watched.extend(os.fsdecode(one) for one in paths if isinstance(one, str | bytes | os.PathLike))


sys.addaudithook(_hear)


def _utf8(name: str) -> str:
    """The name as our own JSON can say it."""
    return name.encode("utf-8", "replace").decode()


def in_an_index(folder: Path, name: str) -> object:
    (folder / "model.safetensors").unlink(missing_ok=True)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    return folders.read(folder)


def in_modules(folder: Path, name: str) -> object:
    modules = [{"path": "", "type": "x.Transformer"}, {"path": name, "type": "x.Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    return sentence_transformers.read(folder)


def in_a_manifest(folder: Path, name: str) -> object:
    manifest = files.read_json(folder / "MANIFEST.json")
    manifest["files"][name] = {"size": 6, "sha256": "0" * 64}
    (folder / "MANIFEST.json").write_text(json.dumps(manifest))
    return verify(Shards(folder)).wait()


def in_the_index_of_shards(folder: Path, name: str) -> object:
    rewrite(folder, lambda index: index["shards"][0].update(name=_utf8(name)))
    return verify(Shards(folder)).wait()


def in_a_checkpoint(folder: Path, name: str) -> object:
    path = next(folder.glob("step-*"))
    digests = {one.name: files.digest(one) for one in path.iterdir() if one.name != "MANIFEST.json"}
    digests[_utf8(name)] = files.Digest(6, "0" * 64)
    (path / "MANIFEST.json").write_bytes(checkpoint._manifest(3, digests))
    return checkpoint.load_newest(folder)


PLACES: dict[str, Callable[[Path, str], object]] = {
    "model": in_an_index,
    "sentence": in_modules,
    "manifest": in_a_manifest,
    "shards": in_the_index_of_shards,
    "checkpoint": in_a_checkpoint,
}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A sound folder for each place that names files, links in it, and a secret beside it."""
    for place in PLACES:
        folder = tmp_path / "good" / place
        if place in ("model", "sentence"):
            saved(folder)
        elif place == "checkpoint":
            checkpoint.save(folder, made_checkpoint(3))
        else:
            made_shards(folder, shards=1, blocks=1)
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "good" / "secret").write_text("secret")
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / "secret").write_text("secret")
    return tmp_path


@pytest.mark.torture("B2", suite=200, whole=10_000)
def test_no_generated_name_leads_out_of_its_folder(
    home: Path, times: int, monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]
) -> None:
    global watched
    opened = safetensors.safe_open

    def heard(path: Path, *arguments: Any) -> Any:  # what is opened in Rust no hook hears
        sys.audit("open", str(path), "r", 0)
        return opened(path, *arguments)

    monkeypatch.setattr(folders, "safe_open", heard)
    dice, refused, escapes = random.Random(0), 0, []
    likely = [
        "secret",
        *("../" * many + "secret" for many in range(1, 5)),
        str(home / "secret"),
    ]  # each of them is there
    for trial in range(times):
        place = list(PLACES)[trial % len(PLACES)]
        name = "".join(dice.choices([*PIECES, str(home), str(home / "good")], k=dice.randint(1, 5)))
        if trial // len(PLACES) < len(likely):
            name = likely[trial // len(PLACES)]
        folder = home / "trial" / place
        shutil.copytree(home / "good" / place, folder)
        for link, target in {"out": "../..", "secret": "../../secret", "loop": "loop", "in": "config.json"}.items():
            (folder / link).symlink_to(target)
        watched, line = [], ""
        try:
            PLACES[place](folder, name)
        except BertsmithError as error:
            refused, line = refused + 1, str(error)
        finally:
            touched, watched = watched, None
        assert "\n" not in line, (place, name)
        inside = str(folder.resolve())
        real = {os.path.realpath(path) for path in touched if "\0" not in path}
        escapes += [(place, name, path) for path in real if not path.startswith((inside, *OURS))]
        shutil.rmtree(folder)
    record_property("refused", refused)
    record_property("escapes", len(escapes))
    assert not escapes, escapes[:5]
    assert refused > times // 2


def test_an_escape_would_be_heard(home: Path) -> None:
    global watched
    watched = []
    try:
        (home / "secret").read_text()
        list((home / "good").iterdir())
        seen, watched = watched, None
    finally:
        watched = None
    assert str(home / "secret") in seen
    assert str(home / "good") in seen
