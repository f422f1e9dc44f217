"""Standings: every score against its cost, blanks left blank, and one colour for one recipe."""

import re
from typing import Any

import pytest

from bertsmith.insight import leaderboard, table
from bertsmith.insight.leaderboard import BITS_PER_BYTE, BLIMP, MEAN


def point(seconds: float, **scores: list[float]) -> dict[str, Any]:
    named = {name.replace("_", " "): {"values": values} for name, values in scores.items()}
    return {"seconds": seconds, "tokens": 1000 * seconds, "flops": 4e12 * seconds, "scores": named}


def row(name: str, *points: dict[str, Any], peak: float | None = None) -> dict[str, Any]:
    return {"name": name, "parameters": 1_500_000, "peak": peak, "points": points}


ELECTRA = row("electra", point(30, bits_per_byte=[], CoLA=[0.1]), point(60, bits_per_byte=[], CoLA=[0.2]))
BERT = row("bert", point(30, bits_per_byte=[2.5], CoLA=[0.0]), point(60, bits_per_byte=[2.25], CoLA=[0.05, 0.15]))


def test_the_table_tells_what_the_last_models_score_and_what_they_took() -> None:
    found = leaderboard.leaderboard_results("Race", [ELECTRA, BERT], "seconds", {})
    assert found.columns == ["recipe", "parameters", "time", "tokens", "tokens/s", "FLOPs", "CoLA ×100", BITS_PER_BYTE]
    assert found.rows == [
        ["electra", "1.50 M", "60.0 s", "60.0 k", "1,000", "240 T", "20.0", "-"],
        ["bert", "1.50 M", "60.0 s", "60.0 k", "1,000", "240 T", "10.0 ± 7.1", "2.250"],
    ]


def test_a_gpu_tells_how_much_of_it_was_used() -> None:
    found = leaderboard.leaderboard_results(
        "Race", [row("bert", point(60), peak=1e13), row("elsewhere", point(60))], "seconds", {}
    )
    assert [cells[found.columns.index("MFU")] for cells in found.rows] == ["40%", "-"]


def test_a_mean_is_that_of_all_tasks_or_there_is_none() -> None:
    whole, half = point(60, CoLA=[0.1, 0.3], RTE=[0.6]), point(60, CoLA=[0.1], RTE=[])
    assert leaderboard.score_values(whole, MEAN, ["CoLA", "RTE"]) == pytest.approx([0.4])
    assert leaderboard.score_values(half, MEAN, ["CoLA", "RTE"]) == []
    found = leaderboard.leaderboard_results("Race", [row("one", whole), row("other", half)], "seconds", {})
    assert found.columns[6:] == [f"{MEAN} ×100", "CoLA ×100", "RTE ×100"]
    assert [cells[6] for cells in found.rows] == ["40.0", "-"]
    assert found.chart.count('class="chart wide"') == 1
    assert 'class="charts of2"' in found.chart


def test_a_recipe_has_the_same_colour_in_every_chart() -> None:
    picture = leaderboard.leaderboard_results("Race", [ELECTRA, BERT], "seconds", {}).chart
    assert re.findall(r'class="key (tone\d)"[^>]*><i></i>(\w+)', picture) == [
        ("tone1", "electra"), ("tone2", "bert"), ("tone2", "bert")
    ]  # fmt: skip
    assert 'class="charts of2"' in picture  # two charts stand side by side
    assert "wide" not in picture


@pytest.mark.parametrize(
    ("seconds", "cost_axis", "told"),
    [
        (60, "seconds", "time <output>60.0 s</output>"),
        (300, "seconds", "time <output>5.00 min</output>"),
        (36_000, "seconds", "time <output>10.0 h</output>"),
        (300, "flops", "compute <output>1.20 PFLOPs</output>"),
    ],
)
def test_what_it_took_is_told_in_units_that_suit(seconds: float, cost_axis: Any, told: str) -> None:
    found = leaderboard.leaderboard_results("Race", [row("bert", point(seconds, BLiMP=[0.7]))], cost_axis, {})
    assert told in found.chart
    assert f"{BLIMP} ×100" in found.columns


def test_where_nothing_was_scored_there_is_no_picture_and_no_script() -> None:
    found = leaderboard.leaderboard_results("Race", [row("bert", point(60))], "seconds", {"equal": "<time>"})
    assert found.chart == ""
    page = table.page(found)
    assert "&lt;time&gt;" in page
    assert "querySelector" not in page
    assert "querySelector" in table.page(leaderboard.leaderboard_results("Race", [BERT], "seconds", {}))
