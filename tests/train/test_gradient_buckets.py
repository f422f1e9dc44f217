"""Gradients in buckets: sent while the backward pass goes on, in one order, and complete at its end."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from bertsmith.train import gradient_buckets
from bertsmith.train.gradient_buckets import GradientBuckets, divide
from bertsmith.train.processes import Pending, Processes


class Work:
    """A sum that is there at once."""

    def wait(self) -> None:
        return None


@dataclass(frozen=True)
class Pair(Processes):
    """This process, and another one that has the same gradients."""

    size: int = 2
    sent: list[int] = field(default_factory=list)

    def start_sum(self, tensor: Tensor, owner: int | None = None) -> Pending:
        self.sent.append(tensor.numel())
        return Pending(self, tensor.mul_(2), Work())

    def sum_numbers(self, numbers: Mapping[str, float]) -> dict[str, float]:
        return {name: 2 * number for name, number in numbers.items()}


def chain(pair: Pair, *owners: int) -> tuple[nn.Sequential, GradientBuckets]:
    """Three layers with a bucket each."""
    layers = nn.Sequential(*(nn.Linear(width, width + 1, bias=False) for width in (1, 2, 3)))
    parameters = dict(layers.named_parameters())
    return layers, GradientBuckets(parameters, pair, dict(zip(parameters, owners, strict=True)) if owners else None)


@pytest.fixture(autouse=True)
def buckets_of_one_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_buckets, "MAX_BUCKET_BYTES", 1)


def test_buckets_hold_neighbours_of_one_type_up_to_a_size() -> None:
    tensors = [torch.zeros(size) for size in (10, 10, 30, 1)] + [torch.zeros(1, dtype=torch.float64)]
    assert [[one.numel() for one in bucket] for bucket in divide(tensors, 80)] == [[10, 10], [30], [1], [1]]


def test_a_bucket_is_sent_while_the_backward_pass_goes_on() -> None:
    pair = Pair()
    layers, buckets = chain(pair)
    before_the_first_layer = list[int]()
    first = layers[0](torch.ones(1, 1))
    first.register_hook(lambda _: before_the_first_layer.extend(pair.sent))
    buckets.send_when_complete()
    layers[1:](first).sum().backward()
    assert before_the_first_layer == [12, 6]
    assert pair.sent == [12, 6, 2]


def test_micro_batches_before_the_last_one_send_nothing() -> None:
    pair = Pair()
    layers, buckets = chain(pair)
    layers(torch.ones(1, 1)).sum().backward()
    assert not pair.sent
    first = [parameter.grad.clone() for parameter in layers.parameters() if parameter.grad is not None]
    buckets.send_when_complete()
    layers(torch.ones(1, 1)).sum().backward()
    buckets.finish()
    for parameter, gradient in zip(layers.parameters(), first, strict=True):
        torch.testing.assert_close(parameter.grad, 4 * gradient)  # two micro-batches of two processes
    assert len(pair.sent) == 3


def test_a_complete_bucket_waits_for_those_before_it() -> None:
    """Other processes may have gradients for the last layer, and send its bucket first."""
    pair = Pair()
    layers, buckets = chain(pair)
    buckets.send_when_complete()
    layers[:2](torch.ones(1, 1)).sum().backward()
    assert not pair.sent
    buckets.finish()
    assert pair.sent == [12, 6, 2]
    assert [parameter.grad is None for parameter in layers.parameters()] == [False, False, True]


def test_with_owners_a_process_has_the_gradients_of_its_own_parameters_only() -> None:
    layers, buckets = chain(Pair(), 0, 1, 0)
    buckets.send_when_complete()
    layers(torch.ones(1, 1)).sum().backward()
    buckets.finish()
    assert [parameter.grad is None for parameter in layers.parameters()] == [False, True, False]


def test_a_bucket_has_one_owner() -> None:
    tensors = [torch.zeros(1) for _ in range(5)]
    assert [len(bucket) for bucket in divide(tensors, 1000, [0, 0, 1, 1, 2])] == [2, 2, 1]


@pytest.mark.slow("compiles")
def test_a_compiled_step_has_the_same_gradients() -> None:
    pair = Pair()
    layers, buckets = chain(pair)
    weights = dict(layers.named_parameters())

    def cast(given: Tensor) -> Tensor:
        return functional_call(layers, {name: one.double() for name, one in weights.items()}, (given,)).sum()

    gradients = list[list[Tensor]]()
    for function in (cast, torch.compile(cast, fullgraph=True, dynamic=False, backend="aot_eager")):
        buckets.send_when_complete()
        function(torch.ones(1, 1, dtype=torch.float64)).backward()
        assert len(pair.sent) == 3
        buckets.finish()
        gradients.append([one.grad for one in layers.parameters() if one.grad is not None])
        layers.zero_grad()
        pair.sent.clear()
    torch.testing.assert_close(gradients[1], gradients[0])
