"""Points of a map: words, sentences, or the occurrences of one word, read from a file, and their vectors.

A file has a text on each line, or is a table with a column of texts, and of labels by which points are coloured. The
vector of a word is its row of the embedding table; that of a sentence the pooled vectors of the last layer; that of an
occurrence the mean of the word's tokens in the last layer, where its meaning depends on the sentence.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float32
from torch import Tensor

from bertsmith.data.labelled import reader, unlabelled
from bertsmith.data.labelled.examples import Example
from bertsmith.data.labelled.sources import find_source
from bertsmith.data.labelled.tables import TABLE_SUFFIXES
from bertsmith.data.labelled.words import is_inside_word
from bertsmith.data.shards.encode import space_sensitive
from bertsmith.errors import TextError, suggest
from bertsmith.insight.inspection.inputs import Inputs, read_text, text_room
from bertsmith.insight.inspection.projection import MAX_POINTS, Map, Point
from bertsmith.insight.inspection.subject import Subject
from bertsmith.models.elmo import Elmo
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.seq2seq import Seq2Seq
from bertsmith.nn.pooling import POOLS
from bertsmith.random_bits import permute

MAX_LINES = 100_000  # texts that are read, of which the points are drawn
MARGIN = 100  # characters around a word that a point shows
WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Points:
    """The texts of a map, and what they are."""

    what: str
    points: list[Point]
    notes: list[str]
    texts: list[str]  # whole; a point may show a part
    spans: list[tuple[int, int]] | None = None  # the occurrence in each text


def read_points(path: str | Path, word: str | None = None, seed: int = 0) -> Points:
    """The points in a file; of a `word` its occurrences, and of a file with one word a line the words."""
    found = [Point(text.strip(), label) for text, label in islice(_texts(path), MAX_LINES) if text.strip()]
    if not found:
        raise TextError(path, "has no text", "Give a file with a text on each line")
    if word is not None:
        return _occurrences(path, found, word, seed)
    single = all(len(point.text.split()) == 1 for point in found)
    kept, notes = _sample(found, seed)
    return Points("words" if single else "sentences", kept, notes, [point.text for point in kept])


def draw_map(found: Points, subjects: Sequence[Subject], seed: int = 0) -> Map:
    """The map of points by the vectors of every model."""
    return Map.of(found.what, found.points, [_vectors(subject, found) for subject in subjects], seed)


def _texts(path: str | Path) -> Iterator[tuple[str, str]]:
    """The texts of a file with their labels, if it has any."""
    source = find_source(Path(path))
    if source.kind in TABLE_SUFFIXES and source.kind != ".txt":
        try:
            data = reader.read(path, "classify")
        except TextError:  # no column of labels
            pass
        else:
            labelled = (example for example in data.examples if isinstance(example, Example))
            yield from ((example.texts[0], str(example.label or "")) for example in labelled)
            return
        yield from ((text, "") for text in unlabelled.texts([str(path)]))
        return
    yield from ((line, "") for line in unlabelled.every_line(str(path)))


def _occurrences(path: str | Path, texts: Sequence[Point], word: str, seed: int) -> Points:
    """Every occurrence of a word, whatever its capitals."""
    if not word.strip():
        raise TextError("word", "is empty", "Name a word of the file")
    pattern = re.compile(re.escape(word.strip()), re.IGNORECASE)
    found = [Point(one.text, one.label, span) for one in texts for span in _whole_words(pattern, one.text)]
    if not found:
        known = list(dict.fromkeys(match[0].lower() for one in texts for match in WORD.finditer(one.text)))
        remedy = suggest(word.lower(), known)
        remedy = remedy if remedy.startswith("Did") else "Name a word that occurs in it"
        raise TextError(path, f"no line has the word '{word}'", remedy)
    kept, notes = _sample(found, seed)
    spans = [point.mark for point in kept if point.mark is not None]
    shown = [_excerpt(point) for point in kept]
    return Points(f"occurrences of '{word}'", shown, notes, [point.text for point in kept], spans)


def _whole_words(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    """The matches that are no part of a longer word."""
    at = 0
    while match := pattern.search(text, at):
        whole = not any(is_inside_word(text, edge) for edge in match.span())
        if whole:
            yield match.span()
        at = match.end() if whole else match.start() + 1


def _excerpt(point: Point) -> Point:
    """The point with the text around its word alone."""
    assert point.mark is not None
    start, end = point.mark
    begin = max(0, start - MARGIN)
    return Point(point.text[begin : end + MARGIN], point.label, (start - begin, end - begin))


def _sample(points: list[Point], seed: int) -> tuple[list[Point], list[str]]:
    """At most as many points as a map has, drawn by the seed, in their order."""
    if len(points) <= MAX_POINTS:
        return points, []
    drawn = np.sort(permute(np.arange(MAX_POINTS), len(points), seed))
    note = f"The map has {MAX_POINTS:,} of {len(points):,} points, drawn at random."
    return [points[number] for number in drawn.tolist()], [note]


@torch.inference_mode()
def _vectors(subject: Subject, found: Points) -> Float32[np.ndarray, "N D"]:
    objective, tokenizer = subject.objective, subject.tokenizer
    training = objective.training
    objective.eval()
    space = " " if found.what == "words" and space_sensitive(tokenizer.to_json()) else ""  # as inside a text
    try:
        vectors = []
        for number, text in enumerate(found.texts):
            if found.spans is not None:
                vectors.append(_occurrence_vector(subject, text, found.spans[number]))
            elif found.what == "words" and not isinstance(objective.trunk, Elmo):
                ids = tokenizer.encode([space + text])[0] or [tokenizer.unknown_id]
                vectors.append(objective.trunk.embedding.weight[ids].mean(0))
            else:
                states, _ = _last_layer(subject, text)
                bounds = torch.tensor([0, len(states)], dtype=torch.int32, device=states.device)
                vectors.append(POOLS[subject.pooling](states, bounds)[0])
        return torch.stack(vectors).float().cpu().numpy()
    finally:
        objective.train(training)


def _last_layer(subject: Subject, text: str) -> tuple[Tensor, Inputs]:
    """The hidden vectors of the last layer, of an encoder-decoder's encoder, and the tokens that they are of."""
    objective = subject.objective
    trunk, inputs = objective.trunk, read_text(objective, subject.tokenizer, text)
    tokens = inputs.batch(trunk.embedding.weight.device)
    match trunk:
        case EncoderDecoder():
            return trunk.encoder(tokens), inputs
        case Seq2Seq():
            return trunk.encoder(trunk.embedding(tokens.ids), tokens.bounds, tokens.max_length), inputs
    return trunk(tokens), inputs


def _occurrence_vector(subject: Subject, text: str, span: tuple[int, int]) -> Tensor:
    """The mean vector of a word's tokens; of a long text, only a window of tokens around the word is read."""
    begin, end = _window(subject, text, span)
    states, inputs = _last_layer(subject, text[begin:end])
    inside = [
        at
        for at, token in enumerate(inputs.tokens)
        if token.word >= 0 and _overlap((begin + token.start, begin + token.end), span)
    ]
    if not inside:
        raise _unread(text, span)
    return states[inside].mean(0)


def _window(subject: Subject, text: str, span: tuple[int, int]) -> tuple[int, int]:
    """The characters around a word whose tokens fit into the network: half of them before it, the others after it."""
    [(_, offsets)] = subject.tokenizer.encode_with_offsets([text])
    inside = [at for at, token in enumerate(offsets) if _overlap(token, span)]
    if not inside:
        raise _unread(text, span)
    room = text_room(subject.objective, subject.tokenizer)
    if len(offsets) <= room:
        return 0, len(text)
    first = max(0, inside[0] - max(0, room - len(inside)) // 2)
    return offsets[first][0], offsets[min(len(offsets), first + room) - 1][1]


def _overlap(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] < other[1] and other[0] < one[1]


def _unread(text: str, span: tuple[int, int]) -> TextError:
    return TextError("word", f"'{text[slice(*span)]}' has no token that the model reads", "Name another word")
