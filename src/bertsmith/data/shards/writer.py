"""The writer of shards: tokens go straight to the disk, so that memory stays flat."""

from pathlib import Path
from typing import Any

import numpy as np

from bertsmith import files
from bertsmith.data.shards.destination import Destination
from bertsmith.data.shards.encoded import EncodedDocuments
from bertsmith.data.shards.shards import ENDS_DTYPE, FORMAT, PREPARE_AGAIN, SHARD_PARTS, VERSION
from bertsmith.errors import FolderError


class ShardWriter:
    """The writer of one split, `train` or `valid`. Closed shards are safe; `state` lists them."""

    def __init__(
        self, folder: Path, state: dict[str, Any] | None = None, destination: Destination | None = None
    ) -> None:
        self.folder, self._destination = folder, destination or Destination(folder)
        state = state or {"shards": [], "files": {}, "bytes": 0, "words": 0}
        self.shards: list[dict[str, Any]] = state["shards"]
        self.files: dict[str, dict[str, Any]] = state["files"]
        self.bytes: int = state["bytes"]
        self.words: int = state["words"]
        self._writers: dict[str, files.Writer] = {}
        self._clear()
        with files.explain_os_errors(folder):
            folder.mkdir(exist_ok=True)
            for path in folder.iterdir():
                if path.name not in self.files:
                    path.unlink()  # the beginning of a shard that was never closed
        for name, digest in self.files.items():
            path = folder / name
            if self._destination.size(path) != digest["size"]:
                raise FolderError(path, "is not as it was left", PREPARE_AGAIN)

    @property
    def state(self) -> dict[str, Any]:
        """The closed shards, for the journal."""
        return {"shards": self.shards, "files": self.files, "bytes": self.bytes, "words": self.words}

    def total(self, part: str) -> int:
        """The number of tokens, sentences or documents, the open shard's included."""
        return self._open_counts[part] + sum(int(shard[part]) for shard in self.shards)

    @property
    def totals(self) -> dict[str, int]:
        return {part: self.total(part) for part in SHARD_PARTS} | {"bytes": self.bytes, "words": self.words}

    @property
    def open_tokens(self) -> int:
        return self._open_counts["tokens"]

    def add(self, block: EncodedDocuments) -> None:
        """Append some documents to the open shard."""
        if not len(block.lengths):
            return
        if not self._writers:
            name = f"{len(self.shards):06}"
            self._writers = {part: files.Writer(self.folder / f"{name}.{part}") for part in SHARD_PARTS}
        sentence_ends = self._open_counts["tokens"] + np.cumsum(block.lengths, dtype=ENDS_DTYPE)
        document_ends = self._open_counts["sentences"] + np.cumsum(block.documents[:, 0], dtype=ENDS_DTYPE)
        for part, data in zip(
            SHARD_PARTS, (block.tokens, sentence_ends.tobytes(), document_ends.tobytes()), strict=True
        ):
            self._writers[part].write(data)
        self._open_counts["tokens"] = int(sentence_ends[-1])
        self._open_counts["sentences"] = int(document_ends[-1])
        self._open_counts["documents"] += len(block.documents)
        self.bytes += int(block.documents[:, 1].sum())
        self.words += int(block.documents[:, 2].sum())

    def close_shard(self) -> None:
        """Close the open shard and sync it to the disk; the next document begins another."""
        if not self._writers:
            return
        digests = {writer.path: writer.close() for writer in self._writers.values()}
        files.sync_folder(self.folder)
        for path, digest in digests.items():
            self._destination.send_shard(path, digest)
            self.files[path.name] = vars(digest)
        self.shards.append({"name": f"{len(self.shards):06}", **self._open_counts})
        self._clear()

    def finish(self, about: dict[str, Any]) -> None:
        """Write the index and the manifest, which complete the folder."""
        index = {"format": FORMAT, "version": VERSION, **about, **self.totals, "shards": self.shards}
        digest = files.write_json(self.folder / "index.json", index)
        self._destination.send(self.folder / "index.json", digest)
        manifest = {"files": self.files | {"index.json": vars(digest)}}
        path = self.folder / "MANIFEST.json"
        self._destination.send(path, files.write_json(path, manifest))

    def close(self) -> None:
        """Discard the open shard."""
        for writer in self._writers.values():
            writer.__exit__(None, None, None)

    def _clear(self) -> None:
        self._writers = {}
        self._open_counts = dict.fromkeys(SHARD_PARTS, 0)
