"""A prediction: what a fine-tuned model says of one text."""

from collections.abc import Iterable
from typing import Any


class Prediction(dict[str, Any]):
    """What a model says of one text, by name: `said["label"]`, or `said.label`. JSON can hold it as it is."""

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
    """A value with as many digits as a person reads."""
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name!r}: {_short(part)}" for name, part in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(_short, value)) + "]"
    return repr(value)
