"""The page of recipe keys: pretraining, fine-tuning, images, word2vec; a table for each section and each kind."""

import re
from collections import Counter
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, get_type_hints

import bertsmith
from bertsmith.commands.word2vec import Word2VecRecipe
from generate import source
from generate.source import codes, comments, first_paragraph, markdown, prose, table, type_words, union

INTRO = """\
A recipe is a TOML file with one section for each part of a run. `bertsmith list` shows the recipes that come with the
package, `bertsmith check bert-base` the parameters, memory and time of one. Any key can be changed on the command line
as `section.key=value`:

```text
bertsmith pretrain bert-base --data DATA --out runs/mine optimizer.learning_rate=1e-4 train.gradient_accumulation=4
```

Of `train.steps`, `train.epochs` and `train.budget` the one that is given last counts.
"""
ROOTS = {
    "Pretraining": bertsmith.Recipe,
    "Fine-tuning": bertsmith.FineTune,
    "Training on images": bertsmith.ImageFineTune,
    "Pretraining on images": bertsmith.ImagePretraining,
    "Word vectors": Word2VecRecipe,
}
HEAD = ("key", "value", "default", "meaning")


def page() -> str:
    lines, done = INTRO.splitlines(), dict[Any, str]()
    for title, root in ROOTS.items():
        lines += ["", f"## {title}", "", *markdown(root.__doc__), *_section(root, title.lower(), "", done)]
    return source.page("Recipe keys", "the dataclasses and their comments", lines)


def _section(kind: type, root: str, path: str, done: dict[Any, str]) -> list[str]:
    """The table of one dataclass, and after it the sections that it holds."""
    rows, below, hints = list[tuple[str, ...]](), list[str](), get_type_hints(kind)
    for part in fields(kind):
        key = f"{path}.{part.name}" if path else part.name
        words, nested = type_words(hints[part.name], '"'), [one for one in union(hints[part.name]) if is_dataclass(one)]
        held = part.metadata.get("table") or (nested[0] if nested else None)
        if held is not None:
            title = f"`[{key}]` of {root}"
            anchor = re.sub(r"[^a-z0-9_ -]", "", title).replace(" ", "-")
            words = words.replace("section", f"[section](#{anchor})")
            below += [f"### {title}", ""]
            if id(held) in done:
                below += [f"The same keys as {done[id(held)]}.", ""]
            else:
                done[id(held)] = f"[{title}](#{anchor})"
                below += _kinds(held, root, key, done) if "table" in part.metadata else _plain(held, root, key, done)
        about = meaning(kind, part)
        if not about and held is not None:
            about = f"chosen by `{key}.kind`" if "table" in part.metadata else first_paragraph(held.__doc__)
        rows.append((f"`{key}`", words, _default(part), about))
    return table(HEAD, rows) + below


def _plain(kind: type, root: str, key: str, done: dict[Any, str]) -> list[str]:
    return [*markdown(kind.__doc__), *_section(kind, root, key, done)]


def _kinds(entries: dict[str, Any], root: str, key: str, done: dict[Any, str]) -> list[str]:
    """A section whose `kind` chooses a class with a `Config`, or settings to start from."""
    presets = {name: entry for name, entry in entries.items() if not isinstance(entry, type)}
    if not presets:
        lines = [f"`{key}.kind` is required, and decides which other keys there are: {codes(entries)}.", ""]
        for name, entry in entries.items():
            lines += [f"#### `{key}.kind={name}`", "", *markdown(entry.__doc__)]
            lines += _section(entry.Config, root, key, done) if fields(entry.Config) else ["It has no other keys.", ""]
        return lines
    lines = [f"`{key}.kind` is required: a model of the family. Each other key changes one of its settings.", ""]
    counts = Counter(map(type, presets.values()))
    for settings, _ in counts.most_common():
        members = {name: entry for name, entry in presets.items() if type(entry) is settings}
        lines += [f"#### {settings.__name__.removesuffix('Config')} networks", "", *_plain(settings, root, key, done)]
        rows = [(f"`{name}`", _differences(entry)) for name, entry in members.items()]
        lines += ["Kinds, and where their settings differ from these defaults:", *table(("kind", "settings"), rows)]
    return lines


def _differences(settings: Any) -> str:
    parts = [part for part in fields(settings) if getattr(settings, part.name) != part.default]
    return codes(f"{part.name}={_written(getattr(settings, part.name))}" for part in parts) or "none"


def _default(part: Field[Any]) -> str:
    if part.default is MISSING:
        return "required" if part.default_factory is MISSING else ""
    return "" if part.default is None else f"`{_written(part.default)}`"


def _written(value: Any) -> str:
    """A value as a recipe writes it."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{', '.join(map(_written, value))}]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def meaning(kind: type, part: Field[Any]) -> str:
    """The comment of a field."""
    said = prose(comments(kind).get(part.name, ""))
    return said.replace("None: ", "if not given: ")  # which TOML has no word for
