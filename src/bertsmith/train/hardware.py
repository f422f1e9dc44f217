"""The machine a run finds itself on: its device, the precision that suits it, and how fast it could be."""

import ctypes
import os
import platform
import time
import warnings
from pathlib import Path

import torch

from bertsmith.errors import RunError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = (
    -1,
    -3,
)  # free bytes at the end that are given back; bytes from which on a map is their own


def select_device(requested: str) -> torch.device:
    """The device asked for; `auto` takes a GPU where there is one."""
    if requested == "cuda" and not torch.cuda.is_available():
        raise RunError("train.device", "there is no CUDA device here", "Use train.device=cpu, or auto")
    if requested == "auto":
        requested = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(requested)


def select_precision(requested: str, device: torch.device) -> torch.dtype:
    """bfloat16 where the matrix units do it faster: on GPUs, and on processors with AMX."""
    if requested == "auto":
        fast = device.type == "cuda" or torch.cpu._is_amx_tile_supported()
        requested = "bfloat16" if fast else "float32"
    if requested == "float32":
        return torch.float32
    # A processor without units for it goes a slower way to the same numbers, and torch tells so in a page of addresses.
    warnings.filterwarnings("ignore", message="mkldnn_matmul failed")
    return torch.bfloat16


def keep_freed_memory() -> None:
    """Have what is freed stay with this process, on Linux's C library: what a step frees, the next one asks for again.

    Else scores of a batch, tens of megabytes, are given back to the system and begged from it page by page at every
    use: ten thousand page faults in a tiny BERT's step. It is so from then on, for the whole process.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if platform.system() == "Linux" else None
    if mallopt is not None:  # other C libraries have none
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(M_MMAP_THRESHOLD, 2**30)


def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of one large matrix product, measured now: the ceiling that utilisation is a share of."""
    size = 8192 if device.type == "cuda" else 1024
    left, right = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = float("inf")
    for _ in range(10):
        _synchronize(device)
        began = time.perf_counter()
        left @ right
        _synchronize(device)
        best = min(best, time.perf_counter() - began)
    return 2 * size**3 / best


def training_flops(device: torch.device) -> float:
    """About how many FLOP/s a training step will reach here: a share of the peak, as seen on such machines."""
    if device.type == "cuda":
        return 0.4 * peak_flops(device, torch.bfloat16)
    return 0.5 * peak_flops(device, torch.float32)


def describe(device: torch.device) -> dict[str, str]:
    """What a reader of a result wants to know about where it was made."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "device": name,
        "cores": str(os.cpu_count()),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "torch": str(torch.__version__),
    }


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
