"""Triton's interpreter without two steps that take half of its time and change nothing.

It replaces Triton's functions at every call of a helper, although they are replaced already while the calling kernel
runs; and it checks every integer sum for overflow, a result that is dropped unless its debug mode is on.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

from triton import language
from triton.language import core
from triton.runtime import interpreter


def speed_up() -> None:
    """Skip both."""
    interpreter._patch_lang = _once(interpreter._patch_lang)
    options = interpreter.interpreter_builder.options
    if not options.debug:
        interpreter.interpreter_builder.options = replace(options, sanitize_overflow=False)


@cache
def _modules(function: FunctionType) -> list[ModuleType]:
    return [module for module in function.__globals__.values() if module is language or module is core]


def _once(patch: Callable[[FunctionType], Any]) -> Callable[[FunctionType], Any]:
    def patched(function: FunctionType) -> Any:
        """A kernel restores the functions at its end, so they are all replaced only while one runs."""
        modules = _modules(function)
        replaced = modules and not any(core.is_builtin(module.load) for module in [language, *modules])
        return None if replaced else patch(function)

    return patched
