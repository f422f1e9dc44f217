"""Scripts that compile modules; test_graphs.py runs them in processes without run-time shape checks."""

import itertools
import sys

import torch
import torch.nn.functional as F

from bertsmith.models.layers import FeedForward
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.dropout import draw_keys, dropout, dropout_by_keys, hashed_dropout
from bertsmith.nn.heads import MaskedLMHead


def without_a_device() -> None:
    numbers = torch.linspace(1, 5, 100_000, requires_grad=True)
    found = torch.compile(hashed_dropout, backend="aot_eager", fullgraph=True)(numbers, 0.2)
    kept = found != 0
    assert abs(kept.float().mean().item() - 0.8) < 1e-2
    torch.testing.assert_close(found[kept], numbers[kept] / 0.8)
    found.sum().backward()
    assert torch.equal(numbers.grad != 0, kept)


def seeded_dropout() -> None:
    numbers = torch.ones(1000, 768, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    compiled, found = torch.compile(dropout, fullgraph=True), []
    for seed in (4, 4, 5):
        torch.manual_seed(seed)
        found.append(compiled(numbers, 0.1))
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])
    assert abs((found[0] == 0).float().mean().item() - 0.1) < 3e-3
    [gradient] = torch.autograd.grad(found[0].sum(), numbers)  # the same mask in the backward pass
    assert torch.equal(gradient, found[0].detach())


def summed_dropout() -> None:
    """Inductor splits a sum over rows of narrow vectors: the bits of a row are then computed in two places."""
    # In float64: the fused kernel does not round to half precision before the sum.
    numbers, keys = torch.ones(16384, 128, device="cuda", dtype=torch.float64), draw_keys(torch.device("cuda"))
    summed = torch.compile(lambda part: dropout_by_keys(part, 0.1, keys).sum(0), fullgraph=True)
    torch.testing.assert_close(summed(numbers), dropout_by_keys(numbers, 0.1, keys).sum(0))


def head() -> None:
    """A vocabulary of odd size, padded for the step, has the loss of the plain one."""
    torch.manual_seed(0)
    head, table = MaskedLMHead(64, 1001, "gelu", 1e-12).cuda(), torch.randn(1001, 64, device="cuda", requires_grad=True)
    hidden, targets = torch.randn(50, 64, device="cuda"), torch.randint(1001, (50,), device="cuda")
    found = {}
    for training in (True, False):
        scores = torch.compile(head.train(training), fullgraph=True)(hidden, table)
        loss = F.cross_entropy(scores, targets)
        found[training] = (loss, *torch.autograd.grad(loss, [table, head.bias]))
    assert all(part.isfinite().all() for part in found[True])
    torch.testing.assert_close(found[True], found[False], rtol=1e-4, atol=1e-6)


def attention() -> None:
    """Our attention kernels within a compiled layer, separate or qkv, give the same as outside."""
    from bertsmith.nn.kernels import attention_long, attention_short

    lengths = {"short": [127, 128, 64, 0, 65, 1, 0, 0], "long": [512, 300, 257, 0, 1, 64, 0, 0]}
    for name, module in (("short", attention_short), ("long", attention_long)):
        for apart, dropout_probability in itertools.product((False, True), (0.0, 0.1)):
            torch.manual_seed(0)
            bounds = torch.tensor([0, *lengths[name]], device="cuda").cumsum(0).to(torch.int32)
            rest = (bounds, max(lengths[name]), dropout_probability, torch.tensor(4, device="cuda"))
            weight = torch.randn(128, 384, device="cuda", dtype=torch.bfloat16) / 10

            def layer(hidden, module=module, name=name, apart=apart, rest=rest, weight=weight):  # type: ignore[no-untyped-def]
                qkv = (hidden @ weight).unflatten(1, (3, 2, 64))
                return (
                    getattr(module, f"{name}_attention")(*qkv.unbind(1), *rest)
                    if apart
                    else module.qkv_attention(qkv, *rest)
                )

            hidden = torch.randn(sum(lengths[name]), 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
            kept, found, true = hidden.detach().clone(), torch.compile(layer, fullgraph=True)(hidden), layer(hidden)
            grad_output = torch.randn_like(true)
            gradients = [torch.autograd.grad(one, hidden, grad_output)[0] for one in (found, true)]
            for one, other in ((found, true), gradients):
                assert (one.double() - other.double()).norm() < 2e-2 * other.double().norm()
            assert torch.equal(hidden, kept)


def feed_forward() -> None:
    """A compiled feed-forward network uses our GELU kernel in half precision, and gives the same as a plain one."""
    for gated, biases, activation, dtype in itertools.product(
        (False, True), (False, True), ("gelu", "gelu_tanh"), (torch.bfloat16, torch.float32)
    ):
        torch.manual_seed(0)
        sizes = {"width": 64, "heads": 1, "feed_forward": 96}
        config = TransformerConfig(**sizes, activation=activation, gated=gated, biases=biases)
        network = FeedForward(config).cuda()
        hidden = torch.randn(300, 64, device="cuda", requires_grad=True)
        found = []
        for way in (torch.compile(network, fullgraph=True), network):
            with torch.autocast("cuda", dtype, enabled=dtype != torch.float32):
                fed = way(hidden)
            given = [hidden, *network.parameters()]
            found.append((fed, *torch.autograd.grad(fed.float().square().sum(), given)))
        for one, other in zip(*found, strict=True):
            most = 1e-2 if dtype == torch.bfloat16 else 1e-5
            assert one.dtype == other.dtype
            assert (one.double() - other.double()).norm() < most * other.double().norm()
        torch._dynamo.reset()
    hidden = torch.randn(300, 64, device="cuda", dtype=torch.bfloat16)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        torch.compile(network.bfloat16(), fullgraph=True)(hidden)
        torch.cuda.synchronize()
    assert any(event.key == "_gelu_forward" for event in profile.key_averages())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
