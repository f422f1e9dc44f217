"""A script that compiles cross-entropy; test_linear_cross_entropy.py runs it without run-time shape checks."""

import sys

import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.nn.kernels import linear_cross_entropy as module
from bertsmith.nn.kernels.linear_cross_entropy import linear_cross_entropy


def plain(hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, table, bias).float(), targets, reduction="sum", ignore_index=-100)


def on_a_device() -> None:
    """The loss and gradients of a compiled plain one, in half the memory and one graph that never waits."""
    module.CHUNK = 2**24
    generator = torch.Generator().manual_seed(0)
    parts = [torch.randn(shape, generator=generator) / 4 for shape in ((4096, 256), (32_064, 256), (32_064,))]
    given = [part.to("cuda", torch.bfloat16).requires_grad_() for part in parts]
    targets = torch.randint(32_064, (4096,), generator=generator).cuda()
    found, memory = [], []
    for loss in (plain, linear_cross_entropy):
        compiled = torch.compile(loss, fullgraph=True, dynamic=False)
        torch.autograd.grad(compiled(*given, targets), given)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        total = compiled(*given, targets)
        gradients = torch.autograd.grad(total / 9, given)
        memory.append(torch.cuda.max_memory_allocated() - before)
        torch.cuda.set_sync_debug_mode("default")
        found.append((total, gradients))
    (wanted, true), (total, gradients) = found
    assert (total - wanted).abs() <= 1e-3 * wanted, (total, wanted)
    for mine, other in zip(gradients, true, strict=True):
        assert (mine - other).norm() <= 1e-2 * other.norm(), ((mine - other).norm(), other.norm())
    assert memory[1] < 0.5 * memory[0], memory


if __name__ == "__main__":
    globals()[sys.argv[1]]()
