"""The alignment picture: a square for each pair of words, nothing from outside left unescaped, and clear refusals."""

import re
import sys
from pathlib import Path

import numpy as np
import pytest

from bertsmith.errors import RunError, TextError
from bertsmith.insight import alignment
from bertsmith.insight.alignment import Alignment

ONE = Alignment(
    "the old <b> → die $x^", ["the", "old", "<b>", "</s>"], ["die", "·$x^", "</s>"], np.eye(3, 4, dtype=np.float32)
)
OTHER = Alignment("a → b", ["a"], ["b"], np.ones((1, 1), np.float32))


def test_a_page_has_a_square_for_each_pair_as_dark_as_its_weight(tmp_path: Path) -> None:
    alignment.write(tmp_path / "page.html", "From where", [ONE, OTHER])
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    shades = [float(shade) for shade in re.findall(r'<rect [^>]*fill-opacity="([\d.]+)"', page)]
    assert shades == [*ONE.weights.flatten().tolist(), 1.0]
    assert "<title>die from the: 1.00</title>" in page
    assert "http" not in page.replace("http-equiv", "")


def test_what_a_model_writes_is_no_markup() -> None:
    page = alignment.page("<i>", [ONE])
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert "<i>" not in page


def test_rows_and_columns_stand_where_their_words_do() -> None:
    drawn = alignment.svg(ONE)
    places = [tuple(map(float, found)) for found in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)"', drawn)]
    assert len(set(places)) == 12
    assert places == sorted(places, key=lambda place: place[::-1])
    width, height = map(int, re.findall(r'viewBox="0 0 (\d+) (\d+)"', drawn)[0])
    assert all(x + alignment.CELL <= width and y + alignment.CELL <= height for x, y in places)


def test_nothing_to_draw_is_a_page_all_the_same(tmp_path: Path) -> None:
    alignment.write(tmp_path / "page.html", "Nothing", [])
    assert "<svg" not in (tmp_path / "page.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("several", [[ONE], [ONE, OTHER], []])
def test_a_name_that_ends_in_png_is_a_png(several: list[Alignment], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    alignment.write(tmp_path / "page.png", "From where", several)
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")


def test_without_the_library_a_png_is_refused_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(RunError) as caught:
        alignment.write(tmp_path / "page.png", "From where", [ONE])
    remedy = "Install it with: pip install matplotlib; or write .html, which needs nothing."
    assert str(caught.value) == f"{tmp_path / 'page.png'}: needs matplotlib. {remedy}"


def test_another_ending_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TextError) as caught:
        alignment.check_path(tmp_path / "page.jpg")
    assert str(caught.value) == f"{tmp_path / 'page.jpg'}: has the unknown ending '.jpg'. Use .html or .png."
