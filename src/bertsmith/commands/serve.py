"""`serve`: models over HTTP."""

import asyncio
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from bertsmith.errors import FolderError, RunError

NEEDED = ("uvicorn", "httptools", "uvloop", "msgspec")


def serve(folders: Sequence[str], *, host: str, port: int, fronts: int | None, device: str, precision: str) -> None:
    """Serve model folders until SIGTERM or Ctrl-C."""
    if missing := [name for name in NEEDED if find_spec(name) is None]:
        raise RunError("serve", f"needs {missing[0]}", "Install it with: pip install 'bertsmith[serve]'")
    from bertsmith.serving.settings import Limits, Settings, default_fronts
    from bertsmith.serving.supervisor import Supervisor

    settings = Settings(
        models=named(folders),
        host=host,
        port=port,
        fronts=fronts or default_fronts(),
        device=device,
        precision=precision,  # type: ignore[arg-type]
        limits=Limits(),
    )
    asyncio.run(Supervisor(settings).run())


def named(folders: Sequence[str]) -> dict[str, str]:
    """Folders by the names of their models: NAME=FOLDER, or the name of the folder, or of the run that it is in."""
    found: dict[str, str] = {}
    for given in folders:
        name, equals, path = given.partition("=")
        folder = Path(path if equals else given)
        resolved = folder.resolve()
        name = name if equals else resolved.parent.name if resolved.name == "model" else resolved.name
        if not folder.is_dir():
            raise FolderError(folder, "is no folder", "Give the path of a model folder")
        if name in found:
            raise FolderError(folder, f"there is another model '{name}'", f"Give it a name: other={folder}")
        found[name] = str(folder)
    return found
