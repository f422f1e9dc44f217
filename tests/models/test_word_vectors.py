"""word2vec's formats: written files are read again bit for bit, gensim agrees, bad files are refused in one line."""

import gzip
import lzma
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.errors import FolderError
from bertsmith.models.word_vectors import Format, WordVectors, read, write

FORMS: tuple[Format, ...] = ("binary", "text")
WORD = st.text(st.characters(codec="utf-8", exclude_categories=["Z", "C"]), min_size=1, max_size=8)
NUMBER = st.floats(width=32, allow_nan=False, allow_infinity=False)


def some(words: int = 5, width: int = 3) -> WordVectors:
    table = np.random.default_rng(0).normal(size=(words, width)).astype(np.float32)
    return WordVectors([f"word{number}" for number in range(words)], table)


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(FORMS))
def test_a_written_file_is_read_again_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, format_name: Format
) -> None:
    words = data.draw(st.lists(WORD.filter(lambda word: not any(map(str.isspace, word))), min_size=1, max_size=6))
    width = data.draw(st.integers(2, 5))
    rows = data.draw(
        st.lists(st.lists(NUMBER, min_size=width, max_size=width), min_size=len(words), max_size=len(words))
    )
    path = tmp_path_factory.mktemp("formats") / "vectors"
    vectors = WordVectors(words, np.array(rows, np.float32))
    write(path, vectors, format_name)
    back = read(path)
    assert back.words == words
    assert back.table.tobytes() == vectors.table.tobytes()
    assert [one.name for one in path.parent.iterdir()] == ["vectors"]


@pytest.mark.parametrize("format_name", FORMS)
def test_gensim_opens_what_we_write_and_we_what_it_writes(tmp_path: Path, format_name: Format) -> None:
    gensim = pytest.importorskip("gensim.models", reason="gensim is not installed")
    vectors, binary = some(50, 20), format_name == "binary"
    write(tmp_path / "ours", vectors, format_name)
    theirs = gensim.KeyedVectors.load_word2vec_format(str(tmp_path / "ours"), binary=binary)
    assert theirs.index_to_key == vectors.words
    assert np.array_equal(theirs.vectors, vectors.table)
    theirs.save_word2vec_format(str(tmp_path / "theirs"), binary=binary)
    back = read(tmp_path / "theirs")
    assert back.words == vectors.words
    assert np.array_equal(back.table, vectors.table)


@pytest.mark.parametrize("header", [b"", b"3 3\n"])
@pytest.mark.parametrize("blank", [b"\n", b"\r\n", b" \n\n"])
def test_blank_lines_are_left_out_and_end_no_file(header: bytes, blank: bytes, tmp_path: Path) -> None:
    lines = [b"cat 1 2 3\n", b"dog 4 5 6\n", b"river 7 8 9\n"]
    (tmp_path / "glove").write_bytes(header + blank.join(lines) + blank)
    found = read(tmp_path / "glove")
    assert found.words == ["cat", "dog", "river"]
    assert found.table.tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]


def test_a_line_that_is_wrong_after_a_blank_one_has_its_own_number(tmp_path: Path) -> None:
    (tmp_path / "glove").write_bytes(b"cat 1 2 3\n\ndog 4 x 6\n")
    with pytest.raises(FolderError, match=r"glove:3: has a value that is not a number"):
        read(tmp_path / "glove")


def test_the_formats_are_the_published_ones(tmp_path: Path) -> None:
    vectors = WordVectors(["a", "né"], np.array([[1, -0.5], [0.1, 2]], np.float32))
    write(tmp_path / "text", vectors, "text")
    assert (tmp_path / "text").read_text(encoding="utf-8") == "2 2\na 1.0 -0.5\nné 0.1 2.0\n"
    write(tmp_path / "binary", vectors, "binary")
    rows = [row.astype("<f4").tobytes() for row in vectors.table]
    assert (tmp_path / "binary").read_bytes() == b"2 2\na " + rows[0] + b"\n" + "né ".encode() + rows[1] + b"\n"
    (tmp_path / "close").write_bytes(b"2 2\na " + rows[0] + "né ".encode() + rows[1])  # as some programs write it
    assert read(tmp_path / "close").words == ["a", "né"]


NUMBERS = np.ones(2, "<f4").tobytes()


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (b"", "does not begin with the number of its vectors"),
        (b"\x89PNG\r\n\x1a\n" * 20, "does not begin with the number of its vectors"),
        (b"hello world\n", "does not begin with the number of its vectors"),
        (b"0 3\n", "names 0 vectors of 3 numbers"),
        (b"3 0\n", "names 3 vectors of 0 numbers"),
        (b"1 99999999\n", "names 1 vectors of 99,999,999 numbers"),
        (b"1000000000 300\na 1 2\n", "which do not fit into"),
        (b"2 2\na 1 2\nb 1\n", ":3: has 1 numbers, not 2"),
        (b"2 2\na 1 2 3\nb 1 2 3\n", ":2: has 3 numbers, not 2"),
        (b"2 2\na 1 2\nb 1 x\n", ":3: has a value that is not a number"),
        (b"2 2\na 1 2\nb 1 nan\n", "the vector of 'b' has a value that is not finite"),
        (b"2 2\na 1.0 2.0\n", "ends after 1 of 2 vectors"),
        (b"1 2\na 1.0 2.0\nb 1.0 2.0\n", "holds more than the 1 vectors that its first line names. Correct that line"),
        (b"1 2\na " + NUMBERS + b"\nb " + NUMBERS, "holds more than the 1 vectors that its first line names"),
        (b"2 2\n\xff 1 2\nb 1 2\n", "is not UTF-8 text"),
        (b"2 2\na " + NUMBERS + b"\nb " + NUMBERS[:5], "ends after 1 of 2 vectors"),
        (b"2 2\na " + NUMBERS + b"\nbcdef", "ends after 1 of 2 vectors"),
        (b"2 2\na " + NUMBERS + b"\n" + b"b" * 5_000, "vector 2 has no word"),
        (b"1 2\na " + np.array([1, np.inf], "<f4").tobytes(), "the vector of 'a' has a value that is not finite"),
    ],
)
def test_a_bad_file_is_refused_in_one_line(tmp_path: Path, data: bytes, fact: str) -> None:
    (tmp_path / "bad").write_bytes(data)
    with pytest.raises(FolderError) as caught:
        read(tmp_path / "bad")
    assert str(tmp_path / "bad") in str(caught.value)
    assert fact in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("format_name", FORMS)
def test_every_truncation_is_refused(tmp_path: Path, format_name: Format) -> None:
    write(tmp_path / "whole", some(), format_name)
    data = (tmp_path / "whole").read_bytes()
    last = (
        1 if format_name == "binary" else 2
    )  # the last line feed may be missing; in the text format perhaps a digit, too
    for length in range(len(data) - last - (format_name == "text") * 12):
        (tmp_path / "cut").write_bytes(data[:length])
        with pytest.raises(FolderError):
            read(tmp_path / "cut")


def test_a_missing_file_and_a_bad_word_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match="is missing"):
        read(tmp_path / "nowhere")
    with pytest.raises(FolderError, match="cannot be read"):
        read(tmp_path)
    for word in ("", "two words", "line\nfeed"):
        with pytest.raises(FolderError, match="is no word"):
            write(tmp_path / "bad", WordVectors([word], np.ones((1, 2), np.float32)))


@pytest.mark.parametrize("format_name", FORMS)
def test_compressed_files_are_read_under_any_name(tmp_path: Path, format_name: Format) -> None:
    vectors = some(5_000)  # more than the first block of memory
    write(tmp_path / "plain", vectors, format_name)
    data = (tmp_path / "plain").read_bytes()
    (tmp_path / "v.txt.gz").write_bytes(gzip.compress(data, 1))
    (tmp_path / "v").write_bytes(lzma.compress(data, preset=0))
    for name in ("v.txt.gz", "v"):
        back = read(tmp_path / name)
        assert back.words == vectors.words
        assert back.table.tobytes() == vectors.table.tobytes()


def test_a_word_may_have_spaces_in_it_and_glove_has_no_header(tmp_path: Path) -> None:
    lines = "New York 1 2\nthe 3 4\nwindows 95 5 6\n. . . 7 8\n"
    (tmp_path / "words.txt").write_text(f"4 2\n{lines}")
    (tmp_path / "glove.txt").write_text("a 0 0\n" + lines.removesuffix("\n"))
    (tmp_path / "fasttext.vec").write_text("4 2\n" + lines.replace("\n", " \n"))  # which ends lines with a space
    expected = ["New York", "the", "windows 95", ". . ."]
    for name, first in (("words.txt", []), ("glove.txt", ["a"]), ("fasttext.vec", [])):
        back = read(tmp_path / name)
        assert back.words == first + expected
        assert back.table[len(first) :].tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]


def test_a_damaged_compressed_file_and_a_zip_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "plain", some(500, 20), "text")
    packed = gzip.compress((tmp_path / "plain").read_bytes())
    (tmp_path / "cut.gz").write_bytes(packed[:-200])
    with pytest.raises(FolderError, match=r"cut\.gz: cannot be read \(.*\)\. Fetch it again\.$"):
        read(tmp_path / "cut.gz")
    (tmp_path / "glove.zip").write_bytes(b"PK\x03\x04" + bytes(80))
    with pytest.raises(FolderError, match=r"is a zip archive\. Unpack it, and name a file of it\.$"):
        read(tmp_path / "glove.zip")
    # A few bytes that promise a billion vectors take no memory for them.
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"1000000000 300\na " + b"1 " * 300))
    with pytest.raises(FolderError, match="ends after 1 of 1,000,000,000 vectors"):
        read(tmp_path / "bomb.gz")
