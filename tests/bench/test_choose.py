"""The table of choices: what `make` would choose for a text and a time, beside the best of the cells."""

import json
from typing import Any

from bench.script import ROOT, script

script("record")
script("ablate")
choose = script("choose")


def cell(size: str, bits: float, tokens: float, **others: Any) -> dict[str, Any]:
    found = {"text": "a", "seconds": 60.0, "like": "smith", "variant": "", "text_tokens": 1e6}
    return {**found, "size": size, "bits_per_byte": bits, "tokens": tokens, **others}


def rows(cells: list[dict[str, Any]]) -> list[list[str]]:
    return [[part.strip() for part in line.strip("|").split("|")] for line in choose.comparison(cells).splitlines()[2:]]


def test_the_choice_of_make_stands_beside_the_best_of_the_same_text_and_time() -> None:
    cells = [cell("tiny", 1.2, 9e7), cell("mini", 1.0, 2e7), cell("small", 1.1, 1e7), cell("tiny", 2.0, 1e6, text="b")]
    assert rows(cells) == [
        ["a", "60", "smith-mini", "1.000", "smith-mini", "1.000", "0.0%"],
        ["b", "60", "smith-tiny", "2.000", "smith-tiny", "2.000", "0.0%"],
    ]


def test_a_choice_that_is_not_the_best_is_shown_with_what_it_costs() -> None:
    cells = [cell("tiny", 1.25, 9e6), cell("mini", 1.0, 2e6), cell("tiny", 0.5, 9e6, variant="train.seed=1")]
    assert rows(cells) == [["a", "60", "smith-tiny", "1.250", "smith-mini", "1.000", "20.0%"]]


def test_what_make_chooses_is_within_two_percent_of_the_best_in_every_cell_that_is_kept() -> None:
    found = rows(json.loads((ROOT / "bench" / "results" / "choose-cpu.json").read_text())["cells"])
    assert len(found) >= 4
    assert all(float(better.rstrip("%")) <= 2 for *_, better in found)
