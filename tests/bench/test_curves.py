"""Loss curves: the change of each path, the comparison of curves, and that they coincide."""

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from bench.script import script
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import prepared, recipe

from bertsmith import config
from bertsmith.recipe import Recipe
from bertsmith.train import hardware

pytestmark = pytest.mark.slow("trains the same network several times")

CPU, GPU = torch.device("cpu"), torch.device("cuda")
LOSSES = st.lists(st.tuples(st.floats(0.1, 10), st.floats(0.1, 10)), min_size=1, max_size=8)


script("record")
curves = script("curves")
EXACT = curves.Way()


@pytest.fixture(scope="module")
def run_of(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The losses and metrics of a few steps on a path, with the given dropout."""
    data = prepared(tmp_path_factory.mktemp("text"))
    still = ["model.dropout=0.0", "model.attention_dropout=0.0", "train.evaluations=0", "train.checkpoints=0"]
    few = ["train.steps=6", "data.max_length=16", "data.batch_tokens=128"]  # half precision is slow on some processors

    def go(way: Any, *changes: str) -> tuple[list[float], dict[str, float]]:
        folder = tmp_path_factory.mktemp("run")
        found: tuple[list[float], dict[str, float]] = curves.trained(
            recipe(data, folder, *still, *few, *changes), way, folder
        )
        return found

    return go


@pytest.fixture(scope="module")
def exact(run_of: Any) -> tuple[list[float], dict[str, float]]:
    found: tuple[list[float], dict[str, float]] = run_of(EXACT)
    return found


def test_each_path_changes_what_it_is_named_after_and_nothing_else() -> None:
    assert curves.Way(whole=True, kernel="eager", precision="float32", compile="never", played=False) == EXACT
    for name, changes in curves.PATHS.items():
        way = curves.way_of(name, EXACT, GPU)
        changed = {key for key in vars(EXACT) if getattr(way, key) != getattr(EXACT, key)}
        assert changed == set(changes), name
    assert curves.way_of("exact", EXACT, GPU) == EXACT


def test_paths_that_need_a_gpu_are_left_out_on_a_cpu() -> None:
    missing = [name for name in curves.PATHS if curves.way_of(name, EXACT, CPU) is None]
    assert missing == ["short", "long", "compile", "played"]
    assert curves.way_of("all", EXACT, CPU) == curves.Way(whole=False, kernel=None, precision="pure")


@pytest.mark.exhaustive
def test_the_exact_path_is_reproducible_and_depends_on_the_seed(run_of: Any, exact: Any) -> None:
    (first, figures), (second, again) = exact, run_of(EXACT)
    assert len(first) == 6
    assert (first, figures["held_out_loss"]) == (second, again["held_out_loss"])
    assert curves.compared(run_of(EXACT, "train.seed=1")[0], first)["largest_difference"] > 0.05


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["last layer", "attention"])
def test_exact_replacements_differ_by_rounding_alone(name: str, run_of: Any, exact: Any) -> None:
    (true, figures), (losses, found) = exact, run_of(curves.way_of(name, EXACT, CPU))
    assert curves.compared(losses, true)["largest_difference"] < 1e-4
    assert found["held_out_loss"] == pytest.approx(figures["held_out_loss"], abs=1e-4)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["half", "pure", "all"])
def test_half_precision_is_close_and_not_equal(name: str, run_of: Any, exact: Any) -> None:
    losses, _ = run_of(curves.way_of(name, EXACT, CPU))
    assert 0 < curves.compared(losses, exact[0])["largest_difference"] < 0.05


@pytest.mark.exhaustive
def test_the_exact_path_computes_all_of_the_last_layer(run_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the path that does not passes the selected positions on."""
    asked: list[bool] = []
    layer, forward = curves.Transformer, curves.Transformer.forward

    def seen(self: Any, tokens: Any, kernel: Any = None, *, selected: Any = None) -> Any:
        asked.append(selected is None)
        return forward(self, tokens, kernel, selected=selected)

    monkeypatch.setattr(layer, "forward", seen)
    run_of(EXACT, "train.steps=2")
    assert set(asked) == {True}
    asked.clear()
    run_of(curves.way_of("last layer", EXACT, CPU), "train.steps=2")
    assert set(asked) == {False}


@settings(deadline=None)
@given(LOSSES)
def test_the_largest_difference_is_at_its_reported_step(pairs: list[tuple[float, float]]) -> None:
    losses, exact = [list(part) for part in zip(*pairs, strict=True)]
    found = curves.compared(losses, exact)
    at = found["at_step"] - 1
    assert found["largest_difference"] == abs(losses[at] - exact[at])
    assert all(abs(one - other) <= found["largest_difference"] for one, other in pairs)
    assert found["mean_difference"] <= found["largest_difference"] * (1 + 1e-12)
    assert curves.compared(exact, exact)["largest_difference"] == 0


@settings(deadline=None)
@given(LOSSES)
def test_every_curve_is_drawn_whatever_its_losses(pairs: list[tuple[float, float]]) -> None:
    exact, losses = [list(part) for part in zip(*pairs, strict=True)]
    drawn = curves.picture("a & b", {"exact": exact, "half": losses, "pure": exact})
    root = ElementTree.fromstring(drawn)
    words = [text.text or "" for text in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "a & b" in words
    assert {"exact", "pure: at most 0.0e+00"} < set(words)
    assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) == 2 + 2 * 3  # lines above and below, and keys
    assert "nan" not in drawn
    assert "inf" not in drawn


def test_the_command_writes_figures_and_a_chart_of_the_available_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    data = prepared(tmp_path)
    written = tmp_path / "tiny.toml"
    written.write_text(config.dump(recipe(data, tmp_path, "train.device=cpu")), encoding="utf-8")
    trained = curves.trained

    def unlucky(given: Recipe, way: Any, folder: Path) -> Any:
        assert (given.model.settings.dropout, given.model.settings.attention_dropout) == (0.0, 0.0)
        if way.precision == "bfloat16":
            raise RuntimeError("out of memory")
        return trained(given, way, folder)

    monkeypatch.setattr(curves, "trained", unlucky)
    out, drawn = tmp_path / "curves.json", tmp_path / "curves.svg"
    options = ["--recipe", str(written), "--steps", "3", "--out", str(out), "--picture", str(drawn)]
    monkeypatch.setattr(
        sys, "argv", ["curves.py", str(data), *options, "--paths", "last layer", "short", "half", "all"]
    )
    with pytest.raises(SystemExit, match="1 paths failed"):
        curves.main()
    kept = json.loads(out.read_text(encoding="utf-8"))
    assert list(kept["rows"]) == ["exact", "last layer", "all"]
    assert kept["rows"]["exact"]["largest_difference"] == kept["rows"]["exact"]["held_out_difference"] == 0
    assert kept["from_step_to_step"] > 0
    assert kept["machine"] == hardware.describe(CPU)
    said = capsys.readouterr().out
    assert "short        skipped: it needs a CUDA device" in said
    assert "half         FAILED: out of memory" in said
    assert "all: at most" in drawn.read_text(encoding="utf-8")
