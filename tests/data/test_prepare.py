"""Text into shards: every document once, in order, and the same bytes however often the work is killed."""

import errno
import fcntl
import io
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bertsmith import files
from bertsmith.data.corpus import encoding, sources
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards import chunks
from bertsmith.data.shards import prepare as room
from bertsmith.data.shards.prepare import Summary, prepare
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import BertsmithError, FolderError, RecipeError, RunError, TextError
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

pytestmark = pytest.mark.slow("kills and restarts workers")

TEXT = "the old house on a hill by the sea stood still while dark water rose and fell under pale moonlight"


def document(number: int) -> list[str]:
    """A few sentences that no other number has."""
    chance = random.Random(number)
    return [
        " ".join([*chance.choices(TEXT.split(), k=chance.randint(3, 12)), str(number)]) + "."
        for _ in range(chance.randint(1, 6))
    ]


def write(path: Path, documents: list[list[str]]) -> Path:
    path.write_text("\n\n".join("\n".join(sentences) for sentences in documents) + "\n", encoding="utf-8")
    return path


def corpus(*paths: Path) -> Corpus:
    return Corpus([str(path) for path in paths], layout="lines")


@pytest.fixture(autouse=True)
def _unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """That files are synced is shown elsewhere; here it would only take time."""
    monkeypatch.setattr(os, "fsync", lambda file: None)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return train(
        [" ".join(document(number)) for number in range(200)], TokenizerConfig(vocabulary=200, min_frequency=1)
    )


def documents(folder: Path, tokenizer: Tokenizer) -> list[list[list[int]]]:
    """All documents of a folder, as lists of sentences of ids."""
    shards = Shards(folder)
    shards.check_tokenizer(tokenizer.fingerprint)
    shards.verify()
    starts = np.concatenate([[0], shards.sentence_ends])
    sentences = [
        shards.gather(starts[place : place + 1], np.diff(starts[place : place + 2])).tolist()
        for place in range(shards.sentences)
    ]
    edges = [0, *shards.document_ends.tolist()]
    return [sentences[first:last] for first, last in pairwise(edges)]


def contents(folder: Path) -> dict[str, Any]:
    """Every file of a prepared folder; of the summary all but the time it took."""
    found: dict[str, Any] = {
        str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }
    found["summary.json"] = {key: value for key, value in json.loads(found["summary.json"]).items() if key != "seconds"}
    return found


def test_every_document_is_there_once_and_in_order(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = [document(number) for number in range(300)]
    summary = prepare(corpus(write(tmp_path / "a.txt", texts)), tokenizer, tmp_path / "out", validation_share=0.1)
    train, valid = (documents(tmp_path / "out" / name, tokenizer) for name in ("train", "valid"))
    expected = [tokenizer.encode(sentences) for sentences in texts]
    assert len(train) + len(valid) == 300
    assert 15 <= len(valid) <= 50
    assert train == [found for found in expected if found not in valid]
    assert valid == [found for found in expected if found in valid]
    assert (summary.documents, summary.duplicates, summary.empty, summary.dropped) == (300, 0, 0, 0)
    assert summary.train["tokens"] == sum(len(sentence) for found in train for sentence in found)
    assert summary.train["bytes"] + summary.valid["bytes"] == sum(len(line) for text in texts for line in text)
    assert summary.train["words"] + summary.valid["words"] == sum(len(line.split()) for text in texts for line in text)
    assert Tokenizer.load(tmp_path / "out" / "tokenizer").fingerprint == tokenizer.fingerprint
    assert json.loads((tmp_path / "out" / "summary.json").read_bytes())["documents"] == 300
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "summary.json",
        "tokenizer",
        "train",
        "valid",
    ]


def test_equal_documents_are_kept_once(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = [document(number) for number in (1, 2, 1, 3, 2, 1)]
    near = [[*document(1), "more"], [" ".join(document(3))]]  # not equal: more of it, or other sentences
    first, second = write(tmp_path / "a.txt", texts), write(tmp_path / "b.txt", [document(2), *near])
    summary = prepare(corpus(first, second), tokenizer, tmp_path / "out", validation_share=0)
    kept = [document(1), document(2), document(3), *near]
    assert documents(tmp_path / "out" / "train", tokenizer) == [tokenizer.encode(text) for text in kept]
    assert (summary.documents, summary.duplicates) == (9, 4)


def test_sentences_without_tokens_are_dropped_and_counted(tmp_path: Path, tokenizer: Tokenizer) -> None:
    nothing = "\u200d"  # a character that BERT's cleaning takes away
    assert tokenizer.encode([nothing]) == [[]]
    texts = [document(1), [nothing], [*document(2), nothing], document(3)]
    summary = prepare(corpus(write(tmp_path / "a.txt", texts)), tokenizer, tmp_path / "out", validation_share=0)
    kept = [document(1), document(2), document(3)]
    assert documents(tmp_path / "out" / "train", tokenizer) == [tokenizer.encode(text) for text in kept]
    assert (summary.empty, summary.dropped) == (1, 2)
    assert summary.train["documents"] == 3


def test_the_split_of_a_document_depends_on_its_text_alone(tmp_path: Path, tokenizer: Tokenizer) -> None:
    texts = [document(number) for number in range(200)]
    chosen = []
    for name, order in {"forward": texts, "backward": texts[::-1]}.items():
        prepare(corpus(write(tmp_path / f"{name}.txt", order)), tokenizer, tmp_path / name, validation_share=0.2)
        chosen.append(sorted(documents(tmp_path / name / "valid", tokenizer)))
    assert chosen[0] == chosen[1]
    assert 20 < len(chosen[0]) < 60


@pytest.mark.parametrize(("texts", "valid", "apart"), [(1, 0.01, 1), (2, 0.01, 1), (5, 1e-9, 1), (5, 0.0, 0)])
def test_few_documents_still_give_a_sentence_for_validation(
    tmp_path: Path, tokenizer: Tokenizer, texts: int, valid: float, apart: int
) -> None:
    text = write(tmp_path / "a.txt", [document(number) for number in range(texts)])
    summary = prepare(corpus(text), tokenizer, tmp_path / "out", validation_share=valid)
    sentences = [sentence for number in range(texts) for sentence in document(number)]
    assert (summary.train["sentences"], summary.valid["sentences"]) == (len(sentences) - apart, apart)
    if apart:  # less than a sentence was asked for: the shortest comes nearest
        expected = min(sentences, key=len)
        assert documents(tmp_path / "out" / "valid", tokenizer) == [tokenizer.encode([expected])]
        assert summary.valid["words"] == len(expected.split())


def test_a_single_sentence_is_for_training(tmp_path: Path, tokenizer: Tokenizer) -> None:
    summary = prepare(corpus(write(tmp_path / "a.txt", [["one sentence ."]])), tokenizer, tmp_path / "out")
    assert (summary.train["sentences"], summary.valid["sentences"]) == (1, 0)


def test_validation_without_tokens_is_made_up_for_by_the_last_document(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = write(tmp_path / "a.txt", [document(1), ["\u200d"], document(2)])  # the shortest has no tokens
    summary = prepare(corpus(text), tokenizer, tmp_path / "out", validation_share=1e-9)
    assert documents(tmp_path / "out" / "valid", tokenizer) == [tokenizer.encode(document(2))]
    assert summary.train["documents"] == 1


def test_workers_do_not_change_a_byte(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 2_000)
    text = write(tmp_path / "a.txt", [document(number % 250) for number in range(300)])
    for workers in (0, 1, 3):
        prepare(corpus(text), tokenizer, tmp_path / str(workers), shard_tokens=2_000, workers=workers)
    assert contents(tmp_path / "0") == contents(tmp_path / "1") == contents(tmp_path / "3")
    assert len(json.loads((tmp_path / "0" / "train" / "index.json").read_bytes())["shards"]) > 2


def test_a_large_vocabulary_takes_four_bytes(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tokenizer, "vocabulary", 70_000)
    text = write(tmp_path / "a.txt", [document(1), document(2)])
    prepare(corpus(text), tokenizer, tmp_path / "out", validation_share=0)
    assert Shards(tmp_path / "out" / "train").dtype == np.dtype("<u4")
    assert documents(tmp_path / "out" / "train", tokenizer) == [
        tokenizer.encode(document(1)),
        tokenizer.encode(document(2)),
    ]


def test_progress_rises_to_one(tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 1_000)
    monkeypatch.setattr(sources, "READ_BYTES", 1_000)
    monkeypatch.setattr(encoding, "ENCODING_SAMPLE_BYTES", 1_000)
    calls: list[tuple[float, int]] = []
    text = write(tmp_path / "a.txt", [document(number) for number in range(200)])
    summary = prepare(
        corpus(text),
        tokenizer,
        tmp_path / "out",
        progress=lambda share, tokens: calls.append((share, tokens)),
    )
    assert len(calls) > 10
    assert calls == sorted(calls)
    assert 0 < calls[0][0] < 0.5
    assert calls[-1] == (1, summary.train["tokens"] + summary.valid["tokens"])


def test_prepared_twice_is_prepared_at_once(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = write(tmp_path / "a.txt", [document(number) for number in range(20)])
    first = prepare(corpus(text), tokenizer, tmp_path / "out")
    before = contents(tmp_path / "out")
    again = prepare(corpus(text), tokenizer, tmp_path / "out")
    assert (first.reused, again.reused) == (False, True)
    assert (again.train, again.documents) == (first.train, first.documents)
    assert contents(tmp_path / "out") == before


def changed_text(tmp_path: Path, options: dict[str, Any]) -> None:
    write(tmp_path / "a.txt", [document(number) for number in range(61)])


def touched_text(tmp_path: Path, options: dict[str, Any]) -> None:
    os.utime(tmp_path / "a.txt", (1, 1))


def changed_share(tmp_path: Path, options: dict[str, Any]) -> None:
    options["validation_share"] = 0.25


def changed_tokenizer(tmp_path: Path, options: dict[str, Any]) -> None:
    options["tokenizer"] = train(["another text altogether"], TokenizerConfig(vocabulary=150, min_frequency=1))


CHANGES = [
    (changed_text, "other text"),
    (touched_text, "other text"),
    (changed_share, "validation_share=0.1 (now 0.25)"),
    (changed_tokenizer, "another tokenizer"),
]


@pytest.mark.parametrize(("change", "difference"), CHANGES)
def test_a_finished_folder_is_not_filled_with_something_else(
    tmp_path: Path, tokenizer: Tokenizer, change: Callable[[Path, dict[str, Any]], None], difference: str
) -> None:
    text = write(tmp_path / "a.txt", [document(number) for number in range(60)])
    options: dict[str, Any] = {"tokenizer": tokenizer, "validation_share": 0.1}
    prepare(corpus(text), out=tmp_path / "out", **options)
    change(tmp_path, options)
    with pytest.raises(FolderError) as caught:
        prepare(corpus(text), out=tmp_path / "out", **options)
    assert str(caught.value) == (
        f"{tmp_path / 'out'}: was prepared with {difference}. Choose another folder, or delete this one."
    )


def rewrite(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file."""
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


def test_a_summary_of_another_version_is_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text, out = write(tmp_path / "a.txt", [document(number) for number in range(20)]), tmp_path / "out"
    prepare(corpus(text), tokenizer, out)
    rewrite(out / "summary.json", lambda summary: summary["inputs"].update(format="bertsmith-shards 1"))
    with pytest.raises(FolderError) as caught:
        prepare(corpus(text), tokenizer, out)
    fact = "was prepared with another version (bertsmith-shards 1, now bertsmith-summary 2)"
    assert str(caught.value) == f"{out}: {fact}. Choose another folder, or delete this one."


def test_a_journal_of_another_version_is_refused(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, out = write(tmp_path / "a.txt", [document(number) for number in range(60)]), tmp_path / "out"
    with monkeypatch.context() as patch:
        stop_after(1, patch)
        with pytest.raises(StopHereError):
            prepare(corpus(text), tokenizer, out, shard_tokens=500)
    journal = out / "unfinished" / "journal.json"
    rewrite(journal, lambda values: values.update(format="bertsmith-journal 2"))
    with pytest.raises(FolderError) as caught:
        prepare(corpus(text), tokenizer, out, shard_tokens=500)
    remedy = "Delete the folder and prepare the text again."
    assert str(caught.value) == f"{journal}: is no journal of this version. {remedy}"


class StopHereError(Exception):
    """The moment at which a test ends a run."""


def stop_after(entries: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a run end soon after its journal has some number of entries."""
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 1_000)
    real, made = room.Journal.record, 0

    def record(self: Any, *arguments: Any) -> None:
        nonlocal made
        real(self, *arguments)
        made += 1
        if made == entries:
            raise StopHereError

    monkeypatch.setattr(room.Journal, "record", record)


@pytest.mark.parametrize(("change", "difference"), CHANGES)
def test_an_unfinished_folder_is_not_gone_on_with_by_something_else(
    tmp_path: Path,
    tokenizer: Tokenizer,
    change: Callable[[Path, dict[str, Any]], None],
    difference: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = write(tmp_path / "a.txt", [document(number) for number in range(60)])
    options: dict[str, Any] = {"tokenizer": tokenizer, "validation_share": 0.1, "shard_tokens": 500}
    with monkeypatch.context() as patch:
        stop_after(1, patch)
        with pytest.raises(StopHereError):
            prepare(corpus(text), out=tmp_path / "out", **options)
    change(tmp_path, options)
    with pytest.raises(FolderError) as caught:
        prepare(corpus(text), out=tmp_path / "out", **options)
    assert str(caught.value) == (
        f"{tmp_path / 'out'}: was begun with {difference}, and is not finished. "
        "Run it as it was begun, or delete the folder to begin anew."
    )


def test_a_preparation_without_a_finished_shard_may_start_with_other_inputs(
    tmp_path: Path, tokenizer: Tokenizer
) -> None:
    empty = tmp_path / "a.txt"
    empty.write_text("\n\n")
    with pytest.raises(TextError):
        prepare(corpus(empty), tokenizer, tmp_path / "out")
    text = write(tmp_path / "b.txt", [document(1), document(2)])
    assert prepare(corpus(text), tokenizer, tmp_path / "out").documents == 2
    prepare(corpus(text), tokenizer, tmp_path / "fresh")
    assert contents(tmp_path / "out") == contents(tmp_path / "fresh")


@pytest.mark.parametrize("entries", [1, 2, 3])
def test_a_stopped_run_resumes_to_the_same_bytes(
    tmp_path: Path, tokenizer: Tokenizer, entries: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 1_000)
    texts = [document(number % 230) for number in range(300)]  # the doubles come after the first entries
    text = write(tmp_path / "a.txt", texts)
    prepare(corpus(text), tokenizer, tmp_path / "whole", shard_tokens=2_000)
    with monkeypatch.context() as patch:
        stop_after(entries, patch)
        with pytest.raises(StopHereError):
            prepare(corpus(text), tokenizer, tmp_path / "parts", shard_tokens=2_000)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "parts" / "train").glob("*.tokens")}
    summary = prepare(corpus(text), tokenizer, tmp_path / "parts", shard_tokens=2_000)
    assert len(kept) == entries
    assert kept == {path: path.stat().st_mtime_ns for path in kept}  # finished shards are not made again
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    assert summary.duplicates == 70


def test_the_only_valid_sentence_is_the_same_after_a_stop(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 1_000)
    text = write(tmp_path / "a.txt", [document(number) for number in range(60)])
    options: dict[str, Any] = {"shard_tokens": 500, "validation_share": 1e-9}
    prepare(corpus(text), tokenizer, tmp_path / "whole", **options)
    with monkeypatch.context() as patch:
        stop_after(2, patch)
        with pytest.raises(StopHereError):
            prepare(corpus(text), tokenizer, tmp_path / "parts", **options)
    prepare(corpus(text), tokenizer, tmp_path / "parts", **options)
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")
    shortest = min((sentence for number in range(60) for sentence in document(number)), key=len)
    assert documents(tmp_path / "whole" / "valid", tokenizer) == [tokenizer.encode([shortest])]


CALLS = ("open", "write", "fsync", "replace", "mkdir", "unlink", "rmdir")


def crash_at(moment: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """End a run at its n-th call that touches the disk; a write that ends so has got half of it there."""
    left = iter(range(moment))

    def crashing(call: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            if next(left, None) is None:
                if call == "write":
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                raise StopHereError
            return real(*arguments, **options)

        return called

    for call in CALLS:
        monkeypatch.setattr(os, call, crashing(call, getattr(os, call)))


def test_a_crash_at_any_call_to_the_disk_changes_nothing(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 1_000)
    text = write(tmp_path / "a.txt", [document(number % 20) for number in range(24)])
    options: dict[str, Any] = {"shard_tokens": 300, "validation_share": 0.1}
    prepare(corpus(text), tokenizer, tmp_path / "whole", **options)
    expected = contents(tmp_path / "whole")
    for moment in range(1_000):
        out = tmp_path / str(moment)
        with monkeypatch.context() as patch:
            crash_at(moment, patch)
            try:
                prepare(corpus(text), tokenizer, out, **options)
                break
            except StopHereError:
                pass
        prepare(corpus(text), tokenizer, out, **options)
        assert contents(out) == expected
        shutil.rmtree(out)
    assert 70 < moment < 999


RUN = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored by what runs in the background
from bertsmith.data.shards import chunks
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.prepare import prepare
from bertsmith.text.tokenizer import Tokenizer
chunks.CHUNK_CHARACTERS = 4_000
text, tokenizer, out, workers = sys.argv[1:]
wait = lambda *progress: sys.stdin.readline()  # until a line comes; a closed pipe waits no more
corpus, tokenizer = Corpus([text], layout="lines"), Tokenizer.load(tokenizer)
print("ready", flush=True)
prepare(corpus, tokenizer, out, shard_tokens=6_000, validation_share=0.1, workers=int(workers), progress=wait)
"""


def start(text: Path, out: Path, workers: int, program: str = RUN) -> subprocess.Popen[bytes]:
    """Begin a run in a process group of its own, and wait until it is at work."""
    arguments = [str(text), str(text.parent / "tokenizer"), str(out), str(workers)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    run = subprocess.Popen([sys.executable, "-c", program, *arguments], process_group=0, **pipes)
    assert run.stdout is not None
    assert run.stdout.readline() == b"ready\n"
    return run


def entries(out: Path) -> int:
    """How often the journal of an unfinished folder has been written on."""
    path = out / "unfinished" / "journal.json"
    return int(files.read_json(path)["entries"]) if path.exists() else 0


@pytest.mark.torture("A1 prepare", suite=2, whole=20)
def test_killed_at_random_moments_it_goes_on_to_the_same_bytes(
    tmp_path: Path, tokenizer: Tokenizer, times: int
) -> None:
    tokenizer.save(tmp_path / "tokenizer")
    text = write(tmp_path / "a.txt", [document(number % 1_000) for number in range(1_200)])
    assert start(text, tmp_path / "whole", 2).communicate()[1] == b""
    chance = random.Random(5)
    for workers in (0, 2):
        out, finished, journalled = tmp_path / f"killed {workers}", 0, 0
        for attempt in range(times):
            run = start(text, out, workers)
            assert run.stdin is not None
            run.stdin.write(b"go on\n" * (15 if attempt == 0 else chance.randrange(10)))
            run.stdin.flush()
            while attempt == 0 and not entries(out):
                assert run.poll() is None  # the first time until a shard is done, then at random
                time.sleep(0.005)
            time.sleep(chance.uniform(0, 0.3))
            run.send_signal(chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGINT, signal.SIGTERM]))
            run.communicate()
            journalled += entries(out)
            if run.returncode == 0:  # it came to the end before the signal: the next ones begin anew
                assert contents(out) == contents(tmp_path / "whole")
                out = tmp_path / f"killed {workers} {attempt}"
                finished += 1
        assert finished < times / 2  # most were killed
        assert journalled
        start(text, out, workers).communicate()
        assert contents(out) == contents(tmp_path / "whole")


def test_ctrl_c_is_quiet_in_the_workers(tmp_path: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(tmp_path / "tokenizer")
    text = write(tmp_path / "a.txt", [document(number) for number in range(4_000)])
    body = "".join(f"  {line}\n" for line in RUN.split("\n"))
    run = start(text, tmp_path / "out", 2, f"try:\n{body}except KeyboardInterrupt: print('stopped')")
    assert run.stdin is not None
    run.stdin.write(b"go on\n" * 30)
    run.stdin.flush()
    while not list(tmp_path.glob("out/unfinished/*.digests")):
        assert run.poll() is None
        time.sleep(0.005)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does: to the whole group
    output, errors = run.communicate(timeout=20)
    assert output.endswith(b"stopped\n")
    assert errors == b""


def test_two_runs_do_not_share_a_folder(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = write(tmp_path / "a.txt", [document(1), document(2)])

    def second(share: float, tokens: int) -> None:
        with pytest.raises(RunError) as caught:
            prepare(corpus(text), tokenizer, tmp_path / "out")
        assert str(caught.value) == (
            f"{tmp_path / 'out'}: another run is preparing this folder. Wait for it, or choose another."
        )

    prepare(corpus(text), tokenizer, tmp_path / "out", progress=second)


def test_many_runs_read_a_folder_that_is_whole(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text, out = write(tmp_path / "a.txt", [document(1), document(2)]), tmp_path / "out"
    prepare(corpus(text), tokenizer, out)
    another = os.open(out, os.O_RDONLY)
    fcntl.flock(another, fcntl.LOCK_EX)  # as a run does that looks into it at this moment
    try:
        assert prepare(corpus(text), tokenizer, out).reused
    finally:
        os.close(another)


def test_a_full_disk_is_one_line_and_loses_nothing(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 1_000)
    text = write(tmp_path / "a.txt", [document(number) for number in range(200)])
    prepare(corpus(text), tokenizer, tmp_path / "whole", shard_tokens=800)
    real, lines = os.write, []
    for room_left in range(3, 400, 4):
        times = iter(range(room_left))

        def refusing(file: int, data: Any, times: Any = times) -> int:
            if next(times, None) is None:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(file, data)

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", refusing)
            try:
                prepare(corpus(text), tokenizer, tmp_path / "out", shard_tokens=800)
                break
            except RunError as error:
                lines.append(str(error))
    message = r"the disk is full: [\d,]+ bytes needed, [\d,]+ free\. Free space and run the same command again\."
    assert len(lines) > 5
    assert all(re.search(message, line) for line in lines)
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


@pytest.mark.parametrize(
    ("make", "kind", "line"),
    [
        (lambda out: out.write_text("a"), FolderError, "is a file, not a folder. Choose another name."),
        (
            lambda out: (out.mkdir(), (out / "thesis.tex").write_text("")),
            FolderError,
            "holds 'thesis.tex', so it is not a new folder. Choose another folder.",
        ),
    ],
)
def test_a_place_that_holds_something_else_is_left_alone(
    tmp_path: Path, tokenizer: Tokenizer, make: Callable[[Path], Any], kind: type[BertsmithError], line: str
) -> None:
    make(tmp_path / "out")
    text = write(tmp_path / "a.txt", [document(1)])
    with pytest.raises(kind) as caught:
        prepare(corpus(text), tokenizer, tmp_path / "out")
    assert str(caught.value) == f"{tmp_path / 'out'}: {line}"


def test_no_text_is_told_with_the_file(tmp_path: Path, tokenizer: Tokenizer) -> None:
    nothing = write(tmp_path / "a.txt", [["\u200d"], ["\u200d", "\u200d"]])
    with pytest.raises(TextError) as caught:
        prepare(corpus(nothing), tokenizer, tmp_path / "out")
    assert str(caught.value) == f"{nothing}: no text to train on (2 documents read). Give more text."
    other = write(tmp_path / "b.txt", [["\u200d"]])
    with pytest.raises(TextError, match=r"2 files: no text to train on \(3 documents read\)"):
        prepare(corpus(nothing, other), tokenizer, tmp_path / "out")


@pytest.mark.parametrize("valid", [-0.1, 1.0, 7, float("nan")])
def test_a_share_that_is_none_is_refused(tmp_path: Path, tokenizer: Tokenizer, valid: float) -> None:
    text = write(tmp_path / "a.txt", [document(1)])
    message = rf"validation_share: {valid} is not a share\. Give a number from 0 to 1, such as 0\.01\."
    with pytest.raises(RecipeError, match=message):
        prepare(corpus(text), tokenizer, tmp_path / "out", validation_share=valid)


def test_fewer_than_no_workers_are_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = write(tmp_path / "a.txt", [document(1)])
    with pytest.raises(RecipeError, match=r"^workers: is -1\. Give a number of processes from 0 to 1,024\."):
        prepare(corpus(text), tokenizer, tmp_path / "out", workers=-1)


def test_a_finished_folder_that_lost_a_file_is_not_called_prepared(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = write(tmp_path / "a.txt", [document(number) for number in range(20)])
    prepare(corpus(text), tokenizer, tmp_path / "out")
    (tmp_path / "out" / "train" / "000000.tokens").unlink()
    with pytest.raises(FolderError, match=r"000000\.tokens: is missing"):
        prepare(corpus(text), tokenizer, tmp_path / "out")


def test_a_torn_journal_is_named(tmp_path: Path, tokenizer: Tokenizer) -> None:
    text = write(tmp_path / "a.txt", [document(1)])
    (tmp_path / "out" / "unfinished").mkdir(parents=True)
    for content in ("{", "{}"):
        (tmp_path / "out" / "unfinished" / "journal.json").write_text(content)
        with pytest.raises(FolderError, match=r"journal\.json: "):
            prepare(corpus(text), tokenizer, tmp_path / "out")
    shutil.rmtree(tmp_path / "out")
    assert isinstance(prepare(corpus(text), tokenizer, tmp_path / "out"), Summary)


def test_text_through_a_pipe_is_known_by_its_bytes(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for first, reused, refusal in ((0, False, None), (0, True, None), (1, False, "was prepared with other text")):
        reading, writing = os.pipe()
        numbers = range(first, first + 9)
        os.write(writing, b"\n\n".join("\n".join(document(number)).encode() for number in numbers))
        os.close(writing)
        with os.fdopen(reading, "rb") as pipe:
            monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=pipe))
            with nullcontext() if refusal is None else pytest.raises(FolderError, match=refusal):
                summary = prepare(Corpus(["-"], layout="lines"), tokenizer, tmp_path / "out", workers=0)
                assert (summary.documents, summary.reused) == (9, reused)


def test_standard_input_that_was_read_is_not_known_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"A line.\n")))
    piped = Corpus(["-"])
    assert list(piped.lines()) == ["A line."]
    with pytest.raises(TextError, match=r"standard input: can be read only once\. Write it to a file first\."):
        piped.stdin_digest()


def test_a_folder_that_may_not_be_written_is_refused(
    tmp_path: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = write(tmp_path / "a.txt", [document(1)])

    def refuse(*arguments: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "mkdir", refuse)
    with pytest.raises(RunError, match=r"out: may not be written\. Choose a folder that is yours\."):
        prepare(corpus(text), tokenizer, tmp_path / "out")
