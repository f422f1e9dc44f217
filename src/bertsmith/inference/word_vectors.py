"""Word vectors: nearest neighbours, analogies, and evaluation by word similarity and analogy files."""

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
MAX_LINE_CHARACTERS = 1 << 12  # of a file of pairs or questions
EPSILON = 1e-3  # avoids a division by zero, as in the paper
BATCH_QUESTIONS = 512  # questions in one matrix product


@dataclass(frozen=True)
class Neighbour:
    """A word and its score: the cosine similarity, or the score of an analogy.

    >>> vectors.most_similar("king")[0].word
    'queen'
    """

    word: str
    score: float


@dataclass(frozen=True)
class SimilarityScores:
    """Word similarity: Spearman's correlation between cosines and human judgements, over the pairs of known words.

    >>> vectors.evaluate_pairs([("king", "queen", 9.0), ("king", "river", 1.0)]).correlation > 0.99
    True
    """

    correlation: float
    found: int  # pairs whose words both have vectors
    pairs: int


@dataclass(frozen=True)
class AnalogyScores:
    """Accuracy on analogies, over the questions whose words are all known, and by group.

    >>> vectors.evaluate_analogies([("royal", ("man", "king", "woman", "queen"))]).accuracy
    1.0
    """

    accuracy: float
    found: int  # questions whose words all have vectors
    questions: int
    groups: dict[str, float]

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values.

        >>> sorted(vectors.evaluate_analogies([]).to_dict())
        ['accuracy', 'found', 'groups', 'questions']
        """
        return asdict(self)


class KeyedVectors:
    """Word vectors for queries, normalised to length one, so that inner products are cosines.

    >>> vectors = KeyedVectors(WordVectors(["king", "queen"], np.array([[1, 0.5], [1, 0.6]], np.float32)))
    >>> vectors.most_similar("king", top_k=1)[0].word
    'queen'
    """

    def __init__(self, vectors: WordVectors) -> None:
        lengths = np.linalg.norm(vectors.table, axis=1, keepdims=True)
        self.words, self.table = vectors.words, vectors.table / np.maximum(lengths, 1e-12)
        # In reverse order, so that of two equal words the first counts.
        self.word_to_index = {word: index for index, word in reversed(list(enumerate(self.words)))}

    def index_of(self, word: str) -> int:
        """The row of a word, as it is written or in lower case.

        >>> vectors.index_of("King")
        0
        """
        for form in (word, word.lower()):
            if form in self.word_to_index:
                return self.word_to_index[form]
        close = get_close_matches(word.lower(), (one for one in self.words if one[:1] == word[:1].lower()), n=1)
        fact = f"is none of the {len(self.words):,} words that have a vector"
        raise TextError(f"'{word}'", fact, f"Did you mean '{close[0]}'?" if close else "")

    def most_similar(self, word: str, top_k: int = 10) -> list[Neighbour]:
        """The `top_k` words with the highest cosine similarity to a word, best first.

        >>> [neighbour.word for neighbour in vectors.most_similar("king", top_k=2)]
        ['queen', 'man']
        """
        index = self.index_of(word)
        return self._top(self.table @ self.table[index], [index], top_k)

    def analogy(self, word: str, minus: str, plus: str, top_k: int = 10, method: Method = "add") -> list[Neighbour]:
        """The words nearest to `word - minus + plus`, except these three; `method` is 3CosAdd or 3CosMul.

        >>> vectors.analogy("king", "man", "woman")[0].word
        'queen'
        """
        indices = [self.index_of(one) for one in (word, minus, plus)]
        return self._top(self._scores(np.array([indices]), method, len(self.words))[0], indices, top_k)

    def evaluate_pairs(self, pairs: Sequence[tuple[str, str, float]]) -> SimilarityScores:
        """Spearman's correlation between cosines and human judgements of word pairs.

        >>> vectors.evaluate_pairs([("king", "queen", 9.0), ("king", "unheard", 1.0)]).found
        1
        """
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
        """Accuracy on questions (group, (a, b, c, d)): a is to b as c is to d, among the `limit` most frequent words.

        >>> vectors.evaluate_analogies([("royal", ("man", "king", "woman", "queen"))], method="multiply").found
        1
        """
        size = len(self.words) if limit is None else min(limit, len(self.words))
        known = [(group, [self._index_or_none(word) for word in four]) for group, four in questions]
        complete = [(group, four) for group, four in known if all(one is not None and one < size for one in four)]
        correct, seen = Counter[str](), Counter(group for group, _ in complete)
        for start in range(0, len(complete), BATCH_QUESTIONS):
            some = complete[start : start + BATCH_QUESTIONS]
            a, b, c, d = np.array([four for _, four in some], np.int64).T
            scores = self._scores(np.stack([b, a, c], 1), method, size)
            np.put_along_axis(scores, np.stack([a, b, c], 1), -np.inf, 1)
            correct.update(group for (group, _), hit in zip(some, scores.argmax(1) == d, strict=True) if hit)
        groups = {group: correct[group] / seen[group] for group in seen}
        return AnalogyScores(correct.total() / max(len(complete), 1), len(complete), len(questions), groups)

    def _scores(self, triples: Int64[np.ndarray, "Q 3"], method: Method, size: int) -> Float32[np.ndarray, "Q S"]:
        """The score of each of the first `size` words as an answer. Levy and Goldberg 2014, sections 3 and 6."""
        word, minus, plus = (self.table[column] for column in triples.T)
        candidates = self.table[:size].T
        if method == "add":
            return np.asarray((word - minus + plus) @ candidates)
        one, without, other = ((part @ candidates + 1) / 2 for part in (word, minus, plus))
        return np.asarray(one * other / (without + np.float32(EPSILON)))

    def _top(self, scores: np.ndarray, excluded: Sequence[int], top_k: int) -> list[Neighbour]:
        scores = scores.astype(np.float64)
        scores[list(excluded)] = -np.inf
        order = np.argsort(-scores, kind="stable")[: min(top_k, len(scores) - len(set(excluded)))]
        return [Neighbour(self.words[index], float(scores[index])) for index in order]

    def _index_or_none(self, word: str) -> int | None:
        return self.word_to_index.get(word, self.word_to_index.get(word.lower()))


def read_word_pairs(path: Path) -> list[tuple[str, str, float]]:
    """Read word pairs with human judgements, as in WordSim-353: two words and a number per line; # starts a comment."""
    found = []
    for location, parts in _rows(path):
        if parts[0].startswith("#"):
            continue
        try:
            one, other, score = parts
            found.append((one, other, float(score)))
        except ValueError:
            raise TextError(location, "is not two words and a number") from None
    return found


def read_analogies(path: Path) -> list[tuple[str, tuple[str, str, str, str]]]:
    """Read analogy questions, as in Google's file: four words per line, in groups that begin with a colon."""
    found, group = [], ""
    for location, parts in _rows(path):
        if parts[0] == ":":
            group = " ".join(parts[1:])
            continue
        if len(parts) != 4:
            raise TextError(location, "is not four words")
        one, two, three, four = parts
        found.append((group, (one, two, three, four)))
    return found


def _rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """The location of each line of a file, compressed or not, and its parts between spaces."""
    if not path.is_file():
        raise TextError(path, "is not a file" if path.exists() else "does not exist")
    source = Source(path, ".txt", path.suffix if path.suffix in COMPRESSIONS else "")
    for first, lines in clean_lines(
        source.blocks(lambda reached: None), source.name, Cleaner("fail", MAX_LINE_CHARACTERS, Counter())
    ):
        for number, line in enumerate(lines, first):
            if parts := line.split():
                yield f"{path}:{number}", parts
