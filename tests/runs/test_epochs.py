"""How often a text is seen: special tokens and random second texts are read, too, and are no part of it."""

from pathlib import Path

import pytest
from laws.objectives import MEMBER, Case
from tiny import prepared, recipe

from bertsmith.commands import pretrain
from bertsmith.data.shards.shards import Shards
from bertsmith.recipe import Recipe
from bertsmith.runs import build, candidates, summary
from bertsmith.runs.epochs import epoch_tokens


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("text"))


def read_in_an_epoch(made: Recipe, epochs: int = 4) -> float:
    """The tokens of the batches of some epochs, for each."""
    tokenizer, train, _ = build.load_data(made)
    feed = build.feed(made, build.objective(made, tokenizer), tokenizer, train)
    position, tokens = feed.first_position(), 0
    while feed.epoch(position) < epochs:
        tokens += feed(position).counts["tokens"]
        position = feed.next_position(position)
    return tokens / feed.epoch(position)


@pytest.mark.parametrize("length", [16, 32])
@pytest.mark.parametrize(
    "changes",
    [
        ("objective.pairs=none",),
        ("objective.pairs=none", "data.cross_documents=true"),
        ("objective.pairs=nsp",),
        ("objective.pairs=sop",),
    ],
    ids=str,
)
def test_an_epoch_has_as_many_tokens_as_its_batches(data: Path, changes: tuple[str, ...], length: int) -> None:
    made = recipe(data, Path("out"), *changes, f"data.max_length={length}")
    train = Shards(data / "train")
    assert epoch_tokens(made, train) == pytest.approx(read_in_an_epoch(made), rel=0.04)
    assert epoch_tokens(made, train) > 1.05 * train.tokens


def test_an_epoch_of_streams_has_a_separator_for_each_text(tmp_path: Path) -> None:
    text = prepared(tmp_path, MEMBER["recurrent_lm"][1])
    made = Case("recurrent_lm", MEMBER["recurrent_lm"][0]).recipe(text, tmp_path / "out")
    assert epoch_tokens(made, Shards(text / "train")) == pytest.approx(read_in_an_epoch(made), rel=0.04)


@pytest.mark.parametrize(("epochs", "kept"), [(0.95, "last"), (1.05, "best")])
def test_make_counts_epochs_as_the_run_does(data: Path, epochs: float, kept: str) -> None:
    def built(tokens_seen: float) -> Recipe:
        seen = {"tokens_seen": tokens_seen, "budget": 60.0}
        return candidates.build("tiny", data, Path("out"), gpu=False, pairs=True, like="bert", **seen)

    epoch = epoch_tokens(built(1e4), Shards(data / "train"))
    assert built(epochs * candidates.SEVERAL_EPOCHS * epoch).keep == kept


@pytest.mark.slow("trains")
def test_a_run_of_two_epochs_says_that_it_has_seen_its_text_twice(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, overview = [], summary.overview
    monkeypatch.setattr(summary, "overview", lambda trained: said.append(overview(trained)) or overview(trained))
    pretrain.pretrain(recipe(data, tmp_path / "run", "train={epochs=2.0, precision='float32'}"))
    assert "seen 2.0 times" in said[0].read
