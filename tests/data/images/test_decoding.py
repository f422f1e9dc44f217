"""Image files of every kind become pixels, and hostile ones one line."""

import io
import os
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bertsmith.data.images.bad_images import BROKEN, EMPTY, NO_FILE, NO_IMAGE, TOO_LARGE, ImageError
from bertsmith.data.images.decoding import DecodingConfig, decode, read_file
from bertsmith.data.images.workers import decode_all
from bertsmith.errors import RunError

PIL = pytest.importorskip("PIL.Image", reason="Pillow is not installed here")
COLOURS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)


def encoded(image: Any, kind: str = "PNG", **options: Any) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def reason(data: bytes, config: DecodingConfig | None = None) -> str:
    with pytest.raises(ImageError) as caught:
        decode(data, config or DecodingConfig())
    assert "\n" not in caught.value.fact
    return caught.value.reason


def png(width: int, height: int) -> bytes:
    """A PNG whose header promises a size, and which holds no pixels."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    parts = [chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(b"")), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize("kind", ["PNG", "BMP", "PPM", "TIFF", "WEBP"])
def test_a_image_comes_back_as_planes_of_its_colours(kind: str) -> None:
    options = {"lossless": True} if kind == "WEBP" else {}
    pixels = decode(encoded(PIL.fromarray(COLOURS), kind, **options), DecodingConfig())
    np.testing.assert_array_equal(pixels, COLOURS.transpose(2, 0, 1))


@pytest.mark.parametrize(("kind", "length"), [("JPEG", 100), ("PNG", 20), ("GIF", 7)])
def test_a_file_that_is_cut_in_its_header_is_broken_and_not_of_another_format(kind: str, length: int) -> None:
    assert reason(encoded(PIL.fromarray(COLOURS), kind)[:length]) == BROKEN


def test_sixteen_bits_are_scaled_and_not_clipped() -> None:
    deep = np.array([[0, 257, 32896, 65535]], np.uint16)
    assert decode(encoded(PIL.fromarray(deep)), DecodingConfig(channels=1)).tolist() == [[[0, 1, 128, 255]]]


def test_what_is_transparent_is_white() -> None:
    image = PIL.new("RGBA", (2, 1), (200, 0, 0, 0))
    image.putpixel((1, 0), (200, 0, 0, 255))
    assert decode(encoded(image), DecodingConfig())[:, 0].T.tolist() == [[255] * 3, [200, 0, 0]]


def test_a_palette_with_a_transparent_colour_is_white_there() -> None:
    image = PIL.new("P", (2, 1))
    image.putpalette([0, 0, 0, 10, 20, 30])
    image.putpixel((1, 0), 1)
    assert decode(encoded(image, transparency=0), DecodingConfig())[:, 0].T.tolist() == [[255] * 3, [10, 20, 30]]


def test_colours_for_printing_become_red_green_and_blue() -> None:
    image = PIL.new("CMYK", (8, 8), (0, 255, 255, 0))
    red = decode(encoded(image, "JPEG", quality=95), DecodingConfig()).mean((1, 2))
    np.testing.assert_allclose(red, [255, 0, 0], atol=4)


def test_an_animation_is_its_first_frame() -> None:
    frames = [PIL.new("RGB", (3, 2), colour) for colour in ("red", "blue")]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    np.testing.assert_array_equal(decode(data, DecodingConfig())[:, 0, 0], [255, 0, 0])


def test_a_turned_image_is_turned_upright() -> None:
    exif = PIL.Exif()
    exif[0x0112] = 6  # the camera was turned by 90 degrees
    data = encoded(PIL.fromarray(COLOURS), exif=exif)
    np.testing.assert_array_equal(decode(data, DecodingConfig()), np.rot90(COLOURS, -1).transpose(2, 0, 1))


@pytest.mark.parametrize(("width", "height", "size"), [(40, 20, (10, 20)), (20, 40, (20, 10)), (3, 6, (20, 10))])
def test_the_shorter_side_is_scaled_and_the_shape_kept(width: int, height: int, size: tuple[int, int]) -> None:
    pixels = decode(encoded(PIL.new("RGB", (width, height), "red"), "JPEG"), DecodingConfig(shorter_side=10))
    assert pixels.shape == (3, *size)


def test_a_header_that_promises_too_many_pixels_is_refused_before_they_are_decoded() -> None:
    assert reason(png(10_000, 10_000)) == TOO_LARGE
    assert reason(png(100_000, 100_000)) == TOO_LARGE  # Pillow itself refuses it
    assert reason(encoded(PIL.fromarray(COLOURS)), DecodingConfig(max_pixels=34)) == TOO_LARGE
    strip = encoded(PIL.new("L", (1, 5000)))
    assert reason(strip, DecodingConfig(shorter_side=200)) == TOO_LARGE


def test_files_that_are_no_images_are_refused() -> None:
    assert reason(b"\x89PNG") == NO_IMAGE
    assert reason(b"<svg></svg>") == NO_IMAGE
    assert reason(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n") == NO_IMAGE
    assert reason(encoded(PIL.new("F", (2, 2)), "TIFF")) == BROKEN
    assert reason(png(20, 20)) == BROKEN


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP"])
def test_a_file_that_is_cut_off_is_refused(kind: str) -> None:
    noise = np.random.default_rng(1).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(PIL.fromarray(noise), kind)
    assert reason(data[: len(data) // 2]) in (BROKEN, NO_IMAGE)


@given(st.sampled_from(["PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP"]), st.data())
@settings(max_examples=100, deadline=None)
def test_flipped_bytes_give_pixels_or_one_reason_and_nothing_else(kind: str, data: st.DataObject) -> None:
    broken = bytearray(encoded(PIL.fromarray(COLOURS), kind))
    for position in data.draw(st.lists(st.integers(0, len(broken) - 1), min_size=1, max_size=8)):
        broken[position] = data.draw(st.integers(0, 255))
    try:
        found = str(decode(bytes(broken), DecodingConfig()).dtype)
    except ImageError as error:
        found = error.reason
    assert found in ("uint8", BROKEN, NO_IMAGE, TOO_LARGE)


def test_files_that_cannot_be_read_have_a_reason(tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    os.mkfifo(tmp_path / "pipe.png")  # opening it would wait for ever
    with (tmp_path / "large.png").open("wb") as file:
        file.truncate((1 << 27) + 1)
    expected = {"empty.png": EMPTY, "pipe.png": NO_IMAGE, "large.png": TOO_LARGE, "none.png": NO_FILE}
    for name, why in expected.items():
        with pytest.raises(ImageError) as caught:
            read_file(tmp_path / name, DecodingConfig())
        assert caught.value.reason == why


@pytest.mark.slow("starts processes")
def test_workers_give_what_this_process_gives_in_order(tmp_path: Path) -> None:
    paths = []
    for number in range(40):
        name = os.fsdecode(b"\xff%d.jpg" % number)  # a name that is no text
        PIL.fromarray(COLOURS[: 1 + number % 5]).save(tmp_path / name, "PNG")  # and a wrong ending
        paths.append(tmp_path / name)
    paths[7].write_bytes(b"no image")
    alone, together = ([one for _, one in decode_all(enumerate(paths), DecodingConfig(), many)] for many in (0, 2))  # type: ignore[arg-type]
    for one, other in zip(alone, together, strict=True):
        if isinstance(one, ImageError):
            assert isinstance(other, ImageError)
            assert (one.reason, one.fact) == (other.reason, other.fact)
        else:
            np.testing.assert_array_equal(one, other)
    assert [number for number, one in enumerate(together) if isinstance(one, ImageError)] == [7]


def test_without_pillow_one_line_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from bertsmith.data.images import decoding

    decoding.import_pillow.cache_clear()
    monkeypatch.setitem(__import__("sys").modules, "PIL.Image", None)
    with pytest.raises(RunError) as caught:
        decoding.import_pillow()
    assert str(caught.value) == "images: Pillow is missing. Install it with: pip install 'bertsmith[images]'."
