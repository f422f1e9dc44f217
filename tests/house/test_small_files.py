"""A small file cannot cost much: whatever a header or a configuration of less than a megabyte says, it is refused
within a second and a hundred megabytes."""

import json
import mmap
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from data.test_shards import made as made_shards
from models.small import saved
from models.test_refusals import header
from pace import pace, work
from train.test_checkpoint import made as made_checkpoint

from bertsmith import config, files
from bertsmith.data.shards.shards import Shards
from bertsmith.errors import BertsmithError
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf import sentence_transformers
from bertsmith.recipe import Recipe
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.train import checkpoint

MOST = 100 << 20  # bytes

# Under a megabyte each, and made to be dear: deep, wide, long, and numbers that are sizes of something.
TEXTS = {
    "deep list": "[" * 900_000,
    "deep object": '{"a":' * 180_000,
    "closed deep list": "[" * 400_000 + "]" * 400_000,
    "wide list": "[" + "[]," * 300_000 + "[]]",
    "wide object": "{" + ",".join(f'"{number}":{{}}' for number in range(80_000)) + "}",
    "long string": '{"model_type": "' + "\\u0041" * 150_000 + '"}',
    "long number": '{"model_type": "bert", "hidden_size": ' + "9" * 900_000 + "}",
    "huge sizes": json.dumps({"model_type": "bert", "vocab_size": 1 << 31, "hidden_size": 1 << 20}),
    "many layers": json.dumps({"model_type": "bert", "num_hidden_layers": 1 << 40}),
    "many labels": json.dumps({"model_type": "bert", "id2label": {str(n): "x" for n in range(60_000)}}),
    "index": json.dumps({"weight_map": {str(n): f"../{n}" for n in range(40_000)}}),
    "manifest": json.dumps({"files": {str(n): {"size": 1 << 60, "sha256": ""} for n in range(15_000)}}),
    "shards": json.dumps({"format": "bertsmith-shards", "version": 1, "shards": [{}] * 100_000}),
    "modules": json.dumps([{"type": "Pooling", "path": "../" * 1000}] * 200),
    "bytes": "\0" * 900_000,
    "chained rules": json.dumps(
        {
            "version": "1.0",
            "normalizer": {
                "type": "Sequence",
                "normalizers": [{"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 1000}] * 9,
            },
            "model": {"type": "WordLevel", "vocab": {"a": 0, "[UNK]": 1}, "unk_token": "[UNK]"},
        }
    ),
    "added pieces": json.dumps({"added_tokens_decoder": {str(n): {"content": f"<{n}>"} for n in range(20_000)}}),
}
WORDS = "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"])
HEADERS = {
    "endless": header({}, 1 << 62),
    "large tensor": header({"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}),
    "overflow": header({"a": {"dtype": "F32", "shape": [1 << 62, 4], "data_offsets": [0, 0]}}),
    "empty tensors": header({str(n): {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(14_000)}),
    "many dimensions": header({"a": {"dtype": "F32", "shape": [1] * 300_000, "data_offsets": [0, 4]}}) + bytes(4),
    "nothing of much": header({"a": {"dtype": "F32", "shape": [0, 1 << 62], "data_offsets": [0, 0]}}),
}


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    saved(folder / "model")
    checkpoint.save(folder / "checkpoints", made_checkpoint(1))
    made_shards(folder / "train")
    for name, pieces in {"tokenizer.json": TEXTS["chained rules"].replace("a" * 1000, "a"), "vocab.txt": WORDS}.items():
        (folder / name.partition(".")[0]).mkdir()
        (folder / name.partition(".")[0] / name).write_text(pieces)
    for name in ("bytes", "pieces"):
        (folder / name).mkdir()
    (folder / "bytes/merges.txt").touch()
    return folder


def encoded(folder: Path) -> object:
    return Tokenizer.load(folder).encode(["a" * 1000])


def resumed(home: Path) -> object:
    """What a run goes on from, where the manifest fits whatever stands in the folder."""
    path = home / "checkpoints" / "step-000000001"
    digests = {one.name: files.digest(one) for one in path.iterdir() if one.name != "MANIFEST.json"}
    (path / "MANIFEST.json").write_bytes(checkpoint._manifest(1, digests))
    return checkpoint.load_newest(home / "checkpoints")


def indexed(home: Path) -> object:
    (home / "model/model.safetensors").rename(home / "model/kept")
    try:
        return folders.read(home / "model")
    finally:
        (home / "model/kept").rename(home / "model/model.safetensors")


# What is replaced, and what then reads it.
READERS: dict[str, Callable[[Path], object]] = {
    "model/config.json": lambda home: folders.read(home / "model"),
    "model/model.safetensors": lambda home: folders.read(home / "model"),
    "model/model.safetensors.index.json": indexed,
    "model/modules.json": lambda home: sentence_transformers.read(home / "model"),
    "model/MANIFEST.json": lambda home: folders.read(home / "model"),
    "tokenizer/tokenizer.json": lambda home: encoded(home / "tokenizer"),
    "tokenizer/tokenizer_config.json": lambda home: encoded(home / "tokenizer"),
    "vocab/vocab.txt": lambda home: encoded(home / "vocab"),
    "vocab/added_tokens.json": lambda home: encoded(home / "vocab"),
    "vocab/tokenizer_config.json": lambda home: encoded(home / "vocab"),
    "bytes/vocab.json": lambda home: encoded(home / "bytes"),
    "pieces/spiece.model": lambda home: encoded(home / "pieces"),
    "train/index.json": lambda home: Shards(home / "train"),
    "train/MANIFEST.json": lambda home: Shards(home / "train"),
    "checkpoints/step-000000001/MANIFEST.json": lambda home: checkpoint.load_newest(home / "checkpoints"),
    "checkpoints/step-000000001/model.safetensors": resumed,
    "recipe.toml": lambda home: config.read(home / "recipe.toml", Recipe),
}


def status(key: str) -> int:
    """Bytes, by the system's own count of this process."""
    found = re.search(rf"{key}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) << 10


def spent(done: Callable[[], object]) -> tuple[float, int]:
    """Seconds of work, and the most bytes that it took at any moment."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak is counted from here
    before = status("VmRSS")
    seconds = work(done)
    return seconds, status("VmHWM") - before


def refused(read: Callable[[Path], object], home: Path) -> Callable[[], None]:
    def refusing() -> None:
        with suppress(BertsmithError):
            read(home)

    return refusing


def cases() -> Iterator[tuple[str, str]]:
    for target in READERS:
        yield from ((target, name) for name in (HEADERS if target.endswith(".safetensors") else TEXTS))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the most memory anew")
@pytest.mark.torture("B3", suite=1, whole=1)
def test_a_small_file_costs_little(home: Path, record_property: Callable[[str, object], None]) -> None:
    dear, worst = [], (0.0, 0)
    longest = 4 * pace()  # a second of a machine that counts to twenty million in one
    for target, name in cases():
        path = home / target
        content = HEADERS[name] if target.endswith(".safetensors") else TEXTS[name].encode()
        assert len(content) < 1 << 20
        before = path.read_bytes() if path.exists() else None
        path.write_bytes(content)
        took = spent(refused(READERS[target], home))
        if took[0] > longest:  # the machine may have become slower since its pace was taken: both once more
            longest, took = 4 * pace(), spent(refused(READERS[target], home))
        if took[0] > longest or took[1] > MOST:
            dear.append((target, name, took))
        worst = max(worst[0], took[0]), max(worst[1], took[1])
        path.unlink()
        if before is not None:
            path.write_bytes(before)
    record_property("files", len(list(cases())))
    record_property("seconds_at_most", round(worst[0], 3))
    record_property("megabytes_at_most", round(worst[1] / 1e6, 1))
    assert not dear, dear


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts the most memory anew")
def test_memory_that_is_taken_is_seen() -> None:
    def taken() -> None:
        with mmap.mmap(-1, 150 << 20) as memory:  # never from what the process has kept of earlier tests
            memory.write(bytes(1 << 20) * 150)

    assert spent(taken)[1] > MOST
