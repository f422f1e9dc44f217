"""`serve`: models over HTTP, with the checks that come before anything is started."""

import asyncio
import ipaddress
import os
import socket
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bertsmith.errors import FolderError, RunError

NEEDED = ("uvicorn", "httptools", "uvloop", "msgspec")
KEY_VARIABLE = "BERTSMITH_KEY"
MIN_KEY = 8  # characters


def serve(
    folders: Sequence[str],
    *,
    host: str,
    port: int,
    fronts: int | None,
    key: str | None,
    key_file: Path | None,
    limits: dict[str, int],
    **how: Any,
) -> None:
    """Serve model folders until SIGTERM or Ctrl-C. `limits` are fields of `Limits`, `how` of `Settings`."""
    if os.name == "nt":
        raise RunError("serve", "does not run on Windows", "Use Linux, macOS or WSL")
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise RunError("serve", f"needs {missing[0]}", "Install it with: pip install 'bertsmith[serve]'")
    from bertsmith.serving.settings import Limits, Settings, default_fronts
    from bertsmith.serving.supervisor import Supervisor

    models, secret = named(folders), read_key(key, key_file)
    if not secret and not is_loopback(host):
        remedy = f"Give one with --key-file or {KEY_VARIABLE}, or listen on 127.0.0.1"
        raise RunError(f"host {host}", "can be reached from other machines, and there is no key", remedy)
    settings = Settings(
        models=models,
        host=host,
        port=port,
        fronts=fronts or default_fronts(),
        key=secret,
        limits=Limits(**limits),
        **how,
    )
    asyncio.run(Supervisor(settings).run())


def read_key(key: str | None, key_file: Path | None) -> str:
    """The key of an option, of a file, or of the environment; empty if there is none."""
    if key_file is not None:
        try:
            key = key_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(key_file, "the key cannot be read from it", "Write the key into it as one line") from error
    key = os.environ.get(KEY_VARIABLE) if key is None else key
    if key is None:
        return ""
    if len(key) < MIN_KEY or not key.isascii() or not key.isprintable() or " " in key:
        fact = f"has fewer than {MIN_KEY} characters" if len(key) < MIN_KEY else "has a blank or a special character"
        raise RunError("key", fact, "Make one with: openssl rand -hex 32")
    return key


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to an address or name."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except OSError as error:
        raise RunError(f"host {host}", "is not known here", "Give an address of this machine") from error
    return all(ipaddress.ip_address(one[4][0]).is_loopback for one in found)


def named(folders: Sequence[str]) -> dict[str, str]:
    """Folders by the names of their models: NAME=FOLDER, or the name of the folder, or of the run that it is in."""
    found: dict[str, str] = {}
    for given in folders:
        name, equals, path = ("", "", given) if Path(given).is_dir() else given.partition("=")
        folder = Path(path if equals or not name else given)
        resolved = folder.resolve()
        name = name or (resolved.parent.name if resolved.name == "model" else resolved.name)
        if not folder.is_dir():
            raise FolderError(folder, "is no folder", "Give the path of a model folder")
        if name in found:
            raise FolderError(folder, f"there is another model '{name}'", f"Give it a name: other={folder}")
        found[name] = str(folder)
    return found
