"""Text and shards at an address: S3 as moto serves it on this machine, and fsspec's memory."""

import fcntl
import gzip
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

import fsspec
import pytest
from data.test_prepare import contents, document, write

import bertsmith
from bertsmith import files
from bertsmith.commands import prepare as command
from bertsmith.data.address import Address
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards import cache, chunks, destination
from bertsmith.data.shards.prepare import Summary, prepare
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import FolderError, RecipeError, RunError, TextError
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

pytestmark = pytest.mark.slow("starts a server of S3")
S3 = find_spec("s3fs") is not None and find_spec("moto") is not None and find_spec("flask") is not None
needs_s3 = pytest.mark.skipif(not S3, reason="s3fs and moto are not installed: pip install s3fs 'moto[s3]' flask-cors")
SOURCE = {"ADDRESS": b"memory://shards"}  # in a copy: where it is from
DRIVER = """
import sys
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards import chunks
from bertsmith.data.shards.prepare import prepare
from bertsmith.text.tokenizer import Tokenizer
chunks.CHUNK_CHARACTERS = 4_000
text, tokenizer, out = sys.argv[1:]
wait = lambda *progress: sys.stdin.readline()
tokenizer = Tokenizer.load(tokenizer)
prepare(Corpus([text], layout="lines"), tokenizer, out, shard_tokens=6_000, validation_share=0.1, progress=wait)
"""


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """A bucket on this machine."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", "http://{}:{}".format(*server.get_host_and_port()))
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
            patch.setenv(name, "us-east-1")
        fsspec.filesystem("s3", skip_instance_cache=True).mkdir("bucket")
        yield "s3://bucket"
        fsspec.get_filesystem_class("s3").clear_instance_cache()
    server.stop()


@pytest.fixture(autouse=True)
def _small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setattr(chunks, "CHUNK_CHARACTERS", 4_000)
    cache._copy.cache_clear()


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    some = [" ".join(document(number)) for number in range(200)]
    return train(some, TokenizerConfig(vocabulary=200, min_frequency=1))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of two files, one of them compressed."""
    folder = tmp_path_factory.mktemp("texts")
    write(folder / "a.txt", [document(number) for number in range(600)])
    (folder / "more").mkdir()
    half = write(folder / "b.txt", [document(number) for number in range(500, 1_000)])
    (folder / "more" / "b.txt.gz").write_bytes(gzip.compress(half.read_bytes()))
    half.unlink()
    return folder


def prepared(
    texts: object, tokenizer: Tokenizer, out: object, progress: Callable[[float, int], object] | None = None
) -> Summary:
    text = Corpus([str(texts)], layout="lines")
    return prepare(text, tokenizer, str(out), validation_share=0.1, shard_tokens=6_000, progress=progress)


def without_inputs(found: dict[str, Any]) -> dict[str, Any]:
    """The contents of a prepared folder; of the summary all but the files that were read."""
    return found | {"summary.json": {key: value for key, value in found["summary.json"].items() if key != "inputs"}}


def fetched(address: str, folder: Path) -> dict[str, Any]:
    filesystem, path = fsspec.core.url_to_fs(address)
    filesystem.invalidate_cache()
    for name in filesystem.find(path):
        target = folder / name.removeprefix(path).lstrip("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(filesystem.cat_file(name))
    return contents(folder)


def has_entries(journal: Address) -> bool:
    """Whether a journal lists a shard; one that is being replaced may not be readable for a moment."""
    try:
        return journal.exists() and bool(json.loads(journal.read_bytes())["entries"])
    except RunError:
        return False


@needs_s3
def test_text_is_read_from_a_bucket_and_shards_are_written_there(
    tmp_path: Path, s3: str, texts: Path, tokenizer: Tokenizer
) -> None:
    prepared(texts, tokenizer, tmp_path / "whole")
    Address(s3)._files.put(str(texts), f"{s3}/texts", recursive=True)
    summary = prepared(f"{s3}/texts", tokenizer, f"{s3}/shards")
    assert summary.documents == 1_100
    assert summary.duplicates == 100
    assert without_inputs(fetched(f"{s3}/shards", tmp_path / "there")) == without_inputs(contents(tmp_path / "whole"))
    assert not list((tmp_path / "cache" / "preparing").glob("*/*"))  # nothing is left here
    assert prepared(f"{s3}/texts", tokenizer, f"{s3}/shards").reused
    pattern = Corpus(["s3:///bucket/texts/more/*.gz"], layout="lines")  # a slash too many is forgiven
    assert sum(1 for _ in pattern.documents()) == 500


@pytest.mark.exhaustive
@needs_s3
def test_a_killed_run_goes_on_from_the_journal_in_the_bucket(
    tmp_path: Path, s3: str, texts: Path, tokenizer: Tokenizer
) -> None:
    prepared(texts, tokenizer, tmp_path / "whole")
    tokenizer.save(tmp_path / "tokenizer")
    out, journal = f"{s3}/killed", Address(f"{s3}/killed/unfinished/journal.json")
    arguments = [str(texts), str(tmp_path / "tokenizer"), out]
    pipes = dict.fromkeys(("stdin", "stderr"), subprocess.PIPE)
    run = subprocess.Popen([sys.executable, "-c", DRIVER, *arguments], **pipes)
    try:
        assert run.stdin is not None
        run.stdin.write(b"go on\n" * 25)
        run.stdin.flush()
        while not has_entries(journal):
            assert run.poll() is None
            time.sleep(0.05)
    finally:
        run.send_signal(signal.SIGKILL)
        run.communicate()
    assert not Address(f"{out}/summary.json").exists()
    shutil.rmtree(tmp_path / "cache")  # as on another machine
    first = list[int]()
    prepared(texts, tokenizer, out, lambda share, tokens: first.append(tokens))
    assert first[0] > 3_000  # it did not begin anew
    assert fetched(out, tmp_path / "there") == contents(tmp_path / "whole")


@needs_s3
def test_a_bucket_that_is_not_there_is_one_line(s3: str) -> None:
    with pytest.raises(TextError, match=r"^s3://nowhere/a\.txt: does not exist\.$"):
        Corpus(["s3://nowhere/a.txt"])


@needs_s3
def test_a_bucket_that_is_not_there_is_not_created(tmp_path: Path, s3: str, texts: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(RunError) as caught:
        prepared(texts, tokenizer, "s3://buckett/shards")
    assert str(caught.value) == "s3://buckett: there is no such bucket. Check its name, or create it."
    assert fsspec.filesystem("s3", skip_instance_cache=True).ls("") == ["bucket"]


@needs_s3  # whose packages read the web, too
def test_text_is_read_from_the_web(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("one sea\n\ntwo seas\n")
    handler = partial(QuietHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            address = f"http://127.0.0.1:{server.server_port}/"
            for name in (f"{address}a.txt?download=1", address):  # a file, and a page of links
                found = Corpus([name], layout="lines")
                assert [document.sentences for document in found.documents()] == [["one sea"], ["two seas"]]
            with pytest.raises(TextError, match=r"b\.txt: does not exist\.$"):
                Corpus([f"{address}b.txt"])
        finally:
            server.shutdown()
            thread.join()
            fsspec.get_filesystem_class("http").clear_instance_cache()


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: Any) -> None: ...


def test_training_reads_a_copy_in_the_cache(tmp_path: Path, memory: Any, texts: Path, tokenizer: Tokenizer) -> None:
    prepared(texts, tokenizer, "memory://shards")
    copy = cache.local_copy(Path("memory://shards"))  # whose two slashes a Path makes one
    assert copy.parent == tmp_path / "cache" / "shards"
    assert contents(copy) == fetched("memory://shards", tmp_path / "there") | SOURCE
    Shards(copy / "train").verify()
    cache._copy.cache_clear()
    memory.rm("/shards/train/000000.tokens")  # it is not fetched again
    assert cache.local_copy("memory://shards") == copy
    assert cache.is_prepared("memory://shards")
    assert not cache.is_prepared("memory://other")


def test_a_model_is_trained_from_an_address(tmp_path: Path, memory: Any, texts: Path, tokenizer: Tokenizer) -> None:
    tokenizer.save(tmp_path / "tokenizer")
    shards = bertsmith.prepare(texts, "memory://shards", tmp_path / "tokenizer", validation_share=0.1, layout="lines")
    assert shards == "memory://shards"
    run = bertsmith.pretrain(
        "bert-tiny", data=shards, out=tmp_path / "run", steps=2, batch_tokens=512, max_length=32, device="cpu"
    )
    assert run.scores["loss"] > 0


def test_a_half_fetched_copy_is_completed(tmp_path: Path, memory: Any, texts: Path, tokenizer: Tokenizer) -> None:
    prepared(texts, tokenizer, "memory://shards")
    whole = memory.cat_file("/shards/valid/index.json")
    memory.pipe_file("/shards/valid/index.json", whole.replace(b"1", b"2"))
    with pytest.raises(RunError) as caught:
        cache.local_copy("memory://shards")
    fact = "is not what its manifest lists: it was damaged there, or on the way"
    remedy = "Run the same command again, or prepare the text again"
    assert str(caught.value) == f"memory://shards/valid/index.json: {fact}. {remedy}."
    memory.pipe_file("/shards/valid/index.json", whole)
    Shards(cache.local_copy("memory://shards") / "valid").verify()


def test_what_a_copy_has_lost_is_fetched_again(tmp_path: Path, memory: Any, texts: Path, tokenizer: Tokenizer) -> None:
    prepared(texts, tokenizer, "memory://shards")
    folder = cache.local_copy("memory://shards") / "train"
    tokens = folder / "000000.tokens"
    whole = tokens.read_bytes()
    for damage in (tokens.unlink, lambda: tokens.write_bytes(whole[:9])):
        damage()
        cache._copy.cache_clear()
        assert cache.local_copy("memory://shards") / "train" == folder
        assert tokens.read_bytes() == whole
    tokens.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    with pytest.raises(FolderError) as caught:
        Shards(folder).verify()
    remedy = "Delete this file and run the same command: it is fetched again from where it was prepared"
    assert str(caught.value) == f"{tokens}: is damaged: its SHA-256 is not the one in the manifest. {remedy}."


def test_two_nodes_that_fill_a_shared_cache_at_once_make_one_copy(
    tmp_path: Path, memory: Any, texts: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock of a shared home may hold on its own node alone: here the other node fills the cache in the meantime."""
    prepared(texts, tokenizer, "memory://shards")
    monkeypatch.setattr(fcntl, "flock", lambda file, how: None)
    pieces, copies = Address.pieces, list[Path]()

    def meanwhile(self: Address) -> Iterator[bytes]:
        yield from pieces(self)
        if self.name not in ("MANIFEST.json", "index.json") and not copies:
            copies.append(Path())  # once
            with monkeypatch.context() as patch:
                patch.setattr(socket, "gethostname", lambda: "other")
                copies.append(cache._copy.__wrapped__(str(Address("memory://shards"))))

    monkeypatch.setattr(Address, "pieces", meanwhile)
    copy = cache.local_copy("memory://shards")
    assert copies[1:] == [copy]
    assert contents(copy) == fetched("memory://shards", tmp_path / "there") | SOURCE


def test_an_address_without_shards_is_one_line(memory: Any) -> None:
    with pytest.raises(FolderError) as caught:
        cache.local_copy("memory://nothing")
    line = "memory://nothing/train/MANIFEST.json: is missing. Prepare the text first, with --out and this address."
    assert str(caught.value) == line


def test_errors_name_the_address_and_not_the_cache(memory: Any, texts: Path, tokenizer: Tokenizer) -> None:
    prepared(texts, tokenizer, "memory://shards")
    with pytest.raises(FolderError, match=r"^memory://shards: was prepared with validation_share=0\.1 \(now 0\.2\)\."):
        prepare(
            Corpus([str(texts)], layout="lines"), tokenizer, "memory://shards", validation_share=0.2, shard_tokens=6_000
        )
    memory.rm("/shards/train/000000.tokens")
    with pytest.raises(FolderError, match=r"^memory://shards/train/000000\.tokens: is missing or cut off\."):
        prepared(texts, tokenizer, "memory://shards")
    memory.pipe_file("/other/thesis.tex", b"")
    with pytest.raises(FolderError, match=r"^memory://other: holds 'thesis\.tex', so it is not a new folder\."):
        prepared(texts, tokenizer, "memory://other")


def test_a_file_that_arrives_damaged_is_sent_again(
    tmp_path: Path, memory: Any, texts: Path, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(texts, tokenizer, tmp_path / "whole")
    damages, real = iter([True, False, True, True]), Address.upload

    def upload(self: Address, path: Path) -> None:
        real(self, path)
        if next(damages, False):
            memory.pipe_file(self._path, b"?" + path.read_bytes()[1:])

    monkeypatch.setattr(Address, "upload", upload)
    prepared(texts, tokenizer, "memory://shards")
    assert fetched("memory://shards", tmp_path / "there") == contents(tmp_path / "whole")
    damages = iter([True] * destination.ATTEMPTS)
    path = tmp_path / "there" / "summary.json"
    target = destination.RemoteDestination(Address("memory://shards"))
    target.folder = path.parent
    with pytest.raises(RunError) as caught:
        target.send(path, files.digest(path))
    line = "memory://shards/summary.json: was damaged 3 times on the way. Run the same command again."
    assert str(caught.value) == line


def test_other_text_at_an_address_is_seen_by_its_version(memory: Any, tokenizer: Tokenizer, tmp_path: Path) -> None:
    body = "\n\n".join("\n".join(document(number)) for number in range(50)).encode()
    memory.pipe_file("/text.txt", body)
    prepared("memory://text.txt", tokenizer, tmp_path / "out")
    assert prepared("memory://text.txt", tokenizer, tmp_path / "out").reused
    time.sleep(0.01)
    memory.pipe_file("/text.txt", body.swapcase())
    with pytest.raises(FolderError, match=r"out: was prepared with other text\."):
        prepared("memory://text.txt", tokenizer, tmp_path / "out")


def test_parquet_and_tables_are_read_at_an_address(memory: Any) -> None:
    arrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow.parquet

    with memory.open("/texts/a.parquet", "wb") as file:
        pyarrow.parquet.write_table(arrow.table({"text": ["one sea", "two seas"]}), file)
    memory.pipe_file("/texts/b.csv", b"text,label\nthree seas,1\n")
    memory.pipe_file("/texts/c.zip", b"PK\x03\x04")
    found = Corpus(["memory://texts"], layout="lines")
    assert [document.sentences for document in found.documents()] == [["one sea"], ["two seas"], ["three seas"]]
    assert found.new_notes() == ["skipped: 1 .zip (an archive: unpack it)"]


def test_cleaning_is_not_done_at_an_address(tmp_path: Path, memory: Any, texts: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        command.prepare([str(texts)], Path("memory://shards"), tmp_path, clean=True)
    fact = "--clean: writes the cleaned text next to the shards, here"
    assert str(caught.value) == f"{fact}. Clean it first, with `bertsmith clean`, and prepare what that wrote."
    assert not list(tmp_path.iterdir())
