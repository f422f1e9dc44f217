"""Law: a sequence has the same vectors alone, in a batch, and in any order of the batch."""

import pytest
import torch
from laws.networks import NETWORKS, built, vectors

ROWS = [[7, 8, 9], [1] * 12, list(range(10)), [5], [9, 8, 7, 6] * 3, [], []]  # empty ones at the end, as packing leaves
SOURCES = [[3] * 9, [4, 5], list(range(20, 28)), [6, 7, 8], [2], [], []]


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_other_sequences_do_not_change_a_vector(name: str) -> None:
    network = built(NETWORKS[name])
    together = vectors(network, ROWS, SOURCES)
    backwards = vectors(network, ROWS[4::-1], SOURCES[4::-1])[::-1]
    for number, row in enumerate(ROWS[:5]):
        (alone,) = vectors(network, [row], SOURCES[number : number + 1])
        assert alone.std() > 1e-3
        torch.testing.assert_close(together[number], alone, rtol=0, atol=1e-12)
        torch.testing.assert_close(backwards[number], alone, rtol=0, atol=1e-12)
