"""Recurrent language models (RNN, LSTM, GRU): one hidden state stands for all earlier tokens. Mikolov et al. 2010."""

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.models.counts import Counted
from bertsmith.nn.dropout import dropout
from bertsmith.nn.heads import pad_vocabulary
from bertsmith.nn.rnn.bilstm import packed_orders, reading_orders
from bertsmith.nn.rnn.cache import StateCache
from bertsmith.nn.rnn.cells import GATES, Cell
from bertsmith.nn.rnn.stack import RecurrentStack


@dataclass(frozen=True, kw_only=True)
class RecurrentConfig(Counted):
    """Sizes and dropout of a recurrent network. The defaults: the large LSTM of Zaremba et al. 2014 without dropout."""

    vocabulary: int = 10_000
    cell: Cell = "lstm"
    width: int = 1500  # of the embeddings and of the last layer's output
    hidden: int = 0  # width of the other layers; 0: the same
    layers: int = 2
    tie_embeddings: bool = False  # weight tying: the output layer is the embedding table
    max_length: int = 16_384  # tokens of an input at most; the network itself has no limit
    # Dropout in the order of the forward pass: Merity et al. 2017, section 4.
    embedding_dropout: float = 0.0  # of whole words of the vocabulary, wherever they stand in the batch
    input_dropout: float = 0.0  # of the embeddings
    weight_dropout: float = 0.0  # of the recurrent weights (DropConnect)
    layer_dropout: float = 0.0  # between layers
    dropout: float = 0.0  # of the last layer's output

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "layers", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}. Give at least 1")
        if self.hidden < 0:
            raise ValueError(f"hidden is {self.hidden}. Give a width, or 0 for that of the embeddings")
        for name in ("embedding_dropout", "input_dropout", "weight_dropout", "layer_dropout", "dropout"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}. Give a share, at least 0 and below 1")

    architecture: ClassVar[Literal["recurrent"]] = "recurrent"
    causal = True
    decoder_layers = segments = position_offset = 0

    @property
    def distinct(self) -> int:
        """The number of layers with separate weights: all."""
        return self.layers

    @property
    def table(self) -> int:
        """The width of the embedding table."""
        return self.width

    @property
    def inner(self) -> int:
        """The width of a layer's state."""
        return self.hidden or self.width

    @property
    def widths(self) -> tuple[int, ...]:
        """The output width of each layer."""
        return (*[self.hidden or self.width] * (self.layers - 1), self.width)

    @property
    def output_products(self) -> int:
        """Products of one prediction: those with the table."""
        return self.vocabulary * self.width


class Recurrent(nn.Module):
    """Embeddings, a stack of recurrent layers and an output layer: predicts the next token. Zaremba et al. 2014.

    A sequence starts from the zero state; a stream that continues one of the last batch, from its final state.
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
        self.bias = nn.Parameter(torch.zeros(config.vocabulary))  # of the logits: learns how frequent each word is

    def forward(
        self, tokens: Tokens, kernel: Any = None, *, selected: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        """The hidden vectors of all tokens, or of the `selected` ones, from the zero state. `kernel` is not used."""
        vectors, _ = self._from_zero_state(tokens)
        return vectors if selected is None else vectors[selected]

    def hidden_states(self, tokens: Tokens) -> list[Float[Tensor, "T _"]]:
        """The embeddings and every layer's output, from the zero state and without dropout."""
        states = [self.embedding(tokens.ids)]
        order = reading_orders(tokens.bounds, tokens.max_length, states[0])["left_to_right"]
        with _full_precision(states[0]):
            for layer in self.stack.layers:
                states.append(order.run(layer, states[-1]))
        return states

    def forward_from_state(
        self, tokens: Tokens, state: Float[Tensor, "B S"]
    ) -> tuple[Float[Tensor, "T D"], Float[Tensor, "B S"]]:
        """The hidden vectors of streams of equal length that continue from a state, and their final state.

        A stream whose first token has position 0 begins here, from the zero state.
        """
        rows = self._embed(tokens.ids).view(len(tokens.bounds) - 1, tokens.max_length, -1)
        continues = (tokens.positions.view(len(rows), -1)[:, :1] > 0).to(state.dtype)
        with _full_precision(rows):
            vectors, final_state = self.stack(rows, state * continues)
        return vectors.flatten(0, 1), final_state

    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """The logits of the next token; in training on a GPU the vocabulary is padded to a multiple that is fast."""
        table, bias = self.output_weights
        if self.training and hidden.is_cuda:
            table, bias = pad_vocabulary(table, bias)
        return F.linear(hidden, table, bias)

    @property
    def output_weights(self) -> tuple[Float[Tensor, "V D"], Float[Tensor, "V"]]:
        """The weight and the bias of the output layer."""
        return (self.embedding.weight if self.lm_head is None else self.lm_head.weight), self.bias

    def cache(self, sequences: int, capacity: int, beams: int = 1, dtype: torch.dtype = torch.float32) -> StateCache:
        """An empty cache of recurrent states; its size does not depend on `capacity`, the number of tokens."""
        return StateCache(sequences, self.stack.state_size, beams, dtype, self.embedding.weight.device)

    def prefill(self, tokens: Tokens, cache: StateCache) -> Float[Tensor, "B D"]:
        """Read prompts into an empty cache: the hidden vectors of their last tokens, which predict the next ones."""
        vectors, state = self._from_zero_state(tokens)
        cache.update(state)
        return vectors[tokens.bounds[1:] - 1]

    def step(self, ids: Int[Tensor, "B W"], cache: StateCache) -> Float[Tensor, "B W D"]:
        """Read one more token of every beam: the hidden vectors that predict the next ones."""
        vectors, state = self.stack.step(self.embedding(ids.flatten()), cache.states.flatten(0, 1))
        cache.update(state)
        return vectors.view(*ids.shape, -1)

    def matrices(self) -> dict[str, int]:
        """The matrices that Muon may train, and how many matrices (one per gate) are stacked in each."""
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
            packed = packed_orders(tokens.bounds)["left_to_right"]
            assert packed.batch_sizes is not None
            order, slots = (part.to(embedded.device) for part in (packed.tokens, packed.slots))
            vectors, state = self.stack.forward_packed(embedded[order], packed.batch_sizes)
            # Packed rows are sorted by length, the longest first, without empty sequences, whose state stays zero.
            sequences = lengths.argsort(descending=True, stable=True)[: len(state)]
            return vectors[slots], state.new_zeros(rows, state.shape[1]).index_copy(0, sequences, state)

    def _embed(self, ids: Int[Tensor, "T"]) -> Float[Tensor, "T D"]:
        embedded: Tensor = self.embedding(ids)
        share = self.config.embedding_dropout
        if self.training and share:
            embedded = embedded * dropout(embedded.new_ones(self.config.vocabulary, 1), share)[ids]
        return embedded


def _full_precision(like: Tensor) -> AbstractContextManager[Any]:
    """No autocast on a CPU, where recurrence in half precision is not always available."""
    return nullcontext() if like.is_cuda else torch.autocast("cpu", enabled=False)
