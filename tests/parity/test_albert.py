"""ALBERT's network and tasks against transformers."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from parity.members import KINDS, ROWS, assert_masked_words, assert_task, padded
from parity.parity import MOST, difference
from tasks.small import WORDS, shape, stirred
from tiny import prepared

from bertsmith.commands import pretrain
from bertsmith.data.batch import Tokens
from bertsmith.errors import FolderError
from bertsmith.inference.load import load
from bertsmith.models.hf import convert
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.pooling import first
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train
from bertsmith.train import log


@cache
def tokenizer() -> Tokenizer:
    return train([" ".join(WORDS)] * 3, TokenizerConfig(kind="unigram", vocabulary=100))


def albert(**changes: Any) -> TransformerConfig:
    own = {"embedding_width": 12, "share_layers": True, "layers": 3, "activation": "gelu_tanh"}
    return shape(**{**own, "vocabulary": 100, **changes})


def test_masked_words_both_ways(tmp_path: Path) -> None:
    assert_masked_words(albert(), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", KINDS)
def test_tasks_both_ways(name: str, tmp_path: Path) -> None:
    config = albert(
        vocabulary=tokenizer().vocabulary, segments=1
    )  # what nobody marks, transformers counts as the first
    assert_task(name, config, tokenizer(), tmp_path)


@torch.no_grad()
def test_sentence_order_both_ways(tmp_path: Path) -> None:
    config = albert()
    words = convert.to_config_json(config, ("mlm_head", "pooler", "sentence_pair"))
    reference = stirred(transformers.AlbertForPreTraining(transformers.AlbertConfig(**words)))
    reference.save_pretrained(tmp_path / "theirs")
    opened = folders.read(tmp_path / "theirs")
    assert (opened.config, opened.parts) == (config, {"mlm_head", "pooler", "sentence_pair"})
    ours = MaskedLM(Transformer(config), MaskedLM.Config(pairs="sop")).eval()
    ours.load_state_dict(opened.state_dict)
    said, tokens = reference(**padded(ROWS, 0)), Tokens.from_rows(ROWS)
    scores = ours.sentence_pair(ours.pooler(first(ours.trunk(tokens), tokens.bounds)))
    assert difference([scores], [said.sop_logits]) <= MOST
    folders.write(tmp_path / "ours", config, ours.state_dict())
    again, report = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    assert difference([again.eval()(**padded(ROWS, 0)).sop_logits], [said.sop_logits]) <= MOST


def test_a_file_cannot_name_any_number_of_layers_that_are_one(tmp_path: Path) -> None:
    config = albert()
    folders.write(tmp_path, config, MaskedLM(Transformer(config), MaskedLM.Config(pairs="none")).state_dict())
    words = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(words | {"num_hidden_layers": 10_000_000}))
    with pytest.raises(FolderError, match="names 10000000 layers for 28 weights"):
        folders.read(tmp_path)


def test_all_layers_are_one_and_its_gradient_is_the_sum_of_all() -> None:
    trunk = stirred(Transformer(albert()))
    assert len(trunk.layers) == 1
    assert len(trunk.hidden_states(Tokens.from_rows(ROWS))) == 4
    assert sum(part.numel() for part in trunk.parameters()) + 32 * 32 + 32 == albert().parameter_count
    plain = stirred(Transformer(albert(share_layers=False)))
    plain.load_state_dict({**plain.state_dict(), **trunk.state_dict()})
    for layer in plain.layers:
        layer.load_state_dict(trunk.layers[0].state_dict())
    for network in (trunk, plain):
        network(Tokens.from_rows(ROWS)).square().sum().backward()
    for name, weight in trunk.layers[0].named_parameters():
        every = sum(dict(layer.named_parameters())[name].grad for layer in plain.layers)
        torch.testing.assert_close(weight.grad, every, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "pairs", "said"), [("albert-base", "sop", None), ("bert-base", "sop", "sop")])
def test_a_run_ends_in_a_folder_that_knows_what_its_pairs_were(
    kind: str, pairs: str, said: str | None, tmp_path: Path
) -> None:
    """ALBERT's head for two texts tells their order; where BERT's does, the folder says so in our own word."""
    pieces = "unigram" if kind == "albert-base" else "wordpiece"
    sizes = ["width=32", "layers=2", "heads=4", "feed_forward=48", "max_length=64"]
    changes = [
        *(f"model.{size}" for size in sizes),
        f"model.kind={kind}",
        f"objective.pairs={pairs}",
        "data.max_length=32",
    ]
    changes += ["data.batch_tokens=512", "train.steps=3", "train.gradient_accumulation=1", f"out={tmp_path / 'run'}"]
    recipe = Path(__file__).parents[2] / "src" / "bertsmith" / "recipes" / "albert-base.toml"
    pretrain.pretrain(pretrain.read_recipe(recipe, [*changes, f"data.folder={prepared(tmp_path, pieces)}"]))
    model = load(tmp_path / "run" / "model")
    assert model.objective.pairs == pairs
    assert json.loads((tmp_path / "run" / "model" / "config.json").read_text()).get("pairs") == said
    figures = [line for line in log.read(tmp_path / "run" / log.NAME) if line["kind"] == "validation"][-1]
    assert 0 <= figures["sop_accuracy"] <= 1
    again = transformers.AutoModelForPreTraining.from_pretrained(tmp_path / "run" / "model")
    assert type(again).__name__ == ("AlbertForPreTraining" if said is None else "BertForPreTraining")
