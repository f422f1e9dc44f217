"""Whether our Triton kernels can run here; asking does not import Triton."""

from importlib.util import find_spec

import torch


def kernels_unavailable(device: torch.device) -> str | None:
    """Why our Triton kernels cannot run on this GPU, or None if they can."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    from bertsmith.nn.kernels import shared

    return None if shared.available(device) else "the GPU is older than an A100, or smaller"


# As torch.compiler.assume_constant_result does, which would import the compiler, and with it Triton.
kernels_unavailable._dynamo_marked_constant = True  # type: ignore[attr-defined]
