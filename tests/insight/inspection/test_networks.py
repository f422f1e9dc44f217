"""Networks without a class in transformers: recurrent language models, ELMo, seq2seq, ELECTRA's discriminator."""

import json
from typing import Any

import numpy as np
import pytest
import torch
from insight.inspection.small import SIZES, TEXT, stored_weights, tokenizer
from tasks.small import stirred

from bertsmith.data.batch import Tokens
from bertsmith.errors import TextError
from bertsmith.inference.likelihood import score
from bertsmith.insight.inspection.reading import read
from bertsmith.models.elmo import Elmo, ElmoConfig
from bertsmith.models.recurrent import Recurrent, RecurrentConfig
from bertsmith.models.seq2seq import Seq2Seq, Seq2SeqConfig
from bertsmith.models.static import Static, StaticConfig
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.base import Objective
from bertsmith.objectives.bilm import BidirectionalLM
from bertsmith.objectives.recurrent_lm import RecurrentLM
from bertsmith.objectives.replaced import ReplacedTokenDetection
from bertsmith.tasks.classification import SequenceClassification
from bertsmith.tasks.text_to_text import TextToText


def recurrent_lm(**changes: Any) -> RecurrentLM:
    settings = {"vocabulary": tokenizer("words").vocabulary, "width": 12, "layers": 3} | changes
    made: RecurrentLM = stirred(RecurrentLM(Recurrent(RecurrentConfig(**settings)), RecurrentLM.Config()))
    return made


def elmo() -> BidirectionalLM:
    config = ElmoConfig(
        vocabulary=tokenizer("words").vocabulary,
        max_characters=12,
        character_width=4,
        filters=(4, 4, 6),
        highway_layers=1,
        hidden=10,
        width=12,
        max_length=40,
    )
    made: BidirectionalLM = stirred(BidirectionalLM(Elmo(config), BidirectionalLM.Config()))
    made.bind(tokenizer("words"))
    return made


def seq2seq(**changes: Any) -> TextToText:
    settings = {"vocabulary": tokenizer("t5").vocabulary, "width": 12, "hidden": 16, "dropout": 0.0} | changes
    made: TextToText = stirred(TextToText(Seq2Seq(Seq2SeqConfig(**settings)), TextToText.Config(max_new_tokens=9)))
    return made


def log_probabilities(found: Any) -> np.ndarray:
    return np.log(found.probabilities[:, -1])


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
def test_a_recurrent_language_model_predicts_the_next_word_on_every_layer(cell: str) -> None:
    objective, words = recurrent_lm(cell=cell), tokenizer("words")
    reading = read(objective, words, "the old dog sees the river")
    assert reading.attentions == ()
    assert any("no attention" in note for note in reading.notes)
    assert reading.predictions is not None
    assert reading.predictions.layers == ("embeddings", "1", "2", "3")
    with torch.no_grad():
        states = objective.trunk(Tokens.from_rows([reading.trace.inputs.ids]))
    np.testing.assert_allclose(reading.trace.hidden[-1], states.numpy(), atol=1e-6)
    [scored] = score(objective, words, ["the old dog sees the river"])
    np.testing.assert_allclose(
        log_probabilities(reading.predictions)[:-1], scored.token_log_probabilities, rtol=1e-4, atol=1e-5
    )
    assert reading.log_likelihood == pytest.approx(scored.log_likelihood, rel=1e-5)


def test_hidden_states_of_a_recurrent_network_know_no_neighbours_in_the_batch() -> None:
    trunk = recurrent_lm().trunk
    rows = [[3, 4, 5], [6], [4, 4, 7, 8, 9]]
    with torch.no_grad():
        together = trunk.hidden_states(Tokens.from_rows(rows))
        alone = [trunk.hidden_states(Tokens.from_rows([row])) for row in rows]
    for layer, states in enumerate(together):
        torch.testing.assert_close(states, torch.cat([one[layer] for one in alone]))


def test_layers_of_another_width_are_left_out_of_the_predictions() -> None:
    reading = read(recurrent_lm(hidden=20), tokenizer("words"), "the old dog")
    assert reading.predictions is not None
    assert reading.predictions.layers == ("embeddings", "3")
    assert [states.shape[1] for states in reading.trace.hidden] == [12, 20, 20, 12]


def test_a_folder_of_elmo_has_no_softmax_and_names_the_checkpoints() -> None:
    notes = read(elmo(), tokenizer("words"), "the old cat", has_lm_head=False).notes
    assert any("without the softmax that predicts words: inspect the checkpoints of its run" in note for note in notes)


def test_elmo_predicts_the_next_word_and_the_previous_one() -> None:
    objective, words = elmo(), tokenizer("words")
    reading = read(objective, words, "the old zebra sees the river")  # one word is in no vocabulary
    ids = reading.trace.inputs.ids
    assert (ids[0], ids[-1]) == (words.start_id, words.stop_id)
    forward, backward = reading.predictions, reading.backward_predictions
    assert forward is not None
    assert backward is not None
    assert (forward.kind, backward.kind) == ("next", "previous")
    assert forward.truths == (*ids[1:], None)
    assert backward.truths == (None, *ids[:-1])
    with torch.no_grad():
        hidden = torch.from_numpy(reading.trace.hidden[-1])
        for found, half, shift in ((forward, hidden[:, :6], 1), (backward, hidden[:, 6:], -1)):
            logs = objective.output(half).log_softmax(-1)
            for place in range(1, len(ids) - 1):
                true = float(logs[place, ids[place + shift]].exp())
                assert found.probabilities[place, -1] == pytest.approx(true, rel=1e-4)
    assert reading.log_likelihood is None
    other = read(objective, words, "the old aardvark sees the river")
    assert reading.trace.inputs.ids == other.trace.inputs.ids  # both unknown, and told apart by their characters
    assert np.abs(reading.trace.hidden[0] - other.trace.hidden[0]).max() > 1e-3


def test_seq2seq_has_its_alignment_on_a_given_translation() -> None:
    objective, words = seq2seq(), tokenizer("t5")
    reading = read(objective, words, TEXT, target="the green river")
    [maps] = reading.attentions
    assert (maps.name, maps.rows, maps.columns, maps.rollout) == ("attention", "targets", "tokens", None)
    assert reading.targets is not None
    ids, written = reading.trace.inputs.ids, [token.id for token in reading.targets]
    [true] = objective.trunk.alignment(Tokens.from_rows([ids]), Tokens.from_rows([written]))
    np.testing.assert_allclose(maps.weights[0, 0], true.numpy(), atol=1e-6)
    figures = json.loads(json.dumps(reading.figures()))
    assert np.abs(stored_weights(figures["attentions"][0])[0, 0] - true.numpy()).max() < 1 / 255
    assert figures["predictions"]["layers"] == ["1"]
    assert figures["predictions"]["where"] == "targets"
    assert reading.predictions is not None
    with torch.no_grad():
        logits = objective.trunk.logits(objective.trunk(Tokens.from_rows([ids]), Tokens.from_rows([written])))
    true_logs = logits.log_softmax(-1)[range(len(written)), [*written[1:], words.stop_id]]
    np.testing.assert_allclose(log_probabilities(reading.predictions), true_logs.numpy(), rtol=1e-4)


def test_seq2seq_without_attention_says_so_and_writes_its_own_output() -> None:
    reading = read(seq2seq(attention="none", decoder_layers=2), tokenizer("t5"), TEXT)
    assert reading.attentions == ()
    assert any("one vector" in note for note in reading.notes)
    assert reading.targets is not None
    assert 1 <= len(reading.targets) <= 10
    assert reading.predictions is not None
    assert reading.predictions.layers == ("2",)


def test_a_prefix_of_text_to_text_is_read_and_is_no_part_of_the_text() -> None:
    objective = seq2seq()
    objective.config = TextToText.Config(prefix="old dog:", max_new_tokens=4)
    words = tokenizer("t5")
    reading = read(objective, words, "the river")
    [item] = objective.preprocess([_example("the river")], words, 64)
    assert reading.trace.inputs.ids == item.rows[0].ids.tolist()
    spans = [("the river"[token.start : token.end]) for token in reading.tokens if token.end]
    assert "".join(spans) == "theriver"


def _example(text: str) -> Any:
    from bertsmith.data.labelled.examples import Example

    return Example(location="here", texts=(text,))


def test_electra_names_tokens_that_look_replaced() -> None:
    config = TransformerConfig(**SIZES, vocabulary=tokenizer().vocabulary)
    objective = stirred(ReplacedTokenDetection(Transformer(config), ReplacedTokenDetection.Config()))
    reading = read(objective, tokenizer(), TEXT)
    assert reading.predictions is not None
    assert reading.masked is None
    figures = reading.predictions.figures()
    assert (figures["kind"], set(figures["truths"])) == ("replaced", {None})
    with torch.no_grad():
        true = torch.sigmoid(objective.discriminator(torch.from_numpy(reading.trace.hidden[-1])))
    for place, probability in zip(figures["positions"], true.tolist(), strict=True):
        assert dict(figures["top"][place][-1])["replaced"] == pytest.approx(probability, rel=1e-3)
    generator = read(objective.generator, tokenizer(), TEXT)
    assert generator.masked is not None


@pytest.mark.parametrize("vectors", [True, False])
def test_a_fine_tuned_or_static_model_has_no_predictions_by_layer(vectors: bool) -> None:
    config = TransformerConfig(**SIZES, vocabulary=tokenizer().vocabulary)
    made: Objective = SequenceClassification(Transformer(config), SequenceClassification.Config(), ("bad", "good"))
    if vectors:
        made.trunk = Static(StaticConfig(vocabulary=tokenizer().vocabulary, width=8))
    reading = read(stirred(made), tokenizer(), TEXT)
    assert reading.predictions is None
    assert len(reading.attentions) == int(not vectors)
    assert len(reading.trace.hidden) == (1 if vectors else 4)


def test_a_target_is_for_networks_with_a_decoder() -> None:
    with pytest.raises(TextError, match=r"^target: is for networks with an encoder and a decoder\. Leave it out\.$"):
        read(recurrent_lm(), tokenizer("words"), "the dog", target="the river")
    with pytest.raises(TextError, match=r"^target: is empty"):
        read(seq2seq(), tokenizer("t5"), "the dog", target=" ")
    with pytest.raises(TextError, match="is a pair"):
        read(elmo(), tokenizer("words"), "the dog", pair="the river")
