"""Hidden vectors, attention and predictions by layer are those of transformers' eager attention, also in the JSON."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from insight.inspection.small import ENCODERS, TEXT, answer, causal_lm, masked_lm, stored_weights, t5
from torch import Tensor

from bertsmith.insight.inspection.reading import Reading, read

pytestmark = pytest.mark.slow("imports the models of transformers")

CLOSE = 1e-4


def assert_states(ours: tuple[np.ndarray, ...], theirs: tuple[Tensor, ...], skip_last: bool = False) -> None:
    assert len(ours) == len(theirs)
    pairs = list(zip(ours, theirs, strict=True))
    for own, true in pairs[:-1] if skip_last else pairs:
        np.testing.assert_allclose(own, true[0].numpy(), atol=CLOSE)


def assert_attention(reading: Reading, number: int, theirs: tuple[Tensor, ...]) -> None:
    """The weights in memory, and from the JSON as a page has it."""
    true = torch.stack([layer[0] for layer in theirs]).numpy()
    maps = reading.attentions[number]
    np.testing.assert_allclose(maps.weights, true, atol=1e-5)
    written = json.loads(json.dumps(reading.figures()))["attentions"][number]
    assert (written["layers"], written["heads"], written["size"]) == (*true.shape[:2], list(true.shape[2:]))
    assert np.abs(stored_weights(written) - true).max() < 1 / 255


def assert_predictions(reading: Reading, theirs: list[Tensor], ids: list[int | None]) -> None:
    """Probabilities, ranks and entropy of the true ids, by the head of transformers on every layer."""
    found = reading.predictions
    assert found is not None
    assert found.truths == tuple(ids[place] for place in found.positions)
    for layer, logits in enumerate(theirs):
        logs = logits.log_softmax(-1)[list(found.positions)]
        np.testing.assert_allclose(
            found.top_probabilities[:, layer], logs.exp().topk(5).values.numpy(), atol=CLOSE, rtol=1e-3
        )
        np.testing.assert_allclose(found.entropy[:, layer], -(logs.exp() * logs).sum(-1).numpy(), atol=1e-3)
        for row, place in enumerate(found.positions):
            if (true := ids[place]) is None:
                assert found.ranks[row, layer] == 0
                continue
            assert found.probabilities[row, layer] == pytest.approx(float(logs[row, true].exp()), abs=CLOSE, rel=1e-3)
            order = logs[row].argsort(descending=True).tolist()
            assert abs(order.index(true) + 1 - found.ranks[row, layer]) <= 1  # two may be equal up to rounding


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_is_read_as_in_transformers(name: str, tmp_path: Path) -> None:
    objective, tokenizer, reference = masked_lm(name, tmp_path)
    reading = read(objective, tokenizer, TEXT)
    ids = reading.trace.inputs.ids
    assert ids == tokenizer.encode_pair(TEXT)[0]
    said = answer(reference, input_ids=ids)
    # ModernBERT's last hidden state is without the final norm in some versions of transformers.
    assert_states(reading.trace.hidden, said.hidden_states, skip_last=name == "modernbert")
    assert_attention(reading, 0, said.attentions)
    assert reading.attentions[0].name == "self-attention"
    with torch.no_grad():
        states = [objective.trunk.final_norm(state[0]) for state in said.hidden_states[:-1]]
        lens = [_head(name, reference, state) for state in states]
    assert_predictions(reading, [*lens, said.logits[0]], list(ids))


def _head(name: str, model: Any, hidden: Tensor) -> Tensor:
    """The masked LM head of a model of transformers on vectors of any layer."""
    match name:
        case "bert":
            found = model.cls(hidden)
        case "roberta" | "mpnet":
            found = model.lm_head(hidden)
        case "albert":
            found = model.predictions(hidden)
        case "electra":
            found = model.generator_lm_head(model.generator_predictions(hidden))
        case "distilbert":
            made = model.activation(model.vocab_transform(hidden))
            found = model.vocab_projector(model.vocab_layer_norm(made))
        case _:
            found = model.decoder(model.head(hidden))
    return found  # type: ignore[no-any-return]


def test_gpt2_is_read_as_in_transformers_with_its_final_norm_on_every_layer(tmp_path: Path) -> None:
    objective, tokenizer, reference = causal_lm(tmp_path)
    reading = read(objective, tokenizer, TEXT)
    ids = reading.trace.inputs.ids
    assert ids == [tokenizer.start_id, *tokenizer.encode([TEXT])[0]]
    said = answer(reference, input_ids=ids)
    assert_states(reading.trace.hidden, said.hidden_states)
    assert_attention(reading, 0, said.attentions)
    with torch.no_grad():
        norms = [reference.transformer.ln_f(state[0]) for state in said.hidden_states[:-1]]
        lens = [*[reference.lm_head(state) for state in norms], said.logits[0]]
    assert_predictions(reading, lens, [*ids[1:], None])
    logs = said.logits[0].log_softmax(-1)
    total = sum(float(logs[place, true]) for place, true in enumerate(ids[1:]))
    assert reading.log_likelihood == pytest.approx(total, rel=1e-4)


@pytest.mark.parametrize("target", ["the green garden", None])
def test_t5_is_read_as_in_transformers_with_cross_attention(target: str | None, tmp_path: Path) -> None:
    objective, tokenizer, reference = t5(tmp_path)
    reading = read(objective, tokenizer, TEXT, target=target)
    assert reading.targets is not None
    ids, written = reading.trace.inputs.ids, [token.id for token in reading.targets]
    assert ids == [*tokenizer.encode([TEXT])[0], tokenizer.stop_id]
    if target is not None:
        assert written == [tokenizer.padding_id, *tokenizer.encode([target])[0]]
    said = answer(reference, input_ids=ids, decoder_input_ids=written)
    assert_states(reading.trace.hidden, said.encoder_hidden_states)
    assert_states(reading.trace.decoder_hidden, said.decoder_hidden_states)
    assert [maps.name for maps in reading.attentions] == ["encoder", "decoder", "cross-attention"]
    for number, theirs in enumerate((said.encoder_attentions, said.decoder_attentions, said.cross_attentions)):
        assert_attention(reading, number, theirs)
    with torch.no_grad():
        norm = reference.decoder.final_layer_norm
        states = [norm(state[0]) for state in said.decoder_hidden_states[:-1]]
        lens = [reference.lm_head(state * reference.config.d_model**-0.5) for state in states]
    assert_predictions(reading, [*lens, said.logits[0]], [*written[1:], tokenizer.stop_id])


def test_t5_without_a_target_reads_its_own_greedy_output(tmp_path: Path) -> None:
    objective, tokenizer, reference = t5(tmp_path)
    reading = read(objective, tokenizer, TEXT, max_length=20)
    assert reading.targets is not None
    assert any("greedy" in note for note in reading.notes)
    written = [token.id for token in reading.targets]
    said = answer(reference, input_ids=reading.trace.inputs.ids, decoder_input_ids=written)
    allowed = ~torch.from_numpy(tokenizer.special_mask)
    allowed[[tokenizer.stop_id, *tokenizer.sentinels]] = True
    best = said.logits[0].masked_fill(~allowed, -torch.inf).argmax(-1).tolist()
    assert best[: len(written) - 1] == written[1:]


def test_a_pair_of_texts_has_two_segments_as_in_transformers(tmp_path: Path) -> None:
    objective, tokenizer, reference = masked_lm("bert", tmp_path)
    reading = read(objective, tokenizer, "the old dog", pair="likes the river")
    ids, segments = tokenizer.encode_pair("the old dog", "likes the river")
    assert (reading.trace.inputs.ids, list(reading.trace.inputs.segments)) == (ids, segments)
    said = answer(reference, input_ids=ids, token_type_ids=segments)
    assert_attention(reading, 0, said.attentions)
    joined = "the old dog\nlikes the river"
    assert [joined[token.start : token.end] for token in reading.tokens if not token.special] == joined.split()
    assert [token.word for token in reading.tokens] == [-1, 0, 1, 2, -1, 3, 4, 5, -1]
