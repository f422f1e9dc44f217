"""Every word guessed from either side: what is guessed, from what, and that nothing else has a say in it."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from prose import PADDING, START, STOP, VOCABULARY, prose

from bertsmith.data.packing.pack import PackedBatch, Packer
from bertsmith.errors import RecipeError
from bertsmith.models.elmo import Elmo, ElmoConfig
from bertsmith.models.family import BERT_TINY, GPT2
from bertsmith.models.networks import build_network
from bertsmith.nn.init import initialise
from bertsmith.objectives import OBJECTIVES
from bertsmith.objectives.bilm import BidirectionalBatch, BidirectionalLM, collate, expected_tries, sample_log_uniform
from bertsmith.objectives.causal import CausalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.characters import vocabulary_characters
from bertsmith.text.tokenizer import TokenizerConfig, train
from bertsmith.train.evaluate import evaluate

SHAPE = ElmoConfig(
    vocabulary=VOCABULARY,
    max_characters=12,
    character_width=4,
    filters=(4, 4),
    highway_layers=1,
    hidden=16,
    width=16,
    dropout=0.0,
    max_length=64,
)


def objective(sampled: int = 0, shape: ElmoConfig = SHAPE) -> BidirectionalLM:
    made = BidirectionalLM(Elmo(shape), BidirectionalLM.Config(sampled_softmax=sampled))
    initialise(made, 0, std=0.3)
    letters = torch.Generator().manual_seed(0)
    made.trunk.set_characters(
        torch.randint(1, 257, made.trunk.character_ids.shape, generator=letters, dtype=torch.int16)
    )
    return made.eval()


def packed(position: int = 0, *, across: bool = False, length: int = 32, tokens: int = 512) -> PackedBatch:
    how = {"start_id": START, "stop_id": STOP, "padding_id": PADDING, "seed": 1}
    return Packer(prose(300), max_length=length, batch_tokens=tokens, pairs="none", cross_documents=across, **how)(
        position
    )


@pytest.mark.slow
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize(("length", "tokens"), [(64, 1024), (16, 512), (48, 500)])
def test_every_token_except_the_first_and_the_last_of_its_sequence_is_a_target(
    across: bool, length: int, tokens: int
) -> None:
    sizes = set()
    for position in range(3):
        given = packed(position, across=across, length=length, tokens=tokens)
        batch = collate(given)
        known = batch.targets != -100
        asked = [
            place
            for begin, end in zip(given.bounds, given.bounds[1 : given.real_sequences + 1], strict=False)
            for place in range(begin + 1, end - 1)
        ]
        assert batch.target_positions[known].tolist() == asked
        assert batch.targets[known].tolist() == given.ids[asked].tolist()
        assert batch.counts["left_to_right"] == batch.counts["right_to_left"] == len(asked)
        assert batch.counts["tokens"] == given.real_tokens
        assert (batch.target_positions >= 1).all()
        assert (batch.target_positions < len(given.ids) - 1).all()
        sizes.add(len(batch.target_positions))
    assert len(sizes) == 1  # shapes never change


def test_a_word_is_predicted_from_the_left_state_before_it_and_the_right_state_after_it() -> None:
    made, batch = objective(), collate(packed())
    hidden, totals = made.trunk(batch.tokens), {"left_to_right": 0.0, "right_to_left": 0.0}
    for place, target in zip(batch.target_positions.tolist(), batch.targets.tolist(), strict=True):
        if target != -100:
            for name, vector in (("left_to_right", hidden[place - 1, :8]), ("right_to_left", hidden[place + 1, 8:])):
                totals[name] -= F.log_softmax(made.output(vector), -1)[target].item()
    for mode in (True, False):
        terms = made.train(mode)(batch)
        assert {name: term.total.item() for name, term in terms.items()} == pytest.approx(totals, rel=1e-4)
        assert all(term.weight == 0.5 for term in terms.values())


def test_accuracy_is_counted_in_validation_only() -> None:
    made, batch = objective(), collate(packed())
    assert all(term.correct is None for term in made.train()(batch).values())
    assert all(0 <= int(term.correct) <= batch.counts["left_to_right"] for term in made.eval()(batch).values())
    with torch.inference_mode():
        figures = evaluate(made, [batch], 4.0)
    assert figures["loss"] == pytest.approx((figures["left_to_right_loss"] + figures["right_to_left_loss"]) / 2)
    assert figures["left_to_right_loss"] == pytest.approx(math.log(VOCABULARY), abs=1.0)


def test_a_validation_in_chunks_gives_the_same_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    made, batch = objective(), collate(packed())
    whole = made(batch)
    monkeypatch.setattr("bertsmith.objectives.bilm.LOGITS_PER_CHUNK", 7 * VOCABULARY)
    for name, term in made(batch).items():
        assert term.total.item() == pytest.approx(whole[name].total.item(), rel=1e-5)
        assert term.correct == whole[name].correct


# ------------------------------------------------------------------------------------------------ words drawn


def test_a_sample_is_distinct_by_the_key_alone_and_log_uniform() -> None:
    drawn = sample_log_uniform(7, 50, VOCABULARY)
    assert np.array_equal(drawn, sample_log_uniform(7, 50, VOCABULARY))
    assert not np.array_equal(drawn, sample_log_uniform(8, 50, VOCABULARY))
    assert len(set(drawn.tolist())) == 50
    assert drawn.min() >= 0
    assert drawn.max() < VOCABULARY
    counts = np.zeros(VOCABULARY)
    for key in range(300):
        counts[sample_log_uniform(key, 50, VOCABULARY)] += 1
    rounds = expected_tries(50, VOCABULARY)
    chances = np.log1p(1 / np.arange(1, VOCABULARY + 1)) / math.log(VOCABULARY + 1)
    expected = 300 * (1 - (1 - chances) ** rounds)
    assert expected.sum() == pytest.approx(300 * 50, rel=1e-6)
    assert counts[:10] == pytest.approx(expected[:10], abs=35)
    assert counts[100:].sum() == pytest.approx(expected[100:].sum(), rel=0.05)


def test_half_of_all_words_can_be_drawn() -> None:
    assert sorted(set(sample_log_uniform(1, 500, 1000).tolist())) == sample_log_uniform(1, 500, 1000).tolist()


def test_the_sampled_softmax_loss_is_about_the_full_one() -> None:
    """On average a little less, as the logarithm of a guessed sum is; the more are drawn, the nearer."""
    batch, full = collate(packed()), objective().train()
    true = full(batch)["left_to_right"].total.item() / batch.counts["left_to_right"]
    gaps = []
    for sampled in (20, 400):
        made = objective(sampled).train()
        made.load_state_dict(full.state_dict())
        found = [
            made(replace(batch, negatives=torch.from_numpy(sample_log_uniform(key, sampled, VOCABULARY))))[
                "left_to_right"
            ].total.item()
            for key in range(12)
        ]
        gaps.append(abs(np.mean(found) / batch.counts["left_to_right"] - true))
    assert gaps[1] < 0.02
    assert gaps[1] < gaps[0] < 0.5


def test_a_true_word_in_the_sample_is_no_negative() -> None:
    made = objective(20).train()
    hidden, targets = torch.randn(6, 8), torch.tensor([5, 9, 5, 9, 5, -100])
    without = made._sampled_softmax(hidden[:5], targets[:5], torch.tensor([1, 2, 3]))
    both = made._sampled_softmax(hidden, targets, torch.tensor([1, 2, 3]))
    assert both.item() == pytest.approx(without.item(), rel=1e-5)  # nothing is asked where the target is -100
    drawn = made._sampled_softmax(hidden[:5], targets[:5], torch.tensor([1, 2, 3, 5, 9]))
    alone = 0.0
    for number, target in enumerate(targets[:5].tolist()):
        one, others = slice(number, number + 1), torch.tensor([1, 2, 3, 14 - target])
        alone += made._sampled_softmax(hidden[one], targets[one], others).item()
    assert drawn.item() == pytest.approx(alone, rel=1e-5)


def test_batches_carry_the_sample_and_flops_count_its_logits() -> None:
    made = objective(100)
    batch = made.collator(train(["a b"] * 2, TokenizerConfig(kind="words", vocabulary=9, min_frequency=1)))(packed())
    assert isinstance(batch, BidirectionalBatch)
    assert batch.negatives is not None
    assert batch.negatives.tolist() == sample_log_uniform(packed().key, 100, VOCABULARY).tolist()
    assert made.prediction_share == pytest.approx(0.2)
    assert objective().prediction_share == 2.0
    assert objective().flops(10.0) - made.flops(10.0) == pytest.approx(6 * 1.8 * VOCABULARY * 8)


# ------------------------------------------------------------------------------------------------ what fits it


def test_bind_sets_the_characters_of_the_vocabulary() -> None:
    tokenizer = train(["the cat sat"] * 2, TokenizerConfig(kind="words", vocabulary=9, min_frequency=1))
    made = objective(shape=replace(SHAPE, vocabulary=tokenizer.vocabulary))
    made.bind(tokenizer)
    assert made.trunk.character_ids.tolist() == vocabulary_characters(tokenizer, 12).tolist()


def test_it_stands_in_the_table_and_leaves_one_folder() -> None:
    assert OBJECTIVES["bilm"] is BidirectionalLM
    made = objective()
    assert made.exports == {"model": made}
    assert made.pairs == "none"


@pytest.mark.parametrize("member", [BERT_TINY, GPT2])
def test_networks_that_would_see_their_targets_are_refused(member: object) -> None:
    with torch.device("meta"), pytest.raises(RecipeError) as caught:
        BidirectionalLM(build_network(member), BidirectionalLM.Config())  # type: ignore[arg-type]
    fact = "the network does not keep its two directions apart, and would see the words that it has to predict"
    assert str(caught.value) == f"objective.kind: {fact}. Use another, or a member such as elmo."


@pytest.mark.parametrize("kind", [MaskedLM, CausalLM])
def test_an_elmo_learns_only_the_bilm(kind: type[MaskedLM] | type[CausalLM]) -> None:
    with pytest.raises(RecipeError) as caught:
        kind(Elmo(SHAPE), kind.Config())
    fact = "the network has two separate directions, and each must predict every word"
    assert str(caught.value) == f"objective.kind: {fact}. Use 'bilm', or a member such as bert-base."


def test_more_than_half_of_the_words_cannot_be_sampled() -> None:
    with pytest.raises(RecipeError) as caught:
        objective(501)
    fact = "501 of 1000 words are too many for a sample"
    assert str(caught.value) == f"objective.sampled_softmax: {fact}. Give at most 500, or 0 for all words."
    with pytest.raises(ValueError, match=r"sampled_softmax is -1\. Give at least 0"):
        BidirectionalLM.Config(sampled_softmax=-1)
