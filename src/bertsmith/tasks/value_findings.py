"""Findings on numbers, sentence embeddings, answers and generated texts."""

import math
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.labelled.examples import Example, Question
from bertsmith.metrics import scores
from bertsmith.metrics.squad import question_scores, token_f1
from bertsmith.tasks.findings import Findings, Prior
from bertsmith.tasks.mistakes import Sample

MAX_POINTS = 600  # in a scatter plot
MAX_PAIRS = 20_000  # pairs that are searched for the right partner
ANSWER_LENGTHS = ((1, 1, "1 word"), (2, 3, "2 or 3 words"), (4, 7, "4 to 7 words"), (8, math.inf, "8 words or more"))
Score = Callable[[Sequence[Any], Sequence[Any]], dict[str, float]]


class RegressionFindings(Findings):
    """Regression. All numbers are kept, 16 bytes per example, since rank correlation needs them all."""

    kind = "numbers"

    def __init__(self, prior: Prior | None, *, same_scale: bool = True, score: Score | None = None) -> None:
        super().__init__((), prior)
        self.true, self.predicted, self.missing = array("d"), array("d"), 0
        self.points: Sample[tuple[float, float]] = Sample(MAX_POINTS)
        self.same_scale = same_scale  # whether predictions and labels have the same unit
        # For models that may generate text that is no number.
        self._score, self._kept = score, (list[Any](), list[Any]())

    def add(self, examples: Sequence[Example], predictions: Sequence[Any]) -> None:
        largest = max((abs(float(one.label)) for one in examples), default=1.0)  # type: ignore[arg-type]
        for example, prediction in zip(examples, predictions, strict=True):
            gold, number = float(example.label), prediction["number" if self.same_scale else "cosine"]  # type: ignore[arg-type]
            if self._score is not None:
                self._kept[0].append(replace(example, texts=()))
                self._kept[1].append(prediction)
            if number is None:
                self.missing += 1
                continue
            self.true.append(gold)
            self.predicted.append(number)
            self.points.add((gold, number))
            # A cosine has another unit than a score: both are compared as a share of their maximum.
            gap = abs(number - gold) if self.same_scale else abs(number - gold / max(1.0, largest))
            self.mistakes.add(gap, example.location, example.texts, f"{gold:.4g}", f"{number:.4g}")
        self.examples += len(examples)

    def metrics(self) -> dict[str, float]:
        true, predicted = np.array(self.true), np.array(self.predicted)
        found = {"spearman": scores.spearman(true, predicted), "pearson": scores.pearson(true, predicted)}
        if self._score is not None:
            found = self._score(*self._kept)
        return found | (regression_errors(true, predicted) if self.same_scale else {})

    def details(self) -> dict[str, Any]:
        true, predicted = np.array(self.true), np.array(self.predicted)
        found: dict[str, Any] = {"scatter": {"points": [list(point) for point in self.points.kept]}}
        found["scatter"]["x_label"] = "true number" if self.same_scale else "true score"
        found["scatter"]["y_label"] = "predicted number" if self.same_scale else "cosine of the two vectors"
        found["scatter"]["diagonal"] = self.same_scale
        if self.same_scale and len(true):
            source = self.prior.source if self.prior and self.prior.mean is not None else "this file"
            mean = self.prior.mean if self.prior and self.prior.mean is not None else float(true.mean())
            figures = {**regression_errors(true, np.full_like(true, mean)), "spearman": 0.0, "pearson": 0.0}
            found["baseline"] = {"name": f"always predicting {mean:.4g}, the mean of {source}", "metrics": figures}
        elif len(true):
            found["baseline"] = {"name": "vectors without information", "metrics": {"spearman": 0.0}}
        if len(true) > 1 and np.ptp(predicted) < 0.01 * np.ptp(true) and np.ptp(true) > 0 and self.same_scale:
            found["constant"] = f"about {predicted.mean():.4g} for all {self.examples:,} examples"
        if self.missing:
            found["missing"] = self.missing
        return found


def regression_errors(true: NDArray[np.float64], predicted: NDArray[np.float64]) -> dict[str, float]:
    """Mean absolute error (MAE) and root mean squared error (RMSE)."""
    if not len(true):
        return {"mae": 0.0, "rmse": 0.0}
    gaps = predicted - true
    return {"mae": float(np.abs(gaps).mean()), "rmse": float(np.sqrt(np.square(gaps).mean()))}


class RetrievalFindings(Findings):
    """Retrieval: how often the nearest second text is the right one, by cosine."""

    kind = "partners"

    def __init__(self, score: Score) -> None:
        super().__init__((), None)
        self.score = score
        self.kept: list[Example] = []
        self.vectors: list[list[NDArray[np.float32]]] = []

    def add(self, examples: Sequence[Example], predictions: Sequence[Any]) -> None:
        for example, prediction in zip(examples, predictions, strict=True):
            if len(self.kept) < MAX_PAIRS:
                self.kept.append(example)
                self.vectors.append([np.array(vector, np.float32) for vector in prediction["vectors"][:2]])
        self.examples += len(examples)

    def metrics(self) -> dict[str, float]:
        if any(len(example.texts) == 1 for example in self.kept):
            exact = [{"vectors": [one.astype(np.float64) for one in vectors]} for vectors in self.vectors]
            return self.score(self.kept, exact)
        nearest, _ = self._nearest()
        return {"accuracy": float((nearest == np.arange(len(nearest))).mean()) if len(nearest) else 0.0}

    def details(self) -> dict[str, Any]:
        if any(len(example.texts) == 1 for example in self.kept):
            return {}
        nearest, cosines = self._nearest()
        self.mistakes = type(self.mistakes)()
        for at, (found, cosine) in enumerate(zip(nearest.tolist(), cosines.tolist(), strict=True)):
            if found != at:
                first, right = self.kept[at].texts[:2]
                self.mistakes.add(cosine, self.kept[at].location, [first], right, self.kept[found].texts[1])
        count = max(1, len(self.kept))
        found = {"baseline": {"name": "a random partner", "metrics": {"accuracy": 1 / count}}, "partners": count}
        if len(set(nearest.tolist())) == 1 and count > 1:
            return {**found, "constant": "the same nearest text for all examples"}
        return found

    def _nearest(self) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """For each first text the index of the nearest second one, and its cosine; in chunks."""
        anchors, partners = (np.stack([pair[side] for pair in self.vectors]) for side in (0, 1))
        found, cosines = [], []
        for begin in range(0, len(anchors), 512):
            similarity = anchors[begin : begin + 512] @ partners.T
            found.append(similarity.argmax(-1))
            cosines.append(similarity.max(-1))
        return np.concatenate(found), np.concatenate(cosines)


class SimilarityFindings(Findings):
    """Pairs of sentence embeddings: regression if the first examples have scores, else retrieval."""

    kind = "pairs"

    def __init__(self, score: Score) -> None:
        super().__init__((), None)
        self.score = score
        self.inner: Findings | None = None

    def add(self, examples: Sequence[Example], predictions: Sequence[Any]) -> None:
        if self.inner is None:
            scored = all(isinstance(example.label, float) for example in examples)
            self.inner = RegressionFindings(None, same_scale=False) if scored else RetrievalFindings(self.score)
        self.inner.add(examples, predictions)
        self.examples = self.inner.examples

    def metrics(self) -> dict[str, float]:
        return self.inner.metrics() if self.inner else {}

    def details(self) -> dict[str, Any]:
        found = self.inner.details() if self.inner else {}
        self.mistakes = self.inner.mistakes if self.inner else self.mistakes
        return found


class QuestionAnsweringFindings(Findings):
    """Extractive question answering. Answers and predictions are kept, contexts are not."""

    kind = "answers"

    def __init__(self, score: Score) -> None:
        super().__init__((), None)
        self.score = score
        self.kept: list[Question] = []
        self.predictions: list[Any] = []

    def add(self, examples: Sequence[Question], predictions: Sequence[Any]) -> None:
        for example, prediction in zip(examples, predictions, strict=True):
            if example.answers is None:
                continue
            self.kept.append(replace(example, question="", context=""))
            self.predictions.append(prediction)
            texts = [answer.text for answer in example.answers] or [""]
            if not any(token_f1(text, prediction["answer"]) for text in texts):
                true, predicted = texts[0] or "(no answer)", prediction["answer"] or "(no answer)"
                shown = [example.question, example.context]
                self.mistakes.add(prediction.get("score", 0.0), example.location, shown, true, predicted)
        self.examples = len(self.kept)

    def metrics(self) -> dict[str, float]:
        return self.score(self.kept, self.predictions)

    def details(self) -> dict[str, Any]:
        gold = {one.name: tuple(answer.text for answer in one.answers or ()) for one in self.kept}
        answers = {one.name: made["answer"] for one, made in zip(self.kept, self.predictions, strict=True)}
        scored = question_scores(gold, answers)
        groups: dict[str, list[tuple[float, float]]] = {}
        for name, texts in gold.items():
            words = len(texts[0].split()) if texts else 0
            group = next((label for low, high, label in ANSWER_LENGTHS if low <= words <= high), "no answer")
            groups.setdefault(group, []).append(scored[name])
        names = [label for *_, label in ANSWER_LENGTHS] + ["no answer"]
        rows = [
            {"name": name, "exact": _mean(one for one, _ in found), "f1": _mean(one for _, one in found),
             "support": len(found)}
            for name in names if (found := groups.get(name))
        ]  # fmt: skip
        details: dict[str, Any] = {"groups": rows}
        none = sum(not texts for texts in gold.values()) / max(1, len(gold))
        figures = {"f1": none, "exact": none}
        details["baseline"] = {"name": "always predicting that there is no answer", "metrics": figures}
        if (
            len(self.predictions) > 1
            and len({made["answer"] for made in self.predictions}) == 1
            and len(set(gold.values())) > 1
        ):
            answer = self.predictions[0]["answer"]
            details["constant"] = f"'{answer}' for all questions" if answer else "no answer to any question"
        return details


class TextFindings(Findings):
    """Generated texts compared with reference texts."""

    kind = "texts"

    def __init__(self, score: Score) -> None:
        super().__init__((), None)
        self.score = score
        self.kept: list[Example] = []
        self.predictions: list[Any] = []

    def add(self, examples: Sequence[Example], predictions: Sequence[Any]) -> None:
        for example, prediction in zip(examples, predictions, strict=True):
            self.kept.append(replace(example, texts=()))
            self.predictions.append(prediction)
            f1, true = token_f1(str(example.label), prediction["text"]), str(example.label)
            if f1 < 1:
                self.mistakes.add(1 - f1, example.location, example.texts, true, prediction["text"])
        self.examples = len(self.kept)

    def metrics(self) -> dict[str, float]:
        return self.score(self.kept, self.predictions)

    def details(self) -> dict[str, Any]:
        texts, labels = {made["text"] for made in self.predictions}, {one.label for one in self.kept}
        if len(texts) != 1 or len(labels) < 2:
            return {}
        return {"constant": f"'{self.predictions[0]['text'][:80]}' for all {self.examples:,} examples"}


def _mean(values: Any) -> float:
    found = list(values)
    return math.fsum(found) / len(found) if found else 0.0
