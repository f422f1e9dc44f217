"""Entities: spans of a sentence, decoded from the tags of its words (BIO, BIOES), and their precision, recall and F1.

The rules are those of conlleval, which scored the CoNLL shared tasks of 2000 to 2003: an entity is right if its
start, its end and its type are.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

Entity = tuple[str, int, int]  # type, first word, word after the last

_PREFIXES = frozenset("BIOES")


@dataclass(frozen=True, kw_only=True)
class TypeScores:
    """Precision, recall and F1 of the entities of one type, from their counts."""

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
    """Micro-averaged precision, recall and F1 over entities of all types, and the scores of each type."""

    precision: float
    recall: float
    f1: float
    by_type: dict[str, TypeScores]
    accuracy: float  # the share of words with the right tag, those outside entities included


def get_entities(tags: Sequence[str]) -> list[Entity]:
    """The entities of a sentence. An entity begins where `_begins` says, and ends before the next one or before an O.

    Departs from conlleval: there an O does not end an entity whose last tag has neither a type nor a known prefix.
    """
    entities: list[Entity] = []
    begin: int | None = None
    before = ("O", "")
    for position, tag in enumerate([*tags, "O"]):
        prefix, _, kind = tag.partition("-")  # types may contain hyphens
        begins = _begins(before, (prefix, kind))
        if begin is not None and (begins or prefix == "O"):
            entities.append((before[1], begin, position))
            begin = None
        if begins:
            begin = position
        before = (prefix, kind)
    return entities


def entity_scores(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> EntityScores:
    """The scores of the predicted tags of some sentences."""
    if len(gold) != len(predicted):
        raise ValueError(f"there are {len(gold)} tagged sentences, but {len(predicted)} predicted ones")
    correct_counts: Counter[str] = Counter()
    gold_counts: Counter[str] = Counter()
    predicted_counts: Counter[str] = Counter()
    words = correct_words = 0
    for number, (gold_tags, tags) in enumerate(zip(gold, predicted, strict=True)):
        if len(gold_tags) != len(tags):
            raise ValueError(f"sentence {number} has {len(gold_tags)} tags, but {len(tags)} predicted ones")
        words += len(gold_tags)
        correct_words += sum(one == other for one, other in zip(gold_tags, tags, strict=True))
        gold_entities, entities = get_entities(gold_tags), get_entities(tags)
        gold_counts.update(kind for kind, _, _ in gold_entities)
        predicted_counts.update(kind for kind, _, _ in entities)
        correct_counts.update(kind for kind, _, _ in set(gold_entities) & set(entities))
    overall = TypeScores(correct=correct_counts.total(), gold=gold_counts.total(), predicted=predicted_counts.total())
    return EntityScores(
        precision=overall.precision,
        recall=overall.recall,
        f1=overall.f1,
        by_type={
            kind: TypeScores(correct=correct_counts[kind], gold=gold_counts[kind], predicted=predicted_counts[kind])
            for kind in sorted(gold_counts | predicted_counts)
        },
        accuracy=correct_words / words if words else 0.0,
    )


def _begins(before: tuple[str, str], now: tuple[str, str]) -> bool:
    """Whether an entity begins between two tags, each a prefix and a type.

    Prefixes are B, I and O, and in later versions of conlleval E for the last word and S for a single one. An I begins
    an entity where none of its type continues, so that IOB1 and inconsistent tags can be decoded.
    """
    prefix, kind = now
    if prefix == "O":
        return False
    if kind != before[1]:
        return True
    if before[0] not in _PREFIXES:
        return False
    return prefix in ("B", "S") or (prefix in ("I", "E") and before[0] in ("O", "E", "S"))
