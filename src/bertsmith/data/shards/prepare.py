"""Preparation: a corpus is tokenised once, on all cores, into shards for training and validation.

Documents keep the order of the corpus; duplicates are dropped; a share of the text, chosen by its content and not by
its position, is held out for validation (see `validation.py`). Killed at any moment and run again, the work resumes
after the last finished shard, and the result is the same, byte for byte.
"""

import fcntl
import os
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bertsmith import files, terminal
from bertsmith.data.address import Address
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.corpus.sources import STANDARD_INPUT
from bertsmith.data.shards import cluster
from bertsmith.data.shards.chunks import Chunk, chunks
from bertsmith.data.shards.destination import Destination, destination
from bertsmith.data.shards.duplicates import DigestSet
from bertsmith.data.shards.encoded import EncodedDocuments
from bertsmith.data.shards.journal import Journal, delete_journal, differences
from bertsmith.data.shards.shards import token_dtype
from bertsmith.data.shards.validation import choose_validation
from bertsmith.data.shards.workers import Documents, encode_all
from bertsmith.data.shards.writer import ShardWriter
from bertsmith.data.workers import check_workers
from bertsmith.errors import FolderError, RecipeError, RunError, TextError
from bertsmith.text.sentences import has_sentencex
from bertsmith.text.tokenizer import Tokenizer

FORMAT = "bertsmith-summary 2"  # of `summary.json`: the keys of its inputs
NO_WORKERS_BYTES = 1 << 20  # bytes of text that are encoded faster than workers start
COUNTING_SHARE = 0.1  # of the progress bar: the first reading of a large text, which only counts
Progress = Callable[[float, int], object]  # the share of the text that is done, and the tokens so far
Encode = Callable[  # by the tokenizer of a folder, as integers of a type
    [Iterable[tuple[Chunk, list[Documents]]], Path, str], Generator[tuple[Chunk, list[EncodedDocuments]], None, None]
]


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The counts of a preparation, as in `summary.json`."""

    documents: int  # read
    duplicates: int  # dropped: an earlier document had the same sentences
    empty: int  # dropped: documents without tokens
    dropped: int  # sentences without tokens
    train: dict[str, int]  # tokens, sentences, documents, bytes, words
    valid: dict[str, int]
    corrections: dict[str, int]  # bad lines that were replaced or skipped, by kind
    seconds: float
    reused: bool = False  # the folder existed, prepared from the same text


def prepare(
    corpus: Corpus,
    tokenizer: Tokenizer,
    out: Path | str,
    *,
    validation_share: float = 0.01,
    shard_tokens: int = 1 << 25,
    workers: int | None = None,
    on: str | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Tokenise a corpus into `out/train`, `out/valid` and `out/tokenizer`, or resume an interrupted preparation.

    Worker processes of this machine encode the text, or with `on` a cluster: the bytes are the same.
    """
    if not 0 <= validation_share < 1:
        fact = f"{validation_share} is not a share"
        raise RecipeError("validation_share", fact, "Give a number from 0 to 1, such as 0.01")
    check_workers(workers)
    if on is not None:
        cluster.check_address(on)
    target = destination(out)
    out = target.folder
    extent = {"validation_share": validation_share, "shard_tokens": shard_tokens}
    with target.located():
        if target.is_here and (out / "summary.json").exists():  # written last: read without a lock
            return _finished(target, _inputs(corpus, tokenizer) | extent)
        with lock_folder(out):  # first of all, since standard input is read to its end to be known again
            target.restore()
            inputs = _inputs(corpus, tokenizer) | extent
            if (out / "summary.json").exists():
                return _finished(target, inputs)
            with _encoding(corpus, workers, on) as encode:
                work = Preparation(target, tokenizer, Journal(out, inputs, target))
                try:
                    work.run(corpus, validation_share, shard_tokens, encode, progress)
                    return work.finish(corpus, validation_share)
                finally:
                    work.close()


@contextmanager
def _encoding(corpus: Corpus, workers: int | None, on: str | None) -> Iterator[Encode]:
    """The engine that encodes: this process, workers of this machine, or a cluster."""
    if on is not None:
        with cluster.connected(on, workers) as connection:
            yield connection.encode_all
        return
    if workers is None:
        workers = count_cores() if not 0 < corpus.bytes <= NO_WORKERS_BYTES else 0
    yield partial(encode_all, workers=workers)


class Preparation:
    """A preparation in progress: the two growing splits, the counts, and the journal."""

    def __init__(self, target: Destination, tokenizer: Tokenizer, journal: Journal) -> None:
        self.target, self.tokenizer, self.journal = target, tokenizer, journal
        self.out = out = target.folder
        state = journal.state
        self.train = ShardWriter(out / "train", state.get("train"), target)
        self.valid = ShardWriter(out / "valid", state.get("valid"), target)
        self.counts = Counter[str](state.get("counts", {}))
        self.corrections: dict[str, int] = state.get("corrections", {})
        self.started = time.monotonic() - state.get("seconds", 0.0)
        self.pending: EncodedDocuments | None = None  # the last training documents, one of which validation may need
        self.digests = bytearray()  # of the documents since the journal's last entry
        tokenizer.save(out / "tokenizer")
        for path in (out / "tokenizer").iterdir():
            target.send(path, files.write(path, path.read_bytes()))
        files.sync_folder(out / "tokenizer")
        files.sync_folder(out)

    def run(
        self, corpus: Corpus, validation_share: float, shard_tokens: int, encode: Encode, progress: Progress | None
    ) -> None:
        """Read, encode and write all documents that no finished shard holds."""
        seen = DigestSet()
        for digest in self.journal.digests():
            seen.add(digest)
        counting = 0.0  # of the progress bar, taken by the first reading

        def counted(share: float) -> None:
            nonlocal counting
            if progress and not self.journal.entries:
                counting = COUNTING_SHARE
                progress(COUNTING_SHARE * share, 0)

        validation = choose_validation(corpus, validation_share, counted)
        text = chunks(corpus, self.counts["documents"], seen, validation)
        encoded = encode(text, self.out / "tokenizer", token_dtype(self.tokenizer.vocabulary))
        with closing(encoded):
            for chunk, (train, valid) in encoded:
                if len(train.documents):
                    self._flush_pending()
                    if self.train.open_tokens + self.valid.open_tokens >= shard_tokens:
                        self._close_shards()
                    self.pending = train
                self.valid.add(valid)
                self._count(chunk, train, valid)
                if progress:
                    pending = int(self.pending.lengths.sum()) if self.pending else 0
                    share = counting + (1 - counting) * chunk.progress
                    progress(share, self.train.total("tokens") + self.valid.total("tokens") + pending)

    def finish(self, corpus: Corpus, validation_share: float) -> Summary:
        """Close the last shards, write both manifests and the summary, and delete the journal."""
        if self.pending and validation_share and not self.valid.total("documents"):
            before, last = self.pending.split_last()
            if len(before.documents) or self.train.total("documents"):
                self.pending = before  # the validation text had no tokens: the last document is for validation
                self.valid.add(last)
        self._flush_pending()
        if not self.train.total("documents"):
            location = corpus.files[0] if len(corpus.files) == 1 else f"{len(corpus.files)} files"
            fact = f"no text to train on ({self.counts['documents']:,} documents read)"
            raise TextError(location, fact, "Give more text")
        about = {
            "dtype": token_dtype(self.tokenizer.vocabulary),
            "vocabulary": self.tokenizer.vocabulary,
            "tokenizer": self.tokenizer.fingerprint,
        }
        for split in (self.train, self.valid):
            split.close_shard()
            split.finish(about)
        summary = Summary(
            documents=self.counts["documents"],
            duplicates=self.counts["duplicates"],
            empty=self.counts["empty"],
            dropped=self.counts["dropped"],
            train=self.train.totals,
            valid=self.valid.totals,
            corrections=self.corrections,
            seconds=round(time.monotonic() - self.started, 1),
        )
        counts = {key: value for key, value in asdict(summary).items() if key != "reused"}
        path = self.out / "summary.json"
        self.target.send(path, files.write_json(path, counts | {"inputs": self.journal.inputs}))
        delete_journal(self.target)
        return summary

    def close(self) -> None:
        self.train.close()
        self.valid.close()

    def _flush_pending(self) -> None:
        if self.pending is not None:
            self.train.add(self.pending)
            self.pending = None

    def _close_shards(self) -> None:
        """Close both shards and write the journal."""
        self.train.close_shard()
        self.valid.close_shard()
        state = {
            "train": self.train.state,
            "valid": self.valid.state,
            "counts": self.counts,
            "corrections": self.corrections,
            "seconds": time.monotonic() - self.started,
        }
        self.journal.record(state, bytes(self.digests))
        self.digests.clear()

    def _count(self, chunk: Chunk, *blocks: EncodedDocuments) -> None:
        self.counts["documents"] += chunk.documents
        self.counts["duplicates"] += chunk.duplicates
        self.counts["empty"] += chunk.empty + sum(block.empty for block in blocks)
        self.counts["dropped"] += sum(block.dropped for block in blocks)
        self.digests += chunk.digests
        self.corrections = chunk.corrections


def corpus_inputs(corpus: Corpus) -> dict[str, Any]:
    """The files of a corpus and the way they are read: all that its text depends on."""
    text = list[list[Any]]()
    for path in corpus.files:
        if isinstance(path, Address):
            text.append([str(path), path.stat().st_size, path.version()])
        elif path.is_file():
            found = path.stat()
            text.append([terminal.escape_surrogates(path.name), found.st_size, found.st_mtime_ns])
        elif path == STANDARD_INPUT:
            text.append([path.name, *corpus.stdin_digest()])
        else:  # a named pipe is never known to hold the same text
            text.append([terminal.escape_surrogates(path.name), 0, time.time_ns()])
    settings = {key: getattr(corpus, key) for key in ("field", "on_bad_line", "layout", "max_line_length")}
    if corpus.plain:
        settings["plain"] = True
    if corpus.max_characters is not None:
        settings["max_characters"] = corpus.max_characters
    return {"files": text, **settings}


def _inputs(corpus: Corpus, tokenizer: Tokenizer) -> dict[str, Any]:
    """All inputs that the result depends on."""
    splitter = {} if has_sentencex() else {"sentences": "rules"}
    return {"format": FORMAT, "tokenizer": tokenizer.fingerprint, **corpus_inputs(corpus), **splitter}


def count_cores() -> int:
    """The number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _finished(target: Destination, inputs: dict[str, Any]) -> Summary:
    """The summary of a finished folder, if it was prepared from the same inputs."""
    summary = files.read_json(target.folder / "summary.json")
    if changed := differences(summary.pop("inputs", {}), inputs):
        raise FolderError(target.folder, f"was prepared with {changed}", "Choose another folder, or delete this one")
    target.verify(("train", "valid"))
    delete_journal(target)  # a run may have ended between its last two steps
    return Summary(**summary, reused=True)


@contextmanager
def lock_folder(out: Path, verb: str = "preparing") -> Iterator[None]:
    """Make the folder, and lock it against other runs; the lock ends with its process."""
    files.check_folder(out)
    with files.explain_os_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    lock = os.open(out, os.O_RDONLY | os.O_CLOEXEC)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fact = f"another run is {verb} this folder"
            raise RunError(out, fact, "Wait for it, or choose another") from None
        yield
    finally:
        os.close(lock)
