"""The choices of `make --from`: which folders are continued, and vocabulary, length and learning rate."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tiny import prepared, write_text

from bertsmith.config import dump, read
from bertsmith.errors import BertsmithError
from bertsmith.inference.load import load
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.finetuned import FinetunedTask
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.networks import NetworkConfig, build_network
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.objectives.base import Objective
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.replaced import ReplacedTokenDetection
from bertsmith.objectives.spans import SpanCorruption
from bertsmith.recipe import Recipe
from bertsmith.runs import build, continuation
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

SMALL = {"width": 32, "layers": 2, "heads": 2, "feed_forward": 64, "max_length": 64}


def write(path: Path, config: NetworkConfig, objective: Objective, tokenizer: Tokenizer) -> Path:
    """A model folder of random weights, without what has no place in one."""
    kept = {"trunk", *layout_of(config).pretrained}
    folders.write(path, config, {n: one for n, one in objective.state_dict().items() if n.partition(".")[0] in kept})
    tokenizer.save(path)
    return path


def bert(path: Path, data: Path) -> Path:
    config = shape(data)
    objective = MaskedLM(build_network(config), MaskedLM.Config(pairs="none"))
    return write(path, config, objective, Tokenizer.load(data / "tokenizer"))


def shape(data: Path, **changes: object) -> TransformerConfig:
    vocabulary = Tokenizer.load(data / "tokenizer").vocabulary
    return TransformerConfig(**{**SMALL, "vocabulary": vocabulary, **changes})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["bert-base", "roberta-base", "albert-base", "modernbert-base", "gpt2", "smith-base"])
def test_the_member_of_a_published_size_is_found(name: str) -> None:
    assert continuation.nearest_member(FAMILY[name]) == name


def test_what_cannot_be_continued_is_refused_in_one_line(tmp_path: Path) -> None:
    pieces = Tokenizer.load(prepared(tmp_path / "t5-data", "t5") / "tokenizer")
    sizes = {**SMALL, "vocabulary": pieces.vocabulary, "decoder_layers": 2}
    t5 = replace(FAMILY["t5-small"], **sizes)
    write(tmp_path / "t5", t5, SpanCorruption(build_network(t5), SpanCorruption.Config()), pieces)
    fact = r"t5: is neither a masked nor a causal language model, .*: bertsmith pretrain t5-\S+ start=\S*t5, with"
    with pytest.raises(BertsmithError, match=fact):
        continuation.open_model(tmp_path / "t5")

    pieces = Tokenizer.load(prepared(tmp_path) / "tokenizer")
    electra = replace(FAMILY["electra-base"], **SMALL, vocabulary=pieces.vocabulary)
    write(
        tmp_path / "electra",
        electra,
        ReplacedTokenDetection(build_network(electra), ReplacedTokenDetection.Config()),
        pieces,
    )
    fact = r"electra: is a discriminator \(ELECTRA\), .*Use: bertsmith pretrain electra-\S+ start="
    with pytest.raises(BertsmithError, match=fact):
        continuation.open_model(tmp_path / "electra")

    bert = replace(FAMILY["bert-base"], **SMALL, vocabulary=pieces.vocabulary)
    task = SequenceClassification(build_network(bert), SequenceClassification.Config(), ("bad", "good"))
    folders.write(
        tmp_path / "reviews", bert, task.state_dict(), finetuned=FinetunedTask(task="classify", labels=("bad", "good"))
    )
    pieces.save(tmp_path / "reviews")
    with pytest.raises(
        BertsmithError, match=r"reviews: was fine-tuned, which .* undo\. Continue the model it was made"
    ):
        continuation.open_model(tmp_path / "reviews")


def test_models_with_and_without_a_head_are_opened(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    path = bert(tmp_path / "bert", data)
    assert continuation.open_model(path).has_lm_head
    state = folders.read(path).state_dict
    folders.write(path, shape(data), {name: one for name, one in state.items() if name.startswith("trunk.")})
    assert not continuation.open_model(path).has_lm_head


def test_the_vocabulary_is_kept_where_words_are_in_it(tmp_path: Path) -> None:
    text = write_text(tmp_path / "text.txt").read_text(encoding="utf-8").splitlines()
    pieces = train(text, TokenizerConfig(vocabulary=150, min_frequency=1))
    kept, [reason] = continuation.choose_vocabulary(pieces, text, text, 20_000, tmp_path)
    assert kept is pieces
    assert reason.startswith(f"vocabulary of the model, {pieces.vocabulary} tokens: your text needs 1.")
    other = [line.replace("cat", "catdogbird").replace("horse", "horsehouse") for line in text]
    grown, [reason] = continuation.choose_vocabulary(pieces, other, text, 20_000, tmp_path)
    assert 0 < grown.vocabulary - pieces.vocabulary <= 20
    assert "catdogbird" in grown.piece_ids
    assert "general text" in reason
    few, _ = continuation.choose_vocabulary(pieces, other, text, 5_000, tmp_path)
    assert few.vocabulary <= pieces.vocabulary + 5  # one for a thousand words
    words = train(text, TokenizerConfig(kind="words", vocabulary=150, min_frequency=1))
    same, [reason] = continuation.choose_vocabulary(words, text, [], 20_000, tmp_path)
    assert same is words


def test_the_learning_rate_falls_with_width_and_length_of_the_run() -> None:
    rate = continuation.learning_rate
    assert rate(768, 1_000) == pytest.approx(1e-4)
    assert rate(192, 1_000) == pytest.approx(2e-4)
    assert rate(768, 50) == pytest.approx(2e-4)
    assert rate(768, 1e7) == pytest.approx(5e-5)
    rates = [rate(768, updates) for updates in np.geomspace(10, 1e6, 20)]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize(("budget", "gpu"), [(20.0, False), (600.0, False), (600.0, True)])
def test_a_recipe_fits_the_model_and_the_text(tmp_path: Path, budget: float, gpu: bool) -> None:
    data = prepared(tmp_path)
    model = load(bert(tmp_path / "bert", data))
    found = continuation.choose_recipe(
        model, tmp_path / "bert", data, tmp_path / "out", budget=budget, flops=1e9, gpu=gpu, seed=3
    )
    recipe = found.recipe
    assert recipe.data.max_length == 64 == recipe.model.settings.max_length
    assert recipe.data.batch_tokens >= 8 * 64
    assert recipe.start == tmp_path / "bert"
    assert recipe.train.seed == 3
    assert recipe.objective.settings.pairs == "none"  # the folder has no head for pairs
    assert isinstance(model.trunk, Transformer)
    assert len(found.reasons) == 4
    tokens = budget * 1e9 / recipe.model.settings.flops(64, 0.15)
    assert (found.max_seconds is not None) == (tokens > 40 * 5_000)


def test_a_new_head_raises_the_learning_rate(tmp_path: Path) -> None:
    data = prepared(tmp_path)
    path = bert(tmp_path / "bert", data)
    rates = []
    for _ in range(2):
        found = continuation.choose_recipe(load(path), path, data, tmp_path / "out", budget=20.0, flops=1e9, gpu=False)
        rates.append(found.recipe.optimizer.learning_rate)
        assert ("3 times as high for the new head" in found.reasons[-1]) == (len(rates) == 2)
        trunk = {name: one for name, one in folders.read(path).state_dict.items() if name.startswith("trunk.")}
        folders.write(path, shape(data), trunk)
    assert rates[1] == pytest.approx(3 * rates[0], rel=0.05)


@pytest.mark.parametrize(
    "member", ["bert-base", "roberta-base", "albert-base", "distilbert-base", "mpnet-base", "smith-base"]
)
def test_every_masked_member_of_the_family_can_be_continued(member: str, tmp_path: Path) -> None:
    """The recipe describes the network of the folder, so that all of its weights are taken."""
    data = prepared(tmp_path, "bpe" if member in ("roberta-base", "mpnet-base") else "wordpiece")
    pieces = Tokenizer.load(data / "tokenizer")
    config = replace(FAMILY[member], **SMALL, vocabulary=pieces.vocabulary)
    objective = MaskedLM(build_network(config), MaskedLM.Config(pairs="none"))
    initialise(objective, 1)
    model = continuation.open_model(write(tmp_path / "model", config, objective, pieces))
    found = continuation.choose_recipe(
        model, tmp_path / "model", data, tmp_path / "out", budget=60.0, flops=1e9, gpu=False
    )
    path = tmp_path / "recipe.toml"
    path.write_text(dump(found.recipe), encoding="utf-8")
    started = build.objective(read(path, Recipe), pieces)  # as a run reads it
    assert found.recipe.model.kind.partition("-")[0] == member.partition("-")[0]
    for name, weight in objective.state_dict().items():
        assert torch.equal(started.state_dict()[name], weight), name
