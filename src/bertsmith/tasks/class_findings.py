"""Findings on classes: single-label, multi-label, multiple choice, and tags of words."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.labelled.examples import Example, Sentence
from bertsmith.metrics.calibration import calibration
from bertsmith.metrics.confusion import ClassScores, ConfusionMatrix, averages, to_dicts
from bertsmith.metrics.entities import entity_scores
from bertsmith.tasks.findings import Findings, Prior
from bertsmith.tasks.mistakes import Sample

MAX_PROBABILITIES = 2_000_000  # kept for the calibration
MAX_EXAMPLES = 20_000  # kept for the calibration
NO_CLASS = "(no class)"  # for a text-to-text model whose text names no class
CONTEXT_WORDS = 12  # words to either side of a wrong tag


class ClassificationFindings(Findings):
    """One class for each example."""

    kind = "classes"

    def __init__(
        self, labels: Sequence[str], prior: Prior | None, temperature: float | None = None, headline: str = "accuracy"
    ) -> None:
        super().__init__(labels, prior, temperature)
        self.headline, self.confusion = headline, ConfusionMatrix(labels)
        rows = max(100, min(MAX_EXAMPLES, MAX_PROBABILITIES // max(1, len(labels) or 8)))
        self.sample: Sample[tuple[NDArray[np.float64], int]] = Sample(rows)

    @property
    def positive(self) -> str | None:
        return self.confusion.positive

    def add(self, examples: Sequence[Example], predictions: Sequence[Any]) -> None:
        pairs = []
        for number, (example, prediction) in enumerate(zip(examples, predictions, strict=True), self.examples):
            gold, label = str(example.label), prediction["label"] or NO_CLASS
            probabilities = prediction.get("probabilities")
            pairs.append((gold, label))
            if gold != label:
                probability, is_choice = probabilities[label] if probabilities else None, "ending" in prediction
                texts = example.texts[:1] if is_choice else example.texts
                true, predicted = (_ending(example, one) if is_choice else one for one in (gold, label))
                more = {"probability": probability, **self.mistake_notes(number)}
                self.mistakes.add(probability or 0.0, example.location, texts, true, predicted, **more)
            if probabilities and gold in probabilities:
                names = list(probabilities)
                row = np.array([probabilities[name] for name in names])
                if np.isfinite(row).all():  # a diverged run has no calibration
                    self.sample.add((row, names.index(gold)))
        self.examples += len(pairs)
        self.confusion.add(pairs)

    def mistake_notes(self, number: int) -> dict[str, Any]:
        """What is kept of a mistake besides, by the number of its example."""
        return {}

    def metrics(self) -> dict[str, float]:
        found = self.confusion.metrics()
        return {self.headline: found[self.headline], **found} if self.headline in found else found

    def details(self) -> dict[str, Any]:
        rows = self.confusion.scores()
        labels, counts = self.confusion.matrix()
        found: dict[str, Any] = {"classes": to_dicts(rows), "averages": averages(rows)}
        found["confusion"] = {"labels": labels, "counts": counts}
        if (positive := self.positive) is not None:
            found["positive"] = positive
        true, predicted = self.confusion.true_counts, self.confusion.predicted_counts
        prior = self.prior or Prior(counts=dict(true), source="this file")
        if (commonest := prior.most_frequent) is not None:
            figures = self.confusion.constant_baseline(commonest).metrics()
            name = f"always predicting '{commonest}', the commonest class of {prior.source}"
            found["baseline"] = {"name": name, "label": commonest, "metrics": figures}
        if len(predicted) == 1 and len(true) > 1:
            found["constant"] = f"'{next(iter(predicted))}' for all {self.examples:,} examples"
        if self.labels and (unknown := {label: true[label] for label in true if label not in self.labels}):
            found["unknown"] = unknown
        if self.sample.kept and len({len(row) for row, _ in self.sample.kept}) == 1:
            probabilities = np.stack([row for row, _ in self.sample.kept])
            gold = np.array([index for _, index in self.sample.kept])
            found["calibration"] = calibration(np.log(np.maximum(probabilities, 1e-300)), gold, self.temperature)
        return found


class MultipleChoiceFindings(ClassificationFindings):
    """One of several endings: no table by class, since the number of an ending means nothing."""

    kind = "choices"

    def metrics(self) -> dict[str, float]:
        return {"accuracy": self.confusion.metrics()["accuracy"]}

    def details(self) -> dict[str, Any]:
        found = super().details()
        if "baseline" in found:
            label, figures = found["baseline"]["label"], found["baseline"]["metrics"]
            name = f"always choosing ending {label}"
            found["baseline"] = {"name": name, "metrics": {"accuracy": figures["accuracy"]}}
        return {name: part for name, part in found.items() if name in ("baseline", "constant", "calibration")}


class MultiLabelFindings(Findings):
    """Any of several labels for each example."""

    kind = "labels"

    def __init__(self, labels: Sequence[str], prior: Prior | None) -> None:
        super().__init__(labels, prior)
        self.correct, self.true, self.predicted = Counter[str](), Counter[str](), Counter[str]()
        self.exact_matches, self.distinct_predictions = 0, Counter[frozenset[str]]()

    def add(self, examples: Sequence[Example], predictions: Sequence[Any]) -> None:
        for example, prediction in zip(examples, predictions, strict=True):
            assert isinstance(example.label, tuple)
            gold, given = set(example.label), set(prediction["labels"])
            probabilities = prediction["probabilities"]
            self.correct.update(gold & given)
            self.true.update(gold)
            self.predicted.update(given)
            self.exact_matches += gold == given
            if len(self.distinct_predictions) < 2:
                self.distinct_predictions[frozenset(given)] += 1
            if gold != given:
                wrong = {label: probabilities[label] if label in given else 1 - probabilities.get(label, 0.0)
                         for label in gold ^ given}  # fmt: skip
                worst = max(wrong, key=lambda label: (wrong[label], label))
                true, guess = (", ".join(sorted(one)) or "(none)" for one in (gold, given))
                more = {"probability": wrong[worst], "label": worst}
                self.mistakes.add(wrong[worst], example.location, example.texts, true, guess, **more)
        self.examples += len(examples)

    def metrics(self) -> dict[str, float]:
        micro = ClassScores.from_counts("", self.correct.total(), self.true.total(), self.predicted.total())
        return {"micro_f1": micro.f1, "accuracy": self.exact_matches / max(1, self.examples)}

    def details(self) -> dict[str, Any]:
        others = sorted(set(self.true) - set(self.labels))
        names = [*self.labels, *others]
        rows = [
            ClassScores.from_counts(name, self.correct[name], self.true[name], self.predicted[name]) for name in names
        ]
        micro = ClassScores.from_counts("", self.correct.total(), self.true.total(), self.predicted.total())
        found: dict[str, Any] = {
            "classes": to_dicts(rows),
            "averages": {"micro": to_dicts([micro])[0], **averages(rows)},
        }
        prior = self.prior or Prior(counts=dict(self.true), source="this file")
        if (commonest := prior.most_frequent) is not None:
            always = ClassScores.from_counts("", self.true[commonest], self.true.total(), self.examples)
            name = f"always predicting '{commonest}' alone, the commonest label of {prior.source}"
            found["baseline"] = {"name": name, "metrics": {"micro_f1": always.f1}}
        if len(self.distinct_predictions) == 1 and self.exact_matches < self.examples:
            only = ", ".join(f"'{label}'" for label in sorted(next(iter(self.distinct_predictions)))) or "no label"
            found["constant"] = f"{only} for all {self.examples:,} examples"
        if others and self.labels:
            found["unknown"] = {label: self.true[label] for label in others}
        return found


class TaggingFindings(Findings):
    """A tag for each word; of tags like B-PER the entities they mark, by conlleval's rules."""

    kind = "tags"

    def __init__(self, labels: Sequence[str], prior: Prior | None) -> None:
        super().__init__(labels, prior)
        self.has_entities = any(label[:2] in ("B-", "I-") for label in labels)
        self.correct, self.true, self.predicted = Counter[str](), Counter[str](), Counter[str]()
        self.confusion = ConfusionMatrix(() if self.has_entities else labels)  # by kind of entity, or by tag
        self.tags, self.correct_words = Counter[str](), 0
        self.predicted_tags: set[str] = set()

    def add(self, examples: Sequence[Sentence], predictions: Sequence[Any]) -> None:
        known = [(one, tagged) for one, tagged in zip(examples, predictions, strict=True) if one.tags is not None]
        gold, predicted = [one.tags or () for one, _ in known], [tagged["tags"] for _, tagged in known]
        for kind, found in entity_scores(gold, predicted).by_type.items():
            self.correct[kind] += found.correct
            self.true[kind] += found.gold
            self.predicted[kind] += found.predicted
        for example, prediction in known:
            assert example.tags is not None
            self.tags.update(example.tags)
            self.predicted_tags.update(prediction["tags"])
            self.confusion.add(
                zip(map(self._entity_type, example.tags), map(self._entity_type, prediction["tags"]), strict=True)
            )
            probabilities = prediction.get("probabilities") or [None] * len(example.words)
            rows = zip(example.tags, prediction["tags"], probabilities, strict=True)
            for at, (one, other, probability) in enumerate(rows):
                if one == other:
                    self.correct_words += 1
                else:
                    first = max(0, at - CONTEXT_WORDS)
                    words = [
                        " ".join(part) for part in (example.words[first:at], example.words[at + 1 : at + CONTEXT_WORDS])
                    ]
                    more = {"probability": probability, "word": example.words[at]}
                    self.mistakes.add(probability or 0.0, example.location, words, one, other, **more)
        self.examples += len(known)

    def metrics(self) -> dict[str, float]:
        accuracy = self.correct_words / max(1, self.tags.total())
        if not self.has_entities:
            return {"accuracy": accuracy}
        whole = ClassScores.from_counts("", self.correct.total(), self.true.total(), self.predicted.total())
        return {"f1": whole.f1, "precision": whole.precision, "recall": whole.recall, "accuracy": accuracy}

    def details(self) -> dict[str, Any]:
        found: dict[str, Any] = {"words": self.tags.total()}
        if self.has_entities:
            rows = [ClassScores.from_counts(kind, self.correct[kind], self.true[kind], self.predicted[kind])
                    for kind in sorted(self.true | self.predicted)]  # fmt: skip
            whole = ClassScores.from_counts("", self.correct.total(), self.true.total(), self.predicted.total())
            found |= {"entities": to_dicts(rows), "averages": {"micro": to_dicts([whole])[0], **averages(rows)}}
        else:
            rows = self.confusion.scores()
            found |= {"classes": to_dicts(rows), "averages": averages(rows)}
        labels, counts = self.confusion.matrix()
        found["confusion"] = {"labels": labels, "counts": counts}
        prior = self.prior or Prior(counts=dict(self.tags), source="this file")
        if (commonest := prior.most_frequent) is not None:
            figures = {"accuracy": self.tags[commonest] / max(1, self.tags.total())}
            figures |= {"f1": 0.0} if self.has_entities and commonest == "O" else {}
            name = f"always predicting '{commonest}', the commonest tag of {prior.source}"
            found["baseline"] = {"name": name, "metrics": figures}
        if self.has_entities and self.true.total() and not self.predicted.total():
            found["constant"] = f"'O' for all {self.tags.total():,} words, and so no entity"
        elif len(self.predicted_tags) == 1 and len(self.tags) > 1:
            found["constant"] = f"'{next(iter(self.predicted_tags))}' for all {self.tags.total():,} words"
        if unknown := {tag: count for tag, count in self.tags.items() if tag not in self.labels}:
            found["unknown"] = unknown
        return found

    def _entity_type(self, tag: str) -> str:
        return (tag.partition("-")[2] or tag) if self.has_entities else tag


def _ending(example: Example, number: str) -> str:
    return example.texts[1 + int(number)] if number.isdecimal() and int(number) + 1 < len(example.texts) else number
