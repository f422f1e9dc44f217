"""Curves: what is drawn is where the numbers say, and reads well."""

import json
import math
import re
import xml.etree.ElementTree as ElementTree
from html import unescape

import pytest

from bertsmith.insight.charts import (
    COLOURS,
    MAX_POINTS,
    Axis,
    HorizontalAxis,
    Series,
    chart,
    downsample,
    format_number,
    format_percent,
    smooth,
)

FALL = [(float(step), 10 - step / 20) for step in range(1, 101)]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 100, [0, 20, 40, 60, 80, 100]),
        (4.7, 9.1, [5, 6, 7, 8, 9]),
        (0, 0.001, [0, 0.0002, 0.0004, 0.0006, 0.0008, 0.001]),
        (-3, 3, [-2, 0, 2]),
    ],
)
def test_ticks_are_round_numbers_inside_the_axis(low: float, high: float, expected: list[float]) -> None:
    assert Axis(low, high, 0, 1).ticks() == pytest.approx(expected)


def test_logarithmic_ticks_are_powers_of_ten_when_there_are_many() -> None:
    assert Axis(0.5, 20, 0, 1, logarithmic=True).ticks() == pytest.approx([0.5, 1, 2, 5, 10, 20])
    assert Axis(1e-4, 10, 0, 1, logarithmic=True).ticks() == pytest.approx([1e-4, 1e-3, 1e-2, 0.1, 1, 10])


def test_an_axis_lays_its_ends_on_the_ends_of_the_paper() -> None:
    axis = Axis(2, 8, 100, 0)
    assert [axis.position(value) for value in (2, 5, 8)] == [100, 50, 0]
    assert Axis(1, 100, 0, 10, logarithmic=True).position(10) == pytest.approx(5)
    assert Axis(3, 3, 7, 9).position(3) == 7


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0, "0"), (4.8, "4.80"), (12, "12.0"), (999, "999"), (1250, "1,250"), (42_100, "42.1 k"),
        (3_100_000, "3.10 M"), (2.5e9, "2.50 G"), (4e14, "400 T"), (1.5e15, "1.50 P"), (3e20, "300 E"),
        (5e-4, "5.00e-4"), (0.05, "0.0500"), (-3.25, "-3.25"),
    ],
)  # fmt: skip
def test_numbers_are_written_to_three_digits(value: float, written: str) -> None:
    assert format_number(value) == written


def test_the_running_mean_keeps_a_straight_line_and_calms_a_noisy_one() -> None:
    middle = slice(10, -10)
    straight = [value for _, value in FALL][middle]
    assert [value for _, value in smooth(FALL, 10)][middle] == pytest.approx(straight)
    noisy = [(place, value + (-1) ** round(place)) for place, value in FALL]
    assert [value for _, value in smooth(noisy, 10)][middle] == pytest.approx(straight, abs=0.06)


def test_thinning_keeps_the_ends_and_short_lines() -> None:
    long = [(float(step), 0.0) for step in range(100_000)]
    assert len(downsample(long)) == MAX_POINTS
    assert (downsample(long)[0], downsample(long)[-1]) == (long[0], long[-1])
    assert downsample(FALL) == FALL


def test_a_chart_is_well_formed_and_has_a_title_and_a_description() -> None:
    figure = ElementTree.fromstring(str(chart("Loss", [Series("training", FALL, noisy=True)])).replace(" hidden>", ">"))
    svg = figure.find("svg")
    assert svg is not None
    assert svg.get("role") == "img"
    said = {part.get("id"): part.text for part in svg if part.get("id")}
    assert str(svg.get("aria-labelledby")).split() == list(said)
    assert list(said.values()) == ["Loss", "Over 100 steps: training from 9.95 to 5.00."]


def test_every_point_lies_inside_the_drawing() -> None:
    wild = [(1.0, 1e9), (2.0, -1e9), (3.0, 0.0)]
    for drawn in (
        chart("wild", [Series("a", wild)]),
        chart("fall", [Series("a", FALL)], from_zero=True, wide=True, reference=("guess", 30.0)),
        chart("log", [Series("a", [(step, math.exp(-step / 10)) for step, _ in FALL])], logarithmic=True),
    ):
        width, height = map(int, re.findall(r'viewBox="0 0 (\d+) (\d+)"', drawn)[0])
        for path in re.findall(r' d="M([^"]+)"', drawn):
            for x, y in (map(float, pair.split(",")) for pair in path.split()):
                assert 0 <= x <= width
                assert 0 <= y <= height


def test_the_legend_carries_the_points_and_shows_the_last() -> None:
    drawn = chart("Accuracy", [Series("words", [(10, 0.25), (20, 0.5)])], format_value=format_percent)
    points = json.loads(unescape(re.findall(r'data-points="([^"]+)"', drawn)[0]))
    assert [point[2:] for point in points] == [["10", "25.0%"], ["20", "50.0%"]]
    assert "words <output>50.0%</output>" in drawn


def test_a_noisy_line_is_drawn_twice_and_a_sparse_one_has_dots() -> None:
    drawn = chart("Loss", [Series("training", FALL, noisy=True), Series("validation", FALL[::20])])
    assert drawn.count('class="faint tone1"') == 1
    assert drawn.count("<circle") == 5


def test_the_name_of_the_reference_stands_where_the_nearest_curve_does_not_end() -> None:
    def gap(value: float, *ends: float) -> float:
        series = [Series("line", [(1.0, 0.0), (100.0, end)]) for end in ends]
        drawn = chart("Loss", series, reference=("guess", value))
        line, name = re.findall(r'class="reference"[^>]* y1?="([\d.]+)"', drawn)
        return float(name) - float(line)

    assert gap(7.0, 5.0) < 0 < gap(4.0, 5.0)
    assert gap(0.5, 0.3, 0.6) > 0


def test_a_line_keeps_its_colour_where_another_has_no_points() -> None:
    drawn = chart("Score", [Series("absent", []), Series("present", FALL)])
    assert re.findall(r"<path class=\"(\w+)\"", drawn) == ["tone2"]
    many = chart("Score", [Series(str(number), FALL) for number in range(COLOURS + 1)])
    assert re.findall(r"<path class=\"(\w+)\"", many) == [
        f"tone{1 + number % COLOURS}" for number in range(COLOURS + 1)
    ]


def test_the_level_axis_may_be_something_other_than_steps() -> None:
    minutes = HorizontalAxis("time", lambda value: f"{value:.2f} min", lambda value: f"{value:.1f} minutes")
    drawn = chart("Score", [Series("line", [(1.0, 3.0), (2.5, 4.0)])], horizontal=minutes)
    assert "time <output>2.5 minutes</output>" in drawn
    assert "Over 2.5 minutes: line from 3.00 to 4.00." in drawn
    assert ">1 min</text>" in drawn


def test_a_chart_of_nothing_is_nothing() -> None:
    assert chart("Loss", []) == chart("Loss", [Series("training", [])]) == ""


@pytest.mark.parametrize("value", [0.0, -2.0, 5.0])
def test_a_single_point_can_be_drawn(value: float) -> None:
    assert chart("Loss", [Series("training", [(1.0, value)], noisy=True)], logarithmic=True).count("<circle") == 1
