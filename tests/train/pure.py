"""Scripts that compile a step in pure half precision; test_pure.py runs them where no shapes are checked."""

import sys
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.models.family import BERT, SMITH
from bertsmith.models.transformer import Transformer
from bertsmith.nn.init import initialise
from bertsmith.objectives.base import Term
from bertsmith.objectives.masked import MaskedBatch, MaskedLM
from bertsmith.train.forward import cast_weights

SMALL: dict[str, Any] = {"vocabulary": 60, "width": 64, "heads": 2, "layers": 2, "feed_forward": 96, "max_length": 24}
NETWORKS = [
    replace(BERT, **SMALL | {"layers": 1}, positions="sinusoidal"),
    replace(BERT, **SMALL | {"layers": 1}),
    replace(SMITH, **SMALL),
]
RAGGED = [[7, 8, 9], [1] * 24, list(range(20)), [5], [9, 8, 7, 6] * 5, [], []]
EQUAL = [list(range(9)), list(range(9, 18))]


def objectives() -> list[MaskedLM]:
    alone, weighted = MaskedLM.Config(pairs="none"), MaskedLM.Config(pair_weight=0.5)
    made = [
        MaskedLM(Transformer(config), how).eval()
        for config, how in zip(NETWORKS, (alone, weighted, weighted), strict=True)
    ]
    for objective in made:
        initialise(objective, 0, std=0.1)
    return made


def batch(objective: MaskedLM, rows: list[list[int]]) -> MaskedBatch:
    labels = (
        None
        if objective.pairs == "none"
        else torch.tensor([number % 2 if row else -100 for number, row in enumerate(rows)])
    )
    chosen, targets = torch.tensor([1, 6, 12]), torch.tensor([7, 8, 9])
    return MaskedBatch(tokens=Tokens.from_rows(rows), target_positions=chosen, targets=targets, labels=labels)


def learnt(terms: dict[str, Term]) -> Tensor:
    """What a step learns from."""
    total = torch.stack([term.weight * term.total for term in terms.values()]).sum()
    assert total.dtype == torch.float32
    return total


def compiled(objective: MaskedLM, **how: Any) -> Any:
    return torch.compile(partial(cast_weights, objective, torch.bfloat16), fullgraph=True, dynamic=False, **how)


def gradients(objective: MaskedLM, total: Tensor) -> Tensor:
    objective.zero_grad()
    total.backward()
    assert {parameter.grad.dtype for parameter in objective.parameters()} == {torch.float32}
    return torch.cat([parameter.grad.flatten() for parameter in objective.parameters()])


def compare(objective: MaskedLM, given: MaskedBatch, compute: Any) -> None:
    """Losses and gradients against those in full precision."""
    exact = learnt(objective(given))
    slope = gradients(objective, exact)
    total = learnt(compute(given))
    torch.testing.assert_close(total, exact, rtol=0.01, atol=0)
    assert torch.nn.functional.cosine_similarity(gradients(objective, total), slope, 0) > 0.999


def without_a_device() -> None:
    """Equal rows for real; ragged rows on the meta device, which tries the graph and its shapes."""
    for objective in objectives():
        compare(objective, batch(objective, EQUAL), compiled(objective, backend="aot_eager"))
        hollow = objective.to("meta")
        hollow.trunk.kernel = "varlen"
        learnt(compiled(hollow, backend="aot_eager")(batch(hollow, RAGGED).to("meta"))).backward()


def on_a_device() -> None:
    for objective in objectives():
        compare(objective.cuda(), batch(objective, RAGGED).to("cuda"), compiled(objective))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
