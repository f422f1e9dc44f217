"""The hardware of a run: its device, the precision that suits it, and its peak FLOP/s."""

import ctypes
import os
import platform
import time
import warnings
from functools import cache
from pathlib import Path

import torch

from bertsmith.errors import RunError

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # options of glibc's mallopt


def select_device(requested: str) -> torch.device:
    """The requested device; `auto` takes a GPU if there is one."""
    if requested == "cuda" and not torch.cuda.is_available():
        raise RunError("train.device", "there is no CUDA device here", "Use train.device=cpu, or auto")
    if requested == "auto":
        requested = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(requested)


def select_precision(requested: str, device: torch.device) -> torch.dtype:
    """The requested precision; `auto` is bfloat16 if matrix units make it faster: on GPUs, and on CPUs with AMX."""
    if requested == "auto":
        fast = device.type == "cuda" or torch.cpu._is_amx_tile_supported()
        requested = "bfloat16" if fast else "float32"
    if requested == "float32":
        return torch.float32
    # A CPU without such units takes a slower kernel for the same result, of which torch warns at length.
    warnings.filterwarnings("ignore", message="mkldnn_matmul failed")
    return torch.bfloat16


def keep_freed_memory() -> None:
    """Make glibc keep freed memory in this process, since each step allocates what the last one freed.

    Otherwise the attention scores of a batch, tens of megabytes, go back to the system, and return page by page: ten
    thousand page faults in a step of a tiny BERT. The setting holds for the whole process from then on.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if platform.system() == "Linux" else None
    if mallopt is not None:  # other C libraries do not have it
        mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
        mallopt(M_MMAP_THRESHOLD, 2**30)


@cache
def peak_flops(device: torch.device, dtype: torch.dtype) -> float:
    """FLOP/s of one large matrix product, measured once: the peak for the model FLOPs utilisation (MFU)."""
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
    """The FLOP/s that training will reach, about: a share of the peak, as measured on such devices."""
    if device.type == "cuda":
        return 0.4 * peak_flops(device, torch.bfloat16)
    return 0.5 * peak_flops(device, torch.float32)


def describe(device: torch.device) -> dict[str, str]:
    """The device and versions that a result was made with."""
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
