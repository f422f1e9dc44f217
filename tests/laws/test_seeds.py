"""Law: whatever is random is a function of the seed: initial weights, and every kind of dropout."""

from dataclasses import replace

import pytest
import torch
from laws.networks import FIRST, MEMBERS, built, dropouts, read
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.models.networks import Network, build_network
from bertsmith.models.recurrent import Recurrent
from bertsmith.models.static import Static
from bertsmith.nn.init import initialise

ROWS, SOURCES = [[7, 8, 9], [1] * 12, [5], [9, 8, 7, 6]], [[3] * 5, [4, 5], [6], [2, 8]]
STREAMS = Tokens.from_rows([[1, 2, 3, 4], [5, 6, 7, 8]])


@pytest.mark.parametrize("name", MEMBERS)
def test_the_seed_determines_the_initial_weights(name: str) -> None:
    states = []
    for seed in (0, 0, 1):
        network = build_network(MEMBERS[name])
        for weight in network.parameters():
            torch.nn.init.constant_(weight, torch.nan)  # none is left as it was made
        initialise(network, seed)
        states.append(torch.cat([weight.flatten() for weight in network.parameters()]))
    assert states[0].isfinite().all()
    assert torch.equal(states[0], states[1])
    assert not torch.equal(states[0], states[2])


def outputs(network: Network, seed: int) -> Tensor:
    torch.manual_seed(seed)
    if isinstance(network, Recurrent):  # trained in streams only, from a state that is carried on
        return network.forward_from_state(STREAMS, torch.zeros(2, network.stack.state_size).double())[0]
    return read(network, ROWS, SOURCES)


# A static network has no use for its only one: it is never trained.
EVERY = [(kind, name) for kind, config in FIRST.items() for name in dropouts(config) if kind is not Static]


@pytest.mark.parametrize(("kind", "name"), EVERY)
@torch.no_grad()
def test_every_dropout_is_determined_by_the_seed_and_absent_in_evaluation(kind: type, name: str) -> None:
    plain, network = built(FIRST[kind]), built(replace(FIRST[kind], **{name: 0.5}))
    assert torch.equal(outputs(network, 0), outputs(plain, 0))
    network.train()
    assert torch.equal(outputs(network, 0), outputs(network, 0))
    assert not torch.allclose(outputs(network, 0), outputs(network, 1), rtol=0, atol=1e-6)
