"""The recurrent network: a text is read word by word, and all that came before is one state. Mikolov et al. 2010."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.nn.dropout import dropout
from bertsmith.nn.heads import pad_vocabulary
from bertsmith.nn.rnn.bilstm import packed_orders
from bertsmith.nn.rnn.cache import RecurrentCache
from bertsmith.nn.rnn.cells import GATES, Cell
from bertsmith.nn.rnn.stack import RecurrentStack


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig:
    """A member's shape. As it stands, the large LSTM of Zaremba et al. 2014 with nothing forgotten in training."""

    vocabulary: int = 10_000
    cell: Cell = "lstm"
    width: int = 1500  # of the table, and of the vectors that come out
    hidden: int = 0  # of the layers below the last; 0: as wide as the rest
    layers: int = 2
    tie_embeddings: bool = False  # the table that reads words also tells them; else there is one more
    max_length: int = 16_384  # tokens that a person may give at once: the network itself reads on and on
    # Shares that are forgotten while it learns, in the order in which a word passes them: Merity et al. 2017.
    embedding_dropout: float = 0.0  # of the vocabulary: a word is forgotten wherever it stands
    input_dropout: float = 0.0
    weight_dropout: float = 0.0  # of the weights from state to state
    layer_dropout: float = 0.0  # between layers
    dropout: float = 0.0  # of what comes out

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}. Give at least 1")
        if self.hidden < 0:
            raise ValueError(f"hidden is {self.hidden}. Give a width, or 0 for that of the table")
        for name in ("embedding_dropout", "input_dropout", "weight_dropout", "layer_dropout", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}. Give a share, at least 0 and below 1")

    causal = True  # what is to come has not been read yet
    decoder_layers = segments = position_offset = 0

    @property
    def distinct(self) -> int:
        """How many layers have weights of their own: all."""
        return self.layers

    @property
    def table(self) -> int:
        """The width of the table."""
        return self.width

    @property
    def inner(self) -> int:
        """The width of what is kept of a token while prompts are read."""
        return self.hidden or self.width

    @property
    def widths(self) -> tuple[int, ...]:
        """What comes out of each layer; of the last what words are told by."""
        return (*[self.hidden or self.width] * (self.layers - 1), self.width)

    @property
    def parameter_count(self) -> int:
        """How many weights there are."""
        below = (self.width, *self.widths)
        layers = sum(GATES[self.cell] * out * (into + out + 2) for into, out in zip(below, self.widths, strict=False))
        return layers + (1 if self.tie_embeddings else 2) * self.vocabulary * self.width + self.vocabulary

    def flops(self, mean_length: int | float, prediction_share: float) -> float:
        """Floating-point operations that training takes for one token, as `TransformerConfig.flops` counts them.

        Nothing is attended to: a token costs the same however many came before.
        """
        below = (self.width, *self.widths)
        layers = sum(GATES[self.cell] * out * (into + out) for into, out in zip(below, self.widths, strict=False))
        return 6 * (layers + prediction_share * self.vocabulary * self.width)


class Recurrent(nn.Module):
    """A vector for each token, made of those before it and of itself: what tells the next. Zaremba et al. 2014.

    Sequences are read from nothing; those that go on where another batch ended, from a state.
    """

    lm_head: nn.Linear | None

    def __init__(self, config: RecurrentConfig) -> None:
        super().__init__()
        self.config = config
        self.embedding = nn.Embedding(config.vocabulary, config.width)
        self.stack = RecurrentStack(
            config.cell,
            config.width,
            config.widths,
            input_dropout=config.input_dropout,
            layer_dropout=config.layer_dropout,
            output_dropout=config.dropout,
            weight_dropout=config.weight_dropout,
        )
        self.lm_head = None if config.tie_embeddings else nn.Linear(config.width, config.vocabulary, bias=False)
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))  # how common each word is, whatever came before

    def forward(
        self, tokens: Tokens, kernel: Any = None, *, selected: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        """The vectors of all tokens, or of the `selected` ones, each sequence from nothing. There is but one kernel."""
        vectors, _ = self._from_zero_state(tokens)
        return vectors if selected is None else vectors[selected]

    def forward_from_state(
        self, tokens: Tokens, state: Float[Tensor, "B S"]
    ) -> tuple[Float[Tensor, "T D"], Float[Tensor, "B S"]]:
        """The vectors of streams that go on from a state, and the state behind them. All have the same length.

        A stream whose first token has place nought begins here, and from nothing.
        """
        rows = self._embed(tokens.ids).view(len(tokens.bounds) - 1, tokens.max_length, -1)
        goes_on = (tokens.positions.view(len(rows), -1)[:, :1] > 0).to(state.dtype)
        with _full_precision(rows):
            vectors, after = self.stack(rows, state * goes_on)
        return vectors.flatten(0, 1), after

    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """The score of every word to come next; while a GPU trains, with filler up to a width it likes."""
        table, bias = self.output_weights
        if self.training and hidden.is_cuda:
            table, bias = pad_vocabulary(table, bias)
        return F.linear(hidden, table, bias)

    @property
    def output_weights(self) -> tuple[Float[Tensor, "V D"], Float[Tensor, "V"]]:
        """The table and the bias that words are told by."""
        return (self.embedding.weight if self.lm_head is None else self.lm_head.weight), self.bias

    def cache(
        self, sequences: int, capacity: int, beams: int = 1, dtype: torch.dtype = torch.float32
    ) -> RecurrentCache:
        """Room for what is remembered of so many sequences; it takes no more for a longer text."""
        return RecurrentCache(sequences, self.stack.state_size, beams, dtype, self.embedding.weight.device)

    def prefill(self, tokens: Tokens, cache: RecurrentCache) -> Float[Tensor, "B D"]:
        """Read prompts into an empty memory: the vectors of their last tokens, which tell what comes next."""
        vectors, state = self._from_zero_state(tokens)
        cache.prefill(state)
        return vectors[tokens.bounds[1:] - 1]

    def step(
        self, ids: Int[Tensor, "B W"], cache: RecurrentCache, parents: Int[Tensor, "B W"] | None = None
    ) -> Float[Tensor, "B W D"]:
        """Read one more token on every way of every sequence; `came` is the way that each goes on with."""
        vectors, after = self.stack.step(self.embedding(ids.flatten()), cache.gather(parents))
        cache.update(after)
        return vectors.view(*ids.shape, -1)

    def matrices(self) -> dict[str, int]:
        """What Muon may move: the matrices of the gates, which lie one above the other."""
        names = ("weight_ih_l0", "weight_hh_l0")
        layers = range(self.config.layers)
        return {f"stack.layers.{number}.{name}": GATES[self.config.cell] for number in layers for name in names}

    def _from_zero_state(self, tokens: Tokens) -> tuple[Float[Tensor, "T D"], Float[Tensor, "B S"]]:
        embedded, rows = self._embed(tokens.ids), len(tokens.bounds) - 1
        with _full_precision(embedded):
            if tokens.max_length * rows == len(embedded):
                vectors, state = self.stack(embedded.view(rows, tokens.max_length, -1))
                return vectors.flatten(0, 1), state
            lengths = tokens.bounds.diff()
            reading = packed_orders(tokens.bounds)["left_to_right"]
            assert reading.batch_sizes is not None
            order, slots = (part.to(embedded.device) for part in (reading.tokens, reading.slots))
            vectors, state = self.stack.forward_packed(embedded[order], reading.batch_sizes)
            # The longest sequence stands first; empty ones have fallen out, and remember nothing.
            places = lengths.argsort(descending=True, stable=True)[: len(state)]
            return vectors[slots], state.new_zeros(rows, state.shape[1]).index_copy(0, places, state)

    def _embed(self, ids: Int[Tensor, "T"]) -> Float[Tensor, "T D"]:
        embedded: Tensor = self.embedding(ids)
        share = self.config.embedding_dropout
        if self.training and share:
            embedded = embedded * dropout(embedded.new_ones(self.config.vocabulary, 1), share)[ids]
        return embedded


def _full_precision(like: Tensor) -> AbstractContextManager[Any]:
    """Full precision on a processor, whose half-precision recurrence not every machine has; else nothing."""
    return nullcontext() if like.is_cuda else torch.autocast("cpu", enabled=False)
