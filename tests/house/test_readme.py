"""What the README tells people to type exists: every verb, every option, every file it names."""

import re
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from bertsmith.cli import app

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = sorted(set(re.findall(r"bertsmith ([a-z]+)((?: [^\n`|·]*)?)", README)))


def verbs() -> dict[str, set[str]]:
    group = get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return {
        name: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for name, command in group.commands.items()
    }


@pytest.mark.parametrize(("verb", "rest"), [pair for pair in COMMANDS if pair[1].strip()])
def test_every_command_is_one_that_bertsmith_knows(verb: str, rest: str) -> None:
    known = verbs()
    assert verb in known
    for option in re.findall(r"(?<!\S)--[a-z-]+", rest):
        assert option in known[verb], f"bertsmith {verb} has no {option}"


def test_commands_were_found() -> None:
    assert {verb for verb, rest in COMMANDS if rest.strip()} >= {"make", "fill", "finetune", "evaluate", "predict"}


def test_every_file_that_is_named_is_there() -> None:
    named = re.findall(r"`((?:bench|docs|recipes|tests)/[\w./-]+\.\w+)`", README) + re.findall(
        r"\]\(([\w./-]+)\)", README
    )
    assert len(named) > 10
    missing = [name for name in named if not (ROOT / name).exists()]
    assert not missing, missing
