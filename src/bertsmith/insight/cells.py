"""Interpretable cells of a recurrent network: each token coloured by the value of one cell after it.

Some cells can be interpreted: one is on inside quotes, another counts the length of the sentence. Karpathy et al. 2015,
"Visualizing and Understanding Recurrent Networks". Cells are selected by their correlation with such a feature in the
first half of a text, and shown and evaluated on the second.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from markupsafe import Markup
from torch import Tensor

from bertsmith.insight import png
from bertsmith.insight.page import render
from bertsmith.models.recurrent import Recurrent
from bertsmith.nn.rnn.cells import STATE_VECTORS
from bertsmith.text.tokenizer import Tokenizer

Span = tuple[int, int]  # the characters that a token stands for
MIN_CORRELATION = 0.1  # of a correlation: less is none
CLOSING_QUOTES = {'"': '"', "'": "'", "\u201c": "\u201d", "\u2018": "\u2019"}  # quotation marks, and what ends each
MAX_QUOTATION = (
    2000  # characters after which a quotation has been left open by mistake; one ends with its paragraph, too
)
MAX_CHARACTERS = 1200  # characters of a text that a picture shows
COLUMNS = 100  # of a line of a PNG
LEAD = (
    "Each text is coloured by the value of one cell, orange above zero and blue below. The cell was selected by its "
    "correlation with the feature in the first half of the text; the text shown and the correlation (r) are of the "
    "second half."
)


@dataclass(frozen=True)
class InterpretableCell:
    """A cell and the feature that it correlates with."""

    layer: int  # counted from one
    unit: int
    feature: str
    correlation: float  # in the half of the text that it was not chosen by
    values: Sequence[float]  # for each token of that half, from -1 to 1

    @property
    def title(self) -> str:
        return f"{self.feature}: layer {self.layer}, cell {self.unit} (r = {self.correlation:+.2f})"


def find_cells(trunk: Recurrent, tokenizer: Tokenizer, text: str) -> tuple[list[Span], list[InterpretableCell]]:
    """The second half of a text by its tokens, and the cells that go with something in it."""
    ((ids, spans),) = tokenizer.encode_with_offsets([text])
    start = [tokenizer.start_id] if "start" in tokenizer.roles else []
    values = cell_states(trunk, torch.tensor([*start, *ids]))[len(start) :].double().numpy()
    found = select_cells(np.asarray(values), text_features(text, spans), trunk.config.widths)
    return list(spans[len(spans) // 2 :]), found


@torch.inference_mode()
def cell_states(trunk: Recurrent, ids: Int[Tensor, "L"]) -> Float[Tensor, "L N"]:
    """The value of every cell of every layer after every token, from -1 to 1; of an LSTM, tanh of the cell state."""
    stack, found = trunk.stack, []
    embedded = trunk.embedding(ids.to(trunk.embedding.weight.device))
    state = embedded.new_zeros(1, stack.state_size)
    for token in embedded:
        state = stack.step(token[None], state)[1]
        found.append(state[0])
    kept = torch.split(torch.stack(found).cpu(), stack.sizes, 1)[
        STATE_VECTORS[stack.cell] - 1 :: STATE_VECTORS[stack.cell]
    ]
    cells = torch.cat(kept, 1)
    return torch.tanh(cells) if STATE_VECTORS[stack.cell] == 2 else cells


def text_features(text: str, spans: Sequence[Span]) -> dict[str, Float64[np.ndarray, "L"]]:
    """Features of the text after each token, as numbers: inside quotes, position in the sentence and others."""
    quoted, bracketed, column, upper = (np.zeros(len(text) + 1) for _ in range(4))
    inside, opened, depth, place, capital = "", 0, 0, 0, 0
    for number, letter in enumerate(text):
        before = text[number - 1] if number else "\n"
        if letter == "\n" or (letter.isspace() and before in ".!?"):
            place = 0
        ended = before == letter == "\n" or number - opened > MAX_QUOTATION
        inside, was = ("" if ended else _closing_quote(inside, letter, before)), inside
        opened = number if inside and not was else opened
        depth = max(0, depth + (letter in "([") - (letter in ")]"))
        capital = int(letter.isupper()) if not (before.isalpha() and letter.isalpha()) else capital
        place += 1
        quoted[number + 1], bracketed[number + 1] = bool(inside), depth > 0
        column[number + 1], upper[number + 1] = place, capital
    ends = np.array([end for _, end in spans], np.int64)
    lengths = np.array([end - start for start, end in spans], np.float64)
    return {
        "inside quotes": quoted[ends],
        "inside brackets": bracketed[ends],
        "how far into the sentence": column[ends],
        "after a capital": upper[ends],
        "letters of the last word": lengths,
    }


def _closing_quote(mark: str, letter: str, before: str) -> str:
    """The mark that closes the quotation after this letter; empty outside. An apostrophe opens none."""
    if letter == mark and (letter != "'" or before in ",.!?;:-"):
        return ""
    if mark or letter not in CLOSING_QUOTES or (letter == "'" and not before.isspace()):
        return mark
    return CLOSING_QUOTES[letter]


def select_cells(
    values: Float64[np.ndarray, "L N"], features: Mapping[str, Float64[np.ndarray, "L"]], widths: Sequence[int]
) -> list[InterpretableCell]:
    """For each feature the cell with the highest correlation; none below `MIN_CORRELATION`, or if it is constant."""
    half, found = len(values) // 2, []
    layers = np.repeat(np.arange(len(widths)), widths)
    firsts = np.concatenate([[0], np.cumsum(widths)])
    for name, feature in features.items():
        if feature[:half].std() == 0 or feature[half:].std() == 0:
            continue
        best = int(np.abs(_correlations(values[:half], feature[:half])).argmax())
        judged = float(_correlations(values[half:, best : best + 1], feature[half:])[0])
        if abs(judged) < MIN_CORRELATION:
            continue
        layer = int(layers[best])
        shown = values[half:, best].tolist()
        found.append(InterpretableCell(layer + 1, best - int(firsts[layer]), name, judged, shown))
    return found


def _correlations(values: Float64[np.ndarray, "L N"], feature: Float64[np.ndarray, "L"]) -> Float64[np.ndarray, "N"]:
    """Pearson's correlation of each column with a feature; zero for a constant column."""
    centred, other = values - values.mean(0), feature - feature.mean()
    lengths = np.sqrt((centred**2).sum(0) * (other**2).sum())
    return np.asarray(np.divide(other @ centred, lengths, out=np.zeros(len(lengths)), where=lengths > 0))


def section(text: str, spans: Sequence[Span], found: Sequence[InterpretableCell]) -> Markup:
    """Each cell with its text, every token on its colour."""
    return render("cells.html", cells=[(one.title, _tokens(text, spans, one.values)) for one in found])


def _tokens(text: str, spans: Sequence[Span], values: Sequence[float]) -> list[tuple[str, str, float]]:
    """The characters between the last token and this one, the token, and the value after it."""
    parts, place = [], spans[0][0] if spans else 0
    for (start, end), value in _visible(spans, values):
        parts.append((text[place:start], text[start:end], value))
        place = end
    return parts


def _visible(spans: Sequence[Span], values: Sequence[float]) -> list[tuple[Span, float]]:
    """The tokens within the first `MAX_CHARACTERS` of the text."""
    if not spans:
        return []
    stop = spans[0][0] + MAX_CHARACTERS
    return [(span, value) for span, value in zip(spans, values, strict=True) if span[1] <= stop]


def draw(path: Path, text: str, spans: Sequence[Span], found: Sequence[InterpretableCell]) -> None:
    """The same as a PNG, letter by letter."""
    rows = -(-MAX_CHARACTERS // COLUMNS) + 1
    figure = png.figure(path, 10.0, max(1.0, 0.19 * (rows + 3) * len(found)))
    for axes, one in zip(figure.subplots(max(len(found), 1), 1, squeeze=False)[:, 0], found, strict=False):
        axes.set_title(one.title, fontsize=9, loc="left")
        axes.set(xlim=(0, COLUMNS), ylim=(rows, 0))
        axes.set_axis_off()
        first = spans[0][0]
        colours, before = np.zeros((rows, COLUMNS)), first
        for (_, end), value in _visible(spans, one.values):
            for place in range(before - first, end - first):
                colours[divmod(place, COLUMNS)] = value
            before = end
        axes.imshow(
            -colours,
            cmap="RdBu",
            vmin=-1.2,
            vmax=1.2,
            extent=(0, COLUMNS, rows, 0),
            aspect="auto",
            interpolation="none",
        )
        for place, letter in enumerate(text[first : first + MAX_CHARACTERS]):
            row, column = divmod(place, COLUMNS)
            if not letter.isspace():
                how = {"fontsize": 7, "family": "monospace", "ha": "center", "va": "center", "parse_math": False}
                axes.text(column + 0.5, row + 0.5, letter, **how)
    png.save(path, figure)
