"""The hashes of a model folder: MANIFEST.json, which tools that do not know it pass over.

One flipped bit in a file of weights loads silently, as any other number. So every folder that is written here names the
size and SHA-256 of its files, and is read only if they are still so. The model card may be edited at will.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from bertsmith import files
from bertsmith.errors import FolderError
from bertsmith.files import check_size, file_inside

MANIFEST, FORMAT, VERSION = "MANIFEST.json", "bertsmith-model", 2
OLDER = (1,)  # versions whose names of weights and settings are others
UNHASHED = ("README.md", MANIFEST)  # for people, and for itself
MAX_BYTES = 1 << 20  # bytes of a manifest
THREADS = 4  # files that are hashed side by side
REMEDY = f"Fetch it again; or, if you changed it on purpose, delete {MANIFEST}"


def write(folder: Path) -> None:
    """Hash all files of a folder that is whole, also of the folders in it."""
    named = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    listed = {str(path): asdict(files.digest(folder / path)) for path in named if str(path) not in UNHASHED}
    files.write_json(folder / MANIFEST, {"format": FORMAT, "version": VERSION, "files": listed})


def verify(folder: Path) -> None:
    """Refuse a folder of which a file is no longer as it was written; one without a manifest is believed."""
    if not (folder / MANIFEST).exists():
        return
    said = files.read_json(check_size(file_inside(folder, MANIFEST), MAX_BYTES))
    listed = said.get("files")
    if said.get("format") == FORMAT and said.get("version") in OLDER:
        fact = f"was written by an older bertsmith (this one reads version {VERSION} of its format)"
        raise FolderError(folder / MANIFEST, fact, "Export the model anew")
    if said.get("format") != FORMAT or said.get("version") != VERSION or not isinstance(listed, dict):
        fact = f"is no list of hashes in version {VERSION} of its format"
        raise FolderError(folder / MANIFEST, fact, "Delete it to open the folder unchecked")
    with ThreadPoolExecutor(THREADS) as crew:
        for found in [crew.submit(_check, folder, name, written) for name, written in sorted(listed.items())]:
            found.result()


def _check(folder: Path, name: str, written: object) -> None:
    within, _, last = name.rpartition("/")
    path = file_inside(folder, last, within)
    size, sha256 = (written.get(key) for key in ("size", "sha256")) if isinstance(written, dict) else (None, None)
    if path.stat().st_size != size:
        raise FolderError(path, f"has {path.stat().st_size} bytes, not the {size} it was written with", REMEDY)
    if files.digest(path).sha256 != sha256:
        raise FolderError(path, "is damaged: its SHA-256 is not the one it was written with", REMEDY)
