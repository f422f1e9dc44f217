"""Encoding with a memory for words gives what the tokenizer gives, and several processes give the same."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.data.shards import encode
from bertsmith.data.shards.encode import Encoder, splits_ideographs, splits_on_spaces, splitting_punctuation
from bertsmith.data.shards.workers import Documents, Worker, encode_all
from bertsmith.errors import RunError
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

pytestmark = pytest.mark.slow("encodes lines of megabytes")

TEXT = """The old sea-captain's house, which stood on the hill, was sold for 1,250 pounds in 1871.
"Where are you going?" she asked; he didn't answer, and the dog barked (twice) at the moon.
Zürich and Genève are cities; naïve café owners there serve crème brûlée at 7.30 every evening.
It's a truth universally acknowledged that a single man in possession of a fortune must want a wife.
There was no possibility of taking a walk that day, said the captain of the old house on the hill."""


@pytest.fixture(scope="module", params=["wordpiece", "cased", "bpe", "unigram", "t5"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    kind = {"cased": "wordpiece"}.get(request.param, request.param)
    config = TokenizerConfig(kind=kind, vocabulary=400, lowercase=request.param != "cased", min_frequency=1)
    folder = tmp_path_factory.mktemp(request.param)
    train(TEXT.split("\n") * 3, config).save(folder)
    return folder


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("plain")
    train(TEXT.split("\n") * 3, TokenizerConfig(vocabulary=400, min_frequency=1)).save(folder)
    return folder


def ids(encoder: Encoder, text: str) -> list[int]:
    return np.frombuffer(encoder.encode([[text]]).tokens, np.uint16).tolist()


def agrees(folder: Path, text: str) -> None:
    encoder, tokenizer = Encoder(folder, "uint16"), Tokenizer.load(folder)
    assert encoder._splits_on_spaces
    expected = tokenizer.encode([text])[0]
    assert ids(encoder, text) == expected
    assert ids(encoder, text) == expected  # and once more from memory


@pytest.mark.parametrize(
    "text",
    [
        *TEXT.split("\n"),
        "",
        " ",
        " leading and trailing ",
        "two  spaces",
        "a\ttab",
        "no\u00a0break",
        "new\nline",
        "\nline first",
        "´acute and ¨diaeresis",
        "e ́combining after a space",
        "中文 and 日本語 in words",
        "中文没有空格的句子" * 20,
        "[MASK] <mask> the [CLS] middle [SEP] <s> of</s> it <mask>",
        "the[MASK]captain <mask>s",
        "👩‍👩‍👧 family 🇨🇭",
        "שלום عليكم",
        "zero\u200bwidth \u200b space",
        "bell\x07 and \x1c separators \x85",
        "ﬁne ligatures Ⅷ ½",
        "ΟΔΥΣΣΕΥΣ ΣΟΦΟΣ",
        "İstanbul DİYARBAKIR",
        "x" * 300,
        "' s 's n't 'll 've",
        "don 't '",
        '"(A-B)": c.d; e,f—g',
        "dot.\u0301 comma,\u200d\u0301 <\u0338 -\u0301",
    ],
)
def test_words_together_have_the_ids_of_the_sentence(folder: Path, text: str) -> None:
    agrees(folder, text)


def test_sentences_of_a_document_are_separated_as_the_tokenizer_separates_words(folder: Path) -> None:
    """Byte-level pieces hold the space before a word: without it a document would read "hill.There"."""
    encoder, tokenizer = Encoder(folder, "uint16"), Tokenizer.load(folder)
    sentences = [*TEXT.split("\n"), "two  spaces", "", "x" * 300]
    for _ in range(2):  # and once more from memory
        found = np.frombuffer(encoder.encode([sentences, sentences[3:]]).tokens, np.uint16).tolist()
        if tokenizer.kind == "bpe":
            texts = [" ".join(filter(None, part)) for part in (sentences, sentences[3:])]
            assert found == [number for ids in tokenizer.encode(texts) for number in ids]
            assert tokenizer.decode(found[: len(tokenizer.encode(texts[:1])[0])]) == texts[0]
        else:
            assert found == [number for ids in tokenizer.encode(sentences + sentences[3:]) for number in ids]


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(
    words=st.lists(
        st.one_of(
            st.sampled_from([*TEXT.split(), "[MASK]", "<mask>", "", "▁", "##s", "´", "¨a", "ﷺ", "\u00a0"]),
            st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
            st.text("ab.,()\"':;-\u0301é", max_size=6),
            st.text("漢字ab.\u0301豈𠀀か\u3000", max_size=6),
        ),
        max_size=12,
    )
)
def test_any_text_has_the_ids_the_tokenizer_gives(folder: Path, words: list[str]) -> None:
    agrees(folder, " ".join(words))


def test_a_full_cache_is_emptied_and_changes_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encode, "MAX_CACHED_WORDS", 30)
    encoder, tokenizer = Encoder(folder, "uint16"), Tokenizer.load(folder)
    for text in TEXT.split("\n") * 2:
        assert ids(encoder, text) == tokenizer.encode([text])[0]
        assert len(encoder._cache) <= 30
    assert encoder._cache


def test_only_new_words_go_to_the_tokenizer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, asked, real = Encoder(folder, "uint16"), [], Tokenizer.encode
    monkeypatch.setattr(Tokenizer, "encode", lambda self, texts: asked.extend(texts) or real(self, texts))
    ids(encoder, "the old house on the hill")
    ids(encoder, "the old house by the hill")
    assert sorted(asked) == sorted(["the", " old", " house", " on", " the", " hill", " by"])


def test_each_chinese_character_is_remembered_as_a_word(plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, asked, real = Encoder(plain, "uint16"), [], Tokenizer.encode
    monkeypatch.setattr(Tokenizer, "encode", lambda self, texts: asked.extend(texts) or real(self, texts))
    ids(encoder, "漢字and漢字。" * 100)
    assert sorted(asked) == sorted(["漢", " 字", " and", " 漢", " 。"])


def test_chinese_characters_are_left_to_tokenizers_that_do_not_part_them(plain: Path) -> None:
    about = json.loads((plain / "tokenizer.json").read_text())
    assert splits_ideographs(about)
    assert not splits_ideographs(about | {"normalizer": about["normalizer"] | {"handle_chinese_chars": False}})
    assert not splits_ideographs(about | {"normalizer": None})
    assert not splits_ideographs(about | {"pre_tokenizer": {"type": "ByteLevel"}})
    assert not splits_ideographs(about | {"added_tokens": [{"content": "漢"}]})


def test_a_tokenizer_that_looks_past_spaces_takes_the_plain_way(folder: Path) -> None:
    about = json.loads((folder / "tokenizer.json").read_text())
    assert splits_on_spaces(about)
    added = {"content": "New York", "rstrip": False}
    assert not splits_on_spaces(about | {"added_tokens": [added]})
    assert not splits_on_spaces(about | {"added_tokens": [{"content": "<end>", "rstrip": True}]})
    assert not splits_on_spaces(about | {"pre_tokenizer": None})
    assert not splits_on_spaces(about | {"pre_tokenizer": {"type": "Split"}})
    assert not splits_on_spaces(about | {"pre_tokenizer": {"type": "ByteLevel", "use_regex": False}})
    assert not splits_on_spaces(about | {"pre_tokenizer": {"type": "Metaspace", "split": False}})
    assert not splits_on_spaces(about | {"normalizer": {"type": "Replace"}})
    assert not splits_on_spaces(about | {"normalizer": {"type": "Sequence", "normalizers": [{"type": "Precompiled"}]}})
    assert not splits_on_spaces(about | {"model": about["model"] | {"dropout": 0.1}})


def test_the_plain_way_gives_the_same_block(folder: Path) -> None:
    documents = [TEXT.split("\n")[:3], ["", " "], [*TEXT.split("\n")[3:], ""]]
    quick, slow = Encoder(folder, "uint16"), Encoder(folder, "uint16")
    slow._splits_on_spaces = False
    assert quick.encode(documents).pack() == slow.encode(documents).pack()


def test_a_block_counts_sentences_bytes_and_words(folder: Path) -> None:
    block = Encoder(folder, "uint32").encode([["The old house", "Zürich"], [""], [], ["hill", ""]])
    assert block.documents.tolist() == [[2, 20, 4], [1, 4, 1]]
    assert (block.dropped, block.empty) == (2, 2)
    assert len(block.tokens) == 4 * block.lengths.sum()


def items(chunks: int) -> Iterator[tuple[int, list[Documents]]]:
    lines = TEXT.split("\n")
    for chunk in range(chunks):
        yield chunk, [[[*lines, f"chunk {chunk}"]] * 3, [[lines[chunk % 5]]]]


@pytest.fixture(scope="module")
def wordpiece(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("crew")
    train(TEXT.split("\n") * 3, TokenizerConfig(vocabulary=300, min_frequency=1)).save(folder)
    return folder


def test_workers_give_the_same_blocks_in_the_same_order(wordpiece: Path) -> None:
    alone = [
        (item, [block.pack() for block in blocks]) for item, blocks in encode_all(items(9), wordpiece, "uint16", 0)
    ]
    crew = [(item, [block.pack() for block in blocks]) for item, blocks in encode_all(items(9), wordpiece, "uint16", 2)]
    assert alone == crew
    assert [item for item, _ in crew] == list(range(9))


def test_reading_never_runs_far_ahead_of_encoding(wordpiece: Path) -> None:
    read = 0

    def counted() -> Iterator[tuple[int, list[Documents]]]:
        nonlocal read
        for item in items(40):
            read += 1
            yield item

    for done, _ in enumerate(encode_all(counted(), wordpiece, "uint16", 2), start=1):
        assert read - done <= 5


def test_a_killed_worker_is_told_in_one_line(wordpiece: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers, real = [], Worker.__init__

    def begin(self: Worker, *arguments: object) -> None:
        real(self, *arguments)
        workers.append(self)

    monkeypatch.setattr(Worker, "__init__", begin)
    results = encode_all(items(40), wordpiece, "uint16", 2)
    next(results)
    for worker in workers:
        worker._process.send_signal(signal.SIGKILL)
    with pytest.raises(RunError) as caught:
        list(results)
    assert str(caught.value) == (
        "prepare: a worker process was killed by signal 9; memory may have run out. "
        "Run the same command again, with fewer workers."
    )
    assert all(worker._process.poll() is not None for worker in workers)


def test_a_failing_worker_reports_its_error(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"prepare: a worker process failed \(.*does not exist"):
        list(encode_all(items(1), tmp_path / "nowhere", "uint16", 1))


def test_workers_end_when_the_caller_stops(wordpiece: Path) -> None:
    threads, before = threading.active_count(), set(children(os.getpid()))
    results = encode_all(items(40), wordpiece, "uint16", 2)
    next(results)
    workers = set(children(os.getpid())) - before
    assert len(workers) == 2
    assert os.getpgid(0) not in map(os.getpgid, workers)  # a terminal's Ctrl-C does not reach them
    results.close()
    assert set(children(os.getpid())) == before
    assert threading.active_count() == threads
    gc.collect()  # an unclosed pipe would warn here, and a warning is an error


def test_workers_end_when_their_caller_is_killed(wordpiece: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from bertsmith.data.shards.workers import encode_all\n"
        "chunks = ((n, [[['the house']]]) for n in range(99))\n"
        f"results = encode_all(chunks, Path({str(wordpiece)!r}), 'uint16', 2)\n"
        "next(results); print('ready', flush=True); time.sleep(60)"
    )
    caller = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert caller.stdout is not None
    assert caller.stdout.readline() == b"ready\n"
    workers = children(caller.pid)
    assert len(workers) == 2
    caller.kill()
    caller.wait()
    caller.stdout.close()
    until = time.monotonic() + 10
    while any(Path(f"/proc/{worker}/cmdline").exists() and alive(worker) for worker in workers):
        assert time.monotonic() < until, "a worker outlived its caller"
        time.sleep(0.02)


def children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, _, rest = path.read_text().rpartition(")")
        except OSError:
            continue
        if int(rest.split()[1]) == parent:
            found.append(int(name.split()[0]))
    return found


def alive(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_bert_parts_words_at_punctuation_too(wordpiece: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    encoder, asked, real = Encoder(wordpiece, "uint16"), [], Tokenizer.encode
    monkeypatch.setattr(Tokenizer, "encode", lambda self, texts: asked.extend(texts) or real(self, texts))
    ids(encoder, 'the house, (the "house"); house.')
    assert asked.count(" house") == 1
    about = json.loads((wordpiece / "tokenizer.json").read_text())
    assert splitting_punctuation(about) == ".,()\"':;-"
    assert splitting_punctuation(about | {"added_tokens": [{"content": "(c)"}]}) == ".,\"':;-"
    assert splitting_punctuation(about | {"pre_tokenizer": {"type": "ByteLevel"}}) == ""
    assert splitting_punctuation(about | {"normalizer": {"type": "NFC"}}) == ""  # joins a mark with an accent after it


def test_a_worker_is_light() -> None:
    program = "import sys, bertsmith.data.shards.workers; print('torch' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


GIANT = """
import sys
from pathlib import Path
from pace import pace, work
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.encode import Encoder
encoder = Encoder(Path(sys.argv[1]), "uint16")
def peak():
    return int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0])
def read(path):
    for document in Corpus([path], layout="lines").documents():
        for sentence in document.sentences:
            encoder.encode([[sentence]])
before = peak()
print(*(work(lambda: read(path)) for path in sys.argv[2:]), pace(), (peak() - before) / 1024)
"""


@pytest.mark.exhaustive(suite=1)
@pytest.mark.parametrize("unit", ["the old, ", "captain", "漢"])
def test_a_line_of_ten_megabytes_takes_little_time_and_memory(unit: str, plain: Path, tmp_path: Path) -> None:
    short = unit * 1000
    count = 10_000_000 // len(short.encode())
    (tmp_path / "one.txt").write_text(short * count)
    (tmp_path / "many.txt").write_text(f"{short}\n" * (count // 4))
    command = [sys.executable, "-c", GIANT, str(plain), str(tmp_path / "one.txt"), str(tmp_path / "many.txt")]
    paths = {"PYTHONPATH": os.pathsep.join(sys.path)}
    printed = subprocess.check_output(command, text=True, env=os.environ | paths)
    one, many, counted, megabytes = map(float, printed.split())
    assert one < 2 * (4 * many)
    assert one < 20 * counted
    assert megabytes < 150
