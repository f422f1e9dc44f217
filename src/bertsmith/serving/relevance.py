"""Relevance by a cross-encoder of two classes: which of them means that a text answers a query."""

from collections.abc import Sequence

OPPOSITES = [("0", "1"), ("no", "yes"), ("false", "true"), ("negative", "positive"), ("label0", "label1")]
NEGATIONS = ("not", "non", "no", "mis", "un", "ir", "dis")  # entailment and not_entailment, match and mismatch


def positives(labels: Sequence[str]) -> list[str]:
    """The one of two classes that means relevant; both if their names do not say which."""
    plain = [label.casefold().replace("_", "").replace("-", "").replace(" ", "") for label in labels]
    for label, (positive, negative) in zip(labels, (plain, plain[::-1]), strict=True):
        if (negative, positive) in OPPOSITES or negative in [prefix + positive for prefix in NEGATIONS]:
            return [label]
    return list(labels)
