"""An inspection: what models look at, predict and know, of some texts, as one page, as JSON, and as pictures.

Attention with the kinds of heads, predictions by layer, masked runs, comparisons, attributions, nearest neighbours and
a map. Results can be read in Python, and shown in a notebook.
"""

import json
from collections import Counter
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from markupsafe import Markup

from bertsmith import files
from bertsmith.errors import TextError, suggest
from bertsmith.insight.inspection import pictures
from bertsmith.insight.inspection.attention_maps import AttentionMaps
from bertsmith.insight.inspection.comparison import Comparison
from bertsmith.insight.inspection.encoded import number
from bertsmith.insight.inspection.inspected_text import InspectedText
from bertsmith.insight.inspection.projection import Map
from bertsmith.insight.inspection.subject import Subject
from bertsmith.insight.inspection.time_figures import TimeFigures
from bertsmith.insight.page import render

FORMAT = 1
ENDINGS = (".html", ".json", ".png")
ESCAPES = str.maketrans({mark: f"\\u{ord(mark):04x}" for mark in "<>&\u2028\u2029"})
DECISIVE = 5  # words that the repr names
FRAME_HEIGHT = 900  # pixels of the page in a notebook


@dataclass(frozen=True, repr=False)
class Inspection:
    """All figures of one or more models on one or more texts. In a notebook it shows itself as a page.

    >>> inspection = model.inspect(["the cat sees the [MASK] .", "the dog sees the [MASK] ."])
    >>> inspection.save("inside.html")
    PosixPath('inside.html')
    >>> [reading.text for reading in inspection.readings]
    [0, 1]
    """

    subjects: list[Subject]
    texts: list[str]
    readings: list[InspectedText]  # of every model and every text, the models outermost
    comparisons: list[tuple[int, int, Comparison]]  # the numbers of two readings, and where they part
    map: Map | None = None
    time: TimeFigures | None = None  # of recurrent networks: gradient flow and cells
    notes: tuple[str, ...] = ()

    def figures(self) -> dict[str, Any]:
        """All figures as JSON values; matrices are zlib-compressed bytes in base64.

        >>> sorted(model.inspect("the cat").figures())
        ['comparisons', 'format', 'map', 'models', 'readings', 'texts']
        """
        return {
            "format": FORMAT,
            "models": [subject.figures() for subject in self.subjects],
            "texts": self.texts,
            "readings": [self._reading(one) for one in self.readings],
            "comparisons": [found.figures(a, b) for a, b, found in self.comparisons],
            "map": None if self.map is None else rounded(self.map.figures()),
        }

    def json(self) -> str:
        """The figures as JSON that may stand inside a page.

        >>> model.inspect("the cat").json()[:12]
        '{"format":1,'
        """
        text = json.dumps(self.figures(), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
        return text.translate(ESCAPES)

    def page(self) -> str:
        """The page, which is one file and loads nothing.

        >>> model.inspect("the cat").page()[:15]
        '<!doctype html>'
        """
        names = ", ".join(dict.fromkeys(subject.name for subject in self.subjects))
        sections = [] if self.time is None else self.time.sections()
        return str(render("inspect.html", title=f"Inside {names}", data=Markup(self.json()), sections=sections))

    def save(self, path: str | Path) -> Path:
        """Write the page (.html), the figures (.json) or pictures of the first text (.png), and return the path.

        >>> model.inspect("the cat").save("inside.json").suffix
        '.json'
        """
        path = check_ending(path)
        with files.explain_os_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        match path.suffix.lower():
            case ".png":
                pictures.draw(path, [subject.name for subject in self.subjects], self.readings)
            case ".json":
                files.write_atomic(path, self.json().encode())
            case _:
                files.write_atomic(path, self.page().encode())
        return path

    def _repr_html_(self) -> str:
        """The page in a frame, which may run its own script and nothing else of the notebook."""
        style = f"width:100%;height:{FRAME_HEIGHT}px;border:0"
        return f'<iframe sandbox="allow-scripts" style="{style}" srcdoc="{escape(self.page())}"></iframe>'

    def __repr__(self) -> str:
        return "\n".join(["Inspection", *self.summary()])

    def summary(self, texts: int | None = None) -> list[str]:
        """A few lines for each of the first texts: heads by kind, predictions of blanks, the most decisive words.

        >>> model.inspect("the cat").summary()[1]
        '  self-attention: 8 heads: ...'
        """
        shown = [one for one in self.readings if texts is None or one.text < texts]
        lines = [line for one in shown for line in self._summary(one)]
        return [*lines, *([] if self.time is None else self.time.summary()), *([repr(self.map)] if self.map else [])]

    def _reading(self, one: InspectedText) -> dict[str, Any]:
        tokenizer = self.subjects[one.model].tokenizer
        notes = self.notes if one is self.readings[0] else ()
        figures = one.reading.figures()
        return {
            "model": one.model,
            "text": one.text,
            **figures,
            "attributions": [rounded(found.figures()) for found in one.attributions],
            "neighbours": None if one.neighbours is None else rounded(one.neighbours.figures(tokenizer.readable)),
            "notes": [*figures["notes"], *notes],
        }

    def _summary(self, one: InspectedText) -> list[str]:
        lines = [f"{self.subjects[one.model].name}: {self.texts[one.text][:72]!r}"]
        lines += [f"  {maps.name}: {describe_heads(maps)}" for maps in one.attentions]
        found = one.reading.predictions
        if found is not None and found.kind in ("masked", "next"):
            last = len(found.layers) - 1
            blanks = [row for row, truth in enumerate(found.truths) if truth is None]
            tokens = one.reading.targets if found.where == "targets" else one.tokens
            for row in blanks[:DECISIVE]:
                best = ", ".join(f"{word} {share:.0%}" for word, share in found.top(row, last)[:3])
                after = "after " if found.kind == "next" else ""
                place = found.positions[row]
                lines.append(f"  {after}{(tokens or one.tokens)[place].shown} at {place}: {best}")
        for attribution in one.attributions:
            decisive = sorted(attribution.words, key=lambda pair: -abs(pair[1]))[:DECISIVE]
            words = ", ".join(f"{word} {score:+.2f}" for word, score in decisive)
            lines.append(f"  {attribution.name}, by {words} (gap {attribution.gap:.1%})")
        return lines


def describe_heads(maps: AttentionMaps) -> str:
    """The heads by kind: "144 heads: 40 separator, 22 previous, ..."."""
    kinds = Counter(head.kind for layer in maps.heads for head in layer)
    counts = ", ".join(f"{count} {kind}" for kind, count in kinds.most_common())
    return f"{kinds.total()} heads: {counts}"


def check_ending(path: str | Path) -> Path:
    """The path of an output whose ending is known; asked before the work is done."""
    if not isinstance(path, str | Path) or not str(path):
        raise TextError("path", "is missing", "Name a file: inside.html")
    found = Path(path)
    if found.suffix.lower() not in ENDINGS:
        remedy = suggest(found.suffix, ENDINGS) if found.suffix else f"Use {', '.join(ENDINGS)}"
        raise TextError(path, f"has the unknown ending '{found.suffix}'", remedy)
    return found


def rounded(value: Any) -> Any:
    """JSON values with numbers of four significant digits."""
    match value:
        case float():
            return number(value)
        case dict():
            return {key: rounded(one) for key, one in value.items()}
        case list() | tuple():
            return [rounded(one) for one in value]
    return value
