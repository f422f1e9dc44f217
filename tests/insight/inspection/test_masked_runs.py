"""Every word is masked once: predictions are those of the masked text, the pseudo-log-likelihood is that of score."""

import numpy as np
import pytest
import torch
from insight.inspection.small import SIZES, TEXT, stored, tokenizer
from tasks.small import stirred

from bertsmith.data.batch import Tokens
from bertsmith.inference.likelihood import score
from bertsmith.insight.inspection import masked_runs
from bertsmith.insight.inspection.reading import read
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.masked import MaskedLM


def masked_lm(**changes: object) -> MaskedLM:
    config = TransformerConfig(**SIZES | {"vocabulary": tokenizer().vocabulary} | changes)
    made: MaskedLM = stirred(MaskedLM(Transformer(config), MaskedLM.Config(pairs="none")))
    return made


@torch.no_grad()
def test_a_word_is_masked_with_all_its_tokens() -> None:
    objective, words = masked_lm(), tokenizer()
    reading = read(objective, words, TEXT)
    masked, tokens = reading.masked, reading.tokens
    assert masked is not None
    assert list(masked.positions) == [place for place, token in enumerate(tokens) if not token.special]
    figures = masked.figures()
    changes = stored(figures["change"], len(masked.positions), len(masked.layers), len(tokens))
    for row, place in enumerate(masked.positions):
        ids = [words.mask_id if token.word == tokens[place].word else token.id for token in tokens]
        states = objective.trunk.hidden_states(Tokens.from_rows([ids]))
        logs = objective.logits(states[-1])[place].log_softmax(-1)
        true = tokens[place].id
        assert masked.predictions.probabilities[row, -1] == pytest.approx(float(logs[true].exp()), rel=1e-3)
        assert masked.predictions.ranks[row, -1] == int((logs > logs[true]).sum()) + 1
        for layer, (state, visible) in enumerate(zip(states, reading.trace.hidden, strict=True)):
            cosine = torch.cosine_similarity(state, torch.from_numpy(visible))
            np.testing.assert_allclose(masked.change[row, layer], (1 - cosine).clamp(min=0), atol=1e-5)
            assert np.abs(changes[row, layer] / 255 - (1 - cosine.numpy()).clip(0, 1)).max() < 1 / 255
    assert len({tokens[place].word for place in masked.positions}) < len(masked.positions)  # some word has two tokens


def test_before_any_layer_only_the_masked_tokens_move() -> None:
    reading = read(masked_lm(), tokenizer(), "the old dog")
    assert reading.masked is not None
    before = reading.masked.change[:, 0]
    assert (before[:, 1:-1] > 1e-4).tolist() == np.eye(3, dtype=bool).tolist()
    assert reading.masked.change[0, -1].min() > 0  # and then all do


@pytest.mark.parametrize("text", [TEXT, "the dog", "doglike"])
def test_the_pseudo_log_likelihood_is_that_of_score(text: str) -> None:
    objective, words = masked_lm(), tokenizer()
    [scored] = score(objective, words, [text])
    assert read(objective, words, text).log_likelihood == pytest.approx(scored.log_likelihood, rel=1e-4)


def test_a_text_with_a_mask_has_predictions_there_and_no_score() -> None:
    words = tokenizer()
    reading = read(masked_lm(), words, "the old [MASK] likes the river")
    assert reading.predictions is not None
    assert reading.masked is not None
    place = [token.text for token in reading.tokens].index("[MASK]")
    row = reading.predictions.positions.index(place)
    figures = reading.predictions.figures()
    assert figures["truths"][row] is None
    assert figures["ranks"][row] == figures["probabilities"][row] == [None] * 4
    assert len(figures["top"][row]) == 4
    assert place not in reading.masked.positions
    assert reading.log_likelihood is None
    assert not reading.tokens[place].special


def test_long_texts_have_fewer_masked_runs_in_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(masked_runs, "BATCH_TOKENS", 100)
    monkeypatch.setattr(masked_runs, "MAX_POSITIONS", 20)
    objective, words = masked_lm(), tokenizer()
    reading = read(objective, words, "the old dog likes the river " * 8)
    assert reading.masked is not None
    assert len(reading.masked.positions) == 20
    assert reading.log_likelihood is None
    monkeypatch.setattr(masked_runs, "BATCH_TOKENS", 10_000)
    again = read(objective, words, "the old dog likes the river " * 8)
    assert again.masked is not None
    np.testing.assert_allclose(reading.masked.change, again.masked.change, atol=1e-5)


def test_dropout_is_off_while_a_text_is_read_and_on_afterwards() -> None:
    objective = masked_lm(dropout=0.5).train()
    one, other = (read(objective, tokenizer(), TEXT).figures() for _ in range(2))
    assert one == other
    assert objective.training


def test_a_model_without_a_head_says_so() -> None:
    reading = read(masked_lm(), tokenizer(), TEXT, has_lm_head=False)
    figures = reading.figures()
    assert figures["predictions"] is figures["masked"] is None
    assert any("no head that predicts words" in note for note in figures["notes"])
