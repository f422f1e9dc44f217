"""TOML into frozen dataclasses: strict keys, typed values, dotted overrides. Knows no component."""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from bertsmith.errors import BertsmithError, RecipeError, suggest

C = TypeVar("C")


@dataclass(frozen=True)
class Component:
    """A component chosen by name: its kind, and the settings of that kind."""

    kind: str
    settings: Any


def component_field(table: Mapping[str, Any]) -> Any:
    """A section whose `kind` picks an entry of a table: a class with a `Config`, or default settings."""
    return field(metadata={"table": table})


def read(path: Path, recipe: type[C], overrides: Sequence[str] = (), alternatives: Sequence[Sequence[str]] = ()) -> C:
    """The recipe in a TOML file, with `section.key=value` overrides applied (see `override`)."""
    return build(override(read_toml(path), overrides, alternatives), recipe, str(path))


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file, unchecked."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise RecipeError(path, "there is no such recipe", "`bertsmith list` shows those that come with it") from None
    except IsADirectoryError:
        raise RecipeError(path, "is a folder", "Name a recipe, a file ending in .toml") from None
    except UnicodeDecodeError:
        raise RecipeError(path, "is not UTF-8 text", "A recipe is a TOML file") from None
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(path, f"is not TOML: {error}") from None


def override(
    values: dict[str, Any], overrides: Sequence[str], alternatives: Sequence[Sequence[str]] = ()
) -> dict[str, Any]:
    """The same tree of values with overrides `a.b=value` applied. The value is TOML; anything else is a string.

    Of keys that are `alternatives` to each other, an override removes the others.
    """
    for text in overrides:
        dotted, equals, value = text.partition("=")
        keys = dotted.strip().split(".")
        if not equals or not all(keys):
            raise RecipeError(f"'{text}'", "is not an override", "Write section.key=value, as in train.steps=1000")
        for group in alternatives:
            if dotted.strip() in group:
                values = _without(values, group)
        values = _with_value(values, keys, _parse_toml_value(value.strip()), text)
    return values


def _without(values: dict[str, Any], dotted: Sequence[str]) -> dict[str, Any]:
    """The same tree without some keys of its sections."""
    return {
        section: {key: value for key, value in inner.items() if f"{section}.{key}" not in dotted}
        if isinstance(inner, dict)
        else inner
        for section, inner in values.items()
    }


def build(values: Mapping[str, Any], kind: type[C], location: str) -> C:
    """A dataclass from a table of values. Errors name the location."""
    known = {part.name: part for part in fields(kind)}  # type: ignore[arg-type]
    hints = get_type_hints(kind)
    arguments = {}
    for key, value in values.items():
        if key not in known:
            raise RecipeError(location, f"unknown key '{key}'", suggest(key, known))
        if "table" in known[key].metadata:
            arguments[key] = _build_component(value, known[key].metadata["table"], f"{location} [{key}]")
        else:
            arguments[key] = convert(value, hints[key], key, location)
    for name, part in known.items():
        if name not in arguments and part.default is MISSING and part.default_factory is MISSING:
            raise RecipeError(location, f"'{name}' is missing", "Add it to the recipe or give it as an override")
    built: C = _with_location(lambda: kind(**arguments), location)
    return built


def dump(recipe: Any) -> str:
    """The recipe as TOML, every value written out, so that a run can be read and repeated."""
    tree = _to_dict(recipe)
    lines = [f"{key} = {_to_toml(value)}" for key, value in tree.items() if not isinstance(value, dict)]
    for name, section in tree.items():
        if isinstance(section, dict):
            lines += ["", f"[{name}]", *(f"{key} = {_to_toml(value)}" for key, value in section.items())]
    return "\n".join(lines).strip() + "\n"


def first_difference(old: Any, new: Any, ignore: frozenset[str]) -> str | None:
    """The first value in which two recipes differ, in words; names in `ignore` are left out."""
    before, after = dict(_flat(_to_dict(old))), dict(_flat(_to_dict(new)))
    for name in dict.fromkeys([*before, *after]):
        if name not in ignore and before.get(name) != after.get(name):
            return f"{name} was {_shown(before.get(name))}, is {_shown(after.get(name))}"
    return None


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _shown(value: Any) -> str:
    return "not set" if value is None else _to_toml(value)


def _with_value(values: Mapping[str, Any], keys: list[str], value: Any, text: str) -> dict[str, Any]:
    head, *rest = keys
    if not rest:
        return {**values, head: value}
    inner = values.get(head, {})
    if not isinstance(inner, Mapping):
        raise RecipeError(f"'{text}'", f"'{head}' is a value, not a section")
    return {**values, head: _with_value(inner, rest, value, text)}


def _parse_toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _build_component(value: Any, table: Mapping[str, Any], location: str) -> Component:
    if not isinstance(value, Mapping):
        raise RecipeError(location, "is not a section")
    rest = dict(value)
    kind = rest.pop("kind", None)
    if kind is None:
        raise RecipeError(location, "'kind' is missing", f"Known: {', '.join(table)}")
    if not isinstance(kind, str) or kind not in table:
        raise RecipeError(location, f"unknown kind '{kind}'", suggest(str(kind), table))
    entry = table[kind]
    if is_dataclass(entry) and not isinstance(entry, type):
        hints, known = get_type_hints(type(entry)), {part.name for part in fields(entry)}
        for key in rest:
            if key not in known:
                raise RecipeError(location, f"unknown key '{key}'", suggest(key, known))
        changes = {key: convert(part, hints[key], key, location) for key, part in rest.items()}
        return Component(kind, _with_location(lambda: replace(entry, **changes), location))
    return Component(kind, build(rest, entry.Config, location))


def _with_location(make: Any, location: str) -> Any:
    """Raise a dataclass's own error (a ValueError of `__post_init__`) with its location."""
    try:
        return make()
    except ValueError as error:
        raise RecipeError(location, str(error)) from None


_TYPE_NAMES: dict[Any, str] = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


def convert(value: Any, hint: Any, key: str, location: str) -> Any:
    """The value as the type of the dataclass's field, or an error that names the expected type."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return _convert_any(value, [part for part in get_args(hint) if part is not NoneType], key, location)
    if origin is Literal:
        if value not in get_args(hint):
            remedy = suggest(str(value), map(str, get_args(hint)))
            raise RecipeError(f"{location} {key}", f"'{value}' is not a choice", remedy)
        return value
    if origin is tuple:
        if not isinstance(value, Sequence) or isinstance(value, str):
            raise RecipeError(f"{location} {key}", f"expected a list, got {value!r}")
        kinds = get_args(hint)
        if kinds[-1] is not Ellipsis and len(value) != len(kinds):
            raise RecipeError(f"{location} {key}", f"expected {len(kinds)} values, got {value!r}")
        return tuple(convert(part, kinds[0], key, location) for part in value)
    if is_dataclass(hint):
        if not isinstance(value, Mapping):
            raise RecipeError(f"{location} {key}", "is not a section")
        return build(value, hint, f"{location} [{key}]")  # type: ignore[arg-type]
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is Path and isinstance(value, str):
        return Path(value)
    if isinstance(value, bool) != (hint is bool) or not isinstance(value, hint):
        raise RecipeError(f"{location} {key}", f"expected {_TYPE_NAMES.get(hint, hint.__name__)}, got {value!r}")
    return value


def _convert_any(value: Any, hints: list[Any], key: str, location: str) -> Any:
    for hint in hints[:-1]:
        try:
            return convert(value, hint, key, location)
        except BertsmithError:
            continue
    return convert(value, hints[-1], key, location)


def _to_dict(value: Any) -> Any:
    if isinstance(value, Component):
        return {"kind": value.kind, **_to_dict(value.settings)}
    if is_dataclass(value) and not isinstance(value, type):
        parts = {part.name: getattr(value, part.name) for part in fields(value)}
        return {name: _to_dict(part) for name, part in parts.items() if part is not None}
    return value


def _to_toml(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple | list):
        return f"[{', '.join(_to_toml(part) for part in value)}]"
    if isinstance(value, int | float):
        return repr(value)
    # TOML's basic strings are escaped as JSON's, but without surrogates, which cannot come from a TOML file.
    escaped = str(value).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(f"\\u{ord(char):04x}" if ord(char) < 32 else char for char in escaped) + '"'
