"""A place that cannot be written, or is somebody else's, is refused in one line before any work."""

import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bertsmith import files
from bertsmith.cli import app
from bertsmith.commands import prepare
from bertsmith.errors import BertsmithError, FolderError, RunError
from bertsmith.text.tokenizer import TokenizerConfig
from bertsmith.train.lock import Lock


def refused(act: object, *arguments: object, **options: object) -> str:
    with pytest.raises(BertsmithError) as caught:
        act(*arguments, **options)  # type: ignore[operator]
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_or_a_place_below_one_is_no_folder(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("mine")
    assert refused(files.check_folder, file) == f"{file}: is a file, not a folder. Choose another name."
    below = file / "run" / "one"
    assert (
        refused(files.check_folder, below) == f"{below}: {file} is a file, and holds no folders. Choose another name."
    )
    assert refused(files.check_file, below) == f"{below}: {file} is a file, and holds no folders. Choose another name."
    assert refused(files.check_file, tmp_path) == f"{tmp_path}: is a folder, not a file. Name a file in it."
    with pytest.raises(BertsmithError), Lock(below):
        pass
    assert file.read_text() == "mine"


def test_a_place_that_may_not_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(os, "access", lambda place, mode: False)
    for check in (files.check_folder, files.check_file):
        line = refused(check, tmp_path / "new")
        assert line == f"{tmp_path / 'new'}: {tmp_path} may not be written. Choose a folder that is yours."
    monkeypatch.setattr(os, "access", lambda place, mode: Path(place).is_dir())
    line = refused(files.check_file, tmp_path / "file")
    assert line == f"{tmp_path / 'file'}: may not be written. Choose a file that is yours."


def test_a_name_that_is_too_long_is_refused(tmp_path: Path) -> None:
    assert "the name is too long. Choose a shorter one." in refused(files.check_folder, tmp_path / ("a" * 300))


def test_a_file_may_lie_in_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    files.check_file(tmp_path / "new" / "vectors.npy")
    assert (tmp_path / "new").is_dir()


def test_the_folder_of_somebody_elses_model_is_not_written_into(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    fact = "holds files that bertsmith has not written there (config.json, model.safetensors)"
    with pytest.raises(FolderError) as caught, Lock(tmp_path):
        pass
    assert str(caught.value) == f"{tmp_path}: {fact}. Choose a new folder."
    assert refused(prepare.tokenizer, [], tmp_path, TokenizerConfig()) == str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.safetensors"]


def test_a_model_folder_within_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(FolderError, match=r"has not written there \(model\)"), Lock(tmp_path):
        pass


def test_a_folder_of_ours_or_one_with_folders_alone_is_used(tmp_path: Path) -> None:
    for name in ("tokenizer", "data"):
        (tmp_path / name).mkdir()
    (tmp_path / ".DS_Store").touch()
    with Lock(tmp_path):
        (tmp_path / "model").mkdir()
        (tmp_path / "report.html").touch()
    with Lock(tmp_path):
        pass


def test_names_that_the_system_refuses_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunError, match=r"a file stands where a folder is needed."), files.explain_os_errors(tmp_path):
        (tmp_path / "file" / "below").mkdir()
    with (
        pytest.raises(RunError, match=r"is a folder, not a file. Choose another name."),
        files.explain_os_errors(tmp_path),
    ):
        tmp_path.open("w")


@pytest.mark.parametrize(
    "verb",
    [
        *(
            "make text",
            "demo",
            "tokenizer text",
            "prepare text --tokenizer words",
            "pretrain bert-tiny",
            "word2vec text",
        ),
        *(
            "finetune model data",
            "evaluate model data",
            "race bert-tiny",
            "predict model",
            "embed model",
            "score model",
        ),
        "inspect model --text text",
    ],
)
def test_every_verb_refuses_a_place_below_a_file_before_any_work(verb: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    line = refused(
        CliRunner().invoke, app, [*verb.split(), "--out", str(tmp_path / "file" / "x")], catch_exceptions=False
    )
    assert line.endswith(f"{tmp_path / 'file'} is a file, and holds no folders. Choose another name.")
