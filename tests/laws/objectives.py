"""A tiny run for every entry of the table of objectives, and for every choice that it offers.

A new objective needs a line in MEMBER and has no tests before (a KeyError, when tests are collected).
"""

from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import torch
from laws.networks import choices, dropouts, shrunk
from tasks.small import stirred
from torch import Tensor

from bertsmith import config
from bertsmith.data.batch import Batch, DecoderBatch, SelectedBatch, Tokens
from bertsmith.data.feed import Feed
from bertsmith.models.family import FAMILY
from bertsmith.models.networks import NetworkConfig, build_network
from bertsmith.objectives import OBJECTIVES
from bertsmith.objectives.base import Pretraining, Term
from bertsmith.objectives.mixed import MixedBatch
from bertsmith.recipe import Recipe
from bertsmith.runs import build
from bertsmith.text.special_tokens import Kind

# The member that each objective was published with, and the kind of its tokenizer.
MEMBER: dict[str, tuple[str, Kind]] = {
    "masked_lm": ("bert-base", "wordpiece"),
    "replaced_tokens": ("electra-small", "wordpiece"),
    "recurrent_lm": ("lstm-small", "words"),
    "causal_lm": ("gpt2", "bpe"),
    "span_corruption": ("t5-small", "t5"),
    "mixed": ("bert-base", "wordpiece"),
    "bilm": ("elmo", "words"),
}
# Numbers that switch something on; what else is off by default is a choice or has tests of its own.
NUMBERS = {"sampled_softmax": 10, "activation_penalty": 2.0, "temporal_penalty": 1.0}


@dataclass(frozen=True)
class Case:
    """An objective, a member that it teaches, and changes of its configuration."""

    objective: str
    member: str
    changes: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return "-".join([self.objective, self.member, *(f"{name}={value}" for name, value in self.changes.items())])

    @property
    def kind(self) -> Kind:
        return MEMBER[self.objective][1]

    @property
    def config(self) -> NetworkConfig:
        return replace(FAMILY[self.member], **shrunk(FAMILY[self.member]))

    @property
    def stateful(self) -> bool:
        return OBJECTIVES[self.objective].needs == "recurrent"

    def hollow(self) -> Pretraining:
        """The objective on the meta device, without numbers."""
        with torch.device("meta"):
            return OBJECTIVES[self.objective](build_network(self.config), OBJECTIVES[self.objective].Config())

    def recipe(self, data: Path, out: Path, *changes: str, dropout: float = 0.0) -> Recipe:
        """A run of milliseconds a step, and of more than one epoch."""
        shape = shrunk(FAMILY[self.member]) | dict.fromkeys(dropouts(FAMILY[self.member]), dropout)
        del shape["vocabulary"]
        values = {
            "out": str(out),
            "model": {"kind": self.member, **shape},
            "objective": {"kind": self.objective, **self.changes},
            "data": {"folder": str(data), "max_length": 32, "batch_tokens": 256, "workers": 1},
            "optimizer": {"learning_rate": 0.003},
            "train": {"steps": 24, "precision": "float32", "evaluations": 2, "checkpoints": 4},
        }
        made: Recipe = config.build(config.override(values, changes), Recipe, "law.toml")
        return made

    def built(self, data: Path, **sizes: int) -> tuple[Pretraining, Feed]:
        """The objective in double precision, with weights of which none is trivial, and its batches."""
        recipe = self.recipe(data, data / "out", *(f"model.{name}={size}" for name, size in sizes.items()))
        tokenizer, train, _ = build.load_data(recipe)
        shape = replace(recipe.model.settings, vocabulary=tokenizer.vocabulary)
        made = stirred(OBJECTIVES[self.objective](build_network(shape), recipe.objective.settings)).double()
        made.bind(tokenizer)
        return made, build.feed(recipe, made, tokenizer, train)


def _chosen(objective: str) -> list[Case]:
    settings = OBJECTIVES[objective].Config()
    numbers = [{one.name: NUMBERS[one.name]} for one in fields(settings) if one.name in NUMBERS]
    changes = [*(change for _, change in choices(settings)), *numbers]
    return [Case(objective, MEMBER[objective][0], change) for change in changes]


FIRST = [Case(name, MEMBER[name][0]) for name in OBJECTIVES]
CHOSEN = [case for name in OBJECTIVES for case in _chosen(name)]
EVERY = FIRST + CHOSEN


def positions(feed: Feed) -> Iterator[int]:
    """The positions of a run, one after the other."""
    position = feed.first_position()
    while True:
        yield position
        position = feed.next_position(position)


def terms(objective: Pretraining, batch: Batch) -> dict[str, Term]:
    """The loss terms of a batch by a fresh copy, since an objective may carry a state from batch to batch."""
    found: dict[str, Term] = deepcopy(objective)(batch)
    return found


def gradients(objective: Pretraining, *batches: Batch) -> dict[str, Tensor]:
    """The gradients of the weighted sums of all batches together, by weight."""
    copy = deepcopy(objective).train()
    for batch in batches:
        copy.load_state_dict(objective.state_dict())  # its state, too
        sum(term.weight * term.total for term in copy(batch).values()).backward()
    return {name: weight.grad for name, weight in copy.named_parameters() if weight.grad is not None}


# ------------------------------------------------------------------------------------------------ a part of a batch


def part(batch: Batch, sequences: Sequence[int]) -> Batch:
    """Some sequences of a batch, as a batch of their own."""
    given = {one.name: getattr(batch, one.name) for one in fields(batch)}
    assert given.keys() <= KNOWN, "say here what a part of the new field is"
    tokens, places = _taken(batch.tokens, sequences)
    found: dict[str, Any] = {"tokens": tokens, "counts": {}}
    aligned = places  # with what targets and text_mask are aligned
    if isinstance(batch, DecoderBatch):
        found["decoder_tokens"], aligned = _taken(batch.decoder_tokens, sequences)
    of_targets = aligned
    if isinstance(batch, SelectedBatch):
        of_targets = torch.isin(batch.target_positions, places).nonzero()[:, 0]
        new = torch.full((len(batch.tokens.ids),), -1)
        new[places] = torch.arange(len(places))
        found["target_positions"] = new[batch.target_positions[of_targets]]
    for name, chosen in (("targets", of_targets), ("random_bits", of_targets), ("text_mask", aligned)):
        if name in given:
            found[name] = given[name][chosen]
    if given.get("labels") is not None:
        found["labels"] = given["labels"][list(sequences)]
    if isinstance(batch, MixedBatch):
        found["causal"] = part(batch.causal, sequences)
    return replace(batch, **found)


def halves(batch: Batch) -> list[Batch]:
    """A batch, and its causal part where it is mixed."""
    return [batch, batch.causal] if isinstance(batch, MixedBatch) else [batch]


KNOWN = {"tokens", "decoder_tokens", "target_positions", "targets", "random_bits", "text_mask", "negatives", "labels"}
KNOWN |= {"causal", "counts"}


def _taken(tokens: Tokens, sequences: Sequence[int]) -> tuple[Tokens, Tensor]:
    """Some sequences, and the positions of their tokens among all."""
    bounds = tokens.bounds.tolist()
    places = [torch.arange(bounds[number], bounds[number + 1]) for number in sequences]
    rows, kinds = ([whole[one].tolist() for one in places] for whole in (tokens.ids, _segments(tokens)))
    return replace(Tokens.from_rows(rows, kinds), positions=tokens.positions[torch.cat(places)]), torch.cat(places)


def _segments(tokens: Tokens) -> Tensor:
    return torch.zeros_like(tokens.ids) if tokens.segments is None else tokens.segments
