"""The layout of a batch for attention: its sequences, the kernel that computes it, and the index and mask it needs.

Nine kernels give the same numbers:

    varlen    flash attention of variable length, self- or cross-attention: CUDA, half precision
    short     our Triton kernel for up to 256 tokens, also with relative position bias: CUDA, in compiled steps
    long      our Triton kernel for longer sequences: CUDA, in compiled steps
    dense     rows of equal length without a mask: any device
    grouped   ragged rows in groups of nearly equal length: CPU, and CUDA in float32
    tiled     runs of equal length read in place: CPU, without gradients
    eager     the formula written out, one sequence at a time; keeps the attention weights
    cached    new tokens attend to a KV cache
    padded    all rows in one rectangle, with relative position bias or cross-attention: any device, any length
"""

from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.nn.grouping import Grouping, group_by_length
from bertsmith.nn.kv_cache import LayerCache
from bertsmith.nn.padded import PaddedRows, Rectangle, build_mask
from bertsmith.nn.tiling import Tiling, tile_by_length
from bertsmith.nn.window import FULL, Window

Kernel = Literal["varlen", "short", "long", "dense", "grouped", "tiled", "eager", "cached", "padded"]


def best_kernel(equal: bool, longest: int, device: torch.device, dtype: torch.dtype, head_width: int) -> Kernel:
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


def kernels_unavailable(device: torch.device) -> str | None:
    """Why our Triton kernels cannot run on this GPU, or None if they can."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    from bertsmith.nn.kernels import shared

    return None if shared.available(device) else "the GPU is older than an A100, or smaller"


# As torch.compiler.assume_constant_result does, which would import the compiler, and with it Triton.
kernels_unavailable._dynamo_marked_constant = True  # type: ignore[attr-defined]


class Sequences(NamedTuple):
    """Where the sequences of a flat batch begin and end."""

    bounds: Int[Tensor, "ends"]  # int32: the start of each sequence, then the end
    longest: int
    tokens: int


def _without_empty(queries: Sequences, keys: Sequences) -> tuple[Sequences, Sequences]:
    """The same without empty sequences at the end, unless counting them would wait for a GPU or break a graph."""
    if queries.bounds.device.type != "cpu" or torch.compiler.is_compiling():
        return queries, keys
    most = max(int((part.bounds < part.tokens).sum()) for part in (queries, keys))
    first = queries._replace(bounds=queries.bounds[: most + 1])
    return first, first if keys is queries else keys._replace(bounds=keys.bounds[: most + 1])


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What attention needs to know of a batch; built once, shared by all layers."""

    bounds: Int[Tensor, "..."]  # int32: the start of each sequence, then the end
    longest: int
    kernel: Kernel
    window: Window
    grouping: Grouping | None = None  # for 'grouped'
    tiling: Tiling | None = None  # for 'tiled'
    rotary: tuple[Float[Tensor, "T 3 1 R"], Float[Tensor, "T 3 1 R"]] | None = None  # cosines and sines of RoPE
    bias: Float[Tensor, "H Q S"] | None = None  # relative position bias
    rows: tuple[PaddedRows, PaddedRows] | tuple[Rectangle, Rectangle] | None = None  # for 'padded': queries and keys
    mask: Tensor | None = None  # for 'padded': boolean, or with the bias what is added to the scores
    lengths: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))  # for 'eager': queries and keys
    attention_weights: list[list[Float[Tensor, "H _ _"]]] = field(default_factory=list)  # from 'eager': by layer
    cache: LayerCache | None = None  # the layer's KV cache: filled by self-attention, read by 'cached'
    memory: Float[Tensor, "S D"] | None = None  # for cross-attention: the encoder's output
    key_sequences: Sequences | None = None  # for 'varlen' cross-attention: the sequences of the memory
    cross: "Layout | None" = None  # the layout of cross-attention

    @classmethod
    def of(cls, bounds: Int[Tensor, "..."], longest: int, kernel: Kernel, window: Window = FULL) -> "Layout":
        """Self-attention. Only 'grouped', 'tiled' and 'eager' read the bounds here, and so may wait for the device."""
        layout = cls(bounds=bounds, longest=longest, kernel=kernel, window=window)
        match kernel:
            case "tiled":
                return replace(layout, tiling=tile_by_length(bounds))
            case "grouped":
                return replace(layout, grouping=group_by_length(bounds))
            case "eager":
                return replace(layout, lengths=(bounds.diff().tolist(),) * 2)
        return layout

    @classmethod
    def between(
        cls, queries: Sequences, keys: Sequences, kernel: Kernel, window: Window = FULL, bias: Tensor | None = None
    ) -> "Layout":
        """Cross-attention by 'padded', 'eager' or 'varlen', or self-attention with a bias by 'padded' or 'eager'."""
        layout = cls(bounds=queries.bounds, longest=queries.longest, kernel=kernel, window=window, bias=bias)
        if kernel == "varlen":
            return replace(layout, key_sequences=keys)
        if kernel == "eager":
            return replace(layout, lengths=(queries.bounds.diff().tolist(), keys.bounds.diff().tolist()))
        queries, keys = _without_empty(queries, keys)
        rows = PaddedRows.of(*queries)
        pair = (rows, rows if keys is queries else PaddedRows.of(*keys))
        mask = build_mask(*pair, window)
        if bias is not None:
            mask = torch.where(mask, bias, -torch.inf)  # B H Q S: once for all layers
        return replace(layout, rows=pair, mask=mask)
