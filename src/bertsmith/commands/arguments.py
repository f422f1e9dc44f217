"""Arguments of the verbs, checked, so that a mistake is one line; and the recipe keys that short options set."""

import inspect
import json
import types
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from bertsmith import config
from bertsmith.errors import RecipeError, suggest
from bertsmith.inference.inputs import short_repr

PRETRAIN_KEYS = {  # options of `pretrain`, in Python and on the command line: the recipe keys that they set
    "steps": "train.steps",
    "epochs": "train.epochs",
    "budget": "train.budget",
    "learning_rate": "optimizer.learning_rate",
    "weight_decay": "optimizer.weight_decay",
    "batch_tokens": "data.batch_tokens",
    "gradient_accumulation": "train.gradient_accumulation",
    "max_length": "data.max_length",
    "seed": "train.seed",
    "device": "train.device",
    "start": "start",
}
FINETUNE_KEYS = {name: key for name, key in PRETRAIN_KEYS.items() if name not in ("batch_tokens", "start")} | {
    "batch_size": "data.batch_size",
    "teacher": "teacher",
}
LENGTHS = ("steps", "epochs", "budget")  # of a run
PLAIN = {int, float, str, bool, types.NoneType}


def as_paths(given: Any, name: str) -> list[str]:
    """One path or several, as a list."""
    if isinstance(given, str | Path):
        return [str(as_path(given, name))]
    if given is None or not isinstance(given, Iterable) or isinstance(given, bytes | Mapping):
        raise RecipeError(name, f"is {short_repr(given)}", "Give a path, or a list of paths")
    found = [str(as_path(one, name)) for one in given]
    if not found:
        raise RecipeError(name, "is an empty list", "Give at least one path")
    return found


def as_path(given: Any, name: str) -> Path:
    if not isinstance(given, str | Path) or not str(given):
        raise RecipeError(name, "is missing" if given is None else f"is {short_repr(given)}", "Give a path")
    return Path(given)


def as_text(given: Any, name: str) -> str:
    if not isinstance(given, str):
        raise RecipeError(name, f"is {short_repr(given)}", "Give a text")
    return given


def path_before_overrides(path: Path | None, given: list[str]) -> tuple[Path | None, list[str]]:
    """The data that stand before the settings of a recipe, as in `pretrain mae-small IMAGES train.steps=9`."""
    if path is None and given and "=" not in given[0]:
        return Path(given[0]), given[1:]
    return path, given


def as_overrides(given: Any) -> list[str]:
    if isinstance(given, Mapping):
        raise RecipeError("overrides", f"is {short_repr(given)}", 'Give a list, such as ["train.steps=9"]')
    return as_paths(given, "overrides") if isinstance(given, str) or given else []


def options_as_overrides(options: Mapping[str, Any], known: Mapping[str, str]) -> list[str]:
    """Options as overrides of a recipe; None leaves the recipe's value."""
    lengths = [name for name in LENGTHS if options.get(name) is not None]
    if len(lengths) > 1:
        raise RecipeError(" and ".join(lengths), "are lengths of the same run", "Give one of them")
    for name, value in options.items():
        if name not in known:
            raise RecipeError(name, "is not an option here", f"{suggest(name, known)} Any other key: overrides=[...]")
        if value is not None and not isinstance(value, str | int | float | Path):
            raise RecipeError(name, f"is {short_repr(value)}", "Give a number or a text")
    values = {
        known[name]: str(one) if isinstance(one, Path) else one for name, one in options.items() if one is not None
    }
    return [f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in values.items()]


def check_options(options: Mapping[str, Any], *takers: Callable[..., Any]) -> None:
    """Refuse an option that is no keyword argument of any of the functions, or of another type."""
    known = {
        name: hints.get(name)
        for taker in takers
        for hints in [get_type_hints(taker.__init__ if isinstance(taker, type) else taker)]  # type: ignore[misc]
        for name, one in inspect.signature(taker).parameters.items()
        if one.kind is one.KEYWORD_ONLY or (one.default is not one.empty and one.kind is one.POSITIONAL_OR_KEYWORD)
    }
    for name, value in options.items():
        if name not in known:
            raise RecipeError(name, "is not an option here", suggest(name, known))
        _check_type(name, value, known[name])


def _check_type(name: str, value: Any, hint: Any) -> None:
    """Refuse a value of another type than an option has, where that is a number, a text or a switch."""
    wanted = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    optional = value is None and types.NoneType in wanted
    if set(wanted) <= PLAIN and not optional:
        config.convert(value, hint, name, "option")
