"""The journal of an unfinished preparation, written after every shard, so that the work can be resumed."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bertsmith import files
from bertsmith.data.shards.destination import Destination
from bertsmith.data.shards.shards import PREPARE_AGAIN
from bertsmith.errors import FolderError

FOLDER, NAME, FORMAT = "unfinished", "journal.json", "bertsmith-journal 3"
CLEANED = ("cleaned", "clean.html")  # written before by `prepare --clean`
DIGEST = 16  # bytes


class Journal:
    """A folder inside the prepared one: the state after the last shard, and the digests of all documents so far.

    An entry counts once its JSON is in place; the digests are written before it, one file for each entry.
    """

    def __init__(self, out: Path, inputs: dict[str, Any], destination: Destination | None = None) -> None:
        self.folder, self._destination = out / FOLDER, destination or Destination(out)
        self.entries, self.state = 0, dict[str, Any]()
        if (self.folder / NAME).exists():
            journal = files.read_json(self.folder / NAME)
            if journal.get("format") != FORMAT:
                raise FolderError(self.folder / NAME, "is no journal of this version", PREPARE_AGAIN)
            self.entries, self.state = journal["entries"], journal["state"]
            if self.entries and (changed := differences(journal["inputs"], inputs)):
                fact = f"was begun with {changed}, and is not finished"
                raise FolderError(out, fact, "Run it as it was begun, or delete the folder to begin anew")
        elif found := [name for name in self._destination.names() if name not in (FOLDER, *CLEANED)]:
            raise FolderError(out, f"holds {found[0]!r}, so it is not a new folder", "Choose another folder")
        self.inputs = inputs
        if not self.entries:  # nothing is lost by starting again, even with other text
            with files.explain_os_errors(self.folder):
                self.folder.mkdir(exist_ok=True)
            self._write()

    def record(self, state: dict[str, Any], digests: bytes) -> None:
        """Write an entry, from which the work can be resumed."""
        path = self.folder / f"{self.entries:06}.digests"
        self._destination.send(path, files.write(path, digests))
        self.entries, self.state = self.entries + 1, state
        self._write()

    def digests(self) -> Iterator[bytes]:
        """The digests of all documents so far."""
        for entry in range(self.entries):
            data = (self.folder / f"{entry:06}.digests").read_bytes()
            for start in range(0, len(data), DIGEST):
                yield data[start : start + DIGEST]

    def _write(self) -> None:
        journal = {"format": FORMAT, "entries": self.entries, "inputs": self.inputs, "state": self.state}
        self._destination.send(self.folder / NAME, files.write_json(self.folder / NAME, journal))


def delete_journal(destination: Destination) -> None:
    """Remove the journal of a finished preparation."""
    destination.delete(destination.folder / FOLDER)


def differences(before: dict[str, Any], now: dict[str, Any]) -> str:
    """The differences in words: `another tokenizer`, `validation_share=0.01 (now 0.05)`. Empty if there are none."""
    if before.get("format") != now.get("format"):  # whose other keys have other names
        return f"another version ({before.get('format')}, now {now.get('format')})"
    named = {"files": "other text", "tokenizer": "another tokenizer", "sentences": "another sentence splitter"}
    changed = [key for key in sorted(before.keys() | now.keys()) if before.get(key) != now.get(key)]
    return ", ".join(named.get(key, f"{key}={before.get(key)} (now {now.get(key)})") for key in changed)
