"""Law: selected positions have the vectors and gradients of the whole, of which the rest is not computed."""

import pytest
import torch
from laws.networks import NETWORKS, built, read

from bertsmith.models.static import StaticConfig

ROWS, SOURCES = [[7, 8, 9], [1] * 12, [5], [9, 8, 7, 6]], [[3] * 5, [4, 5], [6], [2, 8]]
SELECTED = torch.tensor([0, 3, 14, 14, 2, 19])  # some twice, and not in order


# A static network has nothing to leave out: each of its vectors is a row of its table.
SELECTING = [name for name, config in NETWORKS.items() if not isinstance(config, StaticConfig)]


@pytest.mark.parametrize("name", SELECTING)
def test_selected_positions_have_the_vectors_and_gradients_of_the_whole(name: str) -> None:
    network = built(NETWORKS[name])
    some, whole = read(network, ROWS, SOURCES, selected=SELECTED), read(network, ROWS, SOURCES)[SELECTED]
    torch.testing.assert_close(some, whole, rtol=0, atol=1e-12)
    weights = [weight for weight in network.parameters() if weight.requires_grad]
    gradients = [torch.autograd.grad(found.square().sum(), weights, allow_unused=True) for found in (some, whole)]
    for one, other in zip(*gradients, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)
    assert read(network, ROWS, SOURCES, selected=SELECTED[:0]).shape == (0, whole.shape[1])
