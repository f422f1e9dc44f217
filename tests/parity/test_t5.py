"""T5's networks against transformers, both versions, both ways."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from models.small import refusal
from parity.parity import count, difference
from tasks.small import stirred

from bertsmith.data.batch import Tokens
from bertsmith.errors import RecipeError
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import FAMILY, T5, T5_V1_1, member
from bertsmith.models.hf import convert
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.spans import SpanCorruption

SIZES: dict[str, Any] = {
    "vocabulary": 99,
    "width": 32,
    "layers": 3,
    "decoder_layers": 2,
    "heads": 4,
    "feed_forward": 48,
}
SIZES |= {"buckets": 8, "max_distance": 20, "dropout": 0.1, "attention_dropout": 0.1}
BOTH = pytest.mark.parametrize(
    "config", [replace(T5, **SIZES), replace(T5_V1_1, **SIZES, head_width=6)], ids=["first", "later"]
)
READ = [list(range(2, 32)), [5, 9, 1], [7], list(range(60, 79))]
WRITTEN = [[0, 4, 8, 2], [0, *range(40, 64)], [0, 3, 3, 3, 9], [0]]


def theirs(config: TransformerConfig) -> Any:
    words = convert.to_config_json(config, ())
    made = transformers.T5ForConditionalGeneration(transformers.T5Config(**words))
    return stirred(made).eval()


def ours(config: TransformerConfig) -> SpanCorruption:
    made: SpanCorruption = stirred(SpanCorruption(EncoderDecoder(config), SpanCorruption.Config()))
    return made.eval()


@pytest.mark.parametrize("name", [name for name in FAMILY if name.startswith("t5")])
def test_a_member_counts_as_many_parameters_as_in_transformers(name: str) -> None:
    config = member(name)
    with torch.device("meta"):
        reference = transformers.T5ForConditionalGeneration(transformers.T5Config(**convert.to_config_json(config, ())))
    # transformers ties the later version's words to the table they are read by; the published weights are not.
    apart = 0 if config.tie_embeddings else config.vocabulary * config.width
    assert count(reference) + apart == config.parameter_count


@torch.no_grad()
@BOTH
def test_hidden_states_and_scores_are_theirs(config: TransformerConfig, tmp_path: Path) -> None:
    reference = theirs(config)
    reference.save_pretrained(tmp_path / "theirs")
    if not config.tie_embeddings:  # as published: what transformers saves of it lacks the table of its own
        folders.write(tmp_path / "theirs", config, ours(config).state_dict())
        reference = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / "theirs").eval()
    opened = folders.read(tmp_path / "theirs")
    assert (opened.config, opened.parts, opened.finetuned) == (config, frozenset(), None)
    made = SpanCorruption(EncoderDecoder(config), SpanCorruption.Config()).eval()
    made.load_state_dict(opened.state_dict)
    for kernel in (None, "eager"):
        vectors = made.trunk.encode(Tokens.from_rows(READ), kernel).vectors
        hidden = made.trunk(Tokens.from_rows(READ), Tokens.from_rows(WRITTEN), kernel)
        scores = made.trunk.logits(hidden)
        for number, (read, written) in enumerate(zip(READ, WRITTEN, strict=True)):
            true = reference(input_ids=torch.tensor([read]), decoder_input_ids=torch.tensor([written]))
            own = torch.split(vectors, [len(row) for row in READ])[number]
            assert difference(own, true.encoder_last_hidden_state[0]) < 1e-5
            own = torch.split(scores, [len(row) for row in WRITTEN])[number]
            assert difference(own, true.logits[0]) < 1e-5


@torch.no_grad()
def test_a_later_version_that_transformers_has_tied_has_its_scores(tmp_path: Path) -> None:
    """transformers 5 ties every T5 and writes one table; without a scale of the hidden vectors it is version 1.1."""
    config = replace(T5_V1_1, **SIZES, head_width=6)
    reference = theirs(config)
    reference.save_pretrained(tmp_path / "theirs")
    opened = folders.read(tmp_path / "theirs")
    assert (opened.config_json["tie_word_embeddings"], opened.config_json["scale_decoder_outputs"]) == (True, False)
    assert opened.config == config
    made = SpanCorruption(EncoderDecoder(config), SpanCorruption.Config()).eval()
    made.load_state_dict(opened.state_dict)
    folders.write(tmp_path / "ours", config, made.state_dict())
    again = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours").eval()
    scores = made.trunk.logits(made.trunk(Tokens.from_rows(READ[:1]), Tokens.from_rows(WRITTEN[:1])))
    for model in (reference, again):
        true = model(input_ids=torch.tensor(READ[:1]), decoder_input_ids=torch.tensor(WRITTEN[:1])).logits[0]
        assert difference(scores, true) < 1e-5
    made.trunk.lm_head.weight.mul_(2)  # it is a table of its own, as published
    assert torch.equal(made.trunk.embedding.weight, opened.state_dict["trunk.encoder.embedding.weight"])


@torch.no_grad()
def test_a_folder_of_ours_says_the_same_in_transformers(tmp_path: Path) -> None:
    config = replace(T5, **SIZES)
    made = ours(config)
    folders.write(tmp_path / "ours", config, made.state_dict())
    reference = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours").eval()
    scores = made.trunk.logits(made.trunk(Tokens.from_rows(READ[:1]), Tokens.from_rows(WRITTEN[:1])))
    true = reference(input_ids=torch.tensor(READ[:1]), decoder_input_ids=torch.tensor(WRITTEN[:1])).logits[0]
    assert difference(scores, true) < 1e-5
    again = folders.read(tmp_path / "ours")
    assert all(torch.equal(again.state_dict[name], weight) for name, weight in made.state_dict().items())


@BOTH
def test_settings_are_read_as_they_are_written(config: TransformerConfig) -> None:
    words = convert.to_config_json(config, ())
    assert convert.from_config_json(words, "config.json") == config
    del words["num_decoder_layers"]
    assert convert.from_config_json(words, "config.json") == replace(config, decoder_layers=3)


def test_what_cannot_be_opened_is_refused_in_one_line(tmp_path: Path) -> None:
    config = replace(T5, **SIZES)
    for number, (change, fact) in enumerate(
        [
            ({"tie_word_embeddings": False}, "tie_word_embeddings is False"),
            ({"feed_forward_proj": "gated-silu"}, "unknown feed_forward_proj 'gated-silu'"),
            ({"is_encoder_decoder": False}, "is_encoder_decoder is False"),
            ({"num_decoder_layers": 900}, "layers for"),
        ]
    ):
        folder = tmp_path / str(number)
        folders.write(folder, config, ours(config).state_dict(), change)
        assert fact in refusal(folder)


def test_a_network_that_t5_has_no_words_for_is_refused() -> None:
    for change in ({"attention_dropout": 0.2}, {"biases": True}, {"tie_embeddings": False}, {"positions": "learned"}):
        with pytest.raises(RecipeError, match="no class of transformers"):
            layout_of(replace(T5, **SIZES | change))
