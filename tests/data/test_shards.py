"""Tokens on disk: what is read is what was written, and no damage goes unseen."""

import copy
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bertsmith import files
from bertsmith.data.shards.encoded import EncodedDocuments
from bertsmith.data.shards.shards import Shards, token_dtype
from bertsmith.data.shards.verification import verify
from bertsmith.data.shards.writer import ShardWriter
from bertsmith.errors import FolderError

VOCABULARY = 1000


def made(folder: Path, shards: int = 3, blocks: int = 4, vocabulary: int = VOCABULARY) -> np.ndarray:
    """Write a folder of random documents; gives all of its tokens."""
    chance, kind = np.random.default_rng(shards), np.dtype(token_dtype(vocabulary))
    split, everything = ShardWriter(folder), []
    for _ in range(shards):
        for _ in range(blocks):
            lengths = chance.integers(1, 30, 12).astype(np.int32)
            documents = np.array([(3, 300, 50), (4, 400, 60), (5, 500, 70)], np.int64)
            tokens = chance.integers(0, vocabulary, lengths.sum()).astype(kind)
            split.add(EncodedDocuments(tokens.tobytes(), lengths, documents))
            everything.append(tokens)
        split.close_shard()
    split.finish({"dtype": token_dtype(vocabulary), "vocabulary": vocabulary, "tokenizer": "f" * 64})
    return np.concatenate(everything) if everything else np.zeros(0, kind)


@pytest.mark.parametrize(("vocabulary", "size"), [(1 << 16, 2), ((1 << 16) + 1, 4)])
def test_written_shards_are_read_back(tmp_path: Path, vocabulary: int, size: int) -> None:
    tokens = made(tmp_path / "train", vocabulary=vocabulary)
    shards = Shards(tmp_path / "train")
    shards.verify()
    assert (shards.tokens, shards.sentences, shards.documents) == (len(tokens), 144, 36)
    assert (shards.bytes, shards.words, shards.vocabulary) == (14_400, 2_160, vocabulary)
    assert shards.dtype.itemsize == size
    assert shards.sentence_ends[-1] == shards.tokens
    assert shards.document_ends.tolist()[:6] == [3, 7, 12, 15, 19, 24]
    assert shards.document_ends[-1] == shards.sentences
    starts = np.concatenate([[0], shards.sentence_ends[:-1]])
    assert (shards.gather(starts, shards.sentence_ends - starts) == tokens).all()


def test_ranges_come_in_the_order_asked_for(tmp_path: Path) -> None:
    tokens = made(tmp_path)
    shards = Shards(tmp_path)
    chance = np.random.default_rng(0)
    which = chance.integers(0, shards.sentences, 500)
    starts = np.concatenate([[0], shards.sentence_ends])[which]
    lengths = chance.integers(0, shards.sentence_ends[which] - starts + 1)  # some of them empty
    expected = np.concatenate([tokens[start : start + length] for start, length in zip(starts, lengths, strict=True)])
    found = shards.gather(starts, lengths)
    assert found.dtype == np.int32
    assert (found == expected).all()
    assert len(shards.gather(starts[:0], lengths[:0])) == 0


def test_a_range_across_two_shards_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    shards = Shards(tmp_path)
    edge = json.loads((tmp_path / "index.json").read_bytes())["shards"][0]["tokens"]
    with pytest.raises(IndexError, match="outside its shard"):
        shards.gather(np.array([edge - 1]), np.array([2]))


def test_frequencies_count_every_token(tmp_path: Path) -> None:
    tokens = made(tmp_path)
    assert (Shards(tmp_path).frequencies() == np.bincount(tokens, minlength=VOCABULARY)).all()


def test_a_folder_without_documents_opens(tmp_path: Path) -> None:
    made(tmp_path, shards=0)
    shards = Shards(tmp_path)
    shards.verify()
    assert (shards.tokens, len(shards.sentence_ends), len(shards.document_ends)) == (0, 0, 0)
    assert shards.frequencies().sum() == 0


def test_shards_travel_to_a_worker_by_their_folder(tmp_path: Path) -> None:
    made(tmp_path)
    shards = Shards(tmp_path)
    assert shards.__reduce__() == (Shards, (tmp_path,))
    assert copy.copy(shards).fingerprint == shards.fingerprint


def test_the_fingerprint_changes_with_one_token(tmp_path: Path) -> None:
    made(tmp_path / "one")
    made(tmp_path / "same")
    made(tmp_path / "other", blocks=5)
    one, same, other = (Shards(tmp_path / name).fingerprint for name in ("one", "same", "other"))
    assert one == same != other


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


@pytest.mark.slow("flips every bit")
@pytest.mark.torture("A5 shards", suite=300, whole=10_000)
def test_every_flipped_bit_is_found(tmp_path: Path, times: int) -> None:
    made(tmp_path / "good", shards=2)
    names = sorted(path.name for path in (tmp_path / "good").iterdir())
    chance = random.Random(7)
    for trial in range(times):
        name = names[trial % len(names)]
        good = (tmp_path / "good" / name).read_bytes()
        flip(tmp_path / "good" / name, chance.randrange(8 * len(good)))
        with pytest.raises(FolderError) as caught:
            verify(Shards(tmp_path / "good"))  # as every verb does
        if name != "MANIFEST.json":
            assert str(caught.value).startswith(f"{tmp_path / 'good' / name}: ")
        (tmp_path / "good" / name).write_bytes(good)
    Shards(tmp_path / "good").verify()


@pytest.mark.exhaustive
@pytest.mark.slow
def test_every_flipped_bit_of_the_index_is_found_at_opening(tmp_path: Path) -> None:
    """Shards are mapped by the index before their own hashes are held against the manifest."""
    made(tmp_path, shards=2)
    index = tmp_path / "index.json"
    for bit in range(8 * index.stat().st_size):
        flip(index, bit)
        with pytest.raises(FolderError, match=r"index\.json"):
            Shards(tmp_path)
        flip(index, bit)
    Shards(tmp_path)


def test_every_truncation_is_found_at_opening(tmp_path: Path) -> None:
    made(tmp_path, shards=2)
    chance = random.Random(8)
    for path in sorted(tmp_path.iterdir()):
        good = path.read_bytes()
        for length in (0, len(good) - 2, chance.randrange(len(good) - 1), len(good) + 1):
            path.write_bytes((good.rstrip(b"\n") + b"?")[:length])
            with pytest.raises(FolderError, match=path.name):
                Shards(tmp_path)
        path.write_bytes(good)


def test_every_missing_file_is_named(tmp_path: Path) -> None:
    made(tmp_path)
    for path in sorted(tmp_path.iterdir()):
        good = path.read_bytes()
        path.unlink()
        with pytest.raises(FolderError) as caught:
            Shards(tmp_path)
        assert str(caught.value).startswith(f"{path}: is missing.")
        path.write_bytes(good)


def test_swapped_files_are_found(tmp_path: Path) -> None:
    made(tmp_path)
    parts = sorted(path for path in tmp_path.iterdir() if path.suffix != ".json")
    for first in parts:
        for second in parts:
            if first.read_bytes() == second.read_bytes():
                continue
            kept = first.read_bytes(), second.read_bytes()
            first.write_bytes(kept[1])
            second.write_bytes(kept[0])
            with pytest.raises(FolderError, match=r"bytes instead of|damaged"):
                Shards(tmp_path).verify()
            first.write_bytes(kept[0])
            second.write_bytes(kept[1])


def rewrite(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    """Change the index and make the manifest fit it, as a careless program would."""
    index = files.read_json(folder / "index.json")
    change(index)
    manifest = files.read_json(folder / "MANIFEST.json")
    manifest["files"]["index.json"] = vars(files.write_json(folder / "index.json", index))
    files.write_json(folder / "MANIFEST.json", manifest)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        (
            lambda index: index.update(format="other"),
            "is 'other' version 1, not 'bertsmith-shards' version 1",
        ),
        (
            lambda index: index.update(version=2),
            "is 'bertsmith-shards' version 2, not 'bertsmith-shards' version 1",
        ),
        (lambda index: index.update(dtype="float32"), "does not describe its shards"),
        (lambda index: index.update(tokens=True), "does not describe its shards"),
        (lambda index: index.update(tokens=-1), "does not describe its shards"),
        (lambda index: index.update(documents=37), "does not describe its shards"),
        (lambda index: index.pop("words"), "does not describe its shards"),
        (lambda index: index.update(shards=[1]), "does not describe its shards"),
        (lambda index: index["shards"][0].update(name="../000"), "does not describe its shards"),
        (lambda index: index["shards"][0].update(name="000007"), "does not list 000007.tokens"),
        (lambda index: index.update(dtype="uint32"), "MANIFEST.json: gives 000000.tokens"),
        (lambda index: index.update(vocabulary=10), "beyond its vocabulary of 10"),
    ],
)
def test_an_index_that_does_not_fit_is_refused(
    tmp_path: Path, change: Callable[[dict[str, Any]], Any], fact: str
) -> None:
    made(tmp_path)
    rewrite(tmp_path, change)
    with pytest.raises(FolderError) as caught:
        Shards(tmp_path).frequencies()
    assert fact in str(caught.value)


@pytest.mark.parametrize(
    ("content", "fact"),
    [
        (b"nonsense", "cannot be read as JSON"),
        (b"{}", "lists no files"),
        (b'{"files": {"index.json": {}}}', "gives no size and SHA-256 of index.json"),
        (b'{"files": {"index.json": {}, "../../etc/passwd": {}}}', "gives no size"),
        (b'{"files": {"../x": {}, "index.json": {}}}', "lists '../x', which is no file of shards"),
    ],
)
def test_a_manifest_that_is_none_is_refused(tmp_path: Path, content: bytes, fact: str) -> None:
    made(tmp_path)
    (tmp_path / "MANIFEST.json").write_bytes(content)
    with pytest.raises(FolderError) as caught:
        Shards(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path / 'MANIFEST.json'}: {fact}")


def test_a_folder_without_a_manifest_is_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"MANIFEST\.json: is missing\. Delete the folder and prepare the text again"):
        Shards(tmp_path)


def test_a_file_that_the_index_does_not_know_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    manifest = files.read_json(tmp_path / "MANIFEST.json")
    manifest["files"]["000009.tokens"] = {"size": 1, "sha256": ""}
    files.write_json(tmp_path / "MANIFEST.json", manifest)
    with pytest.raises(FolderError, match=r"index\.json: does not list 000009\.tokens"):
        Shards(tmp_path)


def test_ends_out_of_order_are_found_at_opening(tmp_path: Path) -> None:
    made(tmp_path)
    ends = np.fromfile(tmp_path / "000001.sentences", np.int64)
    ends[[3, 4]] = ends[[4, 3]]
    ends.tofile(tmp_path / "000001.sentences")
    with pytest.raises(FolderError, match=r"000001\.sentences: is damaged: its ends are not in order"):
        Shards(tmp_path)


def test_another_tokenizer_is_refused(tmp_path: Path) -> None:
    made(tmp_path)
    Shards(tmp_path).check_tokenizer("f" * 64)
    with pytest.raises(FolderError) as caught:
        Shards(tmp_path).check_tokenizer("0" * 64)
    assert str(caught.value) == (
        f"{tmp_path}: was prepared with another tokenizer (ffffffffffff, not 000000000000). "
        "Use the tokenizer beside it, or prepare the text again."
    )


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"nowhere: no such folder\. Make it with: bertsmith prepare\."):
        Shards(tmp_path / "nowhere")


def test_an_uncut_shard_is_cleared_away_and_a_cut_one_kept(tmp_path: Path) -> None:
    block = EncodedDocuments(np.arange(4, dtype=np.uint16).tobytes(), np.array([1, 3], np.int32), np.array([[2, 9, 2]]))
    split = ShardWriter(tmp_path / "train")
    split.add(block)
    split.close_shard()
    state = json.loads(json.dumps(split.state))
    split.add(block)  # never cut: the program ends here
    split.close()
    again = ShardWriter(tmp_path / "train", state)
    assert sorted(path.name for path in (tmp_path / "train").iterdir()) == sorted(again.files)
    assert (again.total("tokens"), again.total("sentences"), again.total("documents")) == (4, 2, 1)
    (tmp_path / "train" / "000000.tokens").write_bytes(b"")
    with pytest.raises(FolderError, match=r"000000\.tokens: is not as it was left"):
        ShardWriter(tmp_path / "train", state)


def test_a_block_parts_before_its_last_document() -> None:
    tokens = np.arange(10, dtype=np.uint32)
    block = EncodedDocuments(
        tokens.tobytes(), np.array([1, 2, 3, 4], np.int32), np.array([[1, 5, 1], [2, 6, 1], [1, 7, 1]])
    )
    before, last = block.split_last()
    assert (before.tokens, last.tokens) == (tokens[:6].tobytes(), tokens[6:].tobytes())
    assert (before.lengths.tolist(), last.lengths.tolist()) == ([1, 2, 3], [4])
    assert (len(before.documents), last.documents.tolist()) == (2, [[1, 7, 1]])


def test_a_damaged_copy_leaves_the_good_one_alone(tmp_path: Path) -> None:
    made(tmp_path / "good")
    shutil.copytree(tmp_path / "good", tmp_path / "bad")
    flip(tmp_path / "bad" / "000000.tokens", 5)
    Shards(tmp_path / "bad")  # a flipped token is too dear to find at every opening
    with pytest.raises(FolderError, match=r"000000\.tokens: is damaged: its SHA-256"):
        Shards(tmp_path / "bad").verify()
    Shards(tmp_path / "good").verify()
