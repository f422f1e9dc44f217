"""Figures of recurrent networks through time: gradient flow, and interpretable cells, on a page of text."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from bertsmith.errors import TextError
from bertsmith.insight import cells, gradient_flow
from bertsmith.insight.cells import InterpretableCell, Span
from bertsmith.insight.inspection.subject import Subject
from bertsmith.models.recurrent import Recurrent

MIN_WORDS = 16  # of a text whose cells and gradients are looked at
LAG = 16  # tokens back at which the gradient is printed


@dataclass(frozen=True)
class TimeFigures:
    """The gradient flow and the interpretable cells of recurrent networks, by their names."""

    text: str
    norms: dict[str, list[float]]  # of the gradient, by how far back
    cells: dict[str, tuple[list[Span], list[InterpretableCell]]]

    @classmethod
    def of(cls, subjects: Sequence[Subject], text: str) -> "TimeFigures":
        """The figures of some recurrent networks on one text."""
        check_words(text)
        norms, found = {}, {}
        for subject in subjects:
            trunk = subject.objective.trunk
            assert isinstance(trunk, Recurrent)
            ids = subject.tokenizer.encode([text])[0]
            norms[subject.name] = gradient_flow.gradient_norms(trunk, gradient_flow.windows(ids))
            found[subject.name] = cells.find_cells(trunk, subject.tokenizer, text)
        return cls(text, norms, found)

    def sections(self) -> list[tuple[str, Markup, str]]:
        """Headings, pictures and what they show, for a page."""
        flow = ("Gradient flow through time", gradient_flow.section(self.norms), gradient_flow.LEAD)
        shown = [
            (f"Cells of {name}", cells.section(self.text, spans, found), cells.LEAD)
            for name, (spans, found) in self.cells.items()
        ]
        return [flow, *shown]

    def draw(self, out: Path) -> list[Path]:
        """The same as PNG files, whose names begin as that of the page."""
        written = [out.with_name(f"{out.stem}-time.png")]
        gradient_flow.draw(written[0], self.norms)
        for name, (spans, found) in self.cells.items():
            if found:
                written.append(out.with_name(f"{out.stem}-cells-{name.replace('/', '-')}.png"))
                cells.draw(written[-1], self.text, spans, found)
        return written

    def summary(self) -> list[str]:
        """A line for each cell, and for how much of the gradient reaches back."""
        lines = [f"{name}: {cell.title}" for name, (_, found) in self.cells.items() for cell in found]
        for name, norms in self.norms.items():
            lines.append(f"{name}: {norms[min(LAG, len(norms) - 1)]:.1e} of the gradient reaches {LAG} tokens back")
        return lines


def check_words(text: str, location: object = "text") -> None:
    """Refuse a text that is too short to follow a gradient through."""
    if len(text.split()) < MIN_WORDS:
        raise TextError(location, f"has fewer than {MIN_WORDS} words", "Give it a page of text")
