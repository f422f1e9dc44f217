"""Law: a loss is a sum over its targets, divided once by their number.

So micro-batches, filler and the order of a batch change neither losses nor gradients.
"""

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch
from laws.objectives import EVERY, Case, gradients, halves, part, positions, terms

from bertsmith.data.batch import Batch
from bertsmith.data.feed import Feed
from bertsmith.data.packing.pack import PackedBatch
from bertsmith.objectives.base import Pretraining

Built = Callable[[Case], tuple[Pretraining, Feed]]
PACKED = [case for case in EVERY if not case.stateful]  # a stream has no filler before its end


def sequences(batch: Batch) -> list[int]:
    """Those that are not empty, filler included."""
    filled = torch.stack([one.tokens.bounds.diff() > 0 for one in halves(batch)]).any(0)
    numbers: list[int] = filled.nonzero()[:, 0].tolist()
    return numbers


@pytest.mark.parametrize("case", EVERY, ids=str)
@torch.no_grad()
def test_the_sums_of_a_batch_are_those_of_its_parts_in_any_order(case: Case, built: Built) -> None:
    objective, feed = built(case)
    batch = feed(feed.first_position())
    every = sequences(batch)
    together, backwards = terms(objective, batch), terms(objective, part(batch, every[::-1]))
    parts = [terms(objective, part(batch, some)) for some in (every[:1], every[1:2], every[2:5], every[5:])]
    assert together.keys() <= batch.counts.keys()
    for name, term in together.items():
        assert term.total > 0
        for found in ([backwards[name]], [one[name] for one in parts]):
            assert float(sum(one.total for one in found)) == pytest.approx(float(term.total), rel=1e-6)
            assert sum(int(one.correct) for one in found) == int(term.correct)
            assert {one.weight for one in found} == {term.weight}


@pytest.mark.parametrize("case", EVERY, ids=str)
def test_micro_batches_do_not_change_the_gradients(case: Case, built: Built) -> None:
    objective, feed = built(case)
    batch = feed(feed.first_position())
    every = sequences(batch)
    whole = gradients(objective, batch)
    assert whole.keys() == {name for name, weight in objective.named_parameters() if weight.requires_grad}
    parts = gradients(objective, *(part(batch, some) for some in (every[:1], every[1:5], every[5:])))
    for name, gradient in whole.items():
        torch.testing.assert_close(parts[name], gradient, rtol=1e-5, atol=1e-5 * float(gradient.abs().max()), msg=name)


@pytest.mark.parametrize("case", EVERY, ids=str)
@torch.no_grad()
def test_a_network_that_knows_nothing_loses_the_log_of_the_choices_at_every_target_that_is_counted(
    case: Case, built: Built
) -> None:
    objective, feed = deepcopy(built(case)[0]), built(case)[1]
    for weight in objective.parameters():
        weight.zero_()  # every logit is 0
    batch = feed(feed.first_position())
    for name, term in terms(objective, batch).items():
        mean = float(term.total) / batch.counts[name]
        assert min(abs(mean - math.log(choices)) for choices in (2, objective.trunk.config.vocabulary)) < 1e-5


@pytest.mark.parametrize("case", PACKED, ids=str)
@torch.no_grad()
def test_filler_changes_no_loss(case: Case, built: Built) -> None:
    objective, feed = built(case)
    packed = (feed.source(position) for position in positions(feed))
    given: PackedBatch = next(one for one in islice(packed, 50) if one.real_tokens < len(one.ids))
    other = replace(given, ids=np.where(np.arange(len(given.ids)) < given.real_tokens, given.ids, 9))
    one, two = (terms(objective, feed.collate(each)) for each in (given, other))
    for name, term in one.items():
        assert float(two[name].total) == pytest.approx(float(term.total), rel=1e-6)
        assert two[name].correct == term.correct
