"""A folder that several workers read is made by the first of them."""

from pathlib import Path

import pytest
from workers import made_once


class Factory:
    """The folders of one worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def getbasetemp(self) -> Path:
        return self.folder


def test_two_workers_read_the_files_of_the_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_XDIST_WORKER", "gw0")
    first, second = Factory(tmp_path / "gw0"), Factory(tmp_path / "gw1")
    with pytest.raises(ZeroDivisionError):
        made_once(first, "text", lambda folder: (folder / "half").write_text(str(1 // 0)))
    for worker in (first, second):
        found = made_once(worker, "text", lambda folder, worker=worker: (folder / worker.folder.name).touch())
        assert [path.name for path in found.iterdir()] == ["gw0"]
    monkeypatch.delenv("PYTEST_XDIST_WORKER")  # without workers, in the folder of this process
    assert made_once(first, "text", lambda folder: None) == tmp_path / "gw0" / "text"
