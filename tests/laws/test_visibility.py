"""Law: a vector depends on the tokens that its network may see, and on no other.

Each token is changed in turn, and the vectors that change with it are compared with a matrix: for each position (row),
the tokens (columns) that it sees.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from laws.networks import CLASSES, MEMBERS, NETWORKS, built, has_decoder, read
from torch import Tensor

from bertsmith.models.elmo import Elmo
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.networks import Network
from bertsmith.models.recurrent import Recurrent
from bertsmith.models.seq2seq import Seq2Seq
from bertsmith.models.static import Static
from bertsmith.models.transformer import Transformer

ROW, SOURCE = [5, 6, 7, 8, 9], [15, 16, 17, 18]
ALL = torch.ones(len(ROW), len(ROW), dtype=torch.bool)
EARLIER, LATER = ALL.tril(), ALL.triu()
# What each part of a vector sees; a network of a new class has to say it here.
SEES: dict[type, Callable[[Network], list[Tensor]]] = {
    Transformer: lambda network: [EARLIER if network.config.causal else ALL],
    EncoderDecoder: lambda network: [EARLIER],
    Recurrent: lambda network: [EARLIER],
    Seq2Seq: lambda network: [EARLIER],
    Elmo: lambda network: [EARLIER, LATER],  # its left and its right half
    Static: lambda network: [EARLIER & LATER],
}


def dependence(network: Network, row: list[int], source: list[int], changed: list[int], **how: Any) -> Tensor:
    """By position, token of `changed` (one of the other two) and part of the vector: how far the vector moves."""
    others = [[*changed[:place], token + 20, *changed[place + 1 :]] for place, token in enumerate(changed)]
    rows, sources = ([part, *others] if part is changed else [part] * (len(others) + 1) for part in (row, source))
    true, *moved = read(network, rows, sources, **how).view(len(rows), len(row), -1)
    parts = len(SEES[type(network)](network))
    return torch.stack([(other - true).unflatten(1, (parts, -1)).abs().amax(2) for other in moved], 1)


@pytest.mark.parametrize("name", NETWORKS)
@torch.no_grad()
def test_a_vector_depends_on_what_its_network_sees_and_on_nothing_else(name: str) -> None:
    network = built(NETWORKS[name])
    found = dependence(network, ROW, SOURCE, ROW)
    for number, sees in enumerate(SEES[type(network)](network)):
        assert (found[..., number][sees] > 1e-9).all()
        assert (found[..., number][~sees] < 1e-12).all()
    if has_decoder(network):
        assert (dependence(network, ROW, SOURCE, SOURCE) > 1e-9).all()  # all of the source, from everywhere


@pytest.mark.parametrize("name", [name for name in MEMBERS if CLASSES[name] is Transformer])
@torch.no_grad()
def test_any_transformer_can_be_told_to_see_only_earlier_tokens(name: str) -> None:
    found = dependence(built(MEMBERS[name]), ROW, SOURCE, ROW, causal=True)[..., 0]
    assert (found[EARLIER] > 1e-9).all()
    assert (found[~EARLIER] < 1e-12).all()
