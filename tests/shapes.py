"""The type checker that the suite puts round every function of the package: shapes and types, at run time.

A function whose annotations name no shape needs no table of dimensions: beartype alone checks it, in a hundredth of the
time that a call takes otherwise. jaxtyping checks the others.
"""

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any, get_args

import jaxtyping
from beartype import BeartypeConf, beartype

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number will do where a number is asked for
WITH_SHAPES = jaxtyping.jaxtyped
NAMES = re.compile(r"\b(Float|Int|UInt|Bool|Num|Shaped|Real|Inexact|Complex|Key)\d*\[")


def install() -> None:
    """Let jaxtyping's import hook put the lighter of the two checks round each function of the package."""
    jaxtyping.jaxtyped = _lighter  # type: ignore[assignment]
    jaxtyping.install_import_hook("bertsmith", "shapes.checked")


def _lighter(what: Any = None, *, typechecker: Any) -> Any:
    if what is None:
        return partial(_lighter, typechecker=typechecker)
    if inspect.isfunction(what) and not any(map(_names_a_shape, what.__annotations__.values())):
        return _plain(what)
    return WITH_SHAPES(what, typechecker=typechecker)


def _plain(what: Callable[..., Any]) -> Callable[..., Any]:
    return checked(what)  # type: ignore[no-any-return]


def _names_a_shape(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return NAMES.search(annotation) is not None
    if inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(map(_names_a_shape, get_args(annotation)))
