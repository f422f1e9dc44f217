"""Nearest neighbours of the tokens of a text, by cosine: in the embedding table, and in context.

The neighbours in the table are the same in any text; those in context are the other tokens of the text whose vectors of
the last layer are most similar.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

BLOCK_TOKENS = 32_768  # rows of the embedding table in one product
MAX_STATIC, MAX_CONTEXTUAL = 8, 3  # neighbours of a token

Found = list[tuple[int, float]]  # ids or positions, with their cosines, nearest first


@dataclass(frozen=True, repr=False)
class Neighbours:
    """The nearest tokens of each token: ids of the vocabulary, and positions in the text."""

    static: list[Found | None]  # None for special tokens, and where a network has no table of tokens
    contextual: list[Found]

    def figures(self, name: Callable[[int], str]) -> dict[str, Any]:
        """The fields as JSON values, with the name of each token of the vocabulary."""
        static = [None if row is None else [[name(number), cosine] for number, cosine in row] for row in self.static]
        return {"static": static, "contextual": [list(map(list, row)) for row in self.contextual]}

    def __repr__(self) -> str:
        return f"Neighbours({len(self.static)} tokens)"


@torch.no_grad()
def find_neighbours(
    table: Float[Tensor, "V E"] | None,
    ids: Int[Tensor, "T"],
    vectors: Float[Tensor, "T D"],
    special: Bool[Tensor, "T"],
    excluded: Bool[Tensor, "V"],
) -> Neighbours:
    """The neighbours of the tokens of a text, whose vectors are those of the last layer.

    `special` says which tokens of the text are special, and `excluded` which of the vocabulary are no neighbours.
    """
    static: list[Found | None] = [None] * len(ids)
    if table is not None:
        distinct = torch.unique(ids[~special]).long()
        found = dict(zip(distinct.tolist(), nearest_rows(table, distinct, excluded, MAX_STATIC), strict=True))
        static = [found.get(number) for number in ids.tolist()]
    return Neighbours(static, nearest_positions(vectors, special, MAX_CONTEXTUAL))


def nearest_rows(
    table: Float[Tensor, "V E"], rows: Int[Tensor, "N"], excluded: Bool[Tensor, "V"], count: int
) -> list[Found]:
    """The rows of a table nearest to some of them by cosine, without the row itself; read in blocks."""
    queries = F.normalize(table[rows].float(), dim=-1)
    best, numbers = queries.new_empty(len(rows), 0), rows.new_empty(len(rows), 0)
    for start in range(0, len(table), BLOCK_TOKENS):
        block = F.normalize(table[start : start + BLOCK_TOKENS].float(), dim=-1)
        cosines = queries @ block.T
        cosines.masked_fill_(excluded[start : start + BLOCK_TOKENS], -torch.inf)
        own = (rows >= start) & (rows < start + len(block))
        cosines[own.nonzero()[:, 0], rows[own] - start] = -torch.inf
        found = cosines.topk(min(count, len(block)))
        best, numbers = torch.cat((best, found.values), 1), torch.cat((numbers, found.indices + start), 1)
        best, order = best.topk(min(count, best.shape[1]))
        numbers = numbers.gather(1, order)
    return _pairs(numbers, best)


def nearest_positions(vectors: Float[Tensor, "T D"], special: Bool[Tensor, "T"], count: int) -> list[Found]:
    """The other tokens of a text nearest to each by cosine; special tokens are no neighbours of any."""
    unit = F.normalize(vectors.float(), dim=-1)
    cosines = (unit @ unit.T).masked_fill_(special, -torch.inf).fill_diagonal_(-torch.inf)
    found = cosines.topk(min(count, len(vectors)))
    return _pairs(found.indices, found.values)


def _pairs(numbers: Int[Tensor, "N K"], cosines: Float[Tensor, "N K"]) -> list[Found]:
    """Numbers and cosines of each row, without those that were excluded."""
    rows = zip(numbers.tolist(), cosines.tolist(), strict=True)
    return [
        [(number, cosine) for number, cosine in zip(own, similar, strict=True) if cosine > -2] for own, similar in rows
    ]
