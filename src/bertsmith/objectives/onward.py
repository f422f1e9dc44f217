"""Onward: the next tokens of a text without end, told by all that came before. The objective of recurrent networks."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.data.batch import Batch, Tokens
from bertsmith.data.plan import Pairs
from bertsmith.data.streams import Stretch
from bertsmith.errors import RecipeError
from bertsmith.models.recurrent import Recurrent
from bertsmith.nn import slopes
from bertsmith.objectives.base import Term, Unlabelled
from bertsmith.text.tokenizer import Tokenizer


class Onward(Unlabelled):
    """Guess every token of running text; what is remembered at the end of a batch begins the next. Mikolov et al. 2010.

    Gradients go back as far as a batch reaches and no further (truncated backpropagation through time: Williams and
    Peng 1990), but what was read before it is not forgotten. The state is part of what a checkpoint holds, so that a
    run that was killed goes on as if nothing had been. Validation has a state of its own.
    """

    causal = True
    streams = True
    trunk: Recurrent

    @dataclass(frozen=True, kw_only=True)
    class Config:
        fresh: float = 0.01  # share of streams that begin from nothing at a batch, so that this is learnt, too
        # Merity et al. 2017, section 4.4: vectors are to stay small, and not to change much from token to token.
        small: float = 0.0  # weight of their mean square; AWD has 2
        slow: float = 0.0  # weight of the mean square of their change; AWD has 1

        def __post_init__(self) -> None:
            if not 0 <= self.fresh <= 1:
                raise ValueError(f"fresh is {self.fresh}. Give a share, from 0 to 1")
            if self.small < 0 or self.slow < 0:
                raise ValueError("small and slow are weights of losses. Give at least 0")

    def __init__(self, trunk: Any, config: Any) -> None:
        if not isinstance(trunk, Recurrent):
            fact = "the network has no state that could be carried on"
            raise RecipeError("objective.kind", fact, "Use 'next_token', or a member such as lstm-small")
        super().__init__(trunk, config)
        # Not buffers: a step in half precision works on rounded copies of those, and would carry the copy's state on.
        self.state: Tensor | None = None
        self.checked: Tensor | None = None  # of validation

    @property
    def pairs(self) -> Pairs:
        return "none"

    def forward(self, batch: Batch) -> dict[str, Term]:
        assert batch.targets is not None
        hidden = self._read(batch.tokens)
        told = {"next_token": self._told(hidden, batch.targets)}
        return told | (self._calm(hidden, batch) if self.training else {})

    def _told(self, hidden: Float[Tensor, "T D"], targets: Int[Tensor, "T"]) -> Term:
        table, bias = self.trunk.told
        if self.training and slopes.able(hidden, table):
            return Term(slopes.entropy(hidden, table, bias, targets), None)
        logits = self.trunk.logits(hidden)  # T V
        total = F.cross_entropy(logits.float(), targets, reduction="sum", ignore_index=-100)
        return Term(total, None if self.training else (logits.argmax(-1) == targets).sum())

    def _read(self, tokens: Tokens) -> Float[Tensor, "T D"]:
        """The vectors of a stretch, from the state that the last one left; and the state for the next."""
        held = self.state if self.training else self.checked
        shape = (len(tokens.bounds) - 1, self.trunk.stack.remembered)
        if held is None or held.shape != shape or held.device != tokens.ids.device:
            same = held is not None and held.shape == shape  # but from a checkpoint, which is on the host
            held = held.to(tokens.ids.device) if held is not None and same else torch.zeros(shape).to(tokens.ids.device)
            self.state, self.checked = (held, self.checked) if self.training else (self.state, held)
        hidden, after = self.trunk.onward(tokens, held.clone())  # which backward still needs when it is written over
        held.copy_(after.detach())
        return hidden

    def _calm(self, hidden: Float[Tensor, "T D"], batch: Batch) -> dict[str, Term]:
        """What vectors are to pay for being large, and for changing."""
        terms = {}
        rows = hidden.float().view(len(batch.tokens.bounds) - 1, batch.tokens.longest, -1)
        if self.config.small:
            terms["small"] = Term(rows.square().mean(2).sum(), None, self.config.small)
        if self.config.slow:
            terms["slow"] = Term(rows.diff(dim=1).square().mean(2).sum(), None, self.config.slow)
        return terms

    def get_extra_state(self) -> Tensor:
        """What is remembered between two batches, for a checkpoint."""
        return torch.zeros(0, 0) if self.state is None else self.state

    def set_extra_state(self, state: Tensor) -> None:
        self.state = state.clone() if state.numel() else None

    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """The score of every piece to come next."""
        return self.trunk.logits(hidden)

    def collator(self, tokenizer: Tokenizer) -> Callable[[Any], Batch]:
        return partial(collate, calm=("small",) * (self.config.small > 0) + ("slow",) * (self.config.slow > 0))

    @property
    def guesses(self) -> float:
        return 1.0

    def flops(self, attended: float) -> float:
        return self.trunk.config.flops(attended, self.guesses)

    @property
    def folders(self) -> dict[str, Unlabelled]:
        return {"model": self}


def collate(stretch: Stretch, calm: tuple[str, ...] = ()) -> Batch:
    """A stretch of every stream -> batch. A token's position is its place in the stream, so that nought begins one."""
    streams, length = len(stretch.places), len(stretch.ids) // len(stretch.places)
    within = stretch.places[:, None] + np.arange(length, dtype=np.int32)
    tokens = Tokens(
        ids=torch.from_numpy(stretch.ids),
        bounds=torch.arange(0, len(stretch.ids) + 1, length, dtype=torch.int32),
        positions=torch.from_numpy(within.ravel()),
        longest=length,
        equal=True,
    )
    counts = {"next_token": stretch.real, "tokens": stretch.real, "squares": stretch.real * length}
    counts |= {"small": len(stretch.ids)} if "small" in calm else {}
    counts |= {"slow": len(stretch.ids) - streams} if "slow" in calm else {}
    return Batch(tokens=tokens, targets=torch.from_numpy(stretch.following), counts=counts)
