"""RoBERTa's network and tasks against transformers."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from parity.members import KINDS, assert_masked_words, assert_task
from tasks import small
from tasks.small import WORDS, prose, shape

from bertsmith.commands import prepare, pretrain
from bertsmith.errors import RecipeError
from bertsmith.inference.load import load
from bertsmith.models.family import ROBERTA
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.masked import MaskedLM
from bertsmith.runs import build
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train


@cache
def tokenizer() -> Tokenizer:
    return train([" ".join(WORDS)] * 3, TokenizerConfig(kind="bpe", vocabulary=300, min_frequency=1))


def roberta(**changes: Any) -> TransformerConfig:
    own = {name: getattr(ROBERTA, name) for name in ("position_offset", "segments", "norm_eps")}
    return shape(vocabulary=tokenizer().vocabulary, **own, **changes)


def test_masked_words_both_ways(tmp_path: Path) -> None:
    assert_masked_words(roberta(), tmp_path)
    assert_masked_words(roberta(activation="gelu_tanh"), tmp_path / "tanh")  # but for the head, whose GELU is exact


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_tasks_both_ways(name: str, tmp_path: Path) -> None:
    assert_task(name, roberta(), tokenizer(), tmp_path)


def test_two_texts_are_parted_as_the_tokenizer_of_transformers_does_it(tmp_path: Path) -> None:
    config = roberta()
    folders.write(tmp_path, config, MaskedLM(Transformer(config), MaskedLM.Config(pairs="none")).state_dict())
    tokenizer().save(tmp_path, max_length=config.max_length, segments=False)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for one, other in zip(prose(5, 1), prose(5, 2), strict=True):
        said = theirs(one, other)
        assert "token_type_ids" not in said
        ids, _ = tokenizer().encode_pair(one, other)
        assert said["input_ids"] == ids
        assert ids.count(tokenizer().stop_id) == 3
    assert tokenizer().separator_count == 2


def test_positions_are_counted_from_after_the_padding_token() -> None:
    positions = Transformer(roberta()).positions
    assert positions.weight.shape == (66, 32)
    assert torch.equal(positions(torch.tensor([0, 63])), positions.weight[[2, 65]])


def test_a_vocabulary_whose_padding_has_another_number_is_refused() -> None:
    recipe = pretrain.read_recipe(Path(__file__).parents[2] / "src" / "bertsmith" / "recipes" / "roberta-base.toml", [])
    with pytest.raises(RecipeError) as caught:
        build.objective(recipe, small.tokenizer())
    fact = "roberta-base counts positions from the padding id, which must be 1 and is 0 here"
    assert str(caught.value) == f"model.kind: {fact}. Train the tokenizer with --kind bpe, and prepare the text again."


def test_a_run_ends_in_a_folder_that_guesses_alike_in_transformers(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("\n".join(prose(400, 3)))
    text = [str(tmp_path / "text.txt")]
    prepare.tokenizer(text, tmp_path / "tokenizer", TokenizerConfig(kind="bpe", vocabulary=300))
    prepare.prepare(text, tmp_path / "data", tmp_path / "tokenizer")
    sizes = ["width=32", "layers=2", "heads=4", "feed_forward=48", "max_length=64"]
    overrides = [f"model.{size}" for size in sizes] + ["data.max_length=32", "data.batch_tokens=512", "train.steps=3"]
    overrides += ["train.gradient_accumulation=1", f"out={tmp_path / 'run'}", f"data.folder={tmp_path / 'data'}"]
    pretrain.pretrain(
        pretrain.read_recipe(
            Path(__file__).parents[2] / "src" / "bertsmith" / "recipes" / "roberta-base.toml", overrides
        )
    )
    theirs = transformers.pipeline("fill-mask", str(tmp_path / "run" / "model"))
    ours = load(tmp_path / "run" / "model")
    for text in ("the old <mask> sees", "in 1984 the green river likes <mask> dog ."):
        [found] = ours.fill(text, 3).blanks
        shares = [guess.probability / one["score"] for guess, one in zip(found, theirs(text, top_k=3), strict=True)]
        assert shares == pytest.approx([shares[0]] * 3, rel=1e-5)  # ours are shares of what is no special piece
        assert 1 < shares[0] < 1.05
