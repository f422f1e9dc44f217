"""Names on the command line become files, in a fixed order, or one clear line."""

import gzip
import lzma
from pathlib import Path

import pytest

from bertsmith.data.sources import STANDARD_INPUT, Source, find
from bertsmith.errors import TextError


def made(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("A line.\n")
    return folder


def found(*names: object) -> list[str]:
    return [source.path.name for source in find([str(name) for name in names])]


def unpacked(source: Source) -> bytes:
    return b"".join(source.blocks(lambda _: None))


def test_a_folder_gives_its_text_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    made(tmp_path, "b.txt", "a/z.jsonl", "a/.hidden.txt", "notes.md", ".git/c.txt", "c.TXT.GZ", "d.parquet")
    assert found(tmp_path) == ["z.jsonl", "b.txt", "c.TXT.GZ", "d.parquet"]


def test_a_glob_gives_what_it_matches_and_leaves_out_what_is_no_text(tmp_path: Path) -> None:
    made(tmp_path, "one.txt", "two.txt", "three.md", "deep/four.txt")
    assert found(tmp_path / "*") == ["four.txt", "one.txt", "two.txt"]
    assert found(tmp_path / "**" / "f*.txt") == ["four.txt"]


def test_a_file_whose_name_looks_like_a_glob_is_a_file(tmp_path: Path) -> None:
    made(tmp_path, "odd[1].txt")
    assert found(tmp_path / "odd[1].txt") == ["odd[1].txt"]


def test_a_file_named_twice_is_read_once(tmp_path: Path) -> None:
    made(tmp_path, "a.txt", "b.txt")
    assert found(tmp_path / "b.txt", tmp_path, tmp_path / "." / "b.txt") == ["b.txt", "a.txt"]


def test_folders_that_contain_themselves_end(tmp_path: Path) -> None:
    made(tmp_path, "a.txt")
    (tmp_path / "again").symlink_to(tmp_path)
    (tmp_path / "gone.txt").symlink_to(tmp_path / "nowhere.txt")
    assert found(tmp_path) == ["a.txt"]


def test_a_dash_is_standard_input() -> None:
    assert [source.path for source in find(["-"])] == [STANDARD_INPUT]


def test_packed_files_come_out_as_they_went_in(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    text = b"One sentence.\nAnother one.\n" * 100_000
    (tmp_path / "a.txt").write_bytes(text)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(text[:1_000_000], 1) + gzip.compress(text[1_000_000:], 1))
    (tmp_path / "c.txt.xz").write_bytes(lzma.compress(text, preset=0))
    with arrow.CompressedOutputStream(str(tmp_path / "d.txt.zst"), "zstd") as stream:
        stream.write(text)
    for source in find([str(tmp_path)]):
        reached: list[int] = []
        assert b"".join(source.blocks(reached.append)) == text
        assert reached == sorted(reached)
        assert reached[-1] == source.size


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("corpus.text", "corpus.text: does not exist. Did you mean 'corpus.txt'?"),
        ("nothing/like/it.txt", "nothing/like/it.txt: does not exist."),
        ("*.csv", "*.csv: matches no text file. Known: .txt .jsonl .parquet, and .txt or .jsonl followed by"),
        ("notes.md", "notes.md: has the unknown ending '.md'. Known: .txt .jsonl .parquet, and"),
        ("bare", "bare: has the unknown ending ''. Known: "),
        ("rows.parquet.gz", "rows.parquet.gz: has the unknown ending '.gz'. Known: "),
        ("empty", "empty: is a folder without text files. Known: .txt"),
        ("a\0b.txt", "a\0b.txt: does not exist."),
        ("x" * 5000, "x: cannot be read (File name too long)."),
    ],
)
def test_what_cannot_be_found_is_one_line(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, "corpus.txt", "notes.md", "bare", "rows.parquet.gz", "empty/readme.md")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TextError) as caught:
        find([name])
    told = str(caught.value).replace("x" * 5000, "x")
    assert told.startswith(message)
    assert "\n" not in told


def test_no_name_at_all_is_one_line() -> None:
    with pytest.raises(TextError, match=r"^text: no file is named\. Name files, folders or globs, or - for stand"):
        find([])


def test_a_folder_that_may_not_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(TextError, match=r": cannot be read \(Permission denied\)\.$"):
        find([str(tmp_path)])


def test_without_pyarrow_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    made(tmp_path, "a.txt.zst")
    with pytest.raises(TextError, match=r"a\.txt\.zst: needs pyarrow\. Install it with: pip install 'bertsmith\[parq"):
        unpacked(find([str(tmp_path)])[0])
