"""The Transformer of 2017 against transformers' Marian, both ways."""

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
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import FAMILY, TRANSFORMER, member
from bertsmith.models.generation.engine import GenerationEngine, generate
from bertsmith.models.generation.search import GenerationConfig
from bertsmith.models.hf import convert
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise

SIZES: dict[str, Any] = {
    "vocabulary": 99,
    "width": 32,
    "layers": 3,
    "decoder_layers": 2,
    "heads": 4,
    "feed_forward": 48,
}
CONFIG = replace(TRANSFORMER, **SIZES, max_length=64, attention_dropout=0.2)
READ = [list(range(2, 32)), [5, 9, 1], [7], list(range(60, 79))]
WRITTEN = [[0, 4, 8, 2], [0, *range(40, 64)], [0, 3, 3, 3, 9], [0]]


def theirs(config: TransformerConfig) -> Any:
    words = convert.to_config_json(config, ())
    made = stirred(transformers.MarianMTModel(transformers.MarianConfig(**words)))
    with torch.no_grad():
        for half in (made.model.encoder, made.model.decoder):  # waves are no weights to be stirred
            half.embed_positions.weight.copy_(half.embed_positions.create_weight())
    return made.eval()


def ours(config: TransformerConfig) -> EncoderDecoder:
    made: EncoderDecoder = stirred(EncoderDecoder(config))
    return made.eval()


def named(network: EncoderDecoder) -> dict[str, torch.Tensor]:
    return {f"trunk.{name}": weight for name, weight in network.state_dict().items()}


def loaded(state: dict[str, torch.Tensor], config: TransformerConfig) -> EncoderDecoder:
    made = EncoderDecoder(config).eval()
    made.load_state_dict({name.removeprefix("trunk."): weight for name, weight in state.items()})
    return made


@pytest.mark.parametrize("name", [name for name in FAMILY if name.startswith("transformer")])
def test_a_member_counts_as_many_parameters_as_in_transformers(name: str) -> None:
    config = member(name)
    with torch.device("meta"):
        reference = transformers.MarianMTModel(transformers.MarianConfig(**convert.to_config_json(config, ())))
    waves = 2 * config.max_length * config.width  # which they count, though they never learn
    assert count(reference) - waves == config.parameter_count


def test_the_base_model_is_that_of_the_paper() -> None:
    """Table 3 says 65 million, with a shared vocabulary of about 37,000; exactly so many pieces make 63.1."""
    assert round(TRANSFORMER.parameter_count / 1e6, 1) == 63.1
    assert TRANSFORMER.parameter_count - TRANSFORMER.vocabulary * TRANSFORMER.width == 44_138_496


@torch.no_grad()
def test_hidden_states_and_scores_are_theirs(tmp_path: Path) -> None:
    reference = theirs(CONFIG)
    reference.save_pretrained(tmp_path / "theirs")
    opened = folders.read(tmp_path / "theirs")
    assert (opened.config, opened.parts, opened.finetuned) == (CONFIG, frozenset(), None)
    made = loaded(opened.state_dict, CONFIG)
    for kernel in (None, "eager"):
        vectors = made.encode(Tokens.from_rows(READ), kernel).vectors
        scores = made.logits(made(Tokens.from_rows(READ), Tokens.from_rows(WRITTEN), kernel))
        for number, (read, written) in enumerate(zip(READ, WRITTEN, strict=True)):
            true = reference(input_ids=torch.tensor([read]), decoder_input_ids=torch.tensor([written]))
            own = torch.split(vectors, [len(row) for row in READ])[number]
            assert difference(own, true.encoder_last_hidden_state[0]) < 1e-5
            own = torch.split(scores, [len(row) for row in WRITTEN])[number]
            assert difference(own, true.logits[0]) < 1e-5


@torch.no_grad()
def test_a_folder_of_ours_says_the_same_in_transformers(tmp_path: Path) -> None:
    made = ours(CONFIG)
    folders.write(tmp_path / "ours", CONFIG, named(made))
    reference, report = transformers.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "ours", output_loading_info=True)
    assert not any(report.values()), report
    scores = made.logits(made(Tokens.from_rows(READ[:1]), Tokens.from_rows(WRITTEN[:1])))
    true = reference.eval()(input_ids=torch.tensor(READ[:1]), decoder_input_ids=torch.tensor(WRITTEN[:1])).logits[0]
    assert difference(scores, true) < 1e-5
    again = folders.read(tmp_path / "ours")
    assert all(torch.equal(again.state_dict[name], weight) for name, weight in named(made).items())


@torch.no_grad()
def test_beams_find_what_theirs_find(tmp_path: Path) -> None:
    """Of random weights the same five tokens each; nothing stops, so that both go on as long."""
    made = EncoderDecoder(CONFIG).eval()
    initialise(made, 3, CONFIG.width**-0.5)
    folders.write(tmp_path, CONFIG, named(made))
    reference = transformers.MarianMTModel.from_pretrained(tmp_path).eval()
    how: dict[str, Any] = {"max_new_tokens": 5, "min_new_tokens": 5, "num_beams": 4, "do_sample": False}
    how |= {"decoder_start_token_id": 0, "bos_token_id": 0, "eos_token_id": None, "forced_eos_token_id": None}
    found = generate(GenerationEngine(made), READ, GenerationConfig(max_new_tokens=5, num_beams=4, temperature=0))
    for row, (best, *_) in zip(READ, found, strict=True):
        assert reference.generate(input_ids=torch.tensor([row]), **how)[0, 1:].tolist() == best


def test_settings_are_read_as_they_are_written() -> None:
    words = convert.to_config_json(CONFIG, ())
    assert convert.from_config_json(words, "config.json") == CONFIG


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"scale_embedding": False}, "scale_embedding is False"),
        ({"decoder_attention_heads": 2}, "decoder_attention_heads is 2"),
        ({"decoder_ffn_dim": 64}, "decoder_ffn_dim is 64"),
        ({"activation_function": "swish"}, "unknown activation_function 'swish'"),
        ({"share_encoder_decoder_embeddings": False}, "share_encoder_decoder_embeddings is False"),
    ],
)
def test_what_cannot_be_opened_is_refused_in_one_line(change: dict[str, Any], fact: str, tmp_path: Path) -> None:
    folders.write(tmp_path / "ours", CONFIG, named(ours(CONFIG)), change)
    assert fact in refusal(tmp_path / "ours")


def test_scores_with_a_bias_of_their_own_are_refused(tmp_path: Path) -> None:
    reference = theirs(CONFIG)
    reference.final_logits_bias += 1
    reference.save_pretrained(tmp_path / "theirs")
    assert "'final_logits_bias' is not zero" in refusal(tmp_path / "theirs")
