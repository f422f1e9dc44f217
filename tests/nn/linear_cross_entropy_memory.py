"""A script that measures the memory of cross-entropy; test_linear_cross_entropy_cpu.py runs it in a new process."""

import resource
import sys

import torch

from bertsmith.nn.kernels import linear_cross_entropy_cpu


def less_than_all_logits() -> None:
    """The logits of 1,024 positions and 50,257 words are 196 MiB; a plain loss keeps them three times."""
    hidden, table = torch.randn(1024, 16, requires_grad=True), torch.randn(50_257, 16, requires_grad=True)
    targets = torch.randint(50_257, (1024,))
    # Memory that is allocated once.
    linear_cross_entropy_cpu.linear_cross_entropy(hidden[:8], table, None, targets[:8]).backward()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    linear_cross_entropy_cpu.linear_cross_entropy(hidden, table, None, targets).backward()
    taken = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * (1 if sys.platform == "darwin" else 1024)
    assert taken < 100 << 20, f"{taken >> 20} MiB"


if __name__ == "__main__":
    globals()[sys.argv[1]]()
