"""CIFAR-10's binary files: a byte for the class, then 32 x 32 pixels as planes of red, green and blue; Krizhevsky 2009.

The dataset is also published as Python's pickles, which run code when they are read: those are refused.
"""

from pathlib import Path

import numpy as np

from bertsmith.data.images.bad_images import UNKNOWN, BadImages
from bertsmith.data.images.binary import bare_name, find_file, read_bytes
from bertsmith.data.images.labelled_images import LabelledImages, from_array
from bertsmith.errors import TextError

SIDE, CHANNELS = 32, 3
RECORD = 1 + CHANNELS * SIDE * SIDE
CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
PARTS = {"train": [f"data_batch_{number}" for number in range(1, 6)], "test": ["test_batch"]}
SUBSETS = {"train": "train-subset", "test": "test-subset"}
FOLDERS = ("cifar-10-batches-bin", "cifar-10-batches-py")  # that the published archives hold
CIFAR_100_RECORD = 2 + CHANNELS * SIDE * SIDE  # a coarse and a fine class
PICKLE = b"\x80"  # the first byte of every pickle since Python 2.3
CIFAR_100 = "Get CIFAR-10, or write the images into a folder for each class"
BINARY = "Get the binary version, cifar-10-binary.tar.gz"


def find_files(folder: Path, part: str) -> list[Path]:
    """The files of a part, `train` or `test`, in a folder; none where it is no folder of CIFAR-10."""
    names = PARTS.get(part, [])
    found = [path for name in names if (path := find_file(folder, name + ".bin"))]
    if not found and (pickled := next((folder / name for name in names if (folder / name).is_file()), None)):
        with pickled.open("rb") as file:
            _refuse_pickle(pickled, file.read(1))
    if found and len(found) < len(names):
        raise TextError(folder, f"holds {len(found)} of the {len(names)} files of CIFAR-10", "Get the others")
    if found or (subset := find_file(folder, SUBSETS.get(part, part) + ".bin")) is None:
        return found or _find_below(folder, part)
    return [subset]


def _find_below(folder: Path, part: str) -> list[Path]:
    """The files in the folder of a published archive; those of CIFAR-100 are refused."""
    if (whole := folder / "train.bin").is_file():
        _refuse_cifar_100(whole, whole.stat().st_size)
    inner = next((folder / name for name in FOLDERS if (folder / name).is_dir()), None)
    return find_files(inner, part) if inner else []


def is_binary(path: Path) -> bool:
    """Whether a file has the ending of CIFAR's binary version, or the name of a pickled one, which `read` refuses."""
    return bare_name(path).endswith(".bin") or any(path.name in names for names in PARTS.values())


def read(paths: list[Path], bad: BadImages) -> LabelledImages:
    """The images of all files, in their order."""
    parts, locations = list[np.ndarray](), list[str]()
    for path in paths:
        data = read_bytes(path)
        _refuse_pickle(path, data[:1], len(data) % RECORD != 0)
        _refuse_cifar_100(path, len(data))
        if not data or len(data) % RECORD:
            fact = f"holds {len(data):,} bytes, which is not a number of records of {RECORD:,}"
            raise TextError(path, fact, "Get the file again")
        records = np.frombuffer(data, np.uint8).reshape(-1, RECORD)
        known = records[:, 0] < len(CLASSES)
        for number in np.flatnonzero(~known).tolist():
            bad.drop(UNKNOWN, f"{path}:{number}", f"has the class {records[number, 0]}, above {len(CLASSES) - 1}")
        parts.append(records[known])
        locations += [f"{path}:{number}" for number in np.flatnonzero(known).tolist()]
    records = np.concatenate(parts)
    pixels = np.ascontiguousarray(records[:, 1:]).reshape(-1, CHANNELS, SIDE, SIDE)
    return from_array(pixels, records[:, 0].astype(np.int64), CLASSES, locations, bad)


def _refuse_cifar_100(path: Path, size: int) -> None:
    if size % RECORD and not size % CIFAR_100_RECORD:
        raise TextError(path, "is of CIFAR-100, which is not read", CIFAR_100)


def _refuse_pickle(path: Path, first: bytes, odd: bool = True) -> None:
    if first == PICKLE and odd:
        raise TextError(path, "is pickled, and could run code when it is read", BINARY)
