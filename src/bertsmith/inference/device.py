"""The device of a loaded model: the fastest of this machine, unless one is named."""

import torch

from bertsmith.errors import RunError

DEVICE_REMEDY = "Use auto, cpu, cuda, or cuda:1 and so on"


def resolve_device(name: str | torch.device = "auto") -> torch.device:
    """The named device; `auto` is a GPU that this torch can use, else the CPU."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() and _works("cuda") else "cpu")
    try:
        found = torch.device(name)
    except (RuntimeError, TypeError):
        raise RunError("device", f"there is none called {name!r}", DEVICE_REMEDY) from None
    if found.type not in ("cpu", "cuda"):
        raise RunError("device", f"'{found.type}' is not one that bertsmith computes on", DEVICE_REMEDY)
    if found.type == "cuda" and not (torch.cuda.is_available() and _works(str(found))):
        raise RunError("device", f"there is no '{found}' here that torch can use", "Use cpu, or auto")
    return found


def _works(name: str) -> bool:
    """Whether a GPU computes: there may be a driver without a GPU, or a GPU that this torch has no kernels for."""
    try:
        return bool((torch.ones(1, device=name) + 1).item() == 2)
    except (RuntimeError, AssertionError):  # out of memory, no kernel image, no such ordinal
        return False
