"""Every option of every `Literal` in the package is used: by default, by a recipe, by a member, or by a test.

An option that is used nowhere is a promise that was never seen kept.
"""

import ast
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "bertsmith"
# Members and published layouts are recipes in Python: `tests/parity` compares each of them with its reference.
TABLES = ("models/family.py", "models/hf/bert_likes.py", "models/hf/encoder_decoders.py")


@dataclass
class Choice:
    """A `Literal` of strings: its options, the fields and arguments that take one, and their defaults."""

    file: str
    line: int
    options: tuple[str, ...]
    names: set[str] = field(default_factory=set)
    defaults: set[str] = field(default_factory=set)


def literals(tree: ast.AST) -> list[ast.Subscript]:
    """The `Literal[...]` in a tree that have strings for options."""
    return [node for node in ast.walk(tree) if isinstance(node, ast.Subscript) and _is_literal(node)]


def _is_literal(node: ast.Subscript) -> bool:
    return _last_name(node.value) == "Literal" and bool(_options(node))


def _last_name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _options(node: ast.Subscript) -> tuple[str, ...]:
    return tuple(
        each.value for each in ast.walk(node.slice) if isinstance(each, ast.Constant) and isinstance(each.value, str)
    )


def annotated(tree: ast.AST) -> Iterator[tuple[str, ast.expr, ast.expr | None]]:
    """Name, annotation and default of each field and argument."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node.annotation, node.value
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            given = node.args
            plain = [*given.posonlyargs, *given.args]
            values = [*[None] * (len(plain) - len(given.defaults)), *given.defaults, *given.kw_defaults]
            for argument, value in zip([*plain, *given.kwonlyargs], values, strict=True):
                if argument.annotation is not None:
                    yield argument.arg, argument.annotation, value


def choices(sources: dict[str, str]) -> list[Choice]:
    """Each `Literal` of the sources, with all the names that are annotated by it or by its alias."""
    trees = {file: ast.parse(text) for file, text in sources.items()}
    found = {
        (file, node.lineno, node.col_offset): Choice(file, node.lineno, _options(node))
        for file, tree in trees.items()
        for node in literals(tree)
    }
    aliases: dict[str, list[Choice]] = {}  # two modules may have an alias of one name: an option is used for either
    for file, tree in trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                for inner in literals(node.value):
                    choice = found[file, inner.lineno, inner.col_offset]
                    choice.names.add(node.targets[0].id)
                    aliases.setdefault(node.targets[0].id, []).append(choice)
    for file, tree in trees.items():
        for name, annotation, value in annotated(tree):
            meant = [found[file, inner.lineno, inner.col_offset] for inner in literals(annotation)]
            for node in ast.walk(annotation):
                if isinstance(node, ast.Name | ast.Attribute):
                    meant += aliases.get(_last_name(node), [])
            for choice in meant:
                choice.names.add(name)
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    choice.defaults.add(value.value)
    for tree in trees.values():
        for name, value in declared(tree):
            for choice in found.values():
                if name in choice.names:
                    choice.defaults.add(value)
    return [choice for choice in found.values() if choice.names]  # what a function returns is nobody's choice


def declared(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """What a class declares of itself, such as the architecture that an objective needs: name and value."""
    for node in ast.walk(tree):
        for line in node.body if isinstance(node, ast.ClassDef) else []:
            match line:
                case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(value))):
                    yield name, value


def set_by_recipes(values: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Key and value of each string in a recipe."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield from set_by_recipes(value)
        elif isinstance(value, str):
            yield key, value


def set_by_tests(text: str) -> tuple[set[str], set[str]]:
    """The names that a test file mentions, and its values: whole strings, their words, and what follows a `=`."""
    names = set(re.findall(r"[A-Za-z]\w*", text.replace("-", "_")))
    strings = set(re.findall(r'"([^"\n]*)"', text))
    words = {word for string in strings for word in string.split()}  # a command, or an override: train.device=cpu
    return names, strings | words | {word.partition("=")[2] for word in words}


@cache
def used() -> tuple[set[tuple[str, str]], list[tuple[set[str], set[str]]]]:
    """The values that recipes and members set, by key; and the names and values of each test file."""
    recipes = {
        pair
        for path in (SOURCE / "recipes").rglob("*.toml")
        for pair in set_by_recipes(tomllib.loads(path.read_text(encoding="utf-8")))
    }
    tests = [path for path in (ROOT / "tests").rglob("*.py") if path != Path(__file__)]
    for table in TABLES:
        for node in ast.walk(ast.parse((SOURCE / table).read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg and isinstance(node.value, ast.Constant):
                recipes.add((node.arg, str(node.value.value)))
    return recipes, [set_by_tests(path.read_text(encoding="utf-8")) for path in tests]


def unused(sources: dict[str, str]) -> list[str]:
    """The options that are no default, are in no recipe, and in no test that names their field or argument."""
    recipes, tests = used()
    return [
        f"{choice.file}:{choice.line} {option!r} of {', '.join(sorted(choice.names))}"
        for choice in choices(sources)
        for option in choice.options
        if option not in choice.defaults
        and not any((name, option) in recipes for name in choice.names)
        and not any(option in values and choice.names & names for names, values in tests)
    ]


def package() -> dict[str, str]:
    return {path.relative_to(SOURCE).as_posix(): path.read_text(encoding="utf-8") for path in SOURCE.rglob("*.py")}


@pytest.mark.slow("looks for every option in every file")
def test_every_option_is_used_by_a_recipe_or_a_test() -> None:
    found = unused(package())
    assert not found, found


@pytest.mark.parametrize(
    "text",
    [
        'class Config:\n    precision: Literal["auto", "quarter"] = "auto"',
        'Activation = Literal["gelu", "quarter"]\nclass Config:\n    activation: Activation = "gelu"',
        'def embed(join: Literal["sum", "quarter"] | None = None): ...',
        'def embed(*, join: Annotated[typing.Literal["sum", "quarter"], 1] = "sum"): ...',
    ],
)
def test_an_option_that_is_used_nowhere_is_found(text: str) -> None:
    [line] = unused({"config.py": text})
    assert "'quarter' of " in line
