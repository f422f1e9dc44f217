"""Scores of sentences: against one copy at a time, against transformers, alone and in a crowd."""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from parity.parity import reference_of
from transformers import BertForMaskedLM

from bertsmith.data.batch import Tokens
from bertsmith.errors import RecipeError, TextError
from bertsmith.inference import likelihood
from bertsmith.inference.likelihood import PllForm, ScoredText, bits_per_byte, perplexity, score, windows
from bertsmith.inference.masked_copies import MaskedCopies
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train

TEXTS = [
    "the cat sees the dog in the garden .",
    "queen",
    "the grandmother hears the housekeeper !",
    "a bird",
    "the king wants a fishmarket in the citygarden near the riverforest .",
    "the horse follows the child in the field .",
]
FORMS: list[PllForm] = ["within_word", "original"]


@pytest.fixture(scope="module", params=["wordpiece", "bpe"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    config = TokenizerConfig(
        kind=request.param, vocabulary=100 if request.param == "wordpiece" else 290, min_frequency=1
    )
    return train([*TEXTS, *["the cat sees the dog in the garden ."] * 9], config)


def model(tokenizer: Tokenizer, length: int = 64) -> MaskedLM:
    """A random model that is far from holding all words equally likely."""
    torch.manual_seed(0)
    shape = TransformerConfig(
        vocabulary=tokenizer.vocabulary, width=16, layers=2, heads=2, feed_forward=32, max_length=length
    )
    objective = MaskedLM(Transformer(shape), MaskedLM.Config(pairs="none")).eval()
    with torch.no_grad():
        for weight in objective.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.1) if weight.ndim == 1 else weight.normal_(std=0.3)
    return objective


@pytest.fixture(scope="module")
def objective(tokenizer: Tokenizer) -> MaskedLM:
    return model(tokenizer)


def covered(tokenizer: Tokenizer, pieces: list[str], place: int, form: PllForm) -> list[int]:
    """Where a row is hidden to guess a piece: at it, and behind it as far as its word goes on."""
    last = place + 1
    while form == "within_word" and last < len(pieces) and goes_on(tokenizer, pieces[last]):
        last += 1
    return [number + 1 for number in range(place, last)]  # the row begins with a special piece


def goes_on(tokenizer: Tokenizer, piece: str) -> bool:
    return piece.startswith("##") if tokenizer.piece(tokenizer.mask_id) == "[MASK]" else not piece.startswith("Ġ")


def slowly(objective: MaskedLM, tokenizer: Tokenizer, text: str, form: PllForm) -> list[float]:
    """The definition: one copy at a time, every position through the vocabulary."""
    ids = tokenizer.encode([text])[0]
    pieces, logs = [tokenizer.piece(number) for number in ids], []
    for place, true in enumerate(ids):
        row = [tokenizer.start_id, *ids, tokenizer.stop_id]
        for hidden in covered(tokenizer, pieces, place, form):
            row[hidden] = tokenizer.mask_id
        with torch.no_grad():
            scores = objective.logits(objective.trunk(Tokens.from_rows([row]), kernel="eager"))
        logs.append(float(scores.double().log_softmax(-1)[place + 1, true]))
    return logs


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_scores_equal_those_of_one_copy_at_a_time(objective: MaskedLM, tokenizer: Tokenizer, form: PllForm) -> None:
    found = score(objective, tokenizer, TEXTS, pll_form=form, batch_tokens=200)
    assert [one.text for one in found] == TEXTS
    for one in found:
        logs = slowly(objective, tokenizer, one.text, form)
        assert one.token_log_probabilities == pytest.approx(logs, abs=1e-5)
        assert one.log_likelihood == pytest.approx(math.fsum(logs), abs=1e-4)
        assert one.pieces == [tokenizer.piece(number) for number in tokenizer.encode([one.text])[0]]
        assert one.tokens == len(logs)
        assert one.bytes == len(one.text)
    assert (
        np.std([log for one in found for log in one.token_log_probabilities]) > 0.5
    )  # there was something to be wrong about


def test_the_forms_differ_exactly_where_a_word_goes_on(objective: MaskedLM, tokenizer: Tokenizer) -> None:
    within, original = (score(objective, tokenizer, TEXTS, pll_form=form) for form in FORMS)
    several = 0
    for text, one, other in zip(TEXTS, within, original, strict=True):
        ids = tokenizer.encode([text])[0]
        goes_on = np.append(tokenizer.continuation_mask[ids[1:]], False)  # whether another piece of the word follows
        differs = np.abs(np.array(one.token_log_probabilities) - np.array(other.token_log_probabilities)) > 1e-5
        assert (differs == goes_on).all()
        assert one.words == one.tokens - goes_on.sum()
        several += int(goes_on.sum())
    assert several > 10


@pytest.mark.parametrize("form", FORMS)
def test_scores_equal_those_of_transformers(tokenizer: Tokenizer, tmp_path: Path, form: PllForm) -> None:
    shape = TransformerConfig(
        vocabulary=tokenizer.vocabulary, width=16, layers=2, heads=2, feed_forward=32, max_length=64
    )
    reference_of(shape).save_pretrained(tmp_path)
    theirs = BertForMaskedLM.from_pretrained(tmp_path, attn_implementation="eager").eval()
    opened = folders.read(tmp_path)
    ours = MaskedLM(Transformer(opened.config), MaskedLM.Config())
    ours.load_state_dict(opened.state_dict)
    for one in score(ours, tokenizer, TEXTS, pll_form=form):
        row = torch.tensor([tokenizer.start_id, *tokenizer.encode([one.text])[0], tokenizer.stop_id])
        copies = row.repeat(one.tokens, 1)
        for place in range(one.tokens):
            copies[place, covered(tokenizer, one.pieces, place, form)] = tokenizer.mask_id
        with torch.no_grad():
            guesses = theirs(input_ids=copies).logits.log_softmax(-1)
        places = torch.arange(one.tokens)
        assert one.token_log_probabilities == pytest.approx(guesses[places, places + 1, row[1:-1]].tolist(), abs=1e-5)


def test_neighbours_order_and_budget_do_not_change_a_score(objective: MaskedLM, tokenizer: Tokenizer) -> None:
    together = score(objective, tokenizer, TEXTS)
    backwards = score(objective, tokenizer, TEXTS[::-1], batch_tokens=300)[::-1]
    assert score(objective, tokenizer, ["queen"], batch_tokens=1)[0].token_log_probabilities == pytest.approx(
        together[1].token_log_probabilities, rel=1e-6
    )
    for text, one, other in zip(TEXTS, together, backwards, strict=True):
        alone = score(objective, tokenizer, [text], batch_tokens=100)[0]
        assert one.token_log_probabilities == pytest.approx(alone.token_log_probabilities, rel=1e-6)
        assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, rel=1e-6)


def test_a_small_room_for_the_vocabulary_changes_nothing(
    objective: MaskedLM, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = score(objective, tokenizer, TEXTS)
    monkeypatch.setattr(likelihood, "MAX_LOGITS", 3 * tokenizer.vocabulary)
    most = 0

    def logits(hidden: torch.Tensor) -> torch.Tensor:
        nonlocal most
        most = max(most, len(hidden))
        return MaskedLM.logits(objective, hidden)

    monkeypatch.setattr(objective, "logits", logits)
    parts = score(objective, tokenizer, TEXTS)
    assert most == 3
    for one, other in zip(whole, parts, strict=True):
        assert one.token_log_probabilities == pytest.approx(other.token_log_probabilities, rel=1e-6)


def test_what_reads_the_same_is_computed_once(objective: MaskedLM, tokenizer: Tokenizer) -> None:
    seen: list[int] = []
    hook = objective.trunk.register_forward_hook(lambda module, given, hidden: seen.append(len(hidden)))
    try:
        once = score(objective, tokenizer, ["the cat sees"])
        tokens, seen[:] = sum(seen), []
        again = score(objective, tokenizer, ["the cat sees", "the  cat  sees", "the cat sees"])
    finally:
        hook.remove()
    if tokenizer.encode(["the cat sees"]) == tokenizer.encode(["the  cat  sees"]):
        assert sum(seen) == tokens
        assert again[1].log_likelihood == again[0].log_likelihood
        assert again[0] == once[0]
    else:  # another batch, in which sums may be rounded in another order
        assert again[0].token_log_probabilities == pytest.approx(once[0].token_log_probabilities, rel=1e-6)
    assert again[0] == again[2]
    assert [one.text for one in again] == ["the cat sees", "the  cat  sees", "the cat sees"]


def test_a_model_in_training_is_scored_without_dropout_and_goes_on_training(tokenizer: Tokenizer) -> None:
    objective = model(tokenizer)
    calm = score(objective, tokenizer, TEXTS)
    objective.train()
    assert score(objective, tokenizer, TEXTS) == calm
    assert objective.training
    assert objective.trunk.layers[0].training


def test_an_empty_text_has_no_pieces_and_a_total_of_nought(objective: MaskedLM, tokenizer: Tokenizer) -> None:
    empty, cat = score(objective, tokenizer, ["", "cat"])
    assert empty == ScoredText("", 0.0, 0, 0, [], [])
    assert cat.log_likelihood < 0
    assert score(objective, tokenizer, []) == []
    assert score(objective, tokenizer, [""]) == [empty]


def test_a_long_text_is_scored_in_windows(tokenizer: Tokenizer) -> None:
    objective = model(tokenizer, length=16)
    text = " ".join(TEXTS)
    ids = tokenizer.encode([text])[0]
    parts = windows(ids, tokenizer.continuation_mask, 14)
    found = score(objective, tokenizer, [text])[0]
    assert len(parts) > 2
    assert found.tokens == len(ids)
    at = 0
    for part in parts:
        alone = likelihood._pseudo_log_likelihoods(objective, MaskedCopies.of([part], tokenizer, "within_word"), 1000)
        assert found.token_log_probabilities[at : at + len(part)] == pytest.approx(alone.tolist(), rel=1e-6)
        at += len(part)


def test_windows_are_few_alike_and_begin_with_a_word() -> None:
    continues = np.array([False, True])
    assert windows([], continues, 4) == []
    assert windows([0, 1, 0], continues, 4) == [(0, 1, 0)]
    assert [len(part) for part in windows([0] * 9, continues, 4)] == [3, 3, 3]
    assert windows([0, 0, 1, 1, 0, 1], continues, 4) == [(0,), (0, 1, 1), (0, 1)]
    assert windows([0, 1, 1, 1, 1], continues, 2) == [(0, 1), (1, 1), (1,)]  # a word that is too long


def test_perplexity_and_bits_are_means_over_all_texts() -> None:
    some = [
        ScoredText("ab", -2.0, 1, 2, ["a", "##b"], [-1.5, -0.5]),
        ScoredText("", 0.0, 0, 0, [], []),
        ScoredText("ü", -1.0, 1, 2, ["ü"], [-1.0]),
    ]
    assert perplexity(some) == pytest.approx(math.e)
    assert bits_per_byte(some) == pytest.approx(3 / math.log(2) / 4)
    assert json.loads(json.dumps(some[0].to_dict()))["token_log_probabilities"] == [-1.5, -0.5]
    assert some[0].to_dict()["tokens"] == 2


def test_a_model_that_knows_nothing_has_the_perplexity_of_its_vocabulary(tokenizer: Tokenizer) -> None:
    objective = model(tokenizer)
    with torch.no_grad():
        objective.trunk.embedding.weight.zero_()
        objective.mlm_head.bias.zero_()
    assert perplexity(score(objective, tokenizer, TEXTS)) == pytest.approx(tokenizer.vocabulary, rel=1e-5)


@pytest.mark.parametrize("measure", [perplexity, bits_per_byte])
def test_nothing_has_no_perplexity(measure: object) -> None:
    with pytest.raises(TextError, match=r"texts: there is nothing to score in them. Give at least one word."):
        measure([ScoredText("", 0.0, 0, 0, [], [])])  # type: ignore[operator]


def test_a_blank_is_refused(objective: MaskedLM, tokenizer: Tokenizer) -> None:
    blank = tokenizer.piece(tokenizer.mask_id)
    with pytest.raises(TextError) as caught:
        score(objective, tokenizer, [f"the {blank} sees"])
    assert str(caught.value) == f"'the {blank} sees': has {blank} where a word should be. Write the word."


def test_half_a_character_is_refused(objective: MaskedLM, tokenizer: Tokenizer) -> None:
    with pytest.raises(TextError, match="the library gave up"):
        score(objective, tokenizer, ["the cat \ud800"])


def test_an_unknown_form_is_refused(objective: MaskedLM, tokenizer: Tokenizer) -> None:
    unchecked = getattr(score, "__wrapped__", score)  # without the type checker of the suite
    with pytest.raises(RecipeError, match=r"form: there is none called 'orginal'\. Did you mean 'original'\?"):
        unchecked(objective, tokenizer, TEXTS, pll_form="orginal")


@pytest.mark.gpu
def test_a_gpu_gives_nearly_the_same_and_is_waited_for_once(tokenizer: Tokenizer) -> None:
    objective = model(tokenizer)
    texts = [f"{text} {noun}" for text in TEXTS for noun in ("cat", "dog", "bird", "tree")]
    exact = score(objective, tokenizer, texts)
    objective.to("cuda")
    score(objective, tokenizer, texts, batch_tokens=256)
    waits = []
    for budget in (256, 100_000):
        with warnings.catch_warnings(record=True) as heard:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")  # which itself warns that it is new
            heard.clear()
            try:
                near = score(objective, tokenizer, texts, batch_tokens=budget)
            finally:
                torch.cuda.set_sync_debug_mode("default")
        waits.append(len([one for one in heard if "synchronizing" in str(one.message)]))
        for one, other in zip(exact, near, strict=True):
            assert one.log_likelihood == pytest.approx(other.log_likelihood, rel=0.03)
    assert waits[0] == waits[1] <= 2
