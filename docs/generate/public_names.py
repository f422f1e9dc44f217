"""The page of public names, and of the methods and fields of what they return."""

import ast
import re
from dataclasses import fields, is_dataclass
from typing import Any

import bertsmith
from bertsmith.commands import api
from bertsmith.inference.generate import GeneratedText
from bertsmith.inference.translate import TranslatedText
from bertsmith.insight.image_inspection.inspection import ImageInspection
from bertsmith.insight.inspection.inspected_text import InspectedText
from bertsmith.insight.table import Results
from generate import source
from generate.recipe_keys import meaning
from generate.source import codes, definitions, first_paragraph, markdown, named, parsed, path_of, signature, table

INTRO = """\
`import bertsmith` is light: each name is imported when it is first used. In signatures `PathLike` is a `str` or a
`Path`, `Paths` one or several of them, and `Texts` one text or several. One text gives one result, a list gives a list.
"""
GROUPS: dict[str, tuple[str, ...]] = {
    "Make a model from text": ("make", "clean", "tokenizer", "prepare", "pretrain"),
    "Fine-tune and evaluate": ("finetune", "evaluate"),
    "Open a model": ("load", "models"),
    "A loaded model": ("Model", "ImageModel"),
    "See inside": ("inspect", "Inspection"),
    "Export": ("export", "Export"),
    "Results": ("Run", "Evaluation", "Prediction", "FilledText", "WordPrediction", "ScoredText"),
    "Recipes and tables": ("Recipe", "FineTune", "ImageFineTune", "ImagePretraining", "FAMILY", "OBJECTIVES", "TASKS"),
    "Parts": ("Tokenizer", "Transformer", "TransformerConfig", "BertsmithError"),
}
RETURNED = (
    GeneratedText,
    TranslatedText,
    InspectedText,
    ImageInspection,
    Results,
)  # by methods and functions, and public through them alone
# Their fields are on the page of recipe keys.
BY_KEYS = ("Recipe", "FineTune", "ImageFineTune", "ImagePretraining", "TransformerConfig")


def page() -> str:
    missing = set(bertsmith.__all__) ^ {name for names in GROUPS.values() for name in names}
    if missing:
        raise SystemExit(f"docs/generate/public_names.py: GROUPS and bertsmith.__all__ differ in {sorted(missing)}")
    lines = INTRO.splitlines()
    for title, names in GROUPS.items():
        lines += ["", f"## {title}", ""]
        for name in names:
            lines += _public(name)
        for kind in RETURNED if title == "Results" else ():
            lines += [f"### {kind.__name__}", "", *_class(kind, kind.__name__)]
    return source.page("Python", "signatures and docstrings", lines)


def _public(name: str) -> list[str]:
    value = api.models if name == "models" else getattr(bertsmith, name)
    lines = [f"### bertsmith.{name}", ""]
    if isinstance(value, dict):
        held = "Classes" if isinstance(next(iter(value.values())), type) else "Settings"
        return [*lines, f"{held} by name, a dictionary: {codes(value)}.", ""]
    if not isinstance(value, type):
        path = path_of(value)
        return [*lines, *_function(named(parsed(path)[0], [value.__name__]), path, f"bertsmith.{name}")]
    if name in BY_KEYS:
        return [*lines, *markdown(value.__doc__), "Its fields are [keys of a recipe](recipe.md).", ""]
    return [*lines, *_class(value, name)]


def _function(node: ast.FunctionDef, path: str, name: str) -> list[str]:
    return ["```python", signature(node, path, name), "```", "", *markdown(ast.get_docstring(node))]


def _class(kind: type, name: str) -> list[str]:
    """A class: its docstring, the fields of a dataclass, its properties, and its methods."""
    path = path_of(kind)
    node = named(parsed(path)[0], kind.__qualname__.split("."))
    lines = markdown(kind.__doc__)
    if is_dataclass(kind):
        rows = [(f"`{part.name}`", _hint(node, part.name), meaning(kind, part)) for part in fields(kind)]
        lines += table(("field", "type", "meaning"), rows)
    parts = [(path_of(one), named(parsed(path_of(one))[0], one.__qualname__.split("."))) for one in _own_classes(kind)]
    public = {one: where for where, part in parts for one in definitions(part) if _is_public(one)}
    properties = [one for one in public if any("property" in mark for mark in _marks(one))]
    rows = [(f"`{one.name}`", _type(one.returns), _summary(one)) for one in properties]
    lines += table(("property", "type", "meaning"), rows)
    aliases = {one.value.id: one.targets[0].id for one in node.body if _is_alias(one)}
    for one in public:
        if one not in properties:
            caller = name if "classmethod" in _marks(one) else re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
            lines += [f"#### {name}.{one.name}", "", *_function(one, public[one], f"{caller}.{one.name}")]
            lines += [f"`{aliases[one.name]}` is another name of it.", ""] if one.name in aliases else []
    return lines


def _own_classes(kind: type) -> list[type]:
    """A class, and the classes of bertsmith that it inherits from."""
    return [one for one in kind.__mro__ if one.__module__.startswith("bertsmith.")]


def _is_public(one: Any) -> bool:
    return isinstance(one, ast.FunctionDef) and not one.name.startswith("_")


def _marks(node: ast.FunctionDef) -> list[str]:
    return [ast.unparse(mark) for mark in node.decorator_list]


def _summary(node: ast.FunctionDef) -> str:
    return first_paragraph(ast.get_docstring(node))


def _is_alias(one: Any) -> bool:
    return isinstance(one, ast.Assign) and isinstance(one.value, ast.Name) and isinstance(one.targets[0], ast.Name)


def _hint(node: Any, name: str) -> str:
    found = [one for one in node.body if isinstance(one, ast.AnnAssign) and ast.unparse(one.target) == name]
    return _type(found[0].annotation) if found else ""


def _type(hint: ast.expr | None) -> str:
    """A type as code; a union without its sign, which parts the cells of a table."""
    if isinstance(hint, ast.BinOp):
        return f"{_type(hint.left)} or {_type(hint.right)}"
    return codes([ast.unparse(hint)]) if hint is not None else ""
