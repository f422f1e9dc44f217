"""Sequence-to-sequence LSTMs: an encoder and a decoder, with one vector between them or with attention.

Input feeding hands the last attention vector to the next step (Luong et al. 2015, section 3.3).
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.nn.dropout import Dropout
from bertsmith.nn.init import CustomInit, ScaledEmbedding
from bertsmith.nn.padded import PaddedRows
from bertsmith.nn.rnn.attention import Source, make_attention
from bertsmith.nn.rnn.bilstm import BiLSTM, Direction
from bertsmith.nn.rnn.decoder import LSTMDecoder, States, StepWeights
from bertsmith.nn.rnn.decoder_cache import DecoderCache

Attention = Literal["none", "dot", "bilinear", "mlp"]

FORGET_BIAS = 1.0  # what a forget gate's bias begins with, so that cells keep at first. Jozefowicz et al. 2015


@dataclass(frozen=True, kw_only=True)
class Seq2SeqConfig:
    """How large the network is, and how it looks at what was read. As it stands: for tens of thousands of sentences."""

    vocabulary: int = 8_192  # pieces the tokenizer knows
    width: int = 256  # of the table's vectors, and of those that come out
    hidden: int = 512  # of what an LSTM says; of one that reads from both ends, half of it from either
    layers: int = 1  # that read
    decoder_layers: int = 1  # that write
    direction: Direction = "both"  # in which a text is read; from its last word on in Sutskever et al. 2014
    attention: Attention = "bilinear"  # how words that were read are scored; "none": all from one vector
    input_feeding: bool = True  # each token is told where the one before has looked. Luong et al. 2015, section 3.3
    tie_embeddings: bool = True  # words are told by the table that they are read by
    max_length: int = 128  # most tokens in a sequence
    dropout: float = 0.3  # of the table's vectors, between layers, of what was read and of what comes out

    def __post_init__(self) -> None:
        for name in ("vocabulary", "width", "hidden", "layers", "decoder_layers", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}. Give at least 1")
        if self.hidden % self.directions:
            raise ValueError(f"hidden is {self.hidden}, half of it from either end. Give an even number")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout is {self.dropout}. Give a share, at least 0 and below 1")

    causal = False  # what is read is seen as a whole
    segments = position_offset = 0

    @property
    def directions(self) -> int:
        """From how many ends a text is read."""
        return 2 if self.direction == "both" else 1

    @property
    def input_feed_width(self) -> int:
        """The width of what each token is told by the one before."""
        return self.width if self.input_feeding and self.attention != "none" else 0

    @property
    def table(self) -> int:
        """The width of the table."""
        return self.width

    @property
    def distinct(self) -> int:
        """How many layers that read have weights of their own: all."""
        return self.layers

    @property
    def inner(self) -> int:
        """The width of what is kept of each token that was read, once as key and once as value."""
        return self.hidden

    @property
    def parameter_count(self) -> int:
        """The number of weights."""
        biases = 8 * self.hidden * (self.layers + self.decoder_layers)
        looks = {"none": 0, "dot": 0, "bilinear": self.hidden**2, "mlp": 2 * self.hidden**2 + 2 * self.hidden}
        tables = (1 if self.tie_embeddings else 2) * self.vocabulary * self.width
        bridge = 2 * self.decoder_layers * self.hidden * (self.hidden + 1)
        return (
            tables
            + biases
            + bridge
            + looks[self.attention]
            + self._encoder_weights
            + self._decoder_weights
            + self.width
        )

    @property
    def _encoder_weights(self) -> int:
        """Weights in the matrices that each token goes through that is read."""
        below = self.width + (self.layers - 1) * self.hidden
        return 4 * self.hidden * (below + self.layers * self.hidden // self.directions)

    @property
    def _decoder_weights(self) -> int:
        """And each that is written."""
        below = self.width + self.input_feed_width + (self.decoder_layers - 1) * self.hidden
        mixed = self.width * self.hidden * (1 if self.attention == "none" else 2)
        return 4 * self.hidden * (below + self.decoder_layers * self.hidden) + mixed

    def flops(self, mean_length: int | float, prediction_share: float) -> float:
        """Floating-point operations that training takes for one token, forwards and backwards, as papers count them.

        Of all tokens half are taken to be read and half to be written. `attended` is the mean length of a text,
        sum(length^2) / sum(length); `chosen` the share of tokens that are guessed from the whole vocabulary.
        """
        looks = {"none": 0.0, "dot": 0.0, "bilinear": self.hidden**2, "mlp": 2 * self.hidden**2}[self.attention]
        rows = 0 if self.attention == "none" else (3 if self.attention == "mlp" else 2) * mean_length * self.hidden
        return (
            3 * (self._encoder_weights + self._decoder_weights + looks + rows)
            + 6 * prediction_share * self.vocabulary * self.width
        )


class Seq2Seq(CustomInit):
    """Any text to any text, by LSTMs alone. Sutskever et al. 2014; with attention Luong et al. 2015, "global".

    A layer that looks comes behind the LSTMs that write: what it takes is mixed with what they say, and the mixture
    tells the word and is fed to the next token.

    Departs from the papers: one table for both texts; the first states of the LSTMs that write are mapped from what
    those that read say at the ends of the text (a bridge), and are not copied layer by layer; and the network of
    Bahdanau et al. 2015 scores what is said now, and not what was said before.
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
        self.logit_scale = 1.0  # what a tied table's scores are multiplied by

    def init_weights(self, generator: torch.Generator) -> None:
        """Matrices as torch begins them, small enough that states neither grow nor die; and cells that keep."""
        for part in self.modules():
            if isinstance(part, nn.Linear):
                part.weight.uniform_(-(part.in_features**-0.5), part.in_features**-0.5, generator=generator)
            if isinstance(part, nn.LSTM):
                below, own, bias, _ = part.parameters()  # in torch's order
                for matrix in (below, own):
                    matrix.uniform_(-(part.hidden_size**-0.5), part.hidden_size**-0.5, generator=generator)
                bias[part.hidden_size : 2 * part.hidden_size] = FORGET_BIAS

    def forward(
        self, tokens: Tokens, target_tokens: Tokens, *, selected: Int[Tensor, "N"] | None = None
    ) -> Float[Tensor, "_ D"]:
        """The vectors that tell what comes after each token written, or after the `selected` ones."""
        vectors, _, rows = self._decode(tokens, target_tokens)
        slots = rows.slots if selected is None else rows.slots[selected]
        chosen: Tensor = self.dropout(vectors.flatten(0, 1).index_select(0, slots))
        return chosen

    @torch.no_grad()
    def alignment(self, tokens: Tokens, target_tokens: Tokens) -> list[Float[Tensor, "_ _"]] | None:
        """Of each text how much each token written (row) took from each that was read (column); None: none can look."""
        _, looks, _ = self._decode(tokens, target_tokens)
        sizes = zip(target_tokens.bounds.diff().tolist(), tokens.bounds.diff().tolist(), strict=True)
        return None if looks is None else [one[:long, :wide] for one, (long, wide) in zip(looks, sizes, strict=True)]

    def cache(self, sequences: int, capacity: int, beams: int = 1, dtype: torch.dtype = torch.float32) -> DecoderCache:
        """What is carried from token to token, of so many sequences, however long they become."""
        config, device = self.config, self.embedding.weight.device
        return DecoderCache(config.decoder_layers, sequences, beams, config.hidden, config.width, dtype, device)

    def prefill(self, tokens: Tokens, cache: DecoderCache, target_tokens: Tokens) -> Float[Tensor, "B D"]:
        """Read texts, and what is written already, as much for each: the vectors that tell what comes next."""
        cache.source, states = self._encode(tokens)
        cache.weights = self.decoder.step_weights()
        ids = target_tokens.ids.view(len(target_tokens.bounds) - 1, -1)
        said = states[0][0].new_zeros(len(ids), self.config.width)
        for place in range(ids.shape[1]):
            said, states = self._decode_step(
                ids[:, place : place + 1], said[:, None], states, cache.source, cache.weights
            )
        cache.prefill(states, said)
        return said

    def step(
        self, ids: Int[Tensor, "B W"], cache: DecoderCache, parents: Int[Tensor, "B W"] | None = None
    ) -> Float[Tensor, "B W D"]:
        """Write one more token on every way of every sequence; `came` is the way that each goes on with."""
        assert cache.weights is not None
        fed, states = cache.gather(parents)
        said, states = self._decode_step(ids, fed, states, cache.source, cache.weights)
        cache.update(states, said)
        return said.view(*ids.shape, -1)

    def logits(self, hidden: Float[Tensor, "N D"]) -> Float[Tensor, "N V"]:
        """The score of every word to come next."""
        return F.linear(hidden, self.embedding.weight if self.lm_head is None else self.lm_head.weight)

    def matrices(self) -> dict[str, int]:
        """The names of all matrices inside the layers, and how many each is made of, one above the other."""
        parts = {"encoder": self.encoder, "decoder": self.decoder}
        return {
            f"{name}.{one}": 4
            for name, part in parts.items()
            for one, parameter in part.named_parameters()
            if parameter.ndim == 2
        }

    def _encode(self, tokens: Tokens) -> tuple[Source | None, States]:
        """What is made of texts: vectors to look at, and the states to begin writing with."""
        hidden = self.encoder(self.dropout(self.embedding(tokens.ids)), tokens.bounds, tokens.max_length)
        firsts, lasts = tokens.bounds[:-1].clamp(max=len(hidden) - 1), (tokens.bounds[1:] - 1).clamp(min=0)
        half = self.config.hidden // self.config.directions
        ends = {"left_to_right": (hidden[:, :half], lasts), "right_to_left": (hidden[:, -half:], firsts)}
        whole = torch.cat([ends[end][0].index_select(0, ends[end][1]) for end in self.encoder.directions], -1)  # B K
        parts = self.bridge(whole).chunk(2 * self.config.decoder_layers, -1)
        states = [(said.tanh(), kept) for said, kept in zip(parts[::2], parts[1::2], strict=True)]
        if self.attention is None:
            return None, states
        rows = PaddedRows.of(tokens.bounds, _longest(tokens), len(tokens.ids))
        return self.attention.make_source(self.dropout(hidden), rows), states

    def _decode(self, tokens: Tokens, target_tokens: Tokens) -> tuple[Tensor, Tensor | None, PaddedRows]:
        """What is said behind each token of each row, and from where it was taken."""
        source, states = self._encode(tokens)
        rows = PaddedRows.of(target_tokens.bounds, _longest(target_tokens), len(target_tokens.ids))
        words = self.dropout(self.embedding(target_tokens.ids))[rows.tokens]  # B L E
        if not self.config.input_feed_width:
            return *self._attentional_hidden(self.decoder(words, states), source), rows
        gates = self.decoder.step_weights()
        states = [(said, kept.float()) for said, kept in states]  # what is kept is added to at every token
        said = words.new_zeros(len(words), 1, self.config.width)
        vectors, looks = list[Tensor](), list[Tensor]()
        for told in self.decoder.input_gates(words, gates).unbind(1):
            hidden, states = self.decoder.step(told, said[:, 0], states, gates)
            said, weights = self._attentional_hidden(hidden[:, None], source)
            assert weights is not None  # what looks at nothing is fed nothing
            vectors.append(said)
            looks.append(weights)
        return torch.cat(vectors, 1), torch.cat(looks, 1), rows

    def _decode_step(
        self,
        ids: Int[Tensor, "B W"],
        input_feed: Float[Tensor, "B W D"],
        states: States,
        source: Source | None,
        weights: StepWeights,
    ) -> tuple[Float[Tensor, "_ D"], States]:
        """One more token on every way, none of which is learnt from."""
        told = self.decoder.input_gates(self.embedding(ids.flatten()), weights)
        hidden, states = self.decoder.step(
            told, input_feed.flatten(0, 1) if self.config.input_feed_width else None, states, weights
        )
        said, _ = self._attentional_hidden(hidden.view(*ids.shape, -1), source)
        return said.flatten(0, 1), states

    def _attentional_hidden(
        self, hidden: Float[Tensor, "B L K"], source: Source | None
    ) -> tuple[Float[Tensor, "B L D"], Float[Tensor, "B L M"] | None]:
        """What the LSTMs say, mixed with what is taken from the text that was read; and from where it is taken."""
        if self.attention is None:
            return self.attentional(hidden).tanh(), None
        taken, weights = self.attention(hidden, source)
        return self.attentional(torch.cat((taken, hidden), -1)).tanh(), weights


def _longest(tokens: Tokens) -> int:
    """How long rows must be. A GPU is not asked, which would have to be waited for."""
    return tokens.max_length if tokens.bounds.is_cuda else int(tokens.bounds.diff().max())
