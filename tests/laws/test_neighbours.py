"""Law: a sequence has the same vectors alone, in a batch, and in any order of the batch."""

import pytest
import torch
from laws.networks import MEMBERS, NETWORKS, built, vectors

# Ragged rows, with empty ones at the end, as packing leaves them; and rows of equal length.
ROWS = {
    "ragged": [[7, 8, 9], [1] * 12, list(range(10)), [5], [9, 8, 7, 6] * 3, [], []],
    "equal": [[7, 8, 9, 4], [1] * 4, [3, 2, 6, 9]],
}
SOURCES = {
    "ragged": [[3] * 9, [4, 5], list(range(20, 28)), [6, 7, 8], [2], [], []],
    "equal": [[3] * 5, [4, 5, 6, 7, 8], [20, 21, 22, 23, 24]],
}


@pytest.mark.parametrize(
    ("name", "lengths"), [*((name, "ragged") for name in NETWORKS), *((name, "equal") for name in MEMBERS)]
)
@torch.no_grad()
def test_other_sequences_do_not_change_a_vector(name: str, lengths: str) -> None:
    network = built(NETWORKS[name])
    rows, sources = ROWS[lengths], SOURCES[lengths]
    filled = len([row for row in rows if row])
    together = vectors(network, rows, sources)
    backwards = vectors(network, rows[:filled][::-1], sources[:filled][::-1])[::-1]
    for number, row in enumerate(rows[:filled]):
        (alone,) = vectors(network, [row], sources[number : number + 1])
        assert alone.std() > 1e-3
        torch.testing.assert_close(together[number], alone, rtol=0, atol=1e-12)
        torch.testing.assert_close(backwards[number], alone, rtol=0, atol=1e-12)
