"""The character CNN: a vector for each word from its characters. Kim et al. 2016."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

PADDING = 261  # the character id that pads short words
CHARACTERS = PADDING + 1


class Highway(nn.Module):
    """A highway layer: a gate mixes each input with its transform. Srivastava et al. 2015."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, 2 * width)  # transform and gate

    def forward(self, hidden: Float[Tensor, "N F"]) -> Float[Tensor, "N F"]:
        new, gate = self.dense(hidden).chunk(2, -1)
        gate = torch.sigmoid(gate)
        mixed: Tensor = gate * hidden + (1 - gate) * F.relu(new)
        return mixed


class CharCNN(nn.Module):
    """Convolutions over the characters of a word with max-pooling, highway layers, and a projection.

    Kim et al. 2016, section 2.2; Peters et al. 2018, section 3.4. `filters` are the numbers of filters of width 1, 2, 3
    and so on.
    """

    def __init__(self, embedding_width: int, filters: Sequence[int], highways: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(CHARACTERS, embedding_width)
        self.filters = nn.ModuleList(
            nn.Conv1d(embedding_width, count, size) for size, count in enumerate(filters, 1) if count
        )
        self.highways = nn.ModuleList(Highway(sum(filters)) for _ in range(highways))
        self.dense = nn.Linear(sum(filters), width)
        self.max_filter_width = len(filters)

    def forward(self, characters: Int[Tensor, "N C"]) -> Float[Tensor, "N D"]:
        embedded = self.embedding(self._trim_padding(characters).int()).transpose(1, 2)  # N E C
        hidden = F.relu(torch.cat([convolution(embedded).amax(-1) for convolution in self.filters], -1))
        for highway in self.highways:
            hidden = highway(hidden)
        vectors: Tensor = self.dense(hidden)
        return vectors

    def _trim_padding(self, characters: Int[Tensor, "N C"]) -> Int[Tensor, "N M"]:
        """The same words without most of the padding that all of them share.

        A filter has the same output wherever it sees only padding: once is enough, and so `max_filter_width` characters
        of padding. On a GPU the host would have to wait for the lengths.
        """
        if characters.is_cuda or not len(characters):
            return characters
        filled = ((characters > 0) & (characters < PADDING)).any(0).nonzero()
        return characters[:, : int(filled[-1]) + 1 + self.max_filter_width] if len(filled) else characters
