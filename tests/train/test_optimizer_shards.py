"""Which process owns which parameter, and the norm of gradients that are divided among them."""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bertsmith.train.optimizer_shards import OptimizerShards
from bertsmith.train.optimizers import Optimizer, OptimizerConfig
from bertsmith.train.processes import Processes


@dataclass(frozen=True)
class Apart(Processes):
    """A process among others that are not there: what they would add to a sum is given."""

    others: float = 0.0
    summed: list[float] = field(default_factory=list)

    def sum_tensors(self, tensors: Any) -> None:
        for tensor in tensors:
            self.summed.append(float(tensor))
            tensor += self.others


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(*(nn.Linear(width, width + 1) for width in range(4, 10)))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_every_parameter_has_one_owner_among_neighbours_with_as_much_work(size: int) -> None:
    parameters = dict(network().named_parameters())
    costs = {name: float(parameter.numel()) for name, parameter in parameters.items()}
    shards = [OptimizerShards(parameters, costs, Processes(rank, size)) for rank in range(size)]
    owners = list(shards[0].owners.values())
    assert owners == sorted(owners)
    assert [name for one in shards for name in one.own] == list(parameters)
    work = [sum(costs[name] for name in one.own) for one in shards]
    assert max(work) - min(work) <= 2 * max(costs.values())


def test_a_matrix_of_muon_is_more_work_than_the_table_of_embeddings() -> None:
    module = nn.Sequential(nn.Embedding(100, 10), *(nn.Linear(10, 10, bias=False) for _ in range(10)))
    hidden = {f"{number}.weight": 1 for number in range(1, 11)}
    own = [
        Optimizer(module, OptimizerConfig(hidden_optimizer=kind), hidden_matrices=hidden, processes=Processes(0, 2))
        for kind in ("adamw", "muon")
    ]
    assert [len(one.shards.own) for one in own] == [1, 5]


@pytest.mark.parametrize("settings", [{}, {"kind": "lamb"}, {"hidden_optimizer": "muon"}], ids=str)
def test_each_process_has_the_state_of_its_own_parameters(settings: dict[str, Any]) -> None:
    hidden = {f"{number}.weight": 1 for number in range(1, 5)}
    names = list[str]()
    for rank in range(16):  # more than there are parameters, so that some have none
        module = network()
        shared = Optimizer(module, OptimizerConfig(**settings), hidden_matrices=hidden, processes=Processes(rank, 16))
        shared.shards.has_own_gradients_only = False
        shared.shards.send_weights = lambda: None  # type: ignore[method-assign]
        before = {name: parameter.detach().clone() for name, parameter in module.named_parameters()}
        for parameter in module.parameters():
            parameter.grad = torch.ones_like(parameter)
        shared.step_at(1.0)
        changed = {name for name, one in module.named_parameters() if not torch.equal(one, before[name])}
        assert changed == set(shared.shards.own)
        names += shared.state_dict()
    whole = Optimizer(network(), OptimizerConfig(**settings), hidden_matrices=hidden)
    for parameter in whole.parameters.values():
        parameter.grad = torch.ones_like(parameter)
    whole.step_at(1.0)
    assert sorted(names) == sorted(whole.state_dict())


def test_gradients_are_clipped_by_the_norm_of_all() -> None:
    parameters = {name: nn.Parameter(torch.zeros(2)) for name in ("own", "another's")}
    processes = Apart(0, 2, others=9.0 + 16.0 + 75.0)
    shards = OptimizerShards(parameters, {"own": 1.0, "another's": 1.0}, processes)
    parameters["own"].grad = torch.tensor([3.0, 4.0])
    processes = shards.processes
    assert float(shards.clip_gradients(1.0)) == pytest.approx(125**0.5)
    torch.testing.assert_close(parameters["own"].grad, torch.tensor([3.0, 4.0]) / 125**0.5)
    parameters["own"].grad = None
    assert float(shards.clip_gradients(1.0)) == pytest.approx(10.0)


def test_work_is_divided_among_neighbours() -> None:
    def divided(weights: list[float], size: int) -> list[int]:
        return Processes(0, size).divide(weights)

    assert divided([1, 1, 1, 1], 2) == [0, 0, 1, 1]
    assert divided([8, 1, 1], 2) == [0, 1, 1]
    assert divided([], 4) == []
    assert divided([0, 0], 4) == [0, 0]
    many = divided([float(number % 7) for number in range(100)], 8)
    assert all(later - earlier in (0, 1) for earlier, later in pairwise(many))
    assert {0, 7} <= set(many)


def test_weights_are_sent_by_their_owners() -> None:
    module, received = network(), list[tuple[int, int]]()

    @dataclass(frozen=True)
    class Receiver(Processes):
        def start_broadcast(self, tensor: Tensor, owner: int) -> Any:
            received.append((owner, tensor.numel()))
            return type("Arrived", (), {"wait": lambda _: torch.full_like(tensor, float(owner))})()

    parameters = dict(module.named_parameters())
    shards = OptimizerShards(parameters, dict.fromkeys(parameters, 1.0), Receiver(1, 3))
    before = {name: one.detach().clone() for name, one in shards.own.items()}
    shards.send_weights()
    assert [owner for owner, _ in received] == [0, 1, 2]
    assert sum(count for _, count in received) == sum(one.numel() for one in parameters.values())
    for name, parameter in parameters.items():
        owner = shards.owners[name]
        expected = before[name] if owner == 1 else torch.full_like(parameter, float(owner))
        torch.testing.assert_close(parameter.detach(), expected)
