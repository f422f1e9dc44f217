"""The type checker that the suite puts round every function of the package: shapes and types, at run time.

A function whose annotations name no shape needs no table of dimensions: beartype alone checks it, in a hundredth of the
time that a call takes otherwise. The others get such a table, which arguments fill and the result is compared with.
jaxtyping's own wrapper does the same, but binds every signature anew and checks all arguments a second time together
with the result; and its check of an array copies the table. Together that took a fifth of the suite's time.
"""

import inspect
import re
from collections.abc import Callable
from dataclasses import is_dataclass
from functools import cache, partial, wraps
from typing import Any, NamedTuple, get_args

import jaxtyping
from beartype import BeartypeConf, beartype
from beartype.roar import BeartypeCallHintViolation as BeartypeCallHintViolation
from jaxtyping import _array_types as arrays
from jaxtyping import _storage as storage

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # a whole number will do where a number is asked for
WITH_SHAPES = jaxtyping.jaxtyped
CHECK = arrays._MetaAbstractArray.__instancecheck_str__
NAMES = re.compile(r"\b(Float|Int|UInt|Bool|Num|Shaped|Real|Inexact|Complex|Key)\d*\[")


def install() -> None:
    """Let jaxtyping's import hook put the lighter of the two checks round each function of the package."""
    jaxtyping.jaxtyped = _lighter  # type: ignore[assignment]
    arrays._MetaAbstractArray.__instancecheck__ = _is_instance  # type: ignore[method-assign]
    jaxtyping.install_import_hook("bertsmith", "shapes.checked")


def _lighter(what: Any = None, *, typechecker: Any) -> Any:
    if what is None:
        return partial(_lighter, typechecker=typechecker)
    if inspect.isclass(what):
        return _with_checked_fields(what)
    if not inspect.isfunction(what):
        return WITH_SHAPES(what, typechecker=typechecker)
    if not any(map(_names_a_shape, what.__annotations__.values())):
        return _plain(what)
    computed = any("{" in repr(annotation) for annotation in what.__annotations__.values())  # from other arguments
    if computed or inspect.isgeneratorfunction(what):
        return WITH_SHAPES(what, typechecker=typechecker)
    return _shaped(what)


def _with_checked_fields(what: type) -> type:
    """A dataclass whose fields are checked when one is made; any other class as it is."""
    if is_dataclass(what) and "__init__" in vars(what):
        what.__init__ = _lighter(what.__init__, typechecker=checked)  # type: ignore[misc]
    return what


def _plain(what: Callable[..., Any]) -> Callable[..., Any]:
    return checked(what)  # type: ignore[no-any-return]


def _shaped(what: Callable[..., Any]) -> Callable[..., Any]:
    """A table of dimensions for each call, in which one check of the arguments and of the result compares sizes."""
    within = checked(what)

    @wraps(what)
    def wrapped(*arguments: Any, **named: Any) -> Any:
        storage.push_shape_memo({})
        try:
            return within(*arguments, **named)
        finally:
            storage.pop_shape_memo()

    return wrapped


def _names_a_shape(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return NAMES.search(annotation) is not None
    if inspect.isclass(annotation) and issubclass(annotation, jaxtyping.AbstractArray):
        return True
    return any(map(_names_a_shape, get_args(annotation)))


class Plan(NamedTuple):
    """What an annotation asks for, where it has named and fixed dimensions only."""

    array: type
    dimensions: tuple[str | int | None, ...]  # None: of any size
    dtypes: set[Any]  # those that have been let through


@cache
def _plan(annotation: Any) -> Plan | None:
    """None where it asks for more, such as dimensions that are computed or of any number."""
    dimensions: list[str | int | None] = []
    if annotation._skip_instancecheck or annotation.index_variadic is not None or annotation.array_type is Any:
        return None
    for one in annotation.dims:
        if one is arrays._anonymous_dim:
            dimensions.append(None)
        elif type(one) is arrays._FixedDim and not one.broadcastable:
            dimensions.append(one.size)
        elif type(one) is arrays._NamedDim and not one.broadcastable and not one.treepath:
            dimensions.append(one.name)
        else:
            return None
    return Plan(annotation.array_type, tuple(dimensions), set())


def _is_instance(annotation: Any, value: Any) -> bool:
    """What jaxtyping's own check says, which is asked wherever this one does not know or would say no."""
    plan = _plan(annotation)
    if plan is None or not isinstance(value, plan.array) or value.dtype not in plan.dtypes:
        known = CHECK(annotation, value) == ""
        if known and plan is not None:
            plan.dtypes.add(value.dtype)
        return known
    shape = value.shape
    stack = getattr(storage._shape_storage, "memo_stack", None)
    if len(shape) == len(plan.dimensions):
        sizes = stack[-1][0] if stack else {}
        new: dict[str, int] = {}
        for wanted, size in zip(plan.dimensions, shape, strict=True):
            if isinstance(wanted, str):
                if sizes.get(wanted, new.setdefault(wanted, size)) != size:
                    break
            elif wanted is not None and wanted != size:
                break
        else:
            sizes.update(new)
            return True
    return CHECK(annotation, value) == ""
