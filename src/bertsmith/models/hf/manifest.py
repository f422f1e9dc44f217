"""The manifest of a model folder: sizes and SHA-256 hashes of its files, in MANIFEST.json, which other tools ignore.

A flipped bit in a file of weights would load silently as another number. So every folder written here lists the hashes
of its files, and is read only if they match. The model card is not hashed and may be edited.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from bertsmith import files
from bertsmith.errors import FolderError
from bertsmith.files import check_size, file_inside

MANIFEST, FORMAT, VERSION = "MANIFEST.json", "bertsmith-model", 2
OLDER = (1,)  # versions with other names of weights and settings
UNHASHED = ("README.md", MANIFEST)
MAX_BYTES = 1 << 20  # of a manifest
THREADS = 4  # files that are hashed at the same time
DAMAGED_REMEDY = f"Fetch it again; or, if you changed it on purpose, delete {MANIFEST}"


def write(folder: Path) -> None:
    """Hash all files of a finished folder and its subfolders."""
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    digests = {str(path): asdict(files.digest(folder / path)) for path in paths if str(path) not in UNHASHED}
    files.write_json(folder / MANIFEST, {"format": FORMAT, "version": VERSION, "files": digests})


def verify(folder: Path) -> None:
    """Refuse a folder with a file that differs from its manifest; a folder without a manifest is not checked."""
    if not (folder / MANIFEST).exists():
        return
    manifest = files.read_json(check_size(file_inside(folder, MANIFEST), MAX_BYTES))
    digests = manifest.get("files")
    if manifest.get("format") == FORMAT and manifest.get("version") in OLDER:
        fact = f"was written by an older bertsmith (this one reads version {VERSION} of its format)"
        raise FolderError(folder / MANIFEST, fact, "Export the model anew")
    if manifest.get("format") != FORMAT or manifest.get("version") != VERSION or not isinstance(digests, dict):
        fact = f"is no list of hashes in version {VERSION} of its format"
        raise FolderError(folder / MANIFEST, fact, "Delete it to open the folder unchecked")
    with ThreadPoolExecutor(THREADS) as threads:
        for check in [threads.submit(_check, folder, name, digest) for name, digest in sorted(digests.items())]:
            check.result()


def _check(folder: Path, name: str, digest: object) -> None:
    subfolder, _, file = name.rpartition("/")
    path = file_inside(folder, file, subfolder)
    size, sha256 = (digest.get(key) for key in ("size", "sha256")) if isinstance(digest, dict) else (None, None)
    if path.stat().st_size != size:
        raise FolderError(path, f"has {path.stat().st_size} bytes, not the {size} it was written with", DAMAGED_REMEDY)
    if files.digest(path).sha256 != sha256:
        raise FolderError(path, "is damaged: its SHA-256 is not the one it was written with", DAMAGED_REMEDY)
