"""Entities: names and other stretches of a sentence, read from the tags of its words, and how many were found.

The rules are those of conlleval, by which the CoNLL tasks of 2000 to 2003 were scored: an entity is right if its
begin, its end and its kind are.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Entity = tuple[str, int, int]  # kind, first word, word behind the last

_KNOWN = frozenset("BIOES")


@dataclass(frozen=True, kw_only=True)
class TypeScores:
    """How well entities of a kind were found, from their numbers."""

    correct: int
    gold: int
    predicted: int

    @property
    def precision(self) -> float:
        return self.correct / self.predicted if self.predicted else 0.0

    @property
    def recall(self) -> float:
        return self.correct / self.gold if self.gold else 0.0

    @property
    def f1(self) -> float:
        return 2 * self.correct / (self.gold + self.predicted) if self.correct else 0.0


@dataclass(frozen=True, kw_only=True)
class EntityScores:
    """How well entities were found, of all kinds together and of each. Parts of one, not of a hundred."""

    precision: float
    recall: float
    f1: float
    by_type: dict[str, TypeScores]
    accuracy: float  # the share of words with the right tag, those outside entities too


def get_entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence. An entity begins where `_begins` says, and goes on until another does, or to an O.

    Departs from conlleval: there an O does not end an entity whose last tag has neither a kind nor a known mark.
    """
    found: list[Entity] = []
    begin: int | None = None
    before = ("O", "")
    for place, tag in enumerate([*tags, "O"]):
        mark, _, kind = tag.partition("-")  # kinds may hold hyphens
        begins = _begins(before, (mark, kind))
        if begin is not None and (begins or mark == "O"):
            found.append((before[1], begin, place))
            begin = None
        if begins:
            begin = place
        before = (mark, kind)
    return found


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> EntityScores:
    """How well the entities of sentences were found."""
    if len(gold) != len(predicted):
        raise ValueError(f"there are {len(gold)} tagged sentences, but {len(predicted)} guessed ones")
    right: Counter[str] = Counter()
    true: Counter[str] = Counter()
    given: Counter[str] = Counter()
    words = agreed = 0
    for number, (tags, guesses) in enumerate(zip(gold, predicted, strict=True)):
        if len(tags) != len(guesses):
            raise ValueError(f"sentence {number} has {len(tags)} tags, but {len(guesses)} guessed ones")
        words += len(tags)
        agreed += sum(one == other for one, other in zip(tags, guesses, strict=True))
        here, there = get_entities(tags), get_entities(guesses)
        true.update(kind for kind, _, _ in here)
        given.update(kind for kind, _, _ in there)
        right.update(kind for kind, _, _ in set(here) & set(there))
    whole = TypeScores(correct=right.total(), gold=true.total(), predicted=given.total())
    return EntityScores(
        precision=whole.precision,
        recall=whole.recall,
        f1=whole.f1,
        by_type={
            kind: TypeScores(correct=right[kind], gold=true[kind], predicted=given[kind])
            for kind in sorted(true | given)
        },
        accuracy=agreed / words if words else 0.0,
    )


def _begins(before: tuple[str, str], now: tuple[str, str]) -> bool:
    """Whether an entity begins between two tags, each a mark and a kind.

    Marks are B, I and O, and in later editions of conlleval E for the last word and S for a single one. An I begins
    an entity where none of its kind goes on, so that tags by older habits (IOB1) and impossible ones can be read.
    """
    mark, kind = now
    if mark == "O":
        return False
    if kind != before[1]:
        return True
    if before[0] not in _KNOWN:
        return False
    return mark in ("B", "S") or (mark in ("I", "E") and before[0] in ("O", "E", "S"))
