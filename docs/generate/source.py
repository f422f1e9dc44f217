"""What the source says of a class or a function: its signature, its docstring, the comments next to its fields."""

import ast
import inspect
import re
import sys
import textwrap
import tokenize
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

WIDE = 88  # characters; a longer signature has a line for each parameter


def page(title: str, source: str, lines: list[str]) -> str:
    """A whole page, with one blank line where there were several."""
    notice = f"<!-- Generated from {source} by docs/generate: run `make docs`. Do not edit by hand. -->"
    lines = [f"# {title}", "", notice, "", *lines]
    kept = [line for at, line in enumerate(lines) if line or lines[at - 1]]
    return "\n".join(kept).strip() + "\n"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """A table in Markdown; nothing where it has no rows."""
    lines = [head, ("---",) * len(head), *rows]
    return ["", *(f"| {' | '.join(row)} |" for row in lines), ""] if rows else []


def codes(values: Iterable[Any]) -> str:
    """Values as code, with commas between them."""
    return ", ".join(f"`{value}`" for value in values)


def union(hint: Any) -> list[Any]:
    """The types of a union, without None; or the one type that there is."""
    return [one for one in get_args(hint) if one is not NoneType] if get_origin(hint) in (Union, UnionType) else [hint]


def type_words(hint: Any, quote: str = "") -> str:
    """A type in words, with all choices of a Literal."""
    words = {int: "integer", float: "number", str: "text", bool: "`true`, `false`", Path: "path"}
    found = []
    for one in union(hint):
        if get_origin(one) is Literal:
            found.append(codes(f"{quote}{choice}{quote}" for choice in get_args(one)))
        elif get_origin(one) in (tuple, list):
            found.append(f"{type_words(get_args(one)[0], quote)}, several")
        else:
            found.append(words.get(one, "section"))
    return " or ".join(found)


def first_paragraph(doc: str | None) -> str:
    """The first paragraph of a docstring, as Markdown on one line."""
    return prose(inspect.cleandoc(doc or "").split("\n\n")[0])


def prose(text: str) -> str:
    """A comment or a line of help as Markdown, on one line."""
    parts = " ".join(text.split()).split("`")  # every second part is code, and stays as it is
    return "`".join(part if at % 2 else _escaped(part) for at, part in enumerate(parts))


def _escaped(text: str) -> str:
    for mark in ("|", "[", "*"):
        text = text.replace(mark, f"\\{mark}")
    return text.replace("<", "&lt;")


def markdown(doc: str | None) -> list[str]:
    """A docstring as Markdown: paragraphs, and examples in blocks of code."""
    lines: list[str] = []
    for part in inspect.cleandoc(doc or "").split("\n\n"):
        plain = textwrap.dedent(part)
        if re.search(r"\S {2,}\S", plain) and not _is_code(plain):  # columns: a list of names and meanings
            lines += ["```text", plain, "```", ""]
        elif plain and (part.startswith((" ", ">>> ")) or _is_code(plain)):
            lines += ["```python", plain, "```", ""]
        elif plain:
            lines += [prose(plain), ""]
    return lines


def _is_code(text: str) -> bool:
    try:
        return "(" in text and bool(ast.parse(text).body)
    except SyntaxError:
        return False


def signature(node: ast.FunctionDef, path: str, name: str) -> str:
    """How a function is called, as its source writes it."""
    text = Path(path).read_text(encoding="utf-8")

    def written(one: ast.AST | None) -> str:
        return "" if one is None else " ".join((ast.get_source_segment(text, one) or ast.unparse(one)).split())

    def given(one: ast.arg, default: ast.expr | None = None, stars: str = "") -> str:
        hint = f": {written(one.annotation)}" if one.annotation else ""
        equals = (" = " if hint else "=") + written(default) if default is not None else ""
        return f"{stars}{one.arg}{hint}{equals}"

    these = node.args
    some = [None] * (len(these.args) - len(these.defaults)) + list(these.defaults)
    parts = [given(*pair) for pair in zip(these.args, some, strict=True) if pair[0].arg not in ("self", "cls")]
    if these.vararg is not None:
        parts.append(given(these.vararg, stars="*"))
    elif these.kwonlyargs:
        parts.append("*")
    parts += [given(*pair) for pair in zip(these.kwonlyargs, these.kw_defaults, strict=True)]
    if these.kwarg is not None:
        parts.append(given(these.kwarg, stars="**"))
    gives = f" -> {written(node.returns)}" if node.returns is not None else ""
    line = f"{name}({', '.join(parts)}){gives}"
    if len(line) <= WIDE:
        return line
    return "\n".join([f"{name}(", *(f"    {part}," for part in parts), f"){gives}"])


@cache
def comments(kind: type) -> dict[str, str]:
    """By field, the comment next to it; or else the lines of comment above it. Fields of parents included."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__[:-1]):
        tree, notes = parsed(path_of(one))
        node = named(tree, one.__qualname__.split("."))
        for field in node.body if node is not None else []:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                beside = [notes[at][1] for at in range(field.lineno, (field.end_lineno or 0) + 1) if at in notes]
                at, above = field.lineno - 1, list[str]()
                while at in notes and notes[at][0]:
                    above.insert(0, notes[at][1])
                    at -= 1
                found[field.target.id] = " ".join(beside or above) or found.get(field.target.id, "")
    return found


@cache
def parsed(path: str) -> tuple[ast.Module, dict[int, tuple[bool, str]]]:
    """A file's tree, and its comments by line, with whether each stands alone there."""
    notes = {}
    with tokenize.open(path) as stream:
        for token in tokenize.generate_tokens(stream.readline):
            if token.type == tokenize.COMMENT and "type: ignore" not in token.string:
                notes[token.start[0]] = (token.line.strip().startswith("#"), token.string.lstrip("# "))
    return ast.parse(Path(path).read_text(encoding="utf-8")), notes


def path_of(value: Any) -> str:
    """The file of a class or function, by its module: tests wrap functions to check shapes."""
    return str(sys.modules[value.__module__].__file__)


def named(tree: Any, names: list[str]) -> Any:
    """The class or function at a dotted name."""
    for name in names:
        tree = next((one for one in definitions(tree) if one.name == name), None)
    return tree


def definitions(tree: Any) -> Iterator[Any]:
    """Classes and functions, without the overloads of a function."""
    for one in tree.body if tree is not None else []:
        marks = [ast.unparse(mark) for mark in getattr(one, "decorator_list", [])]
        if isinstance(one, ast.ClassDef | ast.FunctionDef) and "overload" not in marks:
            yield one
