"""ELMo: a character CNN for words, and two LSTM stacks: a forward and a backward language model."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from jaxtyping import Float, Int, Int16
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.models.counts import Counted
from bertsmith.nn.dropout import Dropout
from bertsmith.nn.init import CustomInit
from bertsmith.nn.rnn.bilstm import reading_orders
from bertsmith.nn.rnn.char_cnn import PADDING, CharCNN, Highway
from bertsmith.nn.rnn.projected_lstm import ProjectedLSTM

DIRECTIONS = ("left_to_right", "right_to_left")
GAIN = 3.0  # of projections: at initialisation, outputs of filters and cells are about a third of one
CARRY_BIAS = 2.0  # initial bias of a highway's gate: most of the vector is carried through unchanged
FILTER_BIAS = -0.8  # initial bias of a filter: it responds only to what fits it well, so that words differ


@dataclass(frozen=True, kw_only=True)
class ElmoConfig(Counted):
    """Sizes of an ELMo. The defaults are the published original."""

    vocabulary: int = 793_471  # words of the vocabulary that it predicts
    max_characters: int = 50  # of a word, with its begin and end markers
    character_width: int = 16  # of the character embeddings
    filters: tuple[int, ...] = (32, 32, 64, 128, 256, 512, 1024)  # convolution filters of width 1, 2, 3 ...
    highway_layers: int = 2
    hidden: int = 4096  # cells of each LSTM
    width: int = 1024  # of a word's vector, both directions together
    layers: int = 2
    max_length: int = 512  # words of the longest sequence
    dropout: float = 0.1  # of each LSTM's input, and of the last layer's output

    def __post_init__(self) -> None:
        for name in ("vocabulary", "character_width", "hidden", "width", "layers", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}. Give at least 1")
        if self.highway_layers < 0:
            raise ValueError(f"highway_layers is {self.highway_layers}. Give at least 0")
        if not sum(self.filters) or min(self.filters) < 0:
            raise ValueError(f"filters are {list(self.filters)}. Give how many of width 1, of width 2, and so on")
        least = max(3, len(self.filters))
        if self.max_characters < least:
            raise ValueError(f"words of {self.max_characters} characters are too short. Give at least {least}")
        if self.width % 2:
            raise ValueError(f"a width of {self.width} cannot be shared by two directions. Take an even one")
        if self.direction >= self.hidden:
            fact = f"{self.hidden} cells cannot be projected to {self.direction} numbers in each direction"
            raise ValueError(f"{fact}. Raise hidden, or lower width")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout is {self.dropout}. Give a share, at least 0 and below 1")

    architecture: ClassVar[Literal["elmo"]] = "elmo"
    causal = False  # each direction is causal, both together are not
    decoder_layers = segments = position_offset = 0

    @property
    def distinct(self) -> int:
        """The number of layers with separate weights: all."""
        return self.layers

    @property
    def direction(self) -> int:
        """The width of one direction."""
        return self.width // 2

    @property
    def parameter_count(self) -> int:
        """Parameters as the paper counts them: without the output layer, and with one bias for each gate, not two."""
        return super().parameter_count - 2 * self.layers * 4 * self.hidden

    @property
    def output_products(self) -> int:
        """Products of one prediction, by one of the directions."""
        return self.vocabulary * self.direction


class Elmo(CustomInit):
    """Contextual word vectors of a bidirectional language model over characters. Peters et al. 2018.

    The two directions share the character CNN, and nothing else. From the second layer on there is a residual
    connection around each LSTM. Departs from the paper's code: cells are not clipped at three; every sequence starts
    from the zero state, not from where the last one ended; and in training a rare word has the characters of the
    unknown word, since characters are looked up by id where `Tokens.character_ids` does not give them.
    """

    character_ids: Tensor

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        width = config.direction
        self.char_cnn = CharCNN(config.character_width, config.filters, config.highway_layers, width)
        sizes = width, config.hidden, width
        self.lstms = nn.ModuleDict(
            {end: nn.ModuleList(ProjectedLSTM(*sizes) for _ in range(config.layers)) for end in DIRECTIONS}
        )
        self.dropout = Dropout(config.dropout)
        unknown = torch.full((config.vocabulary, config.max_characters), PADDING, dtype=torch.int16)
        self.register_buffer("character_ids", unknown)

    @property
    def embedding(self) -> nn.Embedding:
        """The table of character embeddings."""
        return self.char_cnn.embedding

    def init_weights(self, generator: torch.Generator) -> None:
        """Matrices that preserve the variance, character embeddings about one, forget gates open."""
        for parameter in self.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, parameter[0].numel() ** -0.5, generator=generator)
            else:
                parameter.zero_()
        self.embedding.weight.uniform_(-1.0, 1.0, generator=generator)
        self.char_cnn.dense.weight.mul_(GAIN)
        for part in self.modules():
            match part:
                case Highway():
                    part.dense.bias[len(part.dense.bias) // 2 :] = CARRY_BIAS
                case nn.Conv1d(bias=Tensor() as bias):
                    bias.fill_(FILTER_BIAS)
                case ProjectedLSTM():  # Jozefowicz et al. 2015: forget gates begin open
                    _, _, bias, _, projection = part.parameters()
                    bias[part.hidden_size : 2 * part.hidden_size] = 1.0
                    projection.mul_(GAIN)

    def set_characters(self, table: Int16[Tensor, "V C"]) -> None:
        """Set the characters of every word of the vocabulary."""
        self.character_ids.copy_(table)

    def forward(self, tokens: Tokens, *, selected: Int[Tensor, "N"] | None = None) -> Float[Tensor, "_ D"]:
        """The last layer's vectors: first those of the forward LSTM, then those of the backward LSTM."""
        vectors: Tensor = self.dropout(self.hidden_states(tokens)[-1])
        return vectors if selected is None else vectors.index_select(0, selected)

    def hidden_states(self, tokens: Tokens) -> list[Float[Tensor, "T D"]]:
        """The vectors of the character CNN, once for each direction, and those after every layer."""
        words = self.embed_words(tokens)
        orders = reading_orders(tokens.bounds, tokens.max_length, words)
        states = []
        for direction in DIRECTIONS:
            layers = [words]
            for number, lstm in enumerate(self.lstms[direction].children()):
                inputs = self.dropout(layers[-1])
                outputs = orders[direction].run(lstm, inputs)
                layers.append(outputs + inputs if number else outputs)
            states.append(layers)
        return [torch.cat(both, -1) for both in zip(*states, strict=True)]

    def embed_words(self, tokens: Tokens) -> Float[Tensor, "T K"]:
        """Word vectors of the character CNN, without context. A CPU computes each distinct word once."""
        characters, ids = tokens.character_ids, tokens.ids
        if ids.is_cuda:
            return self._embed_characters(self.character_ids.index_select(0, ids) if characters is None else characters)
        if characters is None:
            distinct, inverse = torch.unique(ids, return_inverse=True)
            characters = self.character_ids.index_select(0, distinct)
        else:
            characters, inverse = torch.unique(characters, dim=0, return_inverse=True)
        return self._embed_characters(characters).index_select(0, inverse)

    def _embed_characters(self, characters: Int[Tensor, "N C"]) -> Float[Tensor, "N K"]:
        vectors: Tensor = self.char_cnn(characters)
        return vectors

    def matrices(self) -> dict[str, int]:
        """None for Muon: an LSTM's matrices hold four gates, and many others are of the character CNN."""
        return {}
