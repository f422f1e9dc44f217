"""Sequence-to-sequence LSTMs: an encoder and a decoder, with one vector between them, or with attention.

Input feeding hands the last attention vector to the next step (Luong et al. 2015, section 3.3).
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.models.counts import Counted
from bertsmith.nn.dropout import Dropout
from bertsmith.nn.init import CustomInit, ScaledEmbedding
from bertsmith.nn.padded import PaddedRows
from bertsmith.nn.rnn.attention import Source, make_attention
from bertsmith.nn.rnn.bilstm import BiLSTM, Direction
from bertsmith.nn.rnn.cache import StateCache
from bertsmith.nn.rnn.decoder import LSTMDecoder, States

Attention = Literal["none", "dot", "bilinear", "mlp"]

FORGET_BIAS = 1.0  # initial bias of forget gates, so that cells remember at first. Jozefowicz et al. 2015


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig(Counted):
    """Sizes and choices of a sequence-to-sequence LSTM. The defaults are for tens of thousands of sentences."""

    vocabulary: int = 8_192  # tokens in the tokenizer's vocabulary
    width: int = 256  # of the embeddings and of the output vectors
    hidden: int = 512  # of the LSTM states; a bidirectional encoder has half of it in each direction
    layers: int = 1  # of the encoder
    decoder_layers: int = 1
    direction: Direction = "both"  # of the encoder; Sutskever et al. 2014 reverse the source
    attention: Attention = "bilinear"  # the score function; "none": the decoder sees one vector only
    input_feeding: bool = True  # the last attention vector is an input of the next step. Luong et al. 2015, section 3.3
    tie_embeddings: bool = True  # weight tying: the output layer is the embedding table
    max_length: int = 128  # tokens of the longest sequence
    dropout: float = 0.3  # of embeddings, between layers, of the encoder's output and of the output vectors

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "hidden", "layers", "decoder_layers", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}. Give at least 1")
        if self.hidden % self.directions:
            raise ValueError(f"hidden is {self.hidden}, half of it for each direction. Give an even number")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout is {self.dropout}. Give a share, at least 0 and below 1")

    architecture: ClassVar[Literal["seq2seq"]] = "seq2seq"
    causal = False  # the encoder sees the whole source
    segments = position_offset = 0

    @property
    def directions(self) -> int:
        """In how many directions the encoder reads."""
        return 2 if self.direction == "both" else 1

    @property
    def input_feed_width(self) -> int:
        """The width of the attention vector that is fed to the next step; 0 without input feeding."""
        return self.width if self.input_feeding and self.attention != "none" else 0

    @property
    def table(self) -> int:
        """The width of the embedding table."""
        return self.width

    @property
    def distinct(self) -> int:
        """The number of encoder layers with separate weights: all."""
        return self.layers

    @property
    def inner(self) -> int:
        """The width of the keys and of the values of a source token."""
        return self.hidden

    @property
    def output_products(self) -> int:
        """Products of one prediction: those with the table."""
        return self.vocabulary * self.width

    def attention_products(self, mean_length: int | float) -> float:
        """Products of a target token with the source tokens; half of all tokens are taken to be target tokens."""
        products = {"none": 0, "dot": 2, "bilinear": 2, "mlp": 3}[self.attention]
        return products * mean_length * self.hidden / 2


class Seq2Seq(CustomInit):
    """LSTM encoder and decoder. Sutskever et al. 2014; with attention: Luong et al. 2015, "global attention".

    Attention follows the decoder's LSTMs: its context vector and their hidden state give the attentional hidden state,
    which predicts the next token and is fed to the next step.

    Departs from the papers: source and target share one embedding table; the decoder's first states are projected from
    the encoder's final states (a bridge), not copied layer by layer; and the additive score of Bahdanau et al. 2015
    takes the decoder's current state, not the one before.
    """

    def __init__(self, config: Seq2SeqConfig) -> None:
        super().__init__()
        self.config = config
        width, hidden, dropout = config.width, config.hidden, config.dropout
        self.embedding = ScaledEmbedding(config.vocabulary, width)
        self.encoder = BiLSTM(width, hidden // config.directions, config.layers, dropout, config.direction)
        self.bridge = nn.Linear(hidden, 2 * config.decoder_layers * hidden)
        self.decoder = LSTMDecoder(width, hidden, config.decoder_layers, dropout, config.input_feed_width)
        self.attention = None if config.attention == "none" else make_attention(config.attention, hidden)
        self.attentional = nn.Linear(hidden if self.attention is None else 2 * hidden, width)
        self.lm_head = None if config.tie_embeddings else nn.Linear(width, config.vocabulary, bias=False)
        self.dropout = Dropout(dropout)
        self.logit_scale = 1.0  # factor of logits with weight tying, as in EncoderDecoder

    def init_weights(self, generator: torch.Generator) -> None:
        """Uniform matrices as torch's default, and forget gates that begin open."""
        for part in self.modules():
            if isinstance(part, nn.Linear):
                part.weight.uniform_(-(part.in_features**-0.5), part.in_features**-0.5, generator=generator)
            if isinstance(part, nn.LSTM):
                input_weight, recurrent_weight, bias, _ = part.parameters()  # in torch's order
                for matrix in (input_weight, recurrent_weight):
                    matrix.uniform_(-(part.hidden_size**-0.5), part.hidden_size**-0.5, generator=generator)
                bias[part.hidden_size : 2 * part.hidden_size] = FORGET_BIAS

    def forward(
        self, tokens: Tokens, target_tokens: Tokens, *, selected: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        """The decoder's output vectors, which predict the next tokens: at all positions, or at the `selected` ones."""
        vectors, _, rows = self._decode(tokens, target_tokens)
        slots = rows.slots if selected is None else rows.slots[selected]
        outputs: Tensor = self.dropout(vectors.flatten(0, 1).index_select(0, slots))
        return outputs

    @torch.no_grad()
    def alignment(self, tokens: Tokens, target_tokens: Tokens) -> list[Float[Tensor, "_ _"]] | None:
        """Attention weights by text: target tokens x source tokens; None without attention."""
        _, maps, _ = self._decode(tokens, target_tokens)
        sizes = zip(target_tokens.bounds.diff().tolist(), tokens.bounds.diff().tolist(), strict=True)
        return (
            None if maps is None else [one[:rows, :columns] for one, (rows, columns) in zip(maps, sizes, strict=True)]
        )

    def cache(self, sequences: int, capacity: int, beams: int = 1, dtype: torch.dtype = torch.float32) -> StateCache:
        """An empty cache of decoder states; its size does not depend on `capacity`, the number of tokens."""
        return StateCache(sequences, sum(self._state_sizes), beams, dtype, self.embedding.weight.device)

    def prefill(self, tokens: Tokens, cache: StateCache, target_tokens: Tokens) -> Float[Tensor, "B D"]:
        """Encode texts, and read the first target tokens, equally many of each: the vectors that predict the next."""
        cache.source, states = self._encode(tokens)
        cache.weights = self.decoder.step_weights()
        ids = target_tokens.ids.view(len(target_tokens.bounds) - 1, -1)
        output = states[0][0].new_zeros(len(ids), self.config.width)
        state = _side_by_side(states, output)
        for position in range(ids.shape[1]):
            output, state = self._decode_step(ids[:, position : position + 1], state, cache)
        cache.update(state)
        return output

    def step(self, ids: Int[Tensor, "B W"], cache: StateCache) -> Float[Tensor, "B W D"]:
        """Read one more target token of every beam: the vectors that predict the next ones."""
        output, state = self._decode_step(ids, cache.states.flatten(0, 1), cache)
        cache.update(state)
        return output.view(*ids.shape, -1)

    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """The logits of the next token."""
        return F.linear(hidden, self.embedding.weight if self.lm_head is None else self.lm_head.weight)

    def matrices(self) -> dict[str, int]:
        """The names of all matrices inside the layers, and how many matrices (one per gate) are stacked in each."""
        parts = {"encoder": self.encoder, "decoder": self.decoder}
        return {
            f"{name}.{one}": 4
            for name, part in parts.items()
            for one, parameter in part.named_parameters()
            if parameter.ndim == 2
        }

    def _encode(self, tokens: Tokens) -> tuple[Source | None, States]:
        """The encoder's output for attention, and the decoder's first states."""
        hidden = self.encoder(self.dropout(self.embedding(tokens.ids)), tokens.bounds, tokens.max_length)
        firsts, lasts = tokens.bounds[:-1].clamp(max=len(hidden) - 1), (tokens.bounds[1:] - 1).clamp(min=0)
        half = self.config.hidden // self.config.directions
        ends = {"left_to_right": (hidden[:, :half], lasts), "right_to_left": (hidden[:, -half:], firsts)}
        final = torch.cat([ends[end][0].index_select(0, ends[end][1]) for end in self.encoder.directions], -1)  # B K
        parts = self.bridge(final).chunk(2 * self.config.decoder_layers, -1)
        states = [(state.tanh(), cell) for state, cell in zip(parts[::2], parts[1::2], strict=True)]
        if self.attention is None:
            return None, states
        rows = PaddedRows.of(tokens.bounds, _longest(tokens), len(tokens.ids))
        return self.attention.make_source(self.dropout(hidden), rows), states

    def _decode(self, tokens: Tokens, target_tokens: Tokens) -> tuple[Tensor, Tensor | None, PaddedRows]:
        """The attentional hidden states of padded rows, their attention weights, and the rows."""
        source, states = self._encode(tokens)
        rows = PaddedRows.of(target_tokens.bounds, _longest(target_tokens), len(target_tokens.ids))
        words = self.dropout(self.embedding(target_tokens.ids))[rows.tokens]  # B L E
        if not self.config.input_feed_width:
            return *self._attentional_hidden(self.decoder(words, states), source), rows
        step_weights = self.decoder.step_weights()
        states = [(state, cell.float()) for state, cell in states]  # cells are sums over all steps: full precision
        output = words.new_zeros(len(words), 1, self.config.width)
        outputs, attention_weights = list[Tensor](), list[Tensor]()
        for gates in self.decoder.input_gates(words, step_weights).unbind(1):
            hidden, states = self.decoder.step(gates, output[:, 0], states, step_weights)
            output, weights = self._attentional_hidden(hidden[:, None], source)
            assert weights is not None  # there is no input feeding without attention
            outputs.append(output)
            attention_weights.append(weights)
        return torch.cat(outputs, 1), torch.cat(attention_weights, 1), rows

    @property
    def _state_sizes(self) -> list[int]:
        """The parts of a state in generation: each layer's hidden and cell state, and the last attention vector."""
        return [self.config.hidden] * 2 * self.config.decoder_layers + [self.config.width]

    def _decode_step(
        self, ids: Int[Tensor, "B W"], state: Float[Tensor, "N S"], cache: StateCache
    ) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N S"]]:
        """One more token of every beam, for generation, without dropout: the output vectors and the new states."""
        assert cache.weights is not None
        *parts, last_output = torch.split(state, self._state_sizes, 1)
        gates = self.decoder.input_gates(self.embedding(ids.flatten()), cache.weights)
        input_feed = last_output if self.config.input_feed_width else None
        states = list(zip(parts[::2], parts[1::2], strict=True))
        hidden, states = self.decoder.step(gates, input_feed, states, cache.weights)
        output, _ = self._attentional_hidden(hidden.view(*ids.shape, -1), cache.source)
        output = output.flatten(0, 1)
        return output, _side_by_side(states, output)

    def _attentional_hidden(
        self, hidden: Float[Tensor, "B L K"], source: Source | None
    ) -> tuple[Float[Tensor, "B L D"], Float[Tensor, "B L M"] | None]:
        """tanh(W [context; hidden]), Luong et al. 2015, equation 5, and the attention weights."""
        if self.attention is None:
            return self.attentional(hidden).tanh(), None
        context, weights = self.attention(hidden, source)
        return self.attentional(torch.cat((context, hidden), -1)).tanh(), weights


def _side_by_side(states: States, output: Float[Tensor, "N D"]) -> Float[Tensor, "N S"]:
    """The states of all layers and the output of a step as one vector."""
    return torch.cat([part for layer in states for part in layer] + [output], 1)


def _longest(tokens: Tokens) -> int:
    """The length of padded rows. On a GPU it is the upper bound, since the exact one would need a synchronisation."""
    return tokens.max_length if tokens.bounds.is_cuda else int(tokens.bounds.diff().max())
