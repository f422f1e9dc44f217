"""Cleaning: a corpus is read twice, on all cores, and written again without the text that rules drop.

The first reading judges every document by itself; then what depends on the whole text is decided: its languages,
near-duplicates, lines that recur. The second reading writes the rest. Memory is bounded: signatures and hashes are on
disk. Killed at any moment, the same command goes on at the last entry of its journal; the result is the same, byte for
byte, with any number of workers. `clean.json` is written last.
"""

import json
import shutil
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith import files
from bertsmith.data.cleaning import contamination, decisions, duplicates, judge, passages, result, workers
from bertsmith.data.cleaning.config import NEAR_DUPLICATES, CleaningConfig
from bertsmith.data.cleaning.examples import CANDIDATES, Examples
from bertsmith.data.cleaning.growing import GrowingFiles
from bertsmith.data.cleaning.result import RESULT, Tally
from bertsmith.data.cleaning.rewrite import LAYOUTS
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.labelled.sources import find_sources
from bertsmith.data.shards.journal import differences
from bertsmith.data.shards.prepare import corpus_inputs, count_cores, lock_folder
from bertsmith.data.workers import check_workers
from bertsmith.errors import FolderError
from bertsmith.terminal import escape_surrogates

FORMAT = "bertsmith-clean 1"
UNFINISHED = "unfinished"
NO_WORKERS_BYTES = 1 << 22  # bytes of text that are cleaned faster than workers start
PART_BYTES = 1 << 28  # bytes of a file of cleaned text
JOURNAL_SECONDS = 5.0  # seconds between two entries of the journal
FIRST_READING = 0.6  # of the work, about
Progress = Callable[[float, int], object]  # the share of the work that is done, and the documents read so far


def clean(
    corpus: Corpus,
    out: Path,
    config: CleaningConfig,
    *,
    workers: int | None = None,
    seconds: float | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the cleaned text of a corpus to a folder, or resume an interrupted cleaning; returns its `clean.json`.

    With `seconds`, only as much of the text is read as can be cleaned in that time.
    """
    if workers is None:
        workers = count_cores() if not 0 < corpus.bytes <= NO_WORKERS_BYTES else 0
    check_workers(workers)
    if config.applies(NEAR_DUPLICATES):
        duplicates.import_rensa()
    inputs = _inputs(corpus, config)
    files.check_not_foreign(out, markers=(RESULT, UNFINISHED))
    with lock_folder(out, "cleaning"):
        if (out / RESULT).exists():
            return _finished(out, inputs)
        cleaning = Cleaning(corpus, out, config, workers, progress or (lambda share, documents: None))
        cleaning.begin(inputs)
        cleaning.judge(seconds)
        cleaning.decide()
        tally = cleaning.rewrite()
        return cleaning.finish(tally, inputs)


class Cleaning:
    """A cleaning in progress; its folder `unfinished` holds all that was found so far."""

    def __init__(self, corpus: Corpus, out: Path, config: CleaningConfig, workers: int, progress: Progress) -> None:
        self.corpus, self.out, self.config, self.workers, self.progress = corpus, out, config, workers, progress
        self.folder, self.started, self.limit = out / UNFINISHED, time.monotonic(), 0

    def begin(self, inputs: dict[str, Any]) -> None:
        """Begin anew, unless the folder holds an unfinished cleaning of the same text with the same settings."""
        self.corpus.buffer_stdin()  # the text is read twice
        settings = self.folder / workers.SETTINGS
        if settings.exists() and not differences(files.read_json(settings)["inputs"], inputs):
            return
        shutil.rmtree(self.folder, ignore_errors=True)
        with files.explain_os_errors(self.folder):
            self.folder.mkdir()
        found = {}
        if self.config.decontaminate:
            texts = (text for path in self.config.decontaminate for text in contamination.evaluation_texts(path))
            found = contamination.write_ngrams(texts, self.folder)
        config = asdict(self.config) | {"decontaminate": list(map(escape_surrogates, self.config.decontaminate))}
        files.write_json(settings, {"inputs": inputs, "config": config, "evaluation": found})

    def judge(self, seconds: float | None) -> None:
        """The first reading."""
        with GrowingFiles(self.folder, "judged") as growing:
            state = growing.state or {"read": 0, "seconds": 0.0, "share": 0.0, "examples": {}}
            began, recorded = time.monotonic() - state["seconds"], time.monotonic()
            examples = Examples(state["examples"], most=CANDIDATES)

            def state_now(chunk: passages.Chunk, **finished: bool) -> dict[str, Any]:
                spent = time.monotonic() - began
                return {
                    "read": chunk.read,
                    "seconds": spent,
                    "share": chunk.progress,
                    "examples": examples.found,
                    "corrections": dict(self.corpus.tally),
                    **finished,
                }

            text = ((one, one.passages) for one in passages.chunks(self.corpus, state["read"], None))
            if not state.get("finished"):
                with closing(workers.read_all(text, self.folder, "judge", self.workers)) as answers:
                    chunk = passages.Chunk([], state["read"], state["share"])
                    for chunk, (nearest, buffers) in answers:
                        for file, buffer in zip(judge.FILES, buffers, strict=True):
                            growing.append(file, buffer)
                        examples.merge(nearest)
                        self.progress(FIRST_READING * chunk.progress, chunk.read)
                        if seconds is not None and time.monotonic() - began > FIRST_READING * seconds:
                            break  # the rest of the text is not read, in the second reading neither
                        if time.monotonic() - recorded > JOURNAL_SECONDS:
                            growing.record(state_now(chunk))
                            recorded = time.monotonic()
                    else:
                        chunk = replace(chunk, progress=1.0)  # also where the progress of a table is not known
                    growing.record(state_now(chunk, finished=True))
            self.limit = growing.state["read"]

    def decide(self) -> None:
        if not (self.folder / decisions.DECISIONS).exists():
            decisions.decide(self.folder, self.config)

    def rewrite(self) -> Tally:
        """The second reading."""
        verdicts = np.fromfile(self.folder / decisions.VERDICTS, np.uint8)
        pairs = files.read_json(self.folder / decisions.DECISIONS)["pairs"]
        with GrowingFiles(self.folder, "rewritten") as growing:
            state = growing.state or {"read": 0, "tally": {}}
            tally, recorded = Tally(pairs, **state["tally"]), time.monotonic()
            if state.get("finished"):
                return tally
            text = (
                (chunk, [one for one in chunk.passages if not verdicts[one.number]])
                for chunk in passages.chunks(self.corpus, state["read"], self.limit)
            )
            with closing(workers.read_all(text, self.folder, "rewrite", self.workers)) as answers:
                for chunk, (header, texts) in answers:
                    for layout, data in zip(LAYOUTS, texts, strict=True):
                        if data:
                            growing.append(tally.part(layout, len(data), PART_BYTES), data)
                    tally.add(chunk.passages, verdicts, header)
                    share = chunk.read / max(self.limit, 1)
                    self.progress(FIRST_READING + (1 - FIRST_READING) * share, chunk.read)
                    if time.monotonic() - recorded > JOURNAL_SECONDS:
                        growing.record({"read": chunk.read, "tally": tally.state})
                        recorded = time.monotonic()
            growing.record({"read": self.limit, "tally": tally.state, "finished": True})
            return tally

    def finish(self, tally: Tally, inputs: dict[str, Any]) -> dict[str, Any]:
        """Put the files of text in place, then `clean.json`; and remove the folder of the work."""
        judged = files.read_json(self.folder / "judged.json")["state"]
        settings = files.read_json(self.folder / workers.SETTINGS)
        decided = files.read_json(self.folder / decisions.DECISIONS)
        verdicts = np.fromfile(self.folder / decisions.VERDICTS, np.uint8)
        whole = result.summarise(tally, decided, judged, verdicts, self.config)
        for part in tally.parts:
            if (self.folder / part).exists():  # otherwise it was put in place before a kill
                with files.explain_os_errors(self.out):
                    (self.folder / part).replace(self.out / part.removesuffix(".part"))
        files.sync_folder(self.out)
        whole |= {"evaluation": settings["evaluation"], "inputs": inputs}
        whole["seconds"] = round(time.monotonic() - self.started, 1)
        files.write_json(self.out / RESULT, whole)
        shutil.rmtree(self.folder, ignore_errors=True)
        return whole


def _inputs(corpus: Corpus, config: CleaningConfig) -> dict[str, Any]:
    """All inputs that the result depends on, as they are read back from JSON."""
    evaluation = [
        [escape_surrogates(source.path.name), source.size, source.path.stat().st_mtime_ns]
        for path in config.decontaminate
        for source in find_sources(path)
    ]
    settings = {key: value for key, value in asdict(config).items() if key != "decontaminate"}
    inputs = {"format": FORMAT, **corpus_inputs(corpus), **settings, "evaluation files": evaluation}
    return dict(json.loads(json.dumps(inputs)))


def _finished(out: Path, inputs: dict[str, Any]) -> dict[str, Any]:
    """The result of a finished folder, if it was cleaned from the same inputs."""
    found = files.read_json(out / RESULT)
    if changed := differences(found.get("inputs", {}), inputs):
        raise FolderError(out, f"was cleaned with {changed}", "Choose another folder, or delete this one")
    shutil.rmtree(out / UNFINISHED, ignore_errors=True)
    return found | {"reused": True}
