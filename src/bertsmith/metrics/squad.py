"""SQuAD's scores: how well guessed answers agree with those that people gave. Parts of one, not of a hundred.

The rules are those of the official scripts. Where some question has no answer, they are those of 2.0 (Rajpurkar et al.
2018), otherwise of 1.1 (Rajpurkar et al. 2016); they differ only on answers with no word but an article.
A question without a guess counts as wrong.
"""

import math
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

Gold = Mapping[str, Sequence[str]]  # question -> what people answered; nothing where there is no answer

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise_answer(text: str) -> str:
    """A text without what does not matter: case, punctuation, articles, white space."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(gold: str, predicted: str) -> float:
    """Whether two answers are the same but for what does not matter."""
    return float(normalise_answer(gold) == normalise_answer(predicted))


def token_f1(gold: str, predicted: str) -> float:
    """F1 of the words of two answers. Two answers without words agree."""
    ours, theirs = normalise_answer(gold).split(), normalise_answer(predicted).split()
    if not ours or not theirs:
        return float(ours == theirs)
    return 2 * (Counter(ours) & Counter(theirs)).total() / (len(ours) + len(theirs))


def squad_scores(gold: Gold, predicted: Mapping[str, str]) -> dict[str, float]:
    """Exact match and F1 over all questions; and over those with and without an answer, if some have none."""
    each = question_scores(gold, predicted)
    figures = _mean(list(each.values()) or [(0.0, 0.0)], "")
    if not all(gold.values()):
        figures |= _mean([mark for name, mark in each.items() if gold[name]], "has_answer_")
        figures |= _mean([mark for name, mark in each.items() if not gold[name]], "no_answer_")
    return figures


def question_scores(gold: Gold, predicted: Mapping[str, str]) -> dict[str, tuple[float, float]]:
    """Exact match and F1 of each question."""
    marks = _QuestionScorer(gold)
    return {name: marks(name, predicted[name]) if name in predicted else (0.0, 0.0) for name in gold}


def best_threshold(
    gold: Gold, predicted: Mapping[str, str], no_answer_score: Mapping[str, float]
) -> tuple[float, float]:
    """The threshold that gives the best F1 if questions that score above it are left without an answer; and that F1.

    Departs from the official sweep where that promises what its threshold does not keep: questions with equal scores
    go together, the threshold under which nothing is answered lies below all scores, even negative ones, and answers
    without words are marked as they are elsewhere.
    """
    marks = _QuestionScorer(gold)
    names = [name for name in gold if name in predicted]
    missing = sorted(set(names) - set(no_answer_score))
    if missing:
        raise ValueError(f"question {missing[0]} has a guess, but no score for having no answer")
    names.sort(key=lambda name: no_answer_score[name])
    without = {name: marks(name, "")[1] for name in names}
    total = math.fsum(without.values())
    lowest = no_answer_score[names[0]] if names else 1.0
    best, threshold = total, 0.0 if lowest > 0 else math.nextafter(lowest, -math.inf)
    for score, group in groupby(names, key=lambda name: no_answer_score[name]):
        total += math.fsum(marks(name, predicted[name])[1] - without[name] for name in group)
        if total > best:
            best, threshold = total, score
    return threshold, best / len(gold) if gold else 0.0


def apply_threshold(
    predicted: Mapping[str, str], no_answer_score: Mapping[str, float], threshold: float
) -> dict[str, str]:
    """Guesses, with nothing in place of those that score above the threshold."""
    return {name: "" if no_answer_score[name] > threshold else guess for name, guess in predicted.items()}


class _QuestionScorer:
    """Exact match and F1 of a guess at a question: the best over all its answers."""

    def __init__(self, gold: Gold) -> None:
        self.gold = gold
        self.second = not all(gold.values())  # SQuAD 2.0

    def __call__(self, name: str, guess: str) -> tuple[float, float]:
        texts: Sequence[str] = self.gold[name]
        if self.second:
            texts = [text for text in texts if normalise_answer(text)] or [""]
        f1 = max(token_f1(text, guess) for text in texts)
        if not self.second and not normalise_answer(guess):
            f1 = 0.0  # 1.1 counts common words, and there are none
        return max(exact_match(text, guess) for text in texts), f1


def _mean(marks: Sequence[tuple[float, float]], prefix: str) -> dict[str, float]:
    """Both figures over some questions; none over no questions."""
    if not marks:
        return {}
    exacts, overlaps = zip(*marks, strict=True)
    return {f"{prefix}exact": math.fsum(exacts) / len(marks), f"{prefix}f1": math.fsum(overlaps) / len(marks)}
