"""Files that grow together, with a journal of their sizes, so that work on them goes on after a kill."""

import os
from pathlib import Path
from types import TracebackType
from typing import Any

from bertsmith import files
from bertsmith.errors import FolderError


class GrowingFiles:
    """Files of a folder that are only appended to. `state` is the writer's own record at the last entry of the journal.

    After a kill every file is cut to the size that the journal has for it.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self._journal = folder, folder / f"{name}.json"
        self.state, self._sizes, self._open = dict[str, Any](), dict[str, int](), dict[str, int]()
        if not self._journal.exists():
            return
        entry = files.read_json(self._journal)
        self.state, self._sizes = entry["state"], entry["sizes"]
        for file, size in self._sizes.items() if not self.state.get("finished") else ():
            if not (folder / file).exists() or (folder / file).stat().st_size < size:
                raise FolderError(folder / file, "has lost its end", "Delete the folder, and run again")

    def append(self, file: str, data: files.Bytes) -> None:
        if file not in self._open:
            with files.explain_os_errors(self.folder / file):
                descriptor = os.open(self.folder / file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
                os.ftruncate(descriptor, self._sizes.setdefault(file, 0))
                os.lseek(descriptor, 0, os.SEEK_END)
            self._open[file] = descriptor
        view = memoryview(data).cast("B")
        self._sizes[file] += len(view)
        while view:  # a write may be partial
            with files.explain_os_errors(self.folder / file, len(view)):
                view = view[os.write(self._open[file], view) :]

    def size(self, file: str) -> int:
        return self._sizes.get(file, 0)

    def record(self, state: dict[str, Any]) -> None:
        """Sync all files, and write an entry of the journal, from which the work can be resumed."""
        for file, descriptor in self._open.items():
            with files.explain_os_errors(self.folder / file):
                os.fsync(descriptor)
        self.state = state
        files.write_json(self._journal, {"state": state, "sizes": self._sizes})

    def __enter__(self) -> "GrowingFiles":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        while self._open:
            os.close(self._open.popitem()[1])
