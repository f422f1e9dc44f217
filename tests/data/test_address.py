"""Addresses: which names are one, what they list, and errors of any library in one line."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from fsspec.utils import infer_storage_options

from bertsmith.data.address import Address, is_address
from bertsmith.errors import RunError, TextError


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("s3://bucket/a", True),
        (Path("s3://bucket/a"), True),
        ("https://host/a.txt", True),
        ("C:/texts", False),
        ("texts/a.txt", False),
        ("-", False),
        ("note: a/b", False),
        ("s3:", False),
    ],
)
def test_an_address_begins_with_a_protocol(name: object, expected: bool) -> None:
    assert is_address(name) is expected


def test_a_folder_here_goes_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "s3:" / "bucket").mkdir(parents=True)
    assert not is_address("s3://bucket")


def test_a_path_that_joined_two_slashes_is_the_same_address(memory: Any) -> None:
    assert str(Address(Path("memory://a/b"))) == "memory://a/b"
    assert Address("memory://a/") == Address("memory://a")
    assert len({Address("memory://a/b"), Address("memory://a") / "b"}) == 1


def test_a_folder_lists_its_files_with_their_sizes(memory: Any) -> None:
    memory.pipe_file("/texts/b.txt.gz", b"12345")
    memory.pipe_file("/texts/deep/a.txt", b"1")
    folder = Address("memory://texts")
    file, deep = sorted(folder.iterdir())
    assert (file.name, file.suffixes, file.suffix, file.stat().st_size) == ("b.txt.gz", [".txt", ".gz"], ".gz", 5)
    assert [found.is_dir() for found in (folder, deep, file)] == [True, True, False]
    assert [found.is_file() for found in (folder, deep, file)] == [False, False, True]
    assert [str(found) for found in Address("memory://texts/**/*.txt").glob()] == ["memory://texts/deep/a.txt"]
    assert b"".join(file.pieces()) == file.read_bytes() == b"12345"
    file.delete()
    assert not Address("memory://texts/b.txt.gz").exists()
    file.delete()  # there is none any longer


class Depot(MemoryFileSystem):
    """Files on hosts, which addresses name and paths do not, as with sftp, ftp, smb and hdfs."""

    protocol = "depot"
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs = [""]  # noqa: RUF012

    def __init__(self, host: str = "", **options: Any) -> None:
        super().__init__(**options)
        self.host = host

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        return str(infer_storage_options(path)["path"]).rstrip("/")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        return {"host": infer_storage_options(path).get("host", "")}


@pytest.fixture
def depot(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A protocol of files on hosts, and two files."""
    monkeypatch.setitem(sys.modules["fsspec.registry"]._registry, "depot", Depot)
    Depot().pipe_file("/data/a.txt", b"1")
    Depot().pipe_file("/data/deep/b.txt", b"2")
    yield
    Depot.store.clear()


@pytest.mark.parametrize("root", ["depot://host:22", "depot://me@host"])
def test_files_on_a_host_are_listed_with_it(root: str, depot: None) -> None:
    file, deep = sorted(Address(f"{root}/data").iterdir())
    (deepest,) = deep.iterdir()
    (data,) = Address(f"{root}/").iterdir()
    (found,) = Address(f"{root}/*/*.txt").glob()
    assert [str(one) for one in (file, deep, deepest)] == [
        f"{root}/data/{name}" for name in ("a.txt", "deep", "deep/b.txt")
    ]
    assert (str(data), str(found)) == (f"{root}/data", str(file))
    for one in (file, found, Address(str(file))):
        assert (one.read_bytes(), one._files.host) == (b"1", "host")
    assert (deep / "b.txt").read_bytes() == deepest.read_bytes() == b"2"


def test_an_address_without_a_host_keeps_its_three_slashes(tmp_path: Path, depot: None) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.txt").write_bytes(b"1")
    for name in (f"file://{tmp_path}", Path(f"file://{tmp_path}")):  # a Path makes one slash of three
        (deep,) = Address(name).iterdir()
        (file,) = deep.iterdir()
        assert (str(file), file.read_bytes()) == (f"file://{tmp_path}/deep/a.txt", b"1")
    nowhere = Address("depot:///data/a.txt")
    assert (str(nowhere), nowhere._files.host, nowhere.read_bytes()) == ("depot:///data/a.txt", "", b"1")


def test_a_file_address_with_a_host_is_refused() -> None:
    with pytest.raises(RunError) as caught:
        Address("file://texts/a.txt")
    assert str(caught.value) == "file://texts/a.txt: names a host, not a folder. Write file:///home/me/texts."


def test_a_page_is_a_file_unless_it_ends_with_a_slash() -> None:
    pytest.importorskip("aiohttp", reason="aiohttp is not installed")
    assert not Address("https://host/a.txt?b=1").is_dir()
    assert Address("https://host/a/").is_dir()
    assert Address("https://host/a.txt?b=1").name == "a.txt"


@pytest.mark.parametrize(
    ("name", "blocked", "line"),
    [
        (
            "s3://bucket/a",
            "s3fs",
            "s3://bucket/a: needs the package for s3://. Install it with: pip install 'bertsmith[s3]'.",
        ),
        ("gs://bucket/a", "gcsfs", "gs://bucket/a: needs the package for gs://. Install it with: pip install gcsfs."),
        ("nope://a", "", "nope://a: is of an unknown kind, nope://. Known: s3 gs hf https and others."),
    ],
)
def test_a_missing_package_is_one_line(name: str, blocked: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, blocked, None)
    registry = sys.modules["fsspec.registry"]._registry  # of those that were imported before
    monkeypatch.delitem(registry, name.partition(":")[0], raising=False)
    with pytest.raises(RunError) as caught:
        Address(name)
    assert str(caught.value) == line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (FileNotFoundError("a"), "does not exist. Check the address."),
        (PermissionError("Access Denied\n..."), "may not be used (Access Denied). Check your credentials."),
        (
            KeyError("Unable to locate credentials"),
            "cannot be reached ('Unable to locate credentials'). Check the address, the network and your credentials.",
        ),
        (TextError("a.txt", "is bad"), "a.txt: is bad."),
    ],
)
def test_an_error_of_a_library_is_one_line(
    memory: Any, error: Exception, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any, **options: Any) -> None:
        raise error

    address = Address("memory://a.txt")
    monkeypatch.setattr(address._files, "info", fail, raising=False)
    with pytest.raises((RunError, TextError)) as caught:
        address.stat()
    assert str(caught.value).removeprefix("memory://a.txt: ") == line
