"""Recipes are read strictly: every mistake is one line that says where, what and what instead."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest

from bertsmith import config
from bertsmith.config import Component, component_field
from bertsmith.errors import RecipeError


@dataclass(frozen=True, kw_only=True)
class Shape:
    width: int = 8
    depth: int = 2

    def __post_init__(self) -> None:
        if self.width % self.depth:
            raise ValueError(f"width {self.width} is not a multiple of depth {self.depth}")


class Sorter:
    @dataclass(frozen=True, kw_only=True)
    class Config:
        rate: float = 0.5
        way: Literal["up", "down"] = "up"


@dataclass(frozen=True, kw_only=True)
class Inner:
    steps: int | None = None
    rates: tuple[float, ...] = (0.1,)
    name: str = "x"
    loud: bool = False


@dataclass(frozen=True, kw_only=True)
class Whole:
    out: Path
    shape: Component = component_field({"small": Shape(), "large": Shape(width=64)})
    sorter: Component = component_field({"sorter": Sorter})
    inner: Inner = field(default_factory=Inner)


VALUES: dict[str, Any] = {"out": "runs/x", "shape": {"kind": "small"}, "sorter": {"kind": "sorter", "rate": 1}}


def test_a_recipe_becomes_typed_settings() -> None:
    whole = config.build({**VALUES, "inner": {"steps": 3, "rates": [1, 2.5]}}, Whole, "r.toml")
    assert whole.out == Path("runs/x")
    assert whole.shape == Component("small", Shape())
    assert whole.sorter.settings.rate == 1.0
    assert isinstance(whole.sorter.settings.rate, float)
    assert whole.inner == Inner(steps=3, rates=(1.0, 2.5))


def test_overrides_are_laid_over_the_file() -> None:
    values = config.override(VALUES, ["inner.steps=7", "shape.kind=large", "inner.name=plain words", "inner.loud=true"])
    whole = config.build(values, Whole, "r.toml")
    assert (whole.inner.steps, whole.shape.settings.width, whole.inner.name, whole.inner.loud) == (
        7,
        64,
        "plain words",
        True,
    )
    assert "inner" not in VALUES


def test_a_dumped_recipe_reads_back_the_same(tmp_path: Path) -> None:
    inner = {"name": 'a "quote" \\ and\ttab', "steps": 3}
    whole = config.build({**VALUES, "inner": inner}, Whole, "r.toml")
    path = tmp_path / "r.toml"
    path.write_text(config.dump(whole), encoding="utf-8")
    assert config.read(path, Whole) == whole


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("sorter.rat=1", "r.toml [sorter]: unknown key 'rat'. Did you mean 'rate'?"),
        ("shape.widht=1", "r.toml [shape]: unknown key 'widht'. Did you mean 'width'?"),
        ("iner.steps=1", "r.toml: unknown key 'iner'. Did you mean 'inner'?"),
        ("inner.steps=ten", "r.toml [inner] steps: expected a whole number, got 'ten'."),
        ("inner.steps=true", "r.toml [inner] steps: expected a whole number, got True."),
        ("inner.loud=1", "r.toml [inner] loud: expected true or false, got 1."),
        ("inner.rates=1", "r.toml [inner] rates: expected a list, got 1."),
        ("sorter.way=upp", "r.toml [sorter] way: 'upp' is not a choice. Did you mean 'up'?"),
        ("sorter.kind=[1,[2]]", "r.toml [sorter]: unknown kind '[1, [2]]'. Known: sorter."),
        ("sorter.kind={a=1}", "r.toml [sorter]: unknown kind '{'a': 1}'. Known: sorter."),
        ("sorter.kind=sortr", "r.toml [sorter]: unknown kind 'sortr'. Did you mean 'sorter'?"),
        ("shape.depth=3", "r.toml [shape]: width 8 is not a multiple of depth 3."),
        ("inner=3", "r.toml inner: is not a section."),
        ("shape=3", "r.toml [shape]: is not a section."),
        ("nonsense", "'nonsense': is not an override. Write section.key=value, as in train.steps=1000."),
        ("out.x=1", "'out.x=1': 'out' is a value, not a section."),
    ],
)
def test_a_mistake_is_one_clear_line(change: str, line: str) -> None:
    with pytest.raises(RecipeError) as caught:
        config.build(config.override(VALUES, [change]), Whole, "r.toml")
    assert str(caught.value) == line


def test_missing_keys_and_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"r.toml: 'out' is missing. Add it"):
        config.build({}, Whole, "r.toml")
    with pytest.raises(RecipeError, match=r"\[sorter\]: 'kind' is missing. Known: sorter"):
        config.build({**VALUES, "sorter": {}}, Whole, "r.toml")
    with pytest.raises(RecipeError, match=r"no such recipe"):
        config.read(tmp_path / "none.toml", Whole)
    with pytest.raises(RecipeError, match=r"is a folder"):
        config.read(tmp_path, Whole)
    (tmp_path / "bad.toml").write_text("a = [")
    with pytest.raises(RecipeError, match=r"bad.toml: is not TOML"):
        config.read(tmp_path / "bad.toml", Whole)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(RecipeError, match=r"bytes.toml: is not UTF-8"):
        config.read(tmp_path / "bytes.toml", Whole)


def test_the_first_difference_of_two_recipes_is_named() -> None:
    old = config.build({**VALUES, "inner": {"steps": 3}}, Whole, "r.toml")
    new = config.build({**VALUES, "inner": {"name": "y"}}, Whole, "r.toml")
    assert config.first_difference(old, old, frozenset()) is None
    assert config.first_difference(old, new, frozenset()) == "inner.steps was 3, is not set"
    assert config.first_difference(old, new, frozenset({"inner.steps"})) == 'inner.name was "x", is "y"'
