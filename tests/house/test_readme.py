"""What README and site tell people to type exists: every verb, option and file; and every task is two clicks away."""

import re
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from bertsmith.cli import app

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PAST = ("docs/diary.md", "docs/reference/")  # told as it was then; generated from the program itself
PAGES = {
    name: path.read_text(encoding="utf-8")
    for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if not (name := path.relative_to(ROOT).as_posix()).startswith(PAST)
}
TASKS = {  # of a newcomer: the guide, and the verb of its first block (export needs none: the folder is the interface)
    "make a model from my own text": ("make", "make"),
    "continue a published model": ("continue", "make"),
    "classify a CSV": ("classification", "finetune"),
    "named entities": ("ner", "finetune"),
    "question answering": ("question-answering", "finetune"),
    "sentence embeddings": ("embeddings", "embed"),
    "search": ("embeddings", "search"),
    "generate text": ("generate", "generate"),
    "export to transformers": ("export", "from_pretrained"),
    "read the report": ("report", "evaluate"),
}


def commands(text: str) -> list[tuple[str, str]]:
    return sorted(set(re.findall(r"(?:^|`)bertsmith ([a-z0-9]+) ([^\n`|·]+)", text, re.M)))


def verbs() -> dict[str, set[str]]:
    group = get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return {
        name: {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        for name, command in group.commands.items()
    }


@pytest.mark.parametrize("page", PAGES)
def test_every_command_is_one_that_bertsmith_knows(page: str) -> None:
    known = verbs()
    for verb, rest in commands(PAGES[page]):
        assert verb in known, f"{page}: bertsmith has no verb {verb}"
        for option in re.findall(r"(?<!\S)--[a-z0-9-]+", rest):
            assert option in known[verb], f"{page}: bertsmith {verb} has no {option}"


def test_commands_were_found() -> None:
    assert {verb for verb, _ in commands(README)} >= {"make", "fill", "finetune", "evaluate", "predict"}


def test_every_file_that_is_named_is_there() -> None:
    named = re.findall(r"`((?:bench|docs|recipes|tests)/[\w./-]+\.\w+)`", README) + re.findall(
        r"\]\(([\w./-]+)\)", README
    )
    assert len(named) > 10
    missing = [name for name in named if not (ROOT / name).exists()]
    assert not missing, missing


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_found_from_the_readme_and_done_by_one_block(task: str) -> None:
    guide, verb = TASKS[task]
    assert f"](docs/guides/{guide}.md)" in README, f"README has no link to the guide for: {task}"
    first = re.search(r"^```(?:bash|python)\n(.*?)^```$", PAGES[f"docs/guides/{guide}.md"], re.M | re.S)
    assert first is not None
    assert re.search(rf"\b{verb}\b", first[1]), f"the first block of {guide}.md does not: {task}"
