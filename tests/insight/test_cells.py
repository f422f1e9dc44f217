"""Single cells: traced as torch computes them, and found by what they go with."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch

from bertsmith.data.batch import Tokens
from bertsmith.insight import cells
from bertsmith.models.recurrent import Recurrent, RecurrentConfig
from bertsmith.nn.init import initialise
from bertsmith.nn.rnn.cells import Cell

TEXT = 'He said "no, not (ever) so" to Anna.\n\nA "b c\n\nd e f'


def spans(text: str) -> list[cells.Span]:
    """Every word and mark."""
    return [(found.start(), found.end()) for found in re.finditer(r"\w+|[^\w\s]", text)]


def told(name: str, text: str = TEXT) -> list[str]:
    """The words that a property says something of."""
    places = spans(text)
    return [
        text[start:end]
        for (start, end), one in zip(places, cells.text_features(text, places)[name], strict=True)
        if one
    ]


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_a_trace_is_what_the_network_remembers(cell: Cell) -> None:
    trunk = Recurrent(RecurrentConfig(vocabulary=20, width=5, hidden=7, layers=2, cell=cell, tie_embeddings=True))
    initialise(trunk, 0, 0.5)
    ids = torch.tensor([3, 1, 4, 1, 5])
    traced = cells.cell_states(trunk, ids)
    assert traced.shape == (5, 12)
    _, state = trunk._from_zero_state(Tokens.from_rows([ids.tolist()]))
    parts = state[0].detach().split(trunk.stack.sizes)
    last = torch.cat([torch.tanh(part) for part in parts[1::2]] if cell == "lstm" else list(parts))
    torch.testing.assert_close(traced[-1], last, atol=1e-6, rtol=0)


def test_properties_are_what_a_reader_sees() -> None:
    assert told("inside quotes") == ['"', "no", ",", "not", "(", "ever", ")", "so", '"', "b", "c"]
    assert told("inside brackets") == ["(", "ever"]
    assert told("after a capital") == ["He", "Anna", "A"]
    assert told("inside quotes", "\u201cyes\u201d he") == ["\u201c", "yes"]
    assert told("inside quotes", "it's 'Oh, it's late!' she") == ["'", "Oh", ",", "it", "'", "s", "late", "!"]
    assert len(told("inside quotes", '"' + "ab " * 900)) < 700  # left open by mistake
    far = cells.text_features(TEXT, spans(TEXT))["how far into the sentence"]
    assert far[0] == 2
    assert far[spans(TEXT).index((38, 39))] < 4  # the line's first
    letters = cells.text_features(TEXT, spans(TEXT))["letters of the last word"]
    assert letters[:2].tolist() == [2, 4]


def test_the_cell_that_goes_with_a_property_is_found_in_both_halves() -> None:
    chance = np.random.default_rng(0)
    wanted = {
        "open": (np.arange(4000) // 7 % 2).astype(float),
        "noise": chance.normal(size=4000),
        "flat": np.ones(4000),
    }
    values = chance.normal(size=(4000, 9)) * 0.2
    values[:, 6] -= wanted["open"]
    values[:, 0] = 0.5  # never changes
    values[:2000, 2] += wanted["noise"][:2000]  # but in the other half it does not
    (found,) = cells.select_cells(values, wanted, widths=(5, 4))
    assert (found.layer, found.unit, found.feature) == (2, 1, "open")
    assert found.correlation < -0.8
    assert found.values == values[2000:, 6].tolist()
    assert found.title == f"open: layer 2, cell 1 (r = {found.correlation:+.2f})"


def test_a_text_is_coloured_and_escaped() -> None:
    text = "a <b> & c"
    one = cells.InterpretableCell(1, 0, "x & y", 0.5, [0.5, -1.0, 0.0, 0.25, 0.125, 1.0])
    page = cells.section(text, spans(text), [one])
    assert "x &amp; y" in page
    assert "&lt;</span>" in page
    assert 'rgba(222,120,31,0.50)" title="+0.50">a</span>' in page
    assert "rgba(47,111,179,1.00)" in page
    assert page.count("<span") == 6


def test_a_png_of_cells_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    one = cells.InterpretableCell(1, 0, "$x$", 0.5, [0.5] * len(spans(TEXT)))
    cells.draw(tmp_path / "cells.png", TEXT, spans(TEXT), [one])
    assert (tmp_path / "cells.png").read_bytes().startswith(b"\x89PNG")
