"""Words by their vectors: which lie near a word, which stands to one as another to a third, and do people agree?"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Float32, Int64

from bertsmith.data.corpus.lines import Cleaner, clean_lines
from bertsmith.data.corpus.sources import COMPRESSIONS, Source
from bertsmith.errors import TextError
from bertsmith.metrics.scores import spearman
from bertsmith.models.word_vectors import WordVectors

Method = Literal["add", "multiply"]  # 3CosAdd, 3CosMul
MAX_LINE_CHARACTERS = 1 << 12  # characters a line may have
EPSILON = 1e-3  # so that nothing is divided by nought, as in the paper
BATCH_QUESTIONS = 512  # questions that are answered at once


@dataclass(frozen=True)
class Neighbour:
    """A word, and how near it is: a cosine, or what an analogy makes of three."""

    word: str
    score: float


@dataclass(frozen=True)
class SimilarityScores:
    """How well cosines agree with people's judgements: a rank correlation, over the pairs whose words are known."""

    correlation: float
    found: int
    pairs: int


@dataclass(frozen=True)
class AnalogyScores:
    """The share of analogies that were answered rightly, among those whose words are all known."""

    accuracy: float
    found: int
    questions: int
    groups: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        return asdict(self)


class KeyedVectors:
    """Word vectors in a person's hands. All vectors are of length one: a product is a cosine."""

    def __init__(self, vectors: WordVectors) -> None:
        lengths = np.linalg.norm(vectors.table, axis=1, keepdims=True)
        self.words, self.table = vectors.words, vectors.table / np.maximum(lengths, 1e-12)
        self.word_to_index = {
            word: place for place, word in reversed(list(enumerate(self.words)))
        }  # of two alike, the first

    def index_of(self, word: str) -> int:
        """The number of a word, as it is written or in lower case."""
        for form in (word, word.lower()):
            if form in self.word_to_index:
                return self.word_to_index[form]
        close = get_close_matches(word.lower(), (one for one in self.words if one[:1] == word[:1].lower()), n=1)
        fact = f"is none of the {len(self.words):,} words that have a vector"
        raise TextError(f"'{word}'", fact, f"Did you mean '{close[0]}'?" if close else "")

    def most_similar(self, word: str, top_k: int = 10) -> list[Neighbour]:
        """The words that lie nearest to a word, the nearest first."""
        place = self.index_of(word)
        return self._top(self.table @ self.table[place], [place], top_k)

    def analogy(self, word: str, minus: str, plus: str, top_k: int = 10, method: Method = "add") -> list[Neighbour]:
        """What is to `plus` as `word` is to `minus`: king, man, woman gives queen. None of the three is an answer."""
        places = [self.index_of(one) for one in (word, minus, plus)]
        return self._top(self._scores(np.array([places]), method, len(self.words))[0], places, top_k)

    def evaluate_pairs(self, pairs: Sequence[tuple[str, str, float]]) -> SimilarityScores:
        """Spearman's correlation between cosines and judgements."""
        known = [(self._index_or_none(one), self._index_or_none(other), score) for one, other, score in pairs]
        found = [(one, other, score) for one, other, score in known if one is not None and other is not None]
        cosines = [float(self.table[one] @ self.table[other]) for one, other, _ in found]
        return SimilarityScores(spearman([score for *_, score in found], cosines), len(found), len(pairs))

    def evaluate_analogies(
        self,
        questions: Sequence[tuple[str, tuple[str, str, str, str]]],
        method: Method = "add",
        limit: int | None = 30_000,
    ) -> AnalogyScores:
        """How many questions, a : b = c : d, are answered by d, among the `most` frequent words, as is the custom."""
        size = len(self.words) if limit is None else min(limit, len(self.words))
        known = [(group, [self._index_or_none(word) for word in four]) for group, four in questions]
        asked = [(group, four) for group, four in known if all(one is not None and one < size for one in four)]
        right, seen = Counter[str](), Counter(group for group, _ in asked)
        for start in range(0, len(asked), BATCH_QUESTIONS):
            some = asked[start : start + BATCH_QUESTIONS]
            a, b, c, d = np.array([four for _, four in some], np.int64).T
            scores = self._scores(np.stack([b, a, c], 1), method, size)
            np.put_along_axis(scores, np.stack([a, b, c], 1), -np.inf, 1)
            right.update(group for (group, _), hit in zip(some, scores.argmax(1) == d, strict=True) if hit)
        groups = {group: right[group] / seen[group] for group in seen}
        return AnalogyScores(right.total() / max(len(asked), 1), len(asked), len(questions), groups)

    def _scores(self, triples: Int64[np.ndarray, "Q 3"], method: Method, size: int) -> Float32[np.ndarray, "Q S"]:
        """What each of the first words is worth as an answer. Levy and Goldberg 2014, sections 3 and 6."""
        word, minus, plus = (self.table[column] for column in triples.T)
        among = self.table[:size].T
        if method == "add":
            return np.asarray((word - minus + plus) @ among)
        one, without, other = ((part @ among + 1) / 2 for part in (word, minus, plus))
        return np.asarray(one * other / (without + np.float32(EPSILON)))

    def _top(self, scores: np.ndarray, excluded: Sequence[int], top_k: int) -> list[Neighbour]:
        scores = scores.astype(np.float64)
        scores[list(excluded)] = -np.inf
        order = np.argsort(-scores, kind="stable")[: min(top_k, len(scores) - len(set(excluded)))]
        return [Neighbour(self.words[place], float(scores[place])) for place in order]

    def _index_or_none(self, word: str) -> int | None:
        return self.word_to_index.get(word, self.word_to_index.get(word.lower()))


def read_word_pairs(path: Path) -> list[tuple[str, str, float]]:
    """The pairs of a file like WordSim-353 and SimLex-999: two words and a number a line; # begins a remark."""
    found = []
    for place, parts in _rows(path):
        if parts[0].startswith("#"):
            continue
        try:
            one, other, score = parts
            found.append((one, other, float(score)))
        except ValueError:
            raise TextError(place, "is not two words and a number") from None
    return found


def read_analogies(path: Path) -> list[tuple[str, tuple[str, str, str, str]]]:
    """The questions of a file like Google's analogies: four words a line, in groups that begin with a colon."""
    found, group = [], ""
    for place, parts in _rows(path):
        if parts[0] == ":":
            group = " ".join(parts[1:])
            continue
        if len(parts) != 4:
            raise TextError(place, "is not four words")
        one, two, three, four = parts
        found.append((group, (one, two, three, four)))
    return found


def _rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The lines of a file, packed or not, as their parts between spaces, and where each stands."""
    if not path.is_file():
        raise TextError(path, "is not a file" if path.exists() else "does not exist")
    source = Source(path, ".txt", path.suffix if path.suffix in COMPRESSIONS else "")
    for first, lines in clean_lines(
        source.blocks(lambda reached: None), source.name, Cleaner("fail", MAX_LINE_CHARACTERS, Counter())
    ):
        for number, line in enumerate(lines, first):
            if parts := line.split():
                yield f"{path}:{number}", parts
