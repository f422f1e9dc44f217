"""Files of a model folder: plain ones, of bounded size, and never one outside of it."""

from pathlib import Path

from bertsmith.errors import FolderError


def inside(folder: Path, name: str, within: str = "") -> Path:
    """A plain file of the folder, or of one in it. A link may lead beside it, or to the blobs of the Hub's cache."""
    path, home = folder / within / name, folder.resolve()
    try:
        real = path.resolve()
        plainly = Path(name).name == name and Path(within).name == within and (name + within).isprintable()
        beside = plainly and real.parent in (home / within, home.parent.parent / "blobs")
        plain, there = real.is_file(), real.exists()
    except (OSError, ValueError, RuntimeError):
        beside = plain = there = False
    if not beside:
        raise FolderError(folder, f"the file {shown(name)} leads out of the folder", "Put it inside")
    if not plain:
        raise FolderError(path, "is not a plain file" if there else "is missing")
    return path


def bounded(path: Path, most: int) -> Path:
    """The same path, if what is there has at most so many bytes."""
    if path.stat().st_size > most:
        raise FolderError(path, f"is larger than {most >> 20} MiB")
    return path


def shown(value: object) -> str:
    """A value from a file, short enough for one line."""
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."
