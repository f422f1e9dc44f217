"""BERT's and RoBERTa's relatives under their own names, against transformers: weights, masked words, tasks, padding."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from models.small import refusal
from parity.members import assert_masked_words, assert_task
from parity.parity import MOST, difference
from tasks.small import WORDS, shape, stirred
from tasks.small import tokenizer as small_tokenizer

from bertsmith.data.batch import Tokens
from bertsmith.inference.load import load
from bertsmith.models.family import CAMEMBERT, DISTILBERT, MPNET, ROBERTA, XLM_ROBERTA
from bertsmith.models.hf import convert
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

RELATIVES = {"xlm-roberta": XLM_ROBERTA, "camembert": CAMEMBERT, "distilbert": DISTILBERT, "mpnet": MPNET}
OWN = ("position_offset", "segments", "norm_eps", "positions", "pooler", "alias")
EACH = pytest.mark.parametrize("member", RELATIVES)


@cache
def tokenizer() -> Tokenizer:
    return train([" ".join(WORDS)] * 3, TokenizerConfig(kind="bpe", vocabulary=300, min_frequency=1))


def small(member: TransformerConfig) -> TransformerConfig:
    return shape(vocabulary=tokenizer().vocabulary, **{name: getattr(member, name) for name in OWN})


@EACH
def test_masked_words_both_ways(member: str, tmp_path: Path) -> None:
    assert_masked_words(small(RELATIVES[member]), tmp_path)
    assert json.loads((tmp_path / "ours" / "config.json").read_text())["model_type"] == member


@EACH
def test_another_activation_is_that_of_the_head_only_where_it_is_in_transformers(member: str, tmp_path: Path) -> None:
    assert_masked_words(replace(small(RELATIVES[member]), activation="gelu_tanh"), tmp_path)


@pytest.mark.slow
@EACH
@pytest.mark.parametrize("name", ["class", "tag", "answer", "choose"])
def test_tasks_both_ways(name: str, member: str, tmp_path: Path) -> None:
    assert_task(name, small(RELATIVES[member]), tokenizer(), tmp_path)


@pytest.mark.parametrize("member", ["roberta", "mpnet"])
def test_a_tokenizer_may_pad_with_another_id_than_the_network(member: str, tmp_path: Path) -> None:
    wordpiece = small_tokenizer()
    assert wordpiece.padding_id == 0
    config = replace(small(ROBERTA if member == "roberta" else MPNET), vocabulary=wordpiece.vocabulary)
    assert_task("class", config, wordpiece, tmp_path)
    before = load(tmp_path / "theirs")
    before.save(tmp_path / "saved")
    for folder in ("ours", "saved"):
        assert json.loads((tmp_path / folder / "config.json").read_text())["pad_token_id"] == 1
    text = "the old unknown1 cat"
    assert load(tmp_path / "saved").predict(text) == before.predict(text)


@torch.no_grad()
@pytest.mark.parametrize("member", ["roberta", "mpnet"])
def test_a_padding_piece_in_a_text_is_not_counted(member: str, tmp_path: Path) -> None:
    """Someone may write <pad> in a text; whoever pads on the right never meets it."""
    config = small(ROBERTA if member == "roberta" else MPNET)
    words = convert.to_config_json(config, ("mlm_head",))
    kind = getattr(transformers, layout_of(config).architectures["masked_lm"])
    theirs = stirred(kind(transformers.CONFIG_MAPPING[member](**words)))
    theirs.save_pretrained(tmp_path)
    ours = MaskedLM(Transformer(config), MaskedLM.Config(pairs="none")).eval()
    ours.load_state_dict(folders.read(tmp_path).state_dict)
    pad = tokenizer().padding_id
    assert pad == 1
    [written] = tokenizer().encode(["the old <pad> cat <pad><pad> sees"])
    assert written.count(pad) == 3
    rows = [[0, *written, 2], [0, 9, 2], [pad, 7, pad, 8], [pad], [5, 6, 7, 8, 9]]
    with_states = {"output_hidden_states": True}
    said = [theirs(torch.tensor([row]), attention_mask=torch.ones(1, len(row)), **with_states) for row in rows]
    wanted = [torch.cat([one.hidden_states[layer][0] for one in said]) for layer in range(3)]
    for kernel in ("grouped", "eager"):
        assert difference(ours.trunk.hidden_states(Tokens.from_rows(rows), kernel), wanted) <= MOST


@EACH
def test_a_folder_is_opened_and_saved_under_its_own_name(member: str, tmp_path: Path) -> None:
    config = small(RELATIVES[member])
    words = convert.to_config_json(config, ())
    bare = stirred(transformers.AutoModel.from_config(transformers.CONFIG_MAPPING[member](**words)))
    bare.save_pretrained(tmp_path / "bare")
    tokenizer().save(tmp_path / "bare", segments=False)
    opened = load(tmp_path / "bare")
    assert opened.trunk.config == config
    texts = ["the old cat sees the dog", "in 1984", "Œuvre <pad> cat"]
    pieces = transformers.AutoTokenizer.from_pretrained(tmp_path / "bare")
    vectors = opened.embed(texts, pooling="mean", normalise=False, precision="float32")
    for text, vector in zip(texts, vectors, strict=True):
        inputs: Any = {"input_ids": torch.tensor([pieces(text)["input_ids"]])}
        with torch.no_grad():
            hidden = bare(**inputs, attention_mask=torch.ones_like(inputs["input_ids"])).last_hidden_state
        assert difference([torch.from_numpy(vector)], [hidden[0].mean(0)]) <= MOST


def test_distances_that_transformers_does_not_know_are_refused(tmp_path: Path) -> None:
    config = small(MPNET)
    made = MaskedLM(Transformer(config), MaskedLM.Config(pairs="none"))
    folders.write(tmp_path, config, made.state_dict(), {"relative_attention_num_buckets": 64})
    assert refusal(tmp_path) == "F/config.json: relative_attention_num_buckets is 64. Only 32 can be opened."
