"""Warm starts from a model folder: on the same text, with longer sequences, with another vocabulary."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import losses, prepared, recipe, write_text

from bertsmith.commands import prepare as preparing
from bertsmith.commands import pretrain
from bertsmith.data.batch import Tokens
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.prepare import prepare
from bertsmith.errors import BertsmithError
from bertsmith.inference.load import load
from bertsmith.models.hf import folder as folders
from bertsmith.models.networks import build_network
from bertsmith.models.recurrent import RecurrentConfig
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.recurrent_lm import RecurrentLM
from bertsmith.runs.warm_start import warm_start
from bertsmith.text.extend import extend
from bertsmith.text.special_tokens import Kind
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

pytestmark = pytest.mark.slow("trains the model that runs start from")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prepared text, and a model that was trained on it."""
    folder = tmp_path_factory.mktemp("start")
    pretrain.pretrain(recipe(prepared(folder), folder / "run", "train.steps=80", "model.dropout=0.0"))
    return folder


def fresh(home: Path, **changes: Any) -> tuple[MaskedLM, Path, Tokenizer]:
    model = home / "run" / "model"
    shape = replace(folders.read(model).config, **changes)
    return MaskedLM(Transformer(shape), MaskedLM.Config()).eval(), model, Tokenizer.load(model)


@pytest.mark.exhaustive
def test_a_run_starts_from_the_loss_of_the_model(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = home / "run" / "model"
    given = recipe(home / "data", tmp_path / "on", f"start={model}", "train.steps=30", "model.dropout=0.0")
    pretrain.pretrain(given)
    assert f"starting from {model}" in " ".join(capsys.readouterr().out.split())
    before, after = losses(home / "run"), losses(tmp_path / "on")
    assert before[0][1] > before[-1][1] + 1
    assert after[0][1] < before[0][1] - 1  # the weights were loaded
    once = losses(tmp_path / "on")
    pretrain.pretrain(replace(given, train=replace(given.train, steps=40)))  # and it resumes from its own checkpoint
    assert losses(tmp_path / "on")[:30] == once


def test_all_weights_of_the_folder_are_loaded(home: Path) -> None:
    objective, model, tokenizer = fresh(home)
    assert warm_start(objective, model, tokenizer) == [f"starting from {model}"]
    state = folders.read(model).state_dict
    assert state.keys() == objective.state_dict().keys()
    for name, weight in objective.state_dict().items():
        assert torch.equal(weight, state[name]), name


def test_more_positions_repeat_the_learned_ones_and_short_texts_do_not_change(home: Path) -> None:
    objective, model, tokenizer = fresh(home, max_length=80)
    messages = warm_start(objective, model, tokenizer)
    assert messages[1:] == ["positions: 80 instead of 32"]
    table = objective.trunk.positions.weight
    assert torch.equal(table[32:64], table[:32])
    assert torch.equal(table[64:], table[:16])
    tokens = Tokens.from_rows([[5, 6, 7, 8]])
    torch.testing.assert_close(objective.trunk(tokens), load(model).trunk(tokens))
    shorter, *_ = fresh(home, max_length=20)
    warm_start(shorter, model, tokenizer)
    torch.testing.assert_close(shorter.trunk(tokens), objective.trunk(tokens))


def test_sinusoidal_positions_continue(home: Path, tmp_path: Path) -> None:
    objective, _, tokenizer = fresh(home, positions="sinusoidal")
    folders.write(tmp_path / "waves", objective.trunk.config, objective.state_dict())
    tokenizer.save(tmp_path / "waves")
    longer, *_ = fresh(home, positions="sinusoidal", max_length=80)
    waves = longer.trunk.positions.weight.clone()
    warm_start(longer, tmp_path / "waves", tokenizer)
    assert torch.equal(longer.trunk.positions.weight, waves)
    assert torch.equal(waves[:32], objective.trunk.positions.weight)


def test_shared_tokens_keep_their_rows_and_new_ones_start_from_their_former_tokens(home: Path, tmp_path: Path) -> None:
    model, old = home / "run" / "model", Tokenizer.load(home / "run" / "model")
    new = train(["the doghouse and the cathouse", "a birdhouse"] * 9, TokenizerConfig(vocabulary=100, min_frequency=1))
    shape = replace(folders.read(model).config, vocabulary=new.vocabulary)
    objective = MaskedLM(Transformer(shape), MaskedLM.Config())
    [_, messages] = warm_start(objective, model, new)
    before, after = folders.read(model).state_dict, objective.state_dict()
    both = [piece for piece in new.piece_ids if piece in old.piece_ids]
    assert {"the", "[MASK]", "[CLS]"} <= set(both)
    for name in ("trunk.embedding.weight", "mlm_head.bias"):
        for piece in both:
            assert torch.equal(after[name][new.piece_ids[piece]], before[name][old.piece_ids[piece]]), piece
    strange = [piece for piece in new.piece_ids if piece not in old.piece_ids]
    assert messages.startswith(f"{len(strange)} of {new.vocabulary} tokens are new")
    assert "doghouse" in strange
    parts = old.split_piece("doghouse")
    assert len(parts) > 1
    assert "".join(old.piece(part).removeprefix("##") for part in parts) == "doghouse"
    row = before["trunk.embedding.weight"][parts].mean(0)
    torch.testing.assert_close(after["trunk.embedding.weight"][new.piece_ids["doghouse"]], row)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_new_tokens_start_as_the_mean_of_their_former_tokens(kind: Kind, tmp_path: Path) -> None:
    """For each kind of tokenizer, the vector of a new token is the mean over the tokens of its word."""
    text = write_text(tmp_path / "text.txt").read_text(encoding="utf-8").splitlines()
    old = train(text, TokenizerConfig(kind=kind, vocabulary=300 if kind == "bpe" else 100, min_frequency=1))
    new = extend(old, ["the doghouse and the cathouse", "a birdhouse"] * 9, 200)
    assert new.vocabulary > old.vocabulary
    small = TransformerConfig(vocabulary=old.vocabulary, width=32, layers=2, heads=2, feed_forward=64, max_length=32)
    before = MaskedLM(Transformer(small), MaskedLM.Config())
    torch.nn.init.normal_(before.mlm_head.bias)
    folders.write(tmp_path / "model", small, before.state_dict())
    old.save(tmp_path / "model")
    after = MaskedLM(Transformer(replace(small, vocabulary=new.vocabulary)), MaskedLM.Config())
    [_, messages] = warm_start(after, tmp_path / "model", new)
    assert messages.startswith(f"{new.vocabulary - old.vocabulary} of {new.vocabulary} tokens are new")
    words = [" doghouse", " cathouse", " birdhouse"]
    for [number], parts in zip(new.encode(words), old.encode(words), strict=True):
        assert number >= old.vocabulary
        assert len(parts) > 1
        for name in ("trunk.embedding.weight", "mlm_head.bias"):
            torch.testing.assert_close(after.state_dict()[name][number], before.state_dict()[name][parts].mean(0))
    for name in ("trunk.embedding.weight", "mlm_head.bias"):
        assert torch.equal(after.state_dict()[name][: old.vocabulary], before.state_dict()[name])


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram"])
def test_fewer_new_tokens_than_wanted_are_reported(
    kind: Kind, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = write_text(tmp_path / "text.txt")
    settings = TokenizerConfig(kind=kind, vocabulary=300 if kind == "bpe" else 100, min_frequency=1)
    old = train(text.read_text(encoding="utf-8").splitlines(), settings)
    old.save(tmp_path / "old")
    text.write_text("the doghouse and the cathouse\na birdhouse\n\n" * 9, encoding="utf-8")
    preparing.extend([str(text)], tmp_path / "new", tmp_path / "old", 1_000)
    found = Tokenizer.load(tmp_path / "new").vocabulary - old.vocabulary
    line = f"{found} new tokens, not 1,000: the text repeats no others that the vocabulary lacks"
    assert 0 < found < 200
    assert line in " ".join(capsys.readouterr().out.split())
    preparing.extend([str(text)], tmp_path / "new", tmp_path / "old", 2)
    assert "tokens are new" not in capsys.readouterr().out


def test_a_run_with_new_tokens_learns(home: Path, tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    plain = write_text(text).read_text(encoding="utf-8")
    text.write_text(plain.replace("the house", "the doghouse").replace("the city", "the cathouse"), encoding="utf-8")
    corpus = Corpus([str(text)], layout="lines")
    tokenizer = train(corpus.lines(), TokenizerConfig(vocabulary=100, min_frequency=1))
    prepare(corpus, tokenizer, tmp_path / "data", validation_share=0.1, workers=1)
    changes = ("objective.pairs=none", "train.steps=5", f"start={home / 'run' / 'model'}")
    pretrain.pretrain(recipe(tmp_path / "data", tmp_path / "run", *changes))
    assert load(tmp_path / "run" / "model").tokenizer.vocabulary == tokenizer.vocabulary


def test_randomly_initialised_heads_are_named(home: Path, tmp_path: Path) -> None:
    objective, model, tokenizer = fresh(home)
    opened = folders.read(model)
    bare = {name: weight for name, weight in opened.state_dict.items() if name.startswith("trunk.")}
    folders.write(tmp_path / "bare", opened.config, bare)
    tokenizer.save(tmp_path / "bare")
    assert warm_start(objective, tmp_path / "bare", tokenizer)[1:] == [
        "randomly initialised, since the folder has none: mlm_head, pooler, sentence_pair"
    ]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("model.width=64", "has width = 32, the recipe 64. Set model.width=32."),
        (
            "model.width=64 model.layers=3",
            "has width = 32, layers = 2, the recipe 64, 3. Set model.width=32 model.layers=2.",
        ),
        ("model.segments=1", "has segments = 2, the recipe 1. Set model.segments=2."),
        ("start=nowhere", "nowhere: is missing."),
    ],
)
def test_folders_that_do_not_fit_are_refused_in_one_line(home: Path, tmp_path: Path, change: str, line: str) -> None:
    changes = (f"start={home / 'run' / 'model'}", "train.steps=2", *change.split())
    with pytest.raises(BertsmithError) as caught:
        pretrain.pretrain(recipe(home / "data", tmp_path / "run", *changes))
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_recurrent_network_continues_on_another_vocabulary(tmp_path: Path) -> None:
    """Its output layer has a bias for each word, which belongs to the trunk."""
    text = write_text(tmp_path / "text.txt").read_text(encoding="utf-8").splitlines()
    old = train(text, TokenizerConfig(kind="words", vocabulary=100, min_frequency=1))
    new = train([*text, "a doghouse"], TokenizerConfig(kind="words", vocabulary=100, min_frequency=1))
    assert new.vocabulary > old.vocabulary
    small = RecurrentConfig(vocabulary=old.vocabulary, width=16, layers=1)
    before = RecurrentLM(build_network(small), RecurrentLM.Config())
    torch.nn.init.normal_(before.trunk.bias)
    state = {name: weight for name, weight in before.state_dict().items() if name.startswith("trunk.")}
    folders.write(tmp_path / "model", small, state)
    old.save(tmp_path / "model")
    after = RecurrentLM(build_network(replace(small, vocabulary=new.vocabulary)), RecurrentLM.Config())
    [_, messages] = warm_start(after, tmp_path / "model", new)
    assert messages.startswith(f"{new.vocabulary - old.vocabulary} of {new.vocabulary} tokens are new")
    rows = {piece: (number, new.piece_ids[piece]) for piece, number in old.piece_ids.items()}
    for name in ("trunk.bias", "trunk.embedding.weight"):
        for first, second in rows.values():
            assert torch.equal(before.state_dict()[name][first], after.state_dict()[name][second]), name
