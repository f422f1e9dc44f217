"""Running text: the state is carried from batch to batch, and validation leaves it alone."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from prose import PADDING, STOP, VOCABULARY, prose
from torch.func import functional_call

from bertsmith.data.batch import TargetBatch, Tokens
from bertsmith.data.packing.streams import Streams
from bertsmith.errors import RecipeError
from bertsmith.models.family import GPT2
from bertsmith.models.recurrent import Recurrent, RecurrentConfig
from bertsmith.models.transformer import Transformer
from bertsmith.nn.init import initialise
from bertsmith.nn.rnn.cells import Cell
from bertsmith.objectives.recurrent_lm import RecurrentLM, collate
from bertsmith.text.tokenizer import TokenizerConfig, train
from bertsmith.train.evaluate import evaluate

SMALL = RecurrentConfig(vocabulary=VOCABULARY, width=8, layers=2, tie_embeddings=True)


def objective(cell: Cell = "lstm", **settings: Any) -> RecurrentLM:
    found = RecurrentLM(Recurrent(replace(SMALL, cell=cell)), RecurrentLM.Config(**settings))
    initialise(found, 0, 0.5)
    return found


def streams(length: int, rows: int = 4, once: bool = False) -> Streams:
    text = prose(documents=6, sentences=4, words=6)
    return Streams(text, length=length, tokens=rows * length, seed=0, separator=(STOP,), padding_id=PADDING, once=once)


def batches(length: int, count: int) -> list[TargetBatch]:
    source = streams(length)
    return [collate(source(index)) for index in range(count)]


@pytest.mark.parametrize("cell", ["rnn", "lstm", "gru"])
@torch.no_grad()
def test_the_state_is_carried_from_batch_to_batch(cell: Cell) -> None:
    short, long = objective(cell).train(), objective(cell).train()
    parts = [short(batch)["next_token"].total for batch in batches(4, 4)]
    (whole,) = (long(batch)["next_token"].total for batch in batches(16, 1))
    torch.testing.assert_close(sum(parts), whole)
    forgetful = objective(cell).train()
    alone = []
    for batch in batches(4, 4):
        forgetful.state = None
        alone.append(forgetful(batch)["next_token"].total)
    assert not torch.allclose(sum(alone), whole)


def test_gradients_go_back_no_further_than_the_batch() -> None:
    carried, given = objective().train(), objective().train()
    first, second = batches(4, 2)
    carried(first)
    state = carried.state.clone()
    carried(second)["next_token"].total.backward()
    hidden, _ = given.trunk.forward_from_state(second.tokens, state)
    total = torch.nn.functional.cross_entropy(given.logits(hidden), second.targets, reduction="sum")
    total.backward()
    for one, other in zip(carried.parameters(), given.parameters(), strict=True):
        torch.testing.assert_close(one.grad, other.grad)
    assert not carried.state.requires_grad


def test_a_step_on_cast_weights_updates_the_true_state() -> None:
    """As in half precision, where weights and buffers are rounded copies that nobody sees again."""
    learner, plain = objective().train(), objective().double().train()
    for batch in batches(4, 2):
        rounded = {name: weight.double() for name, weight in learner.named_parameters()}
        found = functional_call(learner, rounded, (batch,), tie_weights=False)["next_token"].total
        wanted = plain(batch)["next_token"].total
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(learner.state, plain.state)


def test_a_new_epoch_starts_from_a_zero_state() -> None:
    source = streams(4)
    last, first = collate(source(source.batches() - 1)), collate(source(1 << 32))
    carried, fresh = objective().train(), objective().train()
    carried(last)
    assert torch.equal(carried(first)["next_token"].total, fresh(first)["next_token"].total)


@torch.no_grad()
def test_validation_carries_a_state_of_its_own_and_leaves_the_other_alone() -> None:
    learner = objective().train()
    for batch in batches(4, 2):
        learner(batch)
    before = learner.state.clone()
    source = streams(4, once=True)
    held_out = [collate(source(index)) for index in range(source.batches())]
    learner.eval()
    with torch.inference_mode():
        figures = evaluate(learner, held_out, bytes_per_token=4.0)
        again = evaluate(learner, held_out, bytes_per_token=4.0)
    assert figures == again
    assert torch.equal(learner.state, before)
    parts = [(batch.tokens.ids.view(source.streams, -1), batch.targets.view(source.streams, -1)) for batch in held_out]
    ids, targets = (torch.cat(part, 1) for part in zip(*parts, strict=True))
    hidden = learner.trunk(Tokens.from_rows(ids.tolist()))  # every stream at once
    whole = torch.nn.functional.cross_entropy(learner.logits(hidden), targets.flatten(), reduction="sum")
    assert figures["next_token_loss"] == pytest.approx(float(whole) / source.total_tokens, rel=1e-5)
    learner.train()(batches(4, 3)[2])  # and it goes on from there


def test_the_recurrent_state_is_part_of_a_checkpoint() -> None:
    learner, later = objective().train(), objective().train()
    first, second = batches(4, 2)
    assert learner.state_dict()["_extra_state"].numel() == 0
    learner(first)
    later.load_state_dict(learner.state_dict())
    assert torch.equal(learner(second)["next_token"].total, later(second)["next_token"].total)
    later.load_state_dict(objective().state_dict())
    assert later.state is None


def test_padding_of_an_epoch_is_no_target() -> None:
    source = streams(4)
    batch = collate(source(source.batches() - 1))
    assert batch.counts["next_token"] == (batch.targets != -100).sum() < len(batch.targets)
    learner = objective().eval()
    with torch.no_grad():
        hidden, _ = learner.trunk.forward_from_state(batch.tokens, torch.zeros(4, learner.trunk.stack.state_size))
        real = batch.targets != -100
        wanted = torch.nn.functional.cross_entropy(learner.logits(hidden[real]), batch.targets[real], reduction="sum")
        learner.validation_state = torch.zeros(4, learner.trunk.stack.state_size)
        torch.testing.assert_close(learner(batch)["next_token"].total, wanted)


def test_activation_and_temporal_penalties_are_those_of_the_formula() -> None:
    learner, plain = objective(activation_penalty=2.0, temporal_penalty=1.0).train(), objective().train()
    collator = learner.collator(train(["some words"], TokenizerConfig(kind="words", min_frequency=1)))
    batch = collator(streams(4)(0))
    terms = learner(batch)
    hidden, _ = plain.trunk.forward_from_state(batch.tokens, torch.zeros(4, plain.trunk.stack.state_size))
    rows = hidden.view(4, 4, -1)
    torch.testing.assert_close(terms["activation"].total / batch.counts["activation"], rows.square().mean())
    torch.testing.assert_close(terms["temporal"].total / batch.counts["temporal"], rows.diff(dim=1).square().mean())
    assert (terms["activation"].weight, terms["temporal"].weight) == (2.0, 1.0)
    assert set(learner.eval()(batch)) == {"next_token"}
    assert set(plain(collate(streams(4)(0)))) == {"next_token"}


def test_positions_are_offsets_in_the_stream() -> None:
    first, second = batches(4, 2)
    assert first.tokens.positions.tolist() == [0, 1, 2, 3] * 4
    assert second.tokens.positions.tolist() == [4, 5, 6, 7] * 4
    assert isinstance(first.tokens, Tokens)
    assert np.diff(first.tokens.bounds).tolist() == [4] * 4


def test_networks_that_do_not_fit_are_refused_in_one_line() -> None:
    with torch.device("meta"), pytest.raises(RecipeError) as caught:
        RecurrentLM(Transformer(GPT2), RecurrentLM.Config())
    line = "objective.kind: the network is not recurrent: it has no state to carry on."
    assert str(caught.value) == f"{line} Use 'causal_lm', or a member such as lstm-small."
    with pytest.raises(ValueError, match=r"state_reset is 1.5. Give a share, from 0 to 1"):
        RecurrentLM.Config(state_reset=1.5)
    with pytest.raises(
        ValueError, match=r"activation_penalty and temporal_penalty are weights of losses. Give at least 0"
    ):
        RecurrentLM.Config(temporal_penalty=-1.0)
