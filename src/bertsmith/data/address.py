"""Addresses of fsspec: files and folders in an object store or on the web, such as s3://bucket/texts.

An address has what reading and writing need of a Path. Data are streamed through a buffer of a few megabytes.
Credentials are those of the protocol's own library: environment variables and configuration files.
"""

import lzma
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from bertsmith.errors import BertsmithError, RunError
from bertsmith.files import ADDRESS

BUFFER_BYTES = 1 << 23  # bytes that are fetched at a time
COPIED_BYTES = 1 << 20  # bytes of a file that are copied at a time
NO_HOST = ("file", "local")  # protocols whose addresses have three slashes: the host between them is empty
BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "r2"}  # stores without folders
PACKAGES = {  # that a protocol needs, by pip
    "s3": "'bertsmith[s3]'",
    "gs": "gcsfs",
    "hf": "huggingface_hub",
    "http": "aiohttp requests",
    "https": "aiohttp requests",
    "az": "adlfs",
}
VERSIONS = ("ETag", "etag", "md5Hash", "blob_id", "LastModified", "last_modified", "mtime", "created")
READING_ERRORS = (BertsmithError, EOFError, MemoryError, OSError, lzma.LZMAError, zlib.error)  # explained elsewhere


def is_address(name: object) -> bool:
    """Whether a name stands for files elsewhere; a folder here of the same name goes before."""
    return ADDRESS.match(str(name)) is not None and not Path(str(name)).exists()


class Address:
    """A file or folder at an address."""

    def __init__(
        self, name: object, filesystem: Any = None, info: dict[str, Any] | None = None, path: str | None = None
    ) -> None:
        self._text = ADDRESS.sub(_with_slashes, str(name), count=1)
        self.protocol = self._text.partition("://")[0]
        if self.protocol in NO_HOST and not self._text.startswith(f"{self.protocol}:///"):
            raise RunError(name, "names a host, not a folder", f"Write {self.protocol}:///home/me/texts")
        self._web = self.protocol in ("http", "https")  # no folders, but pages that end with a slash
        if not self._web:
            self._text = self._text.rstrip("/")
        self._files = filesystem or _filesystem(self._text, self.protocol)
        self._path: str = self._files._strip_protocol(self._text) if path is None else path
        self._known = info  # by the listing of its folder, which saves a request for each file

    def __str__(self) -> str:
        return self._text

    def __fspath__(self) -> str:
        return self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Address) and str(self) == str(other)

    def __lt__(self, other: "Address") -> bool:
        return str(self) < str(other)

    def __truediv__(self, name: str | PurePosixPath) -> "Address":
        return Address(f"{self._text.rstrip('/')}/{name}", self._files)

    @property
    def name(self) -> str:
        return PurePosixPath(urlsplit(self._text).path if self._web else self._text).name

    @property
    def suffixes(self) -> list[str]:
        return PurePosixPath(self.name).suffixes

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.name).suffix

    def resolve(self) -> "Address":
        return self

    def is_symlink(self) -> bool:
        return False

    def exists(self) -> bool:
        with self._explained():
            return self._known is not None or bool(self._files.exists(self._path))

    def is_dir(self) -> bool:
        if self._web:
            return self._text.endswith("/")
        if self._known is not None:
            return bool(self._known["type"] == "directory")
        with self._explained():
            return bool(self._files.isdir(self._path))

    def is_file(self) -> bool:
        return self.exists() and not self.is_dir()

    def iterdir(self) -> Iterator["Address"]:
        """The files and folders in a folder, as they are now."""
        with self._explained():
            self._files.invalidate_cache()
            listed = self._files.ls(self._path, detail=True)
        for info in listed:
            if info["name"].rstrip("/") != self._path.rstrip("/"):  # a folder may list itself
                yield self._at(info["name"], info)

    def glob(self) -> list["Address"]:
        """The files that this address matches as a pattern."""
        with self._explained():
            found = self._files.glob(self._path, detail=True)
        return [self._at(name, info) for name, info in sorted(found.items())]

    def stat(self) -> Any:
        """Its size, as `st_size`: 0 where the server does not say."""
        return SimpleNamespace(st_size=int(self._info().get("size") or 0))

    def version(self) -> str:
        """A hash or a time that changes with the content; empty where the server gives none."""
        info = self._info()
        return next((str(info[key]) for key in VERSIONS if info.get(key)), "")

    @contextmanager
    def open(self, mode: str = "rb") -> Iterator[Any]:
        """The file as a stream that can also seek, where the server allows it."""
        with self._explained(READING_ERRORS), self._files.open(self._path, mode, block_size=BUFFER_BYTES) as file:
            yield file

    def read_bytes(self) -> bytes:
        return b"".join(self.pieces())

    def pieces(self) -> Iterator[bytes]:
        """The content, piece by piece."""
        with self._explained(), self._files.open(self._path, "rb", block_size=BUFFER_BYTES) as file:
            while piece := file.read(COPIED_BYTES):
                yield piece

    def upload(self, path: Path) -> None:
        """Make this the copy of a file of this machine."""
        with self._explained():
            try:
                self._files.put_file(os.fspath(path), self._path)
            except FileNotFoundError:
                if self.protocol not in BUCKETS:
                    raise
                bucket = f"{self.protocol}://{urlsplit(self._text).netloc}"
                raise RunError(bucket, "there is no such bucket", "Check its name, or create it") from None
            self._files.invalidate_cache()

    def make_folder(self) -> None:
        """Make a folder, where files need one. A store of buckets has none, and would create a misspelt bucket."""
        if self.protocol in BUCKETS:
            return
        with self._explained():
            self._files.makedirs(self._path, exist_ok=True)

    def delete(self) -> None:
        """Delete a file, or a folder with its files; nothing if there is none."""
        with self._explained():
            if self._files.exists(self._path):
                self._files.rm(self._path, recursive=True)
                self._files.invalidate_cache()

    def _at(self, path: str, info: dict[str, Any]) -> "Address":
        """A file that is listed or found by this path of the file system, which has no host in it as addresses have."""
        if "://" in path:
            return Address(path, self._files, info)
        own, path = self._path.rstrip("/"), path.rstrip("/")
        after_host = self._text.endswith(own)
        text = self._text.removesuffix(own) + path if after_host else self._files.unstrip_protocol(path)
        return Address(text, self._files, info, path)

    def _info(self) -> dict[str, Any]:
        if self._known is None:
            with self._explained():
                self._known = dict(self._files.info(self._path))
        return self._known

    @contextmanager
    def _explained(self, passed: tuple[type[BaseException], ...] = (BertsmithError,)) -> Iterator[None]:
        """Turn errors of the protocol's library into one line."""
        try:
            yield
        except passed:
            raise
        except FileNotFoundError:
            raise RunError(self, "does not exist", "Check the address") from None
        except PermissionError as error:
            raise RunError(self, f"may not be used ({_line(error)})", "Check your credentials") from None
        except Exception as error:  # each library has errors of its own
            fact = f"cannot be reached ({_line(error)})"
            raise RunError(self, fact, "Check the address, the network and your credentials") from None


def _filesystem(text: str, protocol: str) -> Any:
    """The file system of a protocol, whose library may not be installed."""
    try:
        from fsspec.core import url_to_fs
    except ImportError:
        raise RunError(text, "needs fsspec", "Install it with: pip install fsspec") from None
    try:
        return url_to_fs(text)[0]
    except ImportError as error:
        package = PACKAGES.get(protocol)
        remedy = f"Install it with: pip install {package}" if package else f"{_line(error)}"
        raise RunError(text, f"needs the package for {protocol}://", remedy) from None
    except ValueError:
        raise RunError(text, f"is of an unknown kind, {protocol}://", "Known: s3 gs hf https and others") from None


def _with_slashes(found: re.Match[str]) -> str:
    protocol, slashes = found[1].lower(), found[2]
    if protocol in BUCKETS:  # the bucket is where others have a host
        slashes = "//"
    elif slashes == "/":
        slashes = "///" if protocol in NO_HOST else "//"
    return f"{found[1]}:{slashes}"


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".") if lines else type(error).__name__
