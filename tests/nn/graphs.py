"""Scripts that compile bricks; test_graphs.py runs them where no shapes are checked at run time."""

import sys

import torch
import torch.nn.functional as F

from bertsmith.nn.activations import Gelu, gelu
from bertsmith.nn.dropout import dropout, mixed
from bertsmith.nn.heads import MaskedHead


def without_a_device() -> None:
    def both(numbers: torch.Tensor) -> torch.Tensor:
        return mixed(Gelu.apply(numbers), 0.2)

    numbers = torch.linspace(1, 5, 100_000, requires_grad=True)
    found = torch.compile(both, backend="aot_eager", fullgraph=True)(numbers)
    assert abs((found == 0).float().mean().item() - 0.2) < 1e-2
    kept = found != 0
    torch.testing.assert_close(found[kept], F.gelu(numbers)[kept] / 0.8)
    found.sum().backward()
    assert torch.equal(numbers.grad != 0, kept)


def a_curve() -> None:
    one, other = (torch.linspace(-12, 12, 100_001, device="cuda", requires_grad=True) for _ in range(2))
    found, true = torch.compile(gelu, fullgraph=True)(one), gelu(other)
    torch.testing.assert_close(found, true, rtol=1e-6, atol=1e-6)
    [slope], [true_slope] = torch.autograd.grad(found.sum(), one), torch.autograd.grad(true.sum(), other)
    torch.testing.assert_close(slope, true_slope, rtol=1e-6, atol=3e-6)


def forgetting() -> None:
    numbers = torch.ones(1000, 768, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    compiled, found = torch.compile(dropout, fullgraph=True), []
    for seed in (4, 4, 5):
        torch.manual_seed(seed)
        found.append(compiled(numbers, 0.1))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert abs((found[0] == 0).float().mean().item() - 0.1) < 3e-3
    [gradient] = torch.autograd.grad(found[0].sum(), numbers)  # the same is forgotten backwards
    assert torch.equal(gradient, found[0].detach())


def a_head() -> None:
    """A vocabulary that is no multiple of anything, filled up for the step, loses as the plain one does."""
    torch.manual_seed(0)
    head, table = MaskedHead(64, 1001, "gelu", 1e-12).cuda(), torch.randn(1001, 64, device="cuda", requires_grad=True)
    hidden, targets = torch.randn(50, 64, device="cuda"), torch.randint(1001, (50,), device="cuda")
    found = {}
    for training in (True, False):
        scores = torch.compile(head.train(training), fullgraph=True)(hidden, table)
        loss = F.cross_entropy(scores, targets)
        found[training] = (loss, *torch.autograd.grad(loss, [table, head.bias]))
    assert all(part.isfinite().all() for part in found[True])
    torch.testing.assert_close(found[True], found[False], rtol=1e-4, atol=1e-6)


if __name__ == "__main__":
    globals()[sys.argv[1]]()
