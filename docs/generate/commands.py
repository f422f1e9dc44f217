"""The page of verbs, in the order and under the titles of `bertsmith --help`."""

from pathlib import Path
from typing import Any, get_type_hints

from typer.main import get_command

from bertsmith import cli
from generate import source
from generate.source import codes, first_paragraph, markdown, prose, table, type_words

INTRO = "`bertsmith --help` lists the verbs, and `bertsmith VERB --help` prints the arguments and options of one."


def page() -> str:
    group: Any = get_command(cli.app)
    hints = {one.name or one.callback.__name__: get_type_hints(one.callback) for one in cli.app.registered_commands}
    lines = [INTRO, ""]
    for panel in cli.PANELS:
        verbs = {name: verb for name, verb in group.commands.items() if verb.rich_help_panel == panel}
        rows = [(f"[`{name}`](#{name})", first_paragraph(verb.help)) for name, verb in verbs.items()]
        lines += [f"## {panel}", *table(("verb", "what it does"), rows)]
        for name, verb in verbs.items():
            lines += _verb(name, verb, hints[name])
    return source.page("Commands", "the command line", lines)


def _verb(name: str, verb: Any, hints: dict[str, Any]) -> list[str]:
    arguments = [one for one in verb.params if one.param_type_name == "argument"]
    options = [one for one in verb.params if one.param_type_name == "option" and one.name in hints]
    usage = [_name(one) if one.required else f"[{_name(one)}]" for one in arguments]
    usage += [f"{one.opts[0]} {one.name.upper()}" for one in options if one.required]
    usage += ["[options]"] if any(not one.required for one in options) else []
    lines = [f"### {name}", "", *markdown(verb.help), "```text", " ".join(["bertsmith", name, *usage]), "```", ""]
    lines += table(("argument", "meaning"), [(f"`{_name(one)}`", prose(one.help or "")) for one in arguments])
    rows = [(_option(one), _value(one, hints[one.name]), _default(one), prose(one.help or "")) for one in options]
    return lines + table(("option", "value", "default", "meaning"), rows)


def _name(argument: Any) -> str:
    return argument.name.upper() + ("..." if argument.nargs == -1 else "")


def _option(one: Any) -> str:
    return ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))


def _value(one: Any, hint: Any) -> str:
    return "" if one.is_flag else type_words(hint).replace(", several", "; may be repeated")


def _default(one: Any) -> str:
    if one.required:
        return "required"
    if one.is_flag:
        chosen = one.opts if one.default else one.secondary_opts
        return codes(chosen[:1]) if one.default is not None else ""
    return codes([one.default]) if one.default != "" and isinstance(one.default, str | int | float | Path) else ""
