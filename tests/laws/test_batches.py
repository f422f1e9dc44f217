"""Law: a batch is a pure function of its position, and all batches of a run have one shape, for compiled steps."""

import pickle
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from itertools import islice
from typing import Any

import pytest
import torch
from laws.objectives import EVERY, Case, halves, positions
from torch import Tensor

from bertsmith.data.feed import Feed
from bertsmith.objectives.base import Pretraining

Built = Callable[[Case], tuple[Pretraining, Feed]]


def leaves(record: Any) -> Iterator[Any]:
    """Every tensor and number of a batch."""
    if is_dataclass(record):
        for field in fields(record):
            yield from leaves(getattr(record, field.name))
    else:
        yield record


def same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) else one == other


@pytest.mark.parametrize("case", EVERY, ids=str)
def test_a_batch_is_a_function_of_its_position_also_in_another_process(case: Case, built: Built) -> None:
    feed = built(case)[1]
    here, there = islice(positions(feed), 2)
    first, other = feed(there), feed(here)
    again = pickle.loads(pickle.dumps(feed.collate))(feed.source(there))  # noqa: S301
    assert all(map(same, leaves(first), leaves(again)))
    assert not torch.equal(first.tokens.ids, other.tokens.ids)


@pytest.mark.parametrize("case", EVERY, ids=str)
def test_all_batches_of_a_run_have_one_shape(case: Case, built: Built) -> None:
    feed, shapes = built(case)[1], set()
    for position in islice(positions(feed), 8):
        batch = feed(position)
        shapes.add(tuple(one.shape if isinstance(one, Tensor) else None for one in leaves(batch)))
        for tokens in (one.tokens for one in halves(batch)):
            assert int(tokens.bounds[-1]) == len(tokens.ids)
            assert int(tokens.bounds.diff().max()) <= tokens.max_length
    assert len(shapes) == 1
