"""The assembly of an inspection: every model reads every text, readings are compared, and points are mapped."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from bertsmith.data.rows import Row
from bertsmith.errors import TextError
from bertsmith.insight.inspection.attributions import attribute as attribute_tokens
from bertsmith.insight.inspection.comparison import Comparison, What, compare
from bertsmith.insight.inspection.inspected_text import InspectedText
from bertsmith.insight.inspection.inspection import Inspection
from bertsmith.insight.inspection.neighbours import Neighbours, find_neighbours
from bertsmith.insight.inspection.points import draw_map, read_points
from bertsmith.insight.inspection.reading import Reading, read
from bertsmith.insight.inspection.subject import Subject
from bertsmith.insight.inspection.time_figures import MIN_WORDS, TimeFigures
from bertsmith.models.elmo import Elmo
from bertsmith.models.networks import EncoderDecoderNetwork
from bertsmith.models.recurrent import Recurrent
from bertsmith.tasks.base import Task
from bertsmith.tasks.multiple_choice import MultipleChoice
from bertsmith.tasks.question_answering import QuestionAnswering

MAX_READINGS = 32  # texts times models, of one page
ALL_PAIRS = 4  # texts or models up to which all pairs are compared; of more, neighbours, and the first with the last
PAIR_REMEDY = {
    QuestionAnswering: "Give (question, context), or the two separated by a tab",
    MultipleChoice: "Give (beginning, ending), or the two separated by a tab",
}
NOT_ATTRIBUTED = {
    True: "This network reads characters, so its predictions are not attributed to words.",
    False: "Generated text is not attributed to the words that were read.",
}


@dataclass(frozen=True)
class Input:
    """A text, or a pair of texts."""

    text: str
    pair: str | None = None

    @property
    def shown(self) -> str:
        return self.text if self.pair is None else f"{self.text}\n{self.pair}"


def inspect(
    subjects: Sequence[Subject],
    texts: Any,
    *,
    target: str | None = None,
    max_length: int | None = None,
    attribute: bool = True,
    map_file: str | Path | None = None,
    word: str | None = None,
    passage: str | None = None,
    seed: int = 0,
    progress: Callable[[str], object] = lambda _: None,
) -> Inspection:
    """Models on texts: a text, a pair of texts as a tuple, or a list of these.

    `map_file` has the points of a map, of `word` its occurrences; a `passage` is for the cells of recurrent networks;
    `progress` is called with what is read next.
    """
    if word is not None and map_file is None:
        raise TextError("word", "is for a map", "Name the file with its occurrences, too")
    points = None if map_file is None else read_points(map_file, word, seed)
    inputs = as_inputs(texts)
    if not inputs and points is not None:
        inputs = [Input(points.texts[0])]  # a page without a text would have nothing but the map
    if not inputs:
        raise TextError("texts", "there is none", "Give at least one text")
    if len(inputs) * len(subjects) > MAX_READINGS:
        fact = f"{len(inputs)} texts and {len(subjects)} models are {len(inputs) * len(subjects)} readings"
        raise TextError("texts", fact, f"A page has at most {MAX_READINGS}: leave some out")
    subjects = _with_unique_names(subjects)
    readings = []
    for model, subject in enumerate(subjects):
        for number, one in enumerate(inputs):
            progress(f"{subject.name}: {one.shown[:60]!r}")
            readings.append(_inspect_text(subject, one, model, number, target, max_length, attribute))
    comparisons = _comparisons(readings, len(subjects), len(inputs))
    through_time = None
    recurrent = [subject for subject in subjects if isinstance(subject.objective.trunk, Recurrent)]
    passage = passage or next((one.text for one in inputs if len(one.text.split()) >= MIN_WORDS), None)
    if recurrent and passage is not None:
        progress("gradient flow and cells of recurrent networks")
        through_time = TimeFigures.of(recurrent, passage)
    drawn = None
    if points is not None:
        progress(f"the map of {len(points.points):,} {points.what}")
        drawn = draw_map(points, subjects, seed)
    notes = () if points is None else tuple(points.notes)
    return Inspection(list(subjects), [one.shown for one in inputs], readings, comparisons, drawn, through_time, notes)


def _with_unique_names(subjects: Sequence[Subject]) -> list[Subject]:
    """The same subjects; the second of a name has a number."""
    found, seen = list[Subject](), Counter[str]()
    for subject in subjects:
        seen[subject.name] += 1
        count = seen[subject.name]
        found.append(replace(subject, name=f"{subject.name} ({count})") if count > 1 else subject)
    return found


def as_inputs(texts: Any) -> list[Input]:
    """Texts in the forms that people give them; a beginning with a list of endings is a text for each ending."""
    given: Iterable[Any] = [texts] if isinstance(texts, str | tuple) else texts
    found = []
    for place, one in enumerate(given, 1):
        match one:
            case str(text):
                found.append(Input(text))
            case (str(text), str(pair)):
                found.append(Input(text, pair))
            case (str(text), [*endings]) if endings and all(isinstance(ending, str) for ending in endings):
                found += [Input(text, ending) for ending in endings]
            case _:
                raise TextError(f"text {place}", f"is {str(one)[:40]!r}", "Give a text, or a pair of texts as a tuple")
    return found


def _inspect_text(
    subject: Subject, one: Input, model: int, number: int, target: str | None, max_length: int | None, decided: bool
) -> InspectedText:
    objective, tokenizer = subject.objective, subject.tokenizer
    if one.pair is None and type(objective) in PAIR_REMEDY:
        raise TextError(f"text {number + 1}", f"{subject.name} reads pairs of texts", PAIR_REMEDY[type(objective)])
    reading = read(
        objective,
        tokenizer,
        one.text,
        pair=one.pair,
        target=target,
        max_length=max_length,
        has_lm_head=subject.has_lm_head,
    )
    attributions, trunk = [], objective.trunk
    if decided and isinstance(trunk, Elmo | EncoderDecoderNetwork):
        reading = replace(reading, notes=(*reading.notes, NOT_ATTRIBUTED[isinstance(trunk, Elmo)]))
    elif decided and (subject.has_lm_head or isinstance(objective, Task)):
        inputs = reading.trace.inputs
        row = Row(np.array(inputs.ids, np.int32), np.array(inputs.segments, np.int32))
        words, shown = [token.word for token in inputs.tokens], [token.shown for token in inputs.tokens]
        attributions = attribute_tokens(objective, tokenizer, row, words, shown)
    return InspectedText(model, number, reading, attributions, _neighbours(subject, reading))


def _neighbours(subject: Subject, reading: Reading) -> Neighbours:
    """The nearest neighbours of the tokens that an encoder reads, or the only network."""
    trunk, tokenizer = subject.objective.trunk, subject.tokenizer
    table = None if isinstance(trunk, Elmo) else trunk.embedding.weight
    device = trunk.embedding.weight.device
    excluded = torch.ones(0 if table is None else len(table), dtype=torch.bool)
    for number in range(min(len(excluded), tokenizer.vocabulary)):
        piece = tokenizer.piece(number)
        excluded[number] = bool(tokenizer.special_mask[number]) or not piece or piece.startswith("[unused")
    ids = torch.tensor(reading.trace.inputs.ids, device=device)
    special = torch.tensor([token.special for token in reading.tokens], device=device)
    vectors = torch.from_numpy(reading.trace.hidden[-1]).to(device)
    return find_neighbours(table, ids, vectors, special, excluded.to(device))


def _comparisons(readings: Sequence[InspectedText], models: int, texts: int) -> list[tuple[int, int, Comparison]]:
    """Texts under each model, and models on each text."""
    found = []
    asked: list[tuple[int, int, What]] = []
    for model in range(models):
        asked += [(model * texts + a, model * texts + b, "texts") for a, b in _pairs(texts)]
    for text in range(texts):
        asked += [(a * texts + text, b * texts + text, "models") for a, b in _pairs(models)]
    for a, b, what in asked:
        found.append((a, b, compare(readings[a].reading, readings[b].reading, what)))
    return found


def _pairs(count: int) -> list[tuple[int, int]]:
    if count <= ALL_PAIRS:
        return list(combinations(range(count), 2))
    return [*((number, number + 1) for number in range(count - 1)), (0, count - 1)]
