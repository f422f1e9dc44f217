"""Names on the command line become files, in a fixed order, or one clear line."""

import gzip
import lzma
import shutil
import tracemalloc
from collections import Counter
from pathlib import Path

import pytest

from bertsmith.data.corpus import decompression, sources
from bertsmith.data.corpus.folders import Skipped, skipped_summary
from bertsmith.data.corpus.sources import STANDARD_INPUT, Source, find_sources
from bertsmith.data.labelled import sources as labelled
from bertsmith.errors import TextError


def made(folder: Path, *names: str) -> Path:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("A line.\n")
    return folder


def found(*names: object) -> list[str]:
    return [source.path.name for source in find_sources([str(name) for name in names])]


def unpacked(source: Source) -> bytes:
    return b"".join(source.blocks(lambda _: None))


def test_a_folder_gives_its_text_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    made(tmp_path, "b.txt", "a/z.jsonl", "a/.hidden.txt", "notes.md", ".git/c.txt", "c.TXT.GZ", "d.parquet", "e.py")
    assert found(tmp_path) == ["z.jsonl", "b.txt", "c.TXT.GZ", "d.parquet", "notes.md"]


def test_a_glob_gives_its_matches_except_files_that_are_no_text(tmp_path: Path) -> None:
    made(tmp_path, "one.txt", "two.txt", "three.md", "deep/four.txt", "deep/five.py", "six.py")
    (tmp_path / "seven.png").write_bytes(b"\x89PNG\0\0")
    assert found(tmp_path / "*") == ["four.txt", "one.txt", "six.py", "three.md", "two.txt"]
    assert found(tmp_path / "**" / "f*.txt") == ["four.txt"]
    assert found(tmp_path / "**" / "*.py") == ["five.py", "six.py"]


def test_skipped_files_of_a_folder_are_counted_with_the_reason(tmp_path: Path) -> None:
    made(tmp_path, "a.txt", "b.py", "deep/c.py", "Makefile")
    for name in ("x.png", "y.bin", "z.bin"):
        (tmp_path / name).write_bytes(b"\0\1\2")
    skipped: Skipped = Counter()
    assert [source.path.name for source in find_sources([str(tmp_path)], skipped=skipped)] == ["a.txt"]
    assert skipped_summary(skipped) == (
        "skipped: 2 .bin (not text), 2 .py (not a text format: add --as text), "
        "1 without an ending (not a text format: add --as text), 1 .png (not text)"
    )
    skipped.clear()
    every = find_sources([str(tmp_path)], plain=True, skipped=skipped)
    assert [source.path.name for source in every] == ["Makefile", "a.txt", "b.py", "c.py"]
    assert {source.kind for source in every} == {".txt"}
    assert skipped_summary(skipped) == "skipped: 2 .bin (not text), 1 .png (not text)"
    many: Skipped = Counter({(f".x{number}", "not text"): number + 1 for number in range(9)})
    assert skipped_summary(many).endswith("4 .x3 (not text), 6 others")
    assert skipped_summary(Counter()) == ""


def test_a_named_file_is_read_as_text_whatever_its_ending_unless_it_is_binary(tmp_path: Path) -> None:
    made(tmp_path, "code.rs", "bare", "rows.log")
    for name in ("code.rs", "bare", "rows.log"):
        (source,) = find_sources([str(tmp_path / name)])
        assert (source.kind, unpacked(source)) == (".txt", b"A line.\n")
    (tmp_path / "picture.png").write_bytes(b"\x89PNG\0\0")
    with pytest.raises(TextError, match=r"picture\.png: is not text, but binary data\. Give it text\.$"):
        unpacked(find_sources([str(tmp_path / "picture.png")])[0])
    (tmp_path / "windows.log").write_bytes("two bytes a character".encode("utf-16"))
    assert unpacked(find_sources([str(tmp_path / "windows.log")])[0])


@pytest.mark.parametrize("name", ["a.tar", "a.tar.xz", "a.tgz", "a.zip"])
def test_an_archive_is_to_be_unpacked(name: str, tmp_path: Path) -> None:
    made(tmp_path, "a.txt")
    shutil.make_archive(
        str(tmp_path / "a"),
        {".tar": "tar", ".xz": "xztar", ".tgz": "gztar", ".zip": "zip"}[Path(name).suffix],
        tmp_path,
        "a.txt",
    )
    if name == "a.tgz":
        (tmp_path / "a.tar.gz").rename(tmp_path / name)
    remedy = r"Unpack it, and give the files in it\.$"
    with pytest.raises(TextError, match=rf"{name}: is not text, but an archive\. {remedy}"):
        unpacked(find_sources([str(tmp_path / name)])[0])
    with pytest.raises(TextError, match=rf"{name}: is an archive\. {remedy}"):
        labelled.find_source(tmp_path / name)
    skipped: Skipped = Counter()
    assert [source.path.name for source in find_sources([str(tmp_path)], skipped=skipped)] == ["a.txt"]
    assert "(an archive: unpack it)" in skipped_summary(skipped)


def test_documents_in_a_folder_are_left_out_without_the_library(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, "a.txt", "b.pdf", "c.docx")
    monkeypatch.setattr(sources, "find_spec", lambda name: None)
    skipped: Skipped = Counter()
    assert [source.path.name for source in find_sources([str(tmp_path)], skipped=skipped)] == ["a.txt"]
    remedy = "needs: pip install 'bertsmith[documents]'"
    assert skipped_summary(skipped) == f"skipped: 1 .docx ({remedy}), 1 .pdf ({remedy})"


@pytest.mark.slow
@pytest.mark.parametrize("packing", [".gz", ".xz"])
def test_a_file_that_unpacks_to_far_more_than_text_does_is_refused_before_memory_is_full(
    packing: str, tmp_path: Path
) -> None:
    pack = gzip.compress if packing == ".gz" else lzma.compress
    path = tmp_path / f"bomb.txt{packing}"
    path.write_bytes(pack(b"a" * (decompression.MAX_DECOMPRESSED_BYTES + (1 << 22))))
    tracemalloc.start()
    with pytest.raises(
        TextError, match=r"unpacks to more than 100 times its size\. Unpack it yourself if you trust it"
    ):
        for _ in find_sources([str(path)])[0].blocks(lambda _: None):
            pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1 << 24


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
    assert [source.path for source in find_sources(["-"])] == [STANDARD_INPUT]


def test_packed_files_come_out_as_they_went_in(tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    text = b"One sentence.\nAnother one.\n" * 100_000
    (tmp_path / "a.txt").write_bytes(text)
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(text[:1_000_000], 1) + gzip.compress(text[1_000_000:], 1))
    (tmp_path / "c.txt.xz").write_bytes(lzma.compress(text, preset=0))
    with arrow.CompressedOutputStream(str(tmp_path / "d.txt.zst"), "zstd") as stream:
        stream.write(text)
    for source in find_sources([str(tmp_path)]):
        reached: list[int] = []
        assert b"".join(source.blocks(reached.append)) == text
        assert reached == sorted(reached)
        assert reached[-1] == source.size


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("corpus.text", "corpus.text: does not exist. Did you mean 'corpus.txt'?"),
        ("nothing/like/it.txt", "nothing/like/it.txt: does not exist."),
        ("", "texts: one name is empty. Give files or folders; is a variable of the shell not set?"),
        ("*.csv", "*.csv: matches no text file. Known: .txt .md .rst .html .csv .tsv .jsonl .parquet .pdf .docx, most"),
        ("empty", "empty: is a folder without text files. Known: .txt"),
        ("code", "code: is a folder without text files. Skipped: 1 .py (not a text format: add --as text)."),
        ("a\0b.txt", "a\0b.txt: does not exist."),
        ("x" * 5000, "x: cannot be read (File name too long)."),
    ],
)
def test_a_missing_file_is_refused_in_one_line(
    name: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path, "corpus.txt", "code/run.py")
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TextError) as caught:
        find_sources([name])
    line = str(caught.value).replace("x" * 5000, "x")
    assert line.startswith(message)
    assert "\n" not in line


def test_no_name_at_all_is_one_line() -> None:
    with pytest.raises(TextError, match=r"^text: no file is named\. Name files, folders or globs, or - for stand"):
        find_sources([])


def test_a_folder_that_may_not_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(TextError, match=r": cannot be read \(Permission denied\)\.$"):
        find_sources([str(tmp_path)])


def test_without_pyarrow_the_remedy_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    made(tmp_path, "a.txt.zst")
    with pytest.raises(TextError, match=r"a\.txt\.zst: needs pyarrow\. Install it with: pip install 'bertsmith\[parq"):
        unpacked(find_sources([str(tmp_path)])[0])


def test_linked_folders_are_read_once(tmp_path: Path) -> None:
    elsewhere, texts = tmp_path / "elsewhere", tmp_path / "texts"
    for folder, name in ((elsewhere, "wiki.txt"), (texts, "a.txt")):
        folder.mkdir()
        made(folder, name)
    for link in ("wiki", "wiki again"):
        (texts / link).symlink_to(elsewhere)
    (elsewhere / "back").symlink_to(texts)
    assert found(texts) == ["a.txt", "wiki.txt"]


@pytest.mark.parametrize(
    "files", [("recipe.toml", "log.jsonl"), ("tokenizer.json", "vocab.txt"), ("config.json", "model.safetensors")]
)
def test_models_and_runs_in_a_folder_are_no_text(files: tuple[str, ...], tmp_path: Path) -> None:
    made(tmp_path, "a.txt")
    run = tmp_path / "model"
    run.mkdir()
    for name in (*files, "README.md"):
        (run / name).write_text("{}\n")
    skipped: Skipped = Counter()
    assert [source.path.name for source in find_sources([str(tmp_path)], skipped=skipped)] == ["a.txt"]
    assert skipped_summary(skipped) == "skipped: 1 folder (a model or a run)"


def test_an_empty_table_in_a_folder_is_counted_and_ends_nothing(tmp_path: Path) -> None:
    made(tmp_path, "a.txt")
    (tmp_path / "export.csv").touch()
    skipped: Skipped = Counter()
    assert [source.path.name for source in find_sources([str(tmp_path)], skipped=skipped)] == ["a.txt"]
    assert skipped_summary(skipped) == "skipped: 1 .csv (empty)"
