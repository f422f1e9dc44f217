"""The prediction of a fine-tuned model for one input: label, number, tags, answer, choice or text."""

from collections.abc import Iterable
from typing import Any


class Prediction(dict[str, Any]):
    """A prediction: a dictionary, ready for JSON, whose keys are also attributes.

    >>> prediction = bertsmith.Prediction(label="good", probabilities={"good": 0.9, "bad": 0.1})
    >>> prediction.label, prediction["label"]
    ('good', 'good')
    """

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            known = ", ".join(self)
            raise AttributeError(f"this prediction has no '{name}'; it has {known}") from None

    def __dir__(self) -> Iterable[str]:
        return [*super().__dir__(), *self]

    def __repr__(self) -> str:
        return f"Prediction({', '.join(f'{name}={_short(value)}' for name, value in self.items())})"


def _short(value: Any) -> str:
    """A value for the repr, with four digits."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {_short(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_short, value)) + "]"
    return repr(value)
