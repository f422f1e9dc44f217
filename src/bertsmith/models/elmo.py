"""ELMo: two stacks of LSTMs over words made of letters, of which one reads onward and the other backward."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int, Int16
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.nn.dropout import Dropout
from bertsmith.nn.init import CustomInit
from bertsmith.nn.rnn.bilstm import reading_orders
from bertsmith.nn.rnn.char_cnn import PADDING, CharCNN, Highway
from bertsmith.nn.rnn.projected_lstm import ProjectedLSTM

DIRECTIONS = ("left_to_right", "right_to_left")
GAIN = 3.0  # what filters notice at first, and what cells show, is about a third of one
CARRY_BIAS = 2.0  # with this bias a highway lets most of a vector go on as it is
FILTER_BIAS = -0.8  # with this bias a filter notices only what fits it well, so that words differ


@dataclass(frozen=True, kw_only=True)
class ElmoConfig:
    """How large the network is. As it stands: the one that was published."""

    vocabulary: int = 793_471  # words of the vocabulary that it predicts
    max_characters: int = 50  # of a word at most, the marks round it included
    character_width: int = 16  # width of the vector that stands for a letter
    filters: tuple[int, ...] = (32, 32, 64, 128, 256, 512, 1024)  # for one letter, for two, for three ...
    highway_layers: int = 2
    hidden: int = 4096  # cells of each LSTM
    width: int = 1024  # of the vector that stands for a word, read from both ends
    layers: int = 2
    max_length: int = 512  # most words in a sequence
    dropout: float = 0.1  # of what each LSTM reads, and of what the last ones say

    def __post_init__(self) -> None:
        for name in ("vocabulary", "character_width", "hidden", "width", "layers", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}. Give at least 1")
        if self.highway_layers < 0:
            raise ValueError(f"highway_layers is {self.highway_layers}. Give at least 0")
        if not sum(self.filters) or min(self.filters) < 0:
            raise ValueError(f"filters are {list(self.filters)}. Give how many for one letter, for two, and so on")
        least = max(3, len(self.filters))
        if self.max_characters < least:
            raise ValueError(f"words of {self.max_characters} letters are too short. Give at least {least}")
        if self.width % 2:
            raise ValueError(f"a width of {self.width} cannot be shared by two directions. Take an even one")
        if self.direction >= self.hidden:
            fact = f"{self.hidden} cells cannot be made {self.direction} numbers in each direction"
            raise ValueError(f"{fact}. Raise hidden, or lower width")
        if not 0.0 <= self.dropout < 1.0:
            raise ValueError(f"dropout is {self.dropout}. Give a share, at least 0 and below 1")

    causal = False  # each direction is, but both together know what is to come
    decoder_layers = segments = position_offset = 0

    @property
    def distinct(self) -> int:
        """How many layers have weights of their own: all."""
        return self.layers

    @property
    def direction(self) -> int:
        """The width of what is read from one end."""
        return self.width // 2

    @property
    def parameter_count(self) -> int:
        """Parameters as they were published: without the table that tells words, and with one bias for each gate."""
        F, P, H = sum(self.filters), self.direction, self.hidden
        letters = (PADDING + 1) * self.character_width + self._filter_products(1) + F
        upwards = self.highway_layers * (F * 2 * F + 2 * F) + F * P + P
        return letters + upwards + 2 * self.layers * (self._cell + 4 * H)

    @property
    def _cell(self) -> int:
        """The numbers of one LSTM's matrices."""
        return 9 * self.direction * self.hidden

    def _filter_products(self, positions: int) -> int:
        """Products of all filters, each at so many places."""
        return positions * self.character_width * sum(size * count for size, count in enumerate(self.filters, 1))

    def flops(self, mean_length: int | float, prediction_share: float) -> float:
        """Floating-point operations that training takes for one word, forwards and backwards, as papers count them.

        Every word's letters are counted, although a CPU reads those of each different word of a batch once. `chosen` is
        how many words are guessed from the whole vocabulary, for each that is read.
        """
        F, P = sum(self.filters), self.direction
        words = self._filter_products(self.max_characters) + self.highway_layers * 2 * F * F + F * P
        return 6 * (words + 2 * self.layers * self._cell + prediction_share * self.vocabulary * P)


class Elmo(CustomInit):
    """A vector for each word, made of its letters and of what stands before it and behind it. Peters et al. 2018.

    Neither direction ever sees what the other has read. From the second layer on an LSTM's input is added to what it
    says of it. Departs from the paper's code: cells are not clipped at three; every sequence is read from nought, not
    from where the last one ended; and in training a word is spelt as the vocabulary has it, so that a rare one is read
    as the unknown word, until `Tokens.letters` tell how it is spelt.
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
        """The table of letters."""
        return self.char_cnn.embedding

    def init_weights(self, generator: torch.Generator) -> None:
        """What goes through a matrix keeps its length; letters are about one; gates begin open."""
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
                case ProjectedLSTM():  # Jozefowicz et al. 2015: at first nothing is forgotten
                    _, _, bias, _, out = part.parameters()
                    bias[part.hidden_size : 2 * part.hidden_size] = 1.0
                    out.mul_(GAIN)

    def set_characters(self, table: Int16[Tensor, "V C"]) -> None:
        """Be told how the words of the vocabulary are spelt."""
        self.character_ids.copy_(table)

    def forward(self, tokens: Tokens, *, selected: Int[Tensor, "N"] | None = None) -> Float[Tensor, "_ D"]:
        """The last layer's vectors: what was read onward, then what was read backward."""
        vectors: Tensor = self.dropout(self.hidden_states(tokens)[-1])
        return vectors if selected is None else vectors.index_select(0, selected)

    def hidden_states(self, tokens: Tokens) -> list[Float[Tensor, "T D"]]:
        """The words' own vectors, once for each direction, and those after every layer."""
        words = self.embed_words(tokens)
        ways = reading_orders(tokens.bounds, tokens.max_length, words)
        found = []
        for end in DIRECTIONS:
            states = [words]
            for number, lstm in enumerate(self.lstms[end].children()):
                below = self.dropout(states[-1])
                said = ways[end].run(lstm, below)
                states.append(said + below if number else said)
            found.append(states)
        return [torch.cat(both, -1) for both in zip(*found, strict=True)]

    def embed_words(self, tokens: Tokens) -> Float[Tensor, "T K"]:
        """A vector for each word by its letters alone. A CPU looks at each different word once."""
        letters, ids = tokens.character_ids, tokens.ids
        if ids.is_cuda:
            return self._embed_characters(self.character_ids.index_select(0, ids) if letters is None else letters)
        if letters is None:
            different, places = torch.unique(ids, return_inverse=True)
            letters = self.character_ids.index_select(0, different)
        else:
            letters, places = torch.unique(letters, dim=0, return_inverse=True)
        return self._embed_characters(letters).index_select(0, places)

    def _embed_characters(self, letters: Int[Tensor, "N C"]) -> Float[Tensor, "N K"]:
        vectors: Tensor = self.char_cnn(letters)
        return vectors

    def matrices(self) -> dict[str, int]:
        """None are for Muon: those of an LSTM hold four gates, and much of the rest reads letters."""
        return {}
