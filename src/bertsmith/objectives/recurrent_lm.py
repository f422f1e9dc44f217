"""Recurrent language modelling: next-token prediction on continuous streams, with a carried state."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.data.batch import TargetBatch, Tokens
from bertsmith.data.packing.streams import StreamBatch
from bertsmith.models.networks import Network
from bertsmith.models.recurrent import Recurrent
from bertsmith.nn.kernels import linear_cross_entropy_cpu
from bertsmith.objectives.base import LanguageModel, Term
from bertsmith.text.tokenizer import Tokenizer


class RecurrentLM(LanguageModel):
    """Next-token prediction where the final state of a batch is the initial state of the next. Mikolov et al. 2010.

    Gradients stop at the beginning of a batch (truncated backpropagation through time: Williams and Peng 1990), while
    the state carries what was read before. The state is part of a checkpoint, so that a resumed run gives the same
    numbers. Validation has a separate state.
    """

    needs = "recurrent"
    generates = True
    trunk: Recurrent

    @dataclass(frozen=True, kw_only=True)
    class Config:
        state_reset: float = 0.01  # share of streams that restart from a zero state at each batch
        # Merity et al. 2017, section 4.4: activation regularisation (AR) and temporal activation regularisation (TAR).
        activation_penalty: float = 0.0  # weight of the mean square of the outputs (AR); AWD-LSTM: 2
        temporal_penalty: float = 0.0  # weight of the mean square of their difference per token (TAR); AWD-LSTM: 1

        def __post_init__(self) -> None:
            if not 0 <= self.state_reset <= 1:
                raise ValueError(f"state_reset is {self.state_reset}. Give a share, from 0 to 1")
            if self.activation_penalty < 0 or self.temporal_penalty < 0:
                raise ValueError("activation_penalty and temporal_penalty are weights of losses. Give at least 0")

    def __init__(self, trunk: Network, config: Config) -> None:
        super().__init__(trunk, config)
        # Not buffers: a step in half precision works on rounded copies of buffers, and would update the copy.
        self.state: Tensor | None = None
        self.validation_state: Tensor | None = None

    def forward(self, batch: TargetBatch) -> dict[str, Term]:
        hidden = self._stateful_forward(batch.tokens)
        terms = {"next_token": self._next_token_term(hidden, batch.targets)}
        return terms | (self._activation_penalties(hidden, batch.tokens) if self.training else {})

    def _next_token_term(self, hidden: Float[Tensor, "T D"], targets: Int[Tensor, "T"]) -> Term:
        table, bias = self.trunk.output_weights
        if self.training and linear_cross_entropy_cpu.available(hidden, table):
            return Term(linear_cross_entropy_cpu.linear_cross_entropy(hidden, table, bias, targets), None)
        logits = self.trunk.logits(hidden)  # T V
        total = F.cross_entropy(logits.float(), targets, reduction="sum", ignore_index=-100)
        return Term(total, None if self.training else (logits.argmax(-1) == targets).sum())

    def _stateful_forward(self, tokens: Tokens) -> Float[Tensor, "T D"]:
        """The outputs for a batch, from the state that the last one left; stores the state for the next."""
        held = self.state if self.training else self.validation_state
        shape = (len(tokens.bounds) - 1, self.trunk.stack.state_size)
        if held is None or held.shape != shape or held.device != tokens.ids.device:
            same = held is not None and held.shape == shape  # from a checkpoint, so on the CPU
            held = held.to(tokens.ids.device) if held is not None and same else torch.zeros(shape).to(tokens.ids.device)
            self.state, self.validation_state = (held, self.validation_state) if self.training else (self.state, held)
        # A clone, since backward needs the initial state after `copy_` has overwritten it.
        hidden, after = self.trunk.forward_from_state(tokens, held.clone())
        held.copy_(after.detach())
        return hidden

    def _activation_penalties(self, hidden: Float[Tensor, "T D"], tokens: Tokens) -> dict[str, Term]:
        """AR and TAR: penalties on large outputs, and on outputs that change from token to token."""
        terms = {}
        rows = hidden.float().view(len(tokens.bounds) - 1, tokens.max_length, -1)
        if self.config.activation_penalty:
            terms["activation"] = Term(rows.square().mean(2).sum(), None, self.config.activation_penalty)
        if self.config.temporal_penalty:
            terms["temporal"] = Term(rows.diff(dim=1).square().mean(2).sum(), None, self.config.temporal_penalty)
        return terms

    def get_extra_state(self) -> Tensor:
        """The recurrent state between two batches, for a checkpoint."""
        return torch.zeros(0, 0) if self.state is None else self.state

    def set_extra_state(self, state: Tensor) -> None:
        self.state = state.clone() if state.numel() else None

    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """The logits of the next token."""
        return self.trunk.logits(hidden)

    def collator(self, tokenizer: Tokenizer) -> Callable[[StreamBatch], TargetBatch]:
        return partial(
            collate,
            penalties=("activation",) * (self.config.activation_penalty > 0)
            + ("temporal",) * (self.config.temporal_penalty > 0),
        )


def collate(stretch: StreamBatch, penalties: tuple[str, ...] = ()) -> TargetBatch:
    """From a segment of every stream to a batch. A token's position is its offset in the stream: 0 resets the state."""
    streams, length = len(stretch.stream_positions), len(stretch.ids) // len(stretch.stream_positions)
    within = stretch.stream_positions[:, None] + np.arange(length, dtype=np.int32)
    tokens = Tokens(
        ids=torch.from_numpy(stretch.ids),
        bounds=torch.arange(0, len(stretch.ids) + 1, length, dtype=torch.int32),
        positions=torch.from_numpy(within.ravel()),
        max_length=length,
        equal_lengths=True,
    )
    counts = {"next_token": stretch.real_tokens, "tokens": stretch.real_tokens, "squares": stretch.real_tokens * length}
    counts |= {"activation": len(stretch.ids)} if "activation" in penalties else {}
    counts |= {"temporal": len(stretch.ids) - streams} if "temporal" in penalties else {}
    return TargetBatch(tokens=tokens, targets=torch.from_numpy(stretch.targets), counts=counts)
