"""Validation is the same for every masked language model, whatever masks it is trained with."""

from pathlib import Path

import pytest
import torch
from tiny import prepared, recipe

from bertsmith.data.batch import SelectedBatch
from bertsmith.runs import build


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared(tmp_path_factory.mktemp("text"))


def batches(data: Path, out: Path, *changes: str) -> list[SelectedBatch]:
    made = recipe(data, out, *changes)
    tokenizer, _, valid = build.load_data(made)
    return build.validation_batches(made, build.objective(made, tokenizer), tokenizer, valid, torch.device("cpu"))


@pytest.mark.parametrize(
    "changes",
    [
        ["objective.mask_rate=0.4", "objective.keep_rate=0", "objective.random_rate=0"],
        ["objective.unit=word", "objective.static_masks=3"],
        ["objective.kind=mixed", "objective.pairs=nsp", "objective.mask_rate=0.3", "objective.causal_share=0.25"],
        ["objective={kind='replaced_tokens',mask_rate=0.25,keep_rate=0.15}"],
    ],
)
def test_recipes_with_other_masks_predict_the_same_tokens_in_validation(
    data: Path, tmp_path: Path, changes: list[str]
) -> None:
    pairs = ["objective.pairs=none"] if "replaced_tokens" in changes[0] else []
    usual, other = batches(data, tmp_path / "a", *pairs), batches(data, tmp_path / "b", *changes)
    assert len(usual) == len(other) > 1
    for one, two in zip(usual, other, strict=True):
        for name in ("target_positions", "targets") if pairs else ("target_positions", "targets", "labels"):
            assert torch.equal(getattr(one, name), getattr(two, name))
        assert torch.equal(one.tokens.ids, two.tokens.ids)


def test_fifteen_percent_of_the_tokens_are_masked_and_none_is_kept_or_random(data: Path, tmp_path: Path) -> None:
    made = recipe(data, tmp_path, "objective.mask_rate=0.4")
    tokenizer, _, _ = build.load_data(made)
    for batch in batches(data, tmp_path, "objective.mask_rate=0.4"):
        assert (batch.tokens.ids[batch.target_positions] == tokenizer.mask_id).all()
        assert len(batch.target_positions) == pytest.approx(0.15 * batch.counts["tokens"], abs=2)


def test_training_keeps_the_masks_of_its_recipe(data: Path, tmp_path: Path) -> None:
    made = recipe(data, tmp_path, "objective.mask_rate=0.4")
    tokenizer, train, _ = build.load_data(made)
    feed = build.feed(made, build.objective(made, tokenizer), tokenizer, train)
    batch = feed(feed.first_position())
    assert len(batch.targets) == pytest.approx(0.4 * batch.counts["tokens"], rel=0.05)
    assert not (batch.tokens.ids[batch.target_positions] == tokenizer.mask_id).all()
