"""Modules that can be called: `bertsmith.prepare(...)` is a verb, and `bertsmith/prepare.py` the file it stands in.

Where a file has the name of a public call, importing the file would hide the call: `bertsmith.models("bert*")`.
"""

import sys
from importlib import import_module
from types import ModuleType
from typing import Any


class CallableModule(ModuleType):
    """A module that hands its calls to the public function of the same name."""

    def __call__(self, *given: Any, **options: Any) -> Any:
        return getattr(import_module("bertsmith.api"), self.__name__.rpartition(".")[2])(*given, **options)


def make_callable(name: str) -> None:
    """Have a call of the module `name` call the function of that name in `bertsmith.api`."""
    sys.modules[name].__class__ = CallableModule
