"""SQuAD's metrics: exact match and token F1 of predicted answers. Shares of one.

The rules are those of the official scripts. Where some question is unanswerable, they are those of 2.0 (Rajpurkar et
al. 2018), otherwise of 1.1 (Rajpurkar et al. 2016); they differ only on answers with no word except articles.
A question without a prediction counts as wrong.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

Gold = Mapping[str, Sequence[str]]  # question -> its true answers; none for an unanswerable question

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise_answer(text: str) -> str:
    """An answer without case, punctuation, articles and superfluous white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(gold: str, predicted: str) -> float:
    """Whether two answers are equal after normalisation."""
    return float(normalise_answer(gold) == normalise_answer(predicted))


def token_f1(gold: str, predicted: str) -> float:
    """F1 of the words of two answers. Two answers without words agree."""
    true, guessed = normalise_answer(gold).split(), normalise_answer(predicted).split()
    if not true or not guessed:
        return float(true == guessed)
    return 2 * (Counter(true) & Counter(guessed)).total() / (len(true) + len(guessed))


def squad_scores(gold: Gold, predicted: Mapping[str, str]) -> dict[str, float]:
    """Exact match and F1 over all questions; and over those with and without an answer, if some have none."""
    each = question_scores(gold, predicted)
    means = _mean(list(each.values()) or [(0.0, 0.0)], "")
    if not all(gold.values()):
        means |= _mean([scores for name, scores in each.items() if gold[name]], "has_answer_")
        means |= _mean([scores for name, scores in each.items() if not gold[name]], "no_answer_")
    return means


def question_scores(gold: Gold, predicted: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """Exact match and F1 of each question."""
    scorer = _QuestionScorer(gold)
    return {name: scorer(name, predicted[name]) if name in predicted else (0.0, 0.0) for name in gold}


def best_threshold(
    gold: Gold, predicted: Mapping[str, str], no_answer_score: Mapping[str, float]
) -> tuple[float, float]:
    """The threshold with the best F1 if questions whose no-answer score is above it get no answer; and that F1.

    Departs from the official script where its best F1 is not what its threshold gives: questions with equal scores are
    taken together, the threshold that answers nothing lies below all scores, even negative ones, and answers without
    words are scored as they are elsewhere.
    """
    scorer = _QuestionScorer(gold)
    names = [name for name in gold if name in predicted]
    missing = sorted(set(names) - set(no_answer_score))
    if missing:
        raise ValueError(f"question {missing[0]} has a prediction, but no score for having no answer")
    names.sort(key=lambda name: no_answer_score[name])
    without = {name: scorer(name, "")[1] for name in names}
    total = math.fsum(without.values())
    lowest = no_answer_score[names[0]] if names else 1.0
    best, threshold = total, 0.0 if lowest > 0 else math.nextafter(lowest, -math.inf)
    for score, group in groupby(names, key=lambda name: no_answer_score[name]):
        total += math.fsum(scorer(name, predicted[name])[1] - without[name] for name in group)
        if total > best:
            best, threshold = total, score
    return threshold, best / len(gold) if gold else 0.0


def apply_threshold(
    predicted: Mapping[str, str], no_answer_score: Mapping[str, float], threshold: float
) -> dict[str, str]:
    """The predictions, empty where the no-answer score is above the threshold."""
    return {name: "" if no_answer_score[name] > threshold else answer for name, answer in predicted.items()}


class _QuestionScorer:
    """Exact match and F1 of a predicted answer: the best over all true answers of its question."""

    def __init__(self, gold: Gold) -> None:
        self.gold = gold
        self.version_2 = not all(gold.values())

    def __call__(self, name: str, predicted: str) -> tuple[float, float]:
        answers: Sequence[str] = self.gold[name]
        if self.version_2:
            answers = [answer for answer in answers if normalise_answer(answer)] or [""]
        f1 = max(token_f1(answer, predicted) for answer in answers)
        if not self.version_2 and not normalise_answer(predicted):
            f1 = 0.0  # 1.1 counts common words, and there are none
        return max(exact_match(answer, predicted) for answer in answers), f1


def _mean(scores: Sequence[tuple[float, float]], prefix: str) -> dict[str, float]:
    """Mean exact match and F1; empty for no questions."""
    if not scores:
        return {}
    exacts, f1s = zip(*scores, strict=True)
    return {f"{prefix}exact": math.fsum(exacts) / len(scores), f"{prefix}f1": math.fsum(f1s) / len(scores)}
