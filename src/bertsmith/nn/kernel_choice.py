"""Which attention kernel computes a batch: by its lengths, the device and the precision.

Every kernel gives the same numbers:

    varlen    flash attention of variable length, self- or cross-attention: CUDA, half precision
    short     our Triton kernel for up to 256 tokens, also with relative position bias: CUDA, in compiled steps
    long      our Triton kernel for longer sequences: CUDA, in compiled steps
    dense     rows of equal length without a mask: any device
    grouped   ragged rows in groups of nearly equal length: CPU, and CUDA in float32
    tiled     runs of equal length read in place: CPU, without gradients
    padded    all rows in one rectangle, with relative position bias or cross-attention: any device, any length
    eager     the formula written out, one sequence at a time, which also gives the attention weights
"""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from bertsmith.nn.attention import Eager, Kernel, Sequences
from bertsmith.nn.grouping import Dense, group_by_length
from bertsmith.nn.kernels.availability import kernels_unavailable
from bertsmith.nn.padded import Padded
from bertsmith.nn.tiling import tile_by_length
from bertsmith.nn.varlen import Biased, Long, Short, Varlen
from bertsmith.nn.window import FULL, Window

KernelName = Literal["varlen", "short", "long", "dense", "grouped", "tiled", "padded", "eager"]


def best_kernel(equal: bool, longest: int, device: torch.device, dtype: torch.dtype, head_width: int) -> KernelName:
    """The fastest kernel for self-attention, chosen without reading any tensor."""
    compiling = torch.compiler.is_compiling()
    if device.type == "cpu" and not torch.is_grad_enabled() and not compiling:
        return "tiled"
    if equal:
        return "dense"
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return "grouped"
    # Our Triton kernels are compiled before their first use, which pays in compiled steps only.
    if compiling and kernels_unavailable(device) is None:
        from bertsmith.nn.kernels import attention_long as long  # need Triton
        from bertsmith.nn.kernels import attention_short as short

        if short.fits(longest, head_width):
            return "short"
        if long.fits(head_width):
            return "long"
    # Flash attention needs Ampere or later.
    ampere = torch.cuda.get_device_properties(device).major >= 8
    return "varlen" if ampere and head_width % 8 == 0 and head_width <= 256 else "grouped"


def self_attention(
    name: KernelName, sequences: Sequences, window: Window = FULL, bias: Float[Tensor, "H Q S"] | None = None
) -> Kernel:
    """The kernel of this name for a batch. Only `grouped`, `tiled` and `eager` read the bounds, and so may wait for
    the device; only `short`, `padded` and `eager` add a relative position bias."""
    match name:
        case "short" if bias is not None:
            return Biased(sequences, bias, window=window)
        case "padded":
            return Padded.of(sequences, sequences, window, bias)
        case "eager":
            return Eager(sequences.lengths, sequences.lengths, bias, window=window)
    assert bias is None, f"{name} attention has no bias"
    match name:
        case "varlen":
            return Varlen(sequences, sequences, window=window)
        case "short":
            return Short(sequences, window=window)
        case "long":
            return Long(sequences, window=window)
        case "dense":
            return Dense(len(sequences.bounds) - 1, sequences.longest, window=window)
        case "grouped":
            return group_by_length(sequences.bounds, window)
        case "tiled":
            return tile_by_length(sequences.bounds, window)


def cross_attention(name: KernelName, queries: Sequences, keys: Sequences) -> Kernel:
    """The kernel for cross-attention that goes with this one for self-attention."""
    match name:
        case "eager":
            return Eager(queries.lengths, keys.lengths)
        case "short" | "long" | "varlen":  # our Triton kernels do self-attention only
            return Varlen(queries, keys, window=FULL)  # the compiler cannot see the default of a dataclass
    return Padded.of(queries, keys)


def compute_dtype(hidden: Tensor) -> torch.dtype:
    """The precision of products: under autocast its own, whatever that of the vectors and weights is."""
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
