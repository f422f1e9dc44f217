"""Triton's interpreter without two habits that take half of its time and change nothing.

It puts its own functions in place of Triton's at every call of a helper, although they are in place already while the
kernel that calls the helper runs; and it works out whether each sum of whole numbers overflows, a result that is
dropped unless its debug mode is on.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

from triton import language
from triton.language import core
from triton.runtime import interpreter


def quicken() -> None:
    """Leave both out."""
    interpreter._patch_lang = _once(interpreter._patch_lang)
    options = interpreter.interpreter_builder.options
    if not options.debug:
        interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)


@cache
def _modules(function: FunctionType) -> list[ModuleType]:
    return [module for module in function.__globals__.values() if module is language or module is core]


def _once(patch: Callable[[FunctionType], Any]) -> Callable[[FunctionType], Any]:
    def patched(function: FunctionType) -> Any:
        """A kernel restores what it found, so only what runs inside one finds every function replaced."""
        modules = _modules(function)
        replaced = modules and not any(core.is_builtin(module.load) for module in [language, *modules])
        return None if replaced else patch(function)

    return patched
