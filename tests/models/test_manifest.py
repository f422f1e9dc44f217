"""A model folder lists the hashes of its files, and is opened only if they match."""

import json
import random
import shutil
from pathlib import Path

import pytest
from models.small import SMALL, refusal, state

from bertsmith import files
from bertsmith.inference.load import load
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import manifest
from bertsmith.text.tokenizer import TokenizerConfig, train

ON_PURPOSE = "Fetch it again; or, if you changed it on purpose, delete MANIFEST.json."


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as runs leave it."""
    place = tmp_path_factory.mktemp("exported") / "model"
    with folders.atomic_folder(place) as folder:
        folders.write(folder, SMALL, state())
        train(["a b c"] * 5, TokenizerConfig(vocabulary=100, min_frequency=1)).save(folder)
        files.write(folder / "README.md", b"# A model\n")
        (folder / "1_Pooling").mkdir()
        files.write_json(folder / "1_Pooling" / "config.json", {})
    return place


@pytest.fixture
def folder(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "model"))


def test_every_file_but_the_card_is_listed_with_its_size_and_hash(folder: Path) -> None:
    said = json.loads((folder / "MANIFEST.json").read_text())
    assert (said["format"], said["version"]) == ("bertsmith-model", 2)
    names = {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "1_Pooling/config.json"}
    assert said["files"].keys() == names
    for name, written in said["files"].items():
        found = files.digest(folder / name)
        assert written == {"size": found.size, "sha256": found.sha256}
    assert load(folder).trunk.config == SMALL


@pytest.mark.slow("reads 200 damaged folders")
def test_every_flipped_bit_is_found_and_named(folder: Path) -> None:
    path, dice = folder / "model.safetensors", random.Random(0)
    whole = path.read_bytes()
    for _ in range(200):
        damaged, place = bytearray(whole), dice.randrange(len(whole))
        damaged[place] ^= 1 << dice.randrange(8)
        path.write_bytes(damaged)
        line = "F/model.safetensors: is damaged: its SHA-256 is not the one it was written with. "
        assert refusal(folder) == line + ON_PURPOSE
    path.write_bytes(whole)
    assert folders.read(folder).config == SMALL


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "1_Pooling/config.json"])
def test_other_files_are_checked_too(name: str, folder: Path) -> None:
    text = (folder / name).read_text()
    (folder / name).write_text(text.replace("{", "{ ", 1))
    size = len(text.encode())
    assert refusal(folder) == f"F/{name}: has {size + 1} bytes, not the {size} it was written with. {ON_PURPOSE}"
    (folder / name).unlink()
    assert refusal(folder) == f"F/{name}: is missing."


def test_a_card_may_be_edited_and_other_files_may_be_added(folder: Path) -> None:
    (folder / "README.md").write_text("Mine.")
    (folder / "notes.txt").write_text("Mine, too.")
    assert folders.read(folder).config == SMALL


def test_a_changed_folder_without_manifest_is_opened(folder: Path) -> None:
    said = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**said, "hidden_dropout_prob": 0.5}))
    assert ON_PURPOSE in refusal(folder)
    (folder / "MANIFEST.json").unlink()
    assert folders.read(folder).config.dropout == 0.5


@pytest.mark.parametrize(
    "text",
    ["{}", '{"format": "bertsmith-model", "version": 3, "files": {}}', '{"format": "bertsmith-model", "version": 2}'],
)
def test_a_manifest_that_is_none_is_refused(text: str, folder: Path) -> None:
    (folder / "MANIFEST.json").write_text(text)
    remedy = "Delete it to open the folder unchecked."
    assert refusal(folder) == f"F/MANIFEST.json: is no list of hashes in version 2 of its format. {remedy}"


def test_a_folder_of_an_older_version_is_refused(folder: Path) -> None:
    said = json.loads((folder / "MANIFEST.json").read_text())
    (folder / "MANIFEST.json").write_text(json.dumps({**said, "version": 1}))
    fact = "was written by an older bertsmith (this one reads version 2 of its format)"
    assert refusal(folder) == f"F/MANIFEST.json: {fact}. Export the model anew."


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "1_Pooling/../../secret", "a/b/c", ""])
def test_a_manifest_cannot_lead_out_of_its_folder(name: str, folder: Path) -> None:
    (folder.parent / "secret").write_text("secret")
    said = json.loads((folder / "MANIFEST.json").read_text())
    said["files"][name] = {"size": 6, "sha256": ""}
    (folder / "MANIFEST.json").write_text(json.dumps(said))
    assert " leads out of the folder. Put it inside." in refusal(folder)


def test_transformers_opens_a_folder_with_a_manifest(folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    model, report = transformers.AutoModelForPreTraining.from_pretrained(folder, output_loading_info=True)
    assert not any(report.values()), report
    assert model.config.hidden_size == 8


def test_every_file_is_hashed_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that checking 440 MB (BERT-base) costs what its SHA-256 costs."""
    hashed, digest = list[str](), files.digest

    def counted(path: Path) -> files.Digest:
        hashed.append(path.relative_to(folder).as_posix())
        return digest(path)

    monkeypatch.setattr(files, "digest", counted)
    manifest.verify(folder)
    assert sorted(hashed) == sorted(json.loads((folder / "MANIFEST.json").read_text())["files"])
    assert "model.safetensors" in hashed
