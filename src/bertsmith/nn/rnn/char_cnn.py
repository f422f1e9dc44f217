"""The character CNN: a vector for each word from its characters. Kim et al. 2016."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

PADDING = 261  # the letter that short words are filled up with
CHARACTERS = PADDING + 1


class Highway(nn.Module):
    """A layer that may be passed by: a gate says of each number how much of it goes on as it is.

    Srivastava et al. 2015.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.dense = nn.Linear(width, 2 * width)  # what each number could become, and its gate

    def forward(self, hidden: Float[Tensor, "N F"]) -> Float[Tensor, "N F"]:
        new, gate = self.dense(hidden).chunk(2, -1)
        gate = torch.sigmoid(gate)
        passed: Tensor = gate * hidden + (1 - gate) * F.relu(new)
        return passed


class CharCNN(nn.Module):
    """Filters slide over the letters of a word, and of each the best fit is kept; then highways, and a narrower vector.

    Kim et al. 2016, section 2.2; Peters et al. 2018, section 3.4. `filters` are how many there are for one letter, for
    two letters that follow each other, for three, and so on.
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
        laid = self.embedding(self._trim_padding(characters).int()).transpose(1, 2)  # N E C
        hidden = F.relu(torch.cat([one(laid).amax(-1) for one in self.filters], -1))
        for highway in self.highways:
            hidden = highway(hidden)
        vectors: Tensor = self.dense(hidden)
        return vectors

    def _trim_padding(self, characters: Int[Tensor, "N C"]) -> Int[Tensor, "N M"]:
        """The same words without most of what all of them are filled up with.

        A filter that sees nothing but filler says the same wherever it stands: once is enough, and so `widest` letters
        of it. On a GPU the host would have to wait to know how many there are.
        """
        if characters.is_cuda or not len(characters):
            return characters
        filled = ((characters > 0) & (characters < PADDING)).any(0).nonzero()
        return characters[:, : int(filled[-1]) + 1 + self.max_filter_width] if len(filled) else characters
