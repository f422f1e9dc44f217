"""A script that compiles cross-entropy; test_entropy.py runs it where no shapes are checked at run time."""

import sys

import torch
import torch.nn.functional as F
from torch import Tensor

from bertsmith.nn.kernels import linear_cross_entropy as module
from bertsmith.nn.kernels.linear_cross_entropy import linear_cross_entropy


def plain(hidden: Tensor, table: Tensor, bias: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(F.linear(hidden, table, bias).float(), targets, reduction="sum", ignore_index=-100)


def on_a_device() -> None:
    """The same sum and slopes as a compiled plain one, in half the room and one graph that never waits."""
    module.CHUNK = 2**24
    dice = torch.Generator().manual_seed(0)
    made = [torch.randn(shape, generator=dice) / 4 for shape in ((4096, 256), (32_064, 256), (32_064,))]
    given = [part.to("cuda", torch.bfloat16).requires_grad_() for part in made]
    targets = torch.randint(32_064, (4096,), generator=dice).cuda()
    found, room = [], []
    for way in (plain, linear_cross_entropy):
        compiled = torch.compile(way, fullgraph=True, dynamic=False)
        torch.autograd.grad(compiled(*given, targets), given)
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        total = compiled(*given, targets)
        slopes = torch.autograd.grad(total / 9, given)
        room.append(torch.cuda.max_memory_allocated() - before)
        torch.cuda.set_sync_debug_mode("default")
        found.append((total, slopes))
    (wanted, true), (total, slopes) = found
    assert (total - wanted).abs() <= 1e-3 * wanted, (total, wanted)
    for mine, other in zip(slopes, true, strict=True):
        assert (mine - other).norm() <= 1e-2 * other.norm(), ((mine - other).norm(), other.norm())
    assert room[1] < 0.5 * room[0], room


if __name__ == "__main__":
    globals()[sys.argv[1]]()
