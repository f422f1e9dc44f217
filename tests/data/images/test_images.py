"""Every published form of labelled images is read; bad images are counted and named, or refused at once."""

import gzip
import json
import lzma
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from bertsmith.data import workers as processes
from bertsmith.data.images import labelled_images
from bertsmith.data.images.bad_images import BROKEN, NO_FILE, NO_IMAGE, OUTSIDE, UNKNOWN, UNLABELLED
from bertsmith.data.images.decoding import DecodingConfig
from bertsmith.data.images.reader import read
from bertsmith.data.images.workers import Worker
from bertsmith.errors import BertsmithError

PIL = pytest.importorskip("PIL.Image", reason="Pillow is not installed here")
RANDOM = np.random.default_rng(0)


def save(path: Path, width: int = 4, height: int = 3, value: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    PIL.new("RGB", (width, height), (value, value, value)).save(path)
    return path


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(BertsmithError) as caught:
        read(path, **options)
    assert "\n" not in str(caught.value)
    return str(caught.value).replace(str(path), "PATH").replace(str(path.parent), "HOME")


def cifar(labels: list[int]) -> bytes:
    return b"".join(bytes([label]) + RANDOM.integers(0, 256, 3072, dtype=np.uint8).tobytes() for label in labels)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


@pytest.fixture
def pets(tmp_path: Path) -> Path:
    """Two classes of two images of several sizes, and files that are no images."""
    for number in range(2):
        save(tmp_path / "dog" / f"{number}.png", 4 + number, 3, number)
        save(tmp_path / "cat" / "more" / f"{number}.PNG", 2, 2, 10 + number)
    (tmp_path / "cat" / "notes.txt").write_text("not an image")
    (tmp_path / "cat" / ".hidden.png").write_text("not an image")
    return tmp_path


def test_a_folder_for_each_class(pets: Path) -> None:
    found = read(pets)
    assert (found.classes, found.labels.tolist(), found.dropped) == (("cat", "dog"), [0, 0, 1, 1], {})
    assert [tuple(image.shape) for image in found.images] == [(3, 2, 2), (3, 2, 2), (3, 3, 4), (3, 3, 5)]
    assert [int(image[0, 0, 0]) for image in found.images] == [10, 11, 0, 1]
    assert found.locations[0] == str(pets / "cat/more/0.PNG")


def test_bad_images_are_counted_and_named(pets: Path) -> None:
    (pets / "dog" / "a.jpg").write_text("text")
    data = (pets / "dog" / "0.png").read_bytes()
    (pets / "dog" / "b.jpg").write_bytes(data[:45])
    (pets / "dog" / "c.jpg").write_bytes(data)  # the content decides
    found = read(pets)
    assert (len(found), found.dropped) == (5, {NO_IMAGE: 1, BROKEN: 1})
    assert found.bad == f"1 {NO_IMAGE} ({pets / 'dog/a.jpg'}); 1 {BROKEN} ({pets / 'dog/b.jpg'})"
    fact = "is no image of a known format (BMP, GIF, JPEG, PNG, PPM, TIFF, WEBP)"
    assert refusal(pets, policy="fail") == f"PATH/dog/a.jpg: {fact}. Mend the file, or choose to skip what is bad."


@pytest.mark.slow("starts processes")
def test_a_refusal_stops_the_workers(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed = []
    monkeypatch.setattr(Worker, "kill", lambda worker: (killed.append(worker), processes.Worker.kill(worker))[1])
    assert len(read(pets, workers=2)) == 4
    assert len(killed) == 2
    (pets / "cat" / "a.jpg").write_text("text")
    assert "PATH/cat/a.jpg: is no image" in refusal(pets, workers=2, policy="fail")
    assert len(killed) == 4


def test_only_the_first_bad_images_are_named(pets: Path) -> None:
    for number in range(7):
        (pets / "dog" / f"x{number}.png").write_text("text")
    names = ", ".join(str(pets / "dog" / f"x{number}.png") for number in range(5))
    assert read(pets).bad == f"7 {NO_IMAGE} ({names}, ...)"


def test_parts_are_folders_around_the_classes_and_share_their_numbers(tmp_path: Path) -> None:
    for place in ("train/ant", "train/bee", "train/cow", "test/bee", "test/yak"):
        save(tmp_path / place / "a.png")
    train = read(tmp_path)
    test = read(tmp_path, "test", classes=train.classes)
    assert (train.classes, test.labels.tolist(), test.dropped) == (("ant", "bee", "cow"), [1], {UNKNOWN: 1})


def test_a_folder_without_a_test_part_is_not_read_as_one(pets: Path) -> None:
    assert refusal(pets, part="test") == "PATH: has no folder 'test'. Put some images of each class into one."


def test_classes_that_are_numbers_are_sorted_by_value(tmp_path: Path) -> None:
    for name in ("10", "9", "100"):
        save(tmp_path / name / "a.png")
    assert read(tmp_path).classes == ("9", "10", "100")


def test_a_table_names_images_beside_it(pets: Path) -> None:
    rows = ["dog/0.png,dog", "cat/more/0.PNG,cat", "../secret.png,cat", "/etc/passwd,cat", "none.png,dog", "dog/1.png,"]
    (pets / "all.csv").write_text("\n".join(["file_name,label", *rows]) + "\n")
    save(pets.parent / "secret.png")
    (pets / "dog" / "link.png").symlink_to(pets.parent / "secret.png")
    with (pets / "all.csv").open("a") as file:
        file.write("dog/link.png,dog\n")
    found = read(pets / "all.csv")
    assert (found.classes, found.labels.tolist()) == (("cat", "dog"), [1, 0])
    assert found.dropped == {OUTSIDE: 3, UNLABELLED: 1, NO_FILE: 1}
    assert f"{pets / 'all.csv'}:6 (none.png)" in found.bad


def test_columns_are_guessed_by_what_they_hold_or_named(pets: Path) -> None:
    (pets / "a.csv").write_text("where,kind,split\ndog/0.png,d,1\ncat/more/0.PNG,c,2\n")
    assert "has no column of labels that is known among kind, split. Name it" in refusal(pets / "a.csv")
    assert read(pets / "a.csv", columns=(None, "kind")).classes == ("c", "d")
    (pets / "b.csv").write_text("0.png,d\n1.png,d\n")  # no header
    assert len(read(pets / "b.csv", root=pets / "dog")) == 2
    (pets / "c.csv").write_text("name,label\nfirst,1\nsecond,2\n")
    assert refusal(pets / "c.csv") == "PATH: has no column of paths to images. Name it: data.path=COLUMN."


def test_parquet_and_json_lines_name_images(pets: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names, labels = ["dog/0.png", "cat/more/0.PNG", None], [3.0, 7.0, None]
    parquet.write_table(pyarrow.table({"path": names, "label": labels}), pets / "a.parquet")
    found = read(pets / "a.parquet")
    assert (found.classes, found.labels.tolist(), found.dropped) == (("3", "7"), [0, 1], {NO_FILE: 1})
    (pets / "a.jsonl").write_text(json.dumps({"image": "dog/1.png", "class": "dog"}) + "\n")
    assert read(pets / "a.jsonl").classes == ("dog",)


@pytest.mark.parametrize("compress", [bytes, gzip.compress, lzma.compress])
def test_the_binary_files_of_cifar(tmp_path: Path, compress: Any) -> None:
    ending = {bytes: "", gzip.compress: ".gz", lzma.compress: ".xz"}[compress]
    contents = [cifar([number, 9]) for number in range(5)]
    for number, content in enumerate(contents, 1):
        (tmp_path / f"data_batch_{number}.bin{ending}").write_bytes(compress(content))
    found = read(tmp_path)
    assert found.labels.tolist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]
    pixels = found.stacked()
    assert (pixels.shape, pixels.dtype) == ((10, 3, 32, 32), torch.uint8)
    assert pixels[2].numpy().tobytes() == contents[1][1:3073]  # planes, as they stand
    (tmp_path / f"data_batch_3.bin{ending}").unlink()
    assert refusal(tmp_path) == "PATH: holds 4 of the 5 files of CIFAR-10. Get the others."


def test_a_file_of_cifar_that_is_cut_off_or_has_unknown_classes(tmp_path: Path) -> None:
    path = tmp_path / "some.bin"
    path.write_bytes(cifar([1, 77, 2]))
    found = read(path)
    assert (found.labels.tolist(), found.dropped) == ([1, 2], {UNKNOWN: 1})
    assert found.locations == [f"{path}:0", f"{path}:2"]
    path.write_bytes(cifar([1, 2])[:-1])
    fact = "holds 6,145 bytes, which is not a number of records of 3,073"
    assert refusal(path) == f"PATH: {fact}. Get the file again."


def test_the_pickled_files_of_cifar_are_refused(tmp_path: Path) -> None:
    for number in range(1, 6):
        (tmp_path / f"data_batch_{number}").write_bytes(pickle.dumps({b"data": [1]}))
    fact = "is pickled, and could run code when it is read. Get the binary version, cifar-10-binary.tar.gz."
    assert refusal(tmp_path) == f"PATH/data_batch_1: {fact}"
    assert refusal(tmp_path / "data_batch_2") == f"PATH: {fact}"


def write_idx(folder: Path, images: bytes, labels: bytes) -> Path:
    (folder / "train-images-idx3-ubyte").write_bytes(images)
    (folder / "train-labels-idx1-ubyte.gz").write_bytes(gzip.compress(labels))
    return folder


def test_idx_files_of_mnist(tmp_path: Path) -> None:
    pixels, labels = RANDOM.integers(0, 256, (3, 5, 4), dtype=np.uint8), np.array([2, 0, 1], np.uint8)
    write_idx(tmp_path, idx(pixels), idx(labels))
    for path in (tmp_path, tmp_path / "train-images-idx3-ubyte"):
        found = read(path, config=DecodingConfig(channels=1))
        assert found.labels.tolist() == [2, 0, 1]
        assert found.classes == tuple("0123456789")
        np.testing.assert_array_equal(found.stacked().numpy()[:, 0], pixels)
    assert read(tmp_path).stacked().shape == (3, 3, 5, 4)


@pytest.mark.parametrize(
    ("images", "labels", "fact"),
    [
        (b"\0\0\x08\x03", idx(np.zeros(1, np.uint8)), "is no idx file of bytes in 3 dimensions. Get the file again"),
        (b"\0\0\x0d\x03" + bytes(16), idx(np.zeros(1, np.uint8)), "is no idx file of bytes in 3 dimensions"),
        (
            b"\0\0\x08\x03" + struct.pack(">3I", *[1 << 31] * 3) + bytes(9),
            b"",
            "promises 2147483648 x 2147483648 x 2147483648 bytes and holds 9",
        ),
        (
            idx(np.zeros((2, 2, 2), np.uint8)),
            idx(np.zeros(3, np.uint8)),
            "holds 2 images and train-labels",
        ),
        (idx(np.zeros((0, 2, 2), np.uint8)), idx(np.zeros(0, np.uint8)), "promises 0 x 2 x 2 bytes and holds 0"),
    ],
)
def test_idx_files_whose_header_is_wrong_are_refused(tmp_path: Path, images: bytes, labels: bytes, fact: str) -> None:
    assert fact in refusal(write_idx(tmp_path, images, labels))


def test_idx_images_without_labels_are_refused(tmp_path: Path) -> None:
    write_idx(tmp_path, idx(np.zeros((2, 2, 2), np.uint8)), b"")
    (tmp_path / "train-labels-idx1-ubyte.gz").unlink()
    assert "has no labels beside it (train-labels-idx1-ubyte). Get that file, too" in refusal(tmp_path)


@pytest.fixture
def sheet(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """A sheet of three images of 4 x 4 pixels, one a row, and their labels."""
    pixels = RANDOM.integers(0, 256, (3, 16, 3), dtype=np.uint8)
    PIL.fromarray(pixels).save(tmp_path / "test_batch.png")
    (tmp_path / "test_lables.json").write_text("[3, 8, 0]")
    return tmp_path, pixels


def test_sheets_of_images(sheet: tuple[Path, np.ndarray]) -> None:
    folder, pixels = sheet
    found = read(folder, "test")
    assert [found.classes[label] for label in found.labels] == ["cat", "ship", "airplane"]
    np.testing.assert_array_equal(found.stacked().numpy(), pixels.reshape(3, 4, 4, 3).transpose(0, 3, 1, 2))
    (folder / "test_lables.json").write_text("[3, 10, 0]")
    assert read(folder, "test").dropped == {UNKNOWN: 1}


@pytest.mark.parametrize(
    ("labels", "fact"),
    [("[1, 2]", "holds 2 labels for 3 images"), ("[1, 2, 1.5]", "holds something else than whole numbers")],
)
def test_labels_that_do_not_fit_a_sheet_are_refused(sheet: tuple[Path, np.ndarray], labels: str, fact: str) -> None:
    (sheet[0] / "test_lables.json").write_text(labels)
    assert fact in refusal(sheet[0], part="test")


def test_a_sheet_whose_rows_are_no_squares_is_refused(sheet: tuple[Path, np.ndarray]) -> None:
    save(sheet[0] / "test_batch.png", 15, 3)
    assert "has rows of 15 pixels, which are no squares" in refusal(sheet[0], part="test")


def test_many_images_are_read_from_disk_and_are_the_same(pets: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = read(pets)
    monkeypatch.setattr(labelled_images, "MAX_BYTES_IN_MEMORY", 20)  # passed by the second image
    large = read(pets, folder=pets)
    assert not isinstance(large.images, list)
    assert large.fingerprint == small.fingerprint
    for one, other in zip(small.images, large.images, strict=True):
        assert torch.equal(one, other)


def test_the_fingerprint_knows_pixels_and_labels(pets: Path) -> None:
    before = read(pets).fingerprint
    assert read(pets).fingerprint == before
    (pets / "dog").rename(pets / "fox")
    renamed = read(pets).fingerprint
    save(pets / "fox" / "0.png", 4, 3, 99)
    assert len({before, renamed, read(pets).fingerprint}) == 3


def test_what_holds_no_images_is_refused(tmp_path: Path, pets: Path) -> None:
    assert refusal(tmp_path / "none") == "PATH: does not exist."
    (tmp_path / "empty").mkdir()
    remedy = "Give a folder with a folder for each class, a table with paths, or the files of CIFAR-10 or MNIST."
    assert refusal(tmp_path / "empty") == f"PATH: holds no labelled image. {remedy}"
    (tmp_path / "a.doc").touch()
    assert refusal(tmp_path / "a.doc") == f"PATH: is no table and no known file of images. {remedy}"
    assert refusal(pets, part="valid") == "part: unknown choice 'valid'. Known: dev, test, train."
    with pytest.raises(BertsmithError, match=r"has 4 x 3 pixels and the first one 2 x 2\. Cut or scale them"):
        read(pets).stacked()


@pytest.mark.shared
def test_the_subsets_of_cifar_and_mnist(shared: Path) -> None:
    train, test = (read(shared / "data" / "cifar10", part) for part in ("train", "test"))
    assert np.bincount(train.labels).tolist() == [100] * 10
    assert np.bincount(test.labels).tolist() == [30] * 10
    means = train.stacked().double().mean((0, 2, 3)) / 255
    torch.testing.assert_close(means, torch.tensor([0.4914, 0.4822, 0.4465]).double(), atol=0.01, rtol=0)
    digits = read(shared / "data" / "mnist", config=DecodingConfig(channels=1))
    assert digits.stacked().shape == (10_000, 1, 28, 28)
    assert np.bincount(digits.labels).min() > 800
    assert abs(float(digits.stacked().double().mean()) / 255 - 0.1307) < 0.002
