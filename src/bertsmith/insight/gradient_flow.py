"""Gradient flow through time: how much of a loss reaches earlier states. Hochreiter 1991; Bengio et al. 1994.

A gradient that goes back through a plain recurrent network is multiplied at every token by the same weights, and soon
is zero (the vanishing gradient), so that long dependencies are not learnt. In an LSTM it is multiplied by a gate,
which may stay open.
"""

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Int
from markupsafe import Markup
from torch import Tensor

from bertsmith.insight import png
from bertsmith.insight.charts import HorizontalAxis, Series, chart, format_integer, format_number
from bertsmith.models.recurrent import Recurrent
from bertsmith.nn.rnn.cells import STATE_VECTORS

TITLE = "The gradient of a loss, by how far back it is felt"
LEAD = (
    "The norm of the gradient of one token's loss with respect to the state some tokens before, relative to lag 0. A "
    "dependency with a vanished gradient cannot be learnt."
)
LAG_AXIS = HorizontalAxis("tokens back", format_integer, format_integer, " tokens")
MAX_LAG = 64  # tokens that a gradient is followed
MAX_TEXTS = 64  # at most, that it is the mean of
FLOOR = 1e-9  # of what is felt at once: less is nothing


def windows(ids: Sequence[int]) -> Int[Tensor, "B L"]:
    """Stretches of a text, each as long as a gradient is followed, and spread over all of it."""
    length = min(MAX_LAG + 2, len(ids))
    firsts = np.unique(np.linspace(0, len(ids) - length, MAX_TEXTS).astype(int))
    return torch.tensor([ids[first : first + length] for first in firsts.tolist()])


def gradient_norms(trunk: Recurrent, texts: Int[Tensor, "B L"]) -> list[float]:
    """The norm of the gradient of the last token's loss with respect to the state `lag` tokens before, from lag 0 on.

    All that a state holds is counted, of an LSTM the cells, too. It is the mean over the texts, as a share of what is
    of the state that predicts the token.
    """
    trunk, texts = copy.deepcopy(trunk).cpu().double().eval(), texts.long()
    stack = trunk.stack
    embedded = trunk.embedding(texts[:, :-1])
    state = embedded.new_zeros(len(texts), stack.state_size)
    states: list[Tensor] = []
    for place in range(embedded.shape[1]):  # step by step, so that there is a state after every token
        state = stack.step(embedded[:, place], state)[1]
        states.append(state)
    width = trunk.config.width
    first = stack.state_size - STATE_VECTORS[stack.cell] * width  # what the last layer says stands before what it keeps
    scores = trunk.logits(state[:, first : first + width])
    loss = F.cross_entropy(scores, texts[:, -1], reduction="sum")  # each is felt in its own text alone
    gradients = torch.autograd.grad(loss, states)
    norms = torch.stack([gradient.norm(dim=1).mean() for gradient in reversed(gradients)])
    return [float(norm) for norm in norms / norms[0]]


def section(lines: Mapping[str, Sequence[float]]) -> Markup:
    """The curves of some networks in one chart, by their names."""
    series = [
        Series(name, [(float(back), max(value, FLOOR)) for back, value in enumerate(values)])
        for name, values in lines.items()
    ]
    return chart(TITLE, series, format_value=format_number, logarithmic=True, wide=True, horizontal=LAG_AXIS)


def draw(path: Path, lines: Mapping[str, Sequence[float]]) -> None:
    """The same as a PNG."""
    figure = png.figure(path, 7.0, 4.0)
    axes = figure.subplots()
    for name, values in lines.items():
        axes.semilogy([max(value, FLOOR) for value in values], label=name, linewidth=2)
    axes.set_xlabel("tokens back")
    axes.set_ylabel("share of the gradient")
    axes.set_title(TITLE)
    axes.grid(alpha=0.3)
    axes.legend(frameon=False)
    png.save(path, figure)
