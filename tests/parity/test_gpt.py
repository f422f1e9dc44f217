"""GPT's and GPT-2's networks, likelihoods and tasks against transformers."""

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
import transformers
from models.small import refusal
from parity.members import KINDS, ROWS, assert_task, padded
from parity.parity import count, difference
from tasks.small import WORDS, shape, stirred
from text.test_gpt import gpt2 as published

from bertsmith.data.batch import Tokens
from bertsmith.errors import RecipeError
from bertsmith.inference.likelihood import score
from bertsmith.inference.load import load
from bertsmith.models.family import FAMILY, member
from bertsmith.models.hf import convert
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.gpt import GPT2, OpenAIGPT
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.causal import CausalLM
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

MOST = 5e-6  # of the largest number there is
MEMBERS = [name for name in FAMILY if name.startswith("gpt")]
NAMES = ("causal", "embedding_norm", "segments", "activation", "norm_eps")


@cache
def tokenizer() -> Tokenizer:
    return train([" ".join(WORDS)] * 3, TokenizerConfig(kind="bpe", vocabulary=300, min_frequency=1))


def gpt(standard: TransformerConfig = GPT2.defaults, **changes: Any) -> TransformerConfig:
    own = {name: getattr(standard, name) for name in (*NAMES, "norm_position")}
    return shape(**{**own, "vocabulary": tokenizer().vocabulary, "feed_forward": 128, **changes})


BOTH = pytest.mark.parametrize("standard", [OpenAIGPT.defaults, GPT2.defaults], ids=["gpt", "gpt2"])


def objective(config: TransformerConfig) -> CausalLM:
    made: CausalLM = stirred(CausalLM(Transformer(config), CausalLM.Config()))
    return made


@pytest.mark.parametrize("name", MEMBERS)
def test_a_member_counts_as_many_parameters_as_in_transformers(name: str) -> None:
    words = convert.to_config_json(member(name), ())
    with torch.device("meta"):
        reference = getattr(transformers, words["architectures"][0])(
            transformers.CONFIG_MAPPING[words["model_type"]](**words)
        )
    assert count(reference) == member(name).parameter_count


@torch.no_grad()
@pytest.mark.parametrize(
    ("standard", "changes"),
    [
        (OpenAIGPT.defaults, {}),
        (GPT2.defaults, {}),
        (GPT2.defaults, {"feed_forward": 48, "activation": "gelu", "layers": 1}),
    ],
)
def test_next_tokens_both_ways(standard: TransformerConfig, changes: dict[str, Any], tmp_path: Path) -> None:
    """Random weights of transformers, opened here and written back, guess the same all the way."""
    config = gpt(standard, **changes)
    words = convert.to_config_json(config, ())
    reference = stirred(
        getattr(transformers, words["architectures"][0])(transformers.CONFIG_MAPPING[words["model_type"]](**words))
    )
    reference.save_pretrained(tmp_path / "theirs")
    opened = folders.read(tmp_path / "theirs")
    assert (opened.config, opened.parts, opened.finetuned) == (config, frozenset(), None)
    ours = CausalLM(Transformer(config), CausalLM.Config()).eval()
    ours.load_state_dict(opened.state_dict)
    assert count(ours) == count(reference)
    inputs = padded(ROWS, 0)
    said = reference(**inputs, output_hidden_states=True)
    for kernel in ("grouped", "eager"):
        states = ours.trunk.hidden_states(Tokens.from_rows(ROWS), kernel)
        for number, row in enumerate(ROWS):
            start = sum(map(len, ROWS[:number]))
            pairs = [(own[start : start + len(row)], theirs[number, : len(row)]) for own, theirs in
                     zip(states, said.hidden_states, strict=True)]  # fmt: skip
            pairs.append((ours.logits(pairs[-1][0]), said.logits[number, : len(row)]))
            for own, theirs in pairs:
                assert difference([own], [theirs]) <= MOST * theirs.abs().max()
                assert theirs.abs().max() > 0.1
    folders.write(tmp_path / "ours", config, ours.state_dict())
    again, report = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    assert torch.equal(again.eval()(**inputs).logits, said.logits)


@BOTH
@torch.no_grad()
def test_folders_of_bare_networks_and_old_ones_are_read(standard: TransformerConfig, tmp_path: Path) -> None:
    """As they were first published: without a prefix, with masks kept as weights, and with the table named twice."""
    ours = objective(gpt(standard))
    folders.write(tmp_path, ours.trunk.config, ours.state_dict())
    tensors = safetensors.torch.load_file(tmp_path / "model.safetensors")
    assert all(name.startswith("transformer.") for name in tensors)
    old = {name.removeprefix("transformer."): weight for name, weight in tensors.items()}
    old |= {f"h.{n}.attn.bias": torch.ones(1, 1, 64, 64) for n in range(2)}
    if standard is GPT2.defaults:
        old |= {f"h.{n}.attn.masked_bias": torch.tensor(-1e4) for n in range(2)}
    old["lm_head.weight"] = old["wte.weight" if standard is GPT2.defaults else "tokens_embed.weight"].clone()
    safetensors.torch.save_file(old, tmp_path / "model.safetensors")
    opened = folders.read(tmp_path)
    assert all(torch.equal(weight, opened.state_dict[name]) for name, weight in ours.state_dict().items())
    bare = getattr(transformers, layout_of(ours.trunk.config).architectures["trunk"]).from_pretrained(tmp_path)
    bare.save_pretrained(tmp_path / "bare")
    again = folders.read(tmp_path / "bare").state_dict
    assert all(torch.equal(weight, one) for weight, one in zip(again.values(), opened.state_dict.values(), strict=True))
    old["lm_head.weight"] += 1
    safetensors.torch.save_file(old, tmp_path / "model.safetensors")
    assert "Only a decoder tied to the embedding can be opened." in refusal(tmp_path)


def saved(folder: Path, standard: TransformerConfig = GPT2.defaults, **words: Any) -> Path:
    """A folder with some words of config.json changed."""
    ours = objective(gpt(standard))
    folders.write(folder, ours.trunk.config, ours.state_dict(), words)
    return folder


@pytest.mark.parametrize(
    ("standard", "words", "line"),
    [
        (GPT2.defaults, {"scale_attn_weights": False}, "scale_attn_weights is False. Only True can be opened."),
        (
            GPT2.defaults,
            {"scale_attn_by_inverse_layer_idx": True},
            "scale_attn_by_inverse_layer_idx is True. Only False can be opened.",
        ),
        (GPT2.defaults, {"add_cross_attention": True}, "add_cross_attention is True. Only False can be opened."),
        (GPT2.defaults, {"tie_word_embeddings": False}, "tie_word_embeddings is False. Only True can be opened."),
        (GPT2.defaults, {"n_inner": "wide"}, "n_inner is 'wide'. Give a whole number."),
        (GPT2.defaults, {"embd_pdrop": 0.3}, "embd_pdrop is 0.3. Only 0.1 can be opened."),
        (
            GPT2.defaults,
            {"activation_function": "swish"},
            "unknown activation_function 'swish'. Known: gelu, gelu_fast, gelu_new, gelu_python, gelu_pytorch_tanh.",
        ),
        (OpenAIGPT.defaults, {"afn": "gelu_new"}, "unknown afn 'gelu_new'. Known: gelu."),
        (OpenAIGPT.defaults, {"n_head": 3}, "a width of 32 cannot be shared by 3 heads. Take a multiple."),
    ],
)
def test_words_that_are_not_understood_are_refused(
    standard: TransformerConfig, words: dict[str, Any], line: str, tmp_path: Path
) -> None:
    assert refusal(saved(tmp_path / "model", standard, **words)) == f"F/config.json: {line}"


def test_matrices_that_do_not_lie_on_their_side_are_refused(tmp_path: Path) -> None:
    folder = saved(tmp_path / "model")
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    name = "transformer.h.0.attn.c_attn.weight"
    assert tensors[name].shape == (32, 96)
    tensors[name] = tensors[name].T.contiguous()
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    assert refusal(folder) == f"F/model.safetensors: '{name}' has shape [96, 32] where config.json says [32, 96]."


def test_the_inner_width_may_be_left_out(tmp_path: Path) -> None:
    assert folders.read(saved(tmp_path, n_inner=None)).config.feed_forward == 4 * 32


@pytest.mark.parametrize(
    "changes", [{"positions": "rotary"}, {"segments": 2}, {"gated": True}, {"embedding_norm": True}]
)
def test_a_network_that_transformers_has_no_words_for_is_refused(changes: dict[str, Any]) -> None:
    [(name, value)] = changes.items()
    line = rf"^model: no class of transformers is a network with {name} = {value}; the nearest, gpt2, has {name} = "
    with pytest.raises(RecipeError, match=line):
        layout_of(gpt(**changes))


def test_gpt_is_four_times_as_wide_inside() -> None:
    with pytest.raises(RecipeError, match=r"with feed_forward = 64; the nearest, openai-gpt, has feed_forward = 128\."):
        layout_of(gpt(OpenAIGPT.defaults, feed_forward=64))
    assert isinstance(layout_of(gpt(feed_forward=64)), GPT2)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind in GPT2.architectures])
def test_tasks_both_ways(name: str, tmp_path: Path) -> None:
    assert_task(name, gpt(), tokenizer(), tmp_path)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind in OpenAIGPT.architectures])
def test_tasks_of_the_first_gpt_both_ways(name: str, tmp_path: Path) -> None:
    assert_task(name, gpt(OpenAIGPT.defaults), tokenizer(), tmp_path)


@pytest.mark.parametrize("name", ["class", "tag", "answer"])
def test_tasks_with_one_special_piece_for_all_both_ways(name: str, tmp_path: Path) -> None:
    """A piece that pads and ends is no token to classify by: transformers looks past it."""
    own = Tokenizer.load(published(tmp_path / "published"))
    assert own.stop_id == own.padding_id
    assert_task(name, gpt(vocabulary=own.vocabulary), own, tmp_path)


@BOTH
@torch.no_grad()
def test_likelihoods_are_those_of_transformers(standard: TransformerConfig, tmp_path: Path) -> None:
    ours, own = objective(gpt(standard)), tokenizer()
    folders.write(tmp_path, ours.trunk.config, ours.state_dict(), own.special_ids(OpenAIGPT.special_tokens))
    own.save(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    texts = ["the old cat sees the dog", "cat", "", "unbelievable Œuvre in the garden", "the old cat sees the dog"]
    scored = load(tmp_path).score(texts)
    assert [one.text for one in scored] == texts
    for text, one in zip(texts, scored, strict=True):
        ids = torch.tensor([[own.start_id, *own.encode([text])[0]]])
        assert one.tokens == ids.shape[1] - 1
        if one.tokens:
            loss = theirs(input_ids=ids, labels=ids).loss
            assert one.log_likelihood == pytest.approx(-float(loss) * one.tokens, rel=MOST)
    [alone] = score(ours, own, texts[:1], batch_tokens=1)
    assert alone.token_log_probabilities == pytest.approx(scored[0].token_log_probabilities, rel=MOST)


def test_what_is_written_names_the_pieces_that_begin_and_end(tmp_path: Path) -> None:
    ours = objective(gpt())
    folders.write(tmp_path, ours.trunk.config, ours.state_dict(), tokenizer().special_ids(GPT2.special_tokens))
    words = json.loads((tmp_path / "config.json").read_text())
    assert words["architectures"] == ["GPT2LMHeadModel"]
    assert (words["bos_token_id"], words["pad_token_id"], words["eos_token_id"]) == (0, 1, 2)
    assert words["activation_function"] == "gelu_new"
    assert convert.from_config_json({**words, "n_inner": None}, "here") == replace(gpt(), feed_forward=128)
