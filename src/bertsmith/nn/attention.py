"""Self-attention and cross-attention: each token takes a weighted mean of other tokens. Vaswani et al. 2017.

One formula, softmax(Q K' / sqrt K) V, in nine kernels that give the same numbers:

    varlen    the flash kernel that reads bounds itself, those of another text too: CUDA, half precision
    short     our own for up to 256 tokens, with relative positions too: CUDA with Triton, in compiled steps
    long      and for longer ones
    dense     rows of equal length, no mask: any device
    grouped   ragged rows put together with others of nearly their length: CPU, and CUDA in full precision
    tiled     sequences of one length where they lie, keys through windows that overlap: CPU, without gradients
    eager     the formula written out, one sequence at a time; keeps the weights
    cached    one new token on each way, which looks at the keys that a cache has kept
    padded    rows of one rectangle, with relative positions, or with the keys of another text: any device, any length
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache
from importlib.util import find_spec
from itertools import pairwise
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bertsmith.nn.dropout import dropout as forget
from bertsmith.nn.kv_cache import LayerCache
from bertsmith.nn.padded import PaddedRows, attend_padded, build_mask
from bertsmith.nn.window import FULL, Window

Kernel = Literal["varlen", "short", "long", "dense", "grouped", "tiled", "eager", "cached", "padded"]

MIN_LENGTH_RATIO = 0.8  # a group takes sequences down to this share of its longest: at most a quarter more tokens
MAX_GROUPS = 8  # more calls cost more than the padding they save
LENGTH_MULTIPLE = 4  # lengths of rectangles are multiples: a CPU prepares a kernel for every new shape
FREE_PADDING = 16_384  # looks at padding that cost less than one more call
# Keys a window is a multiple of: what is left over a processor's vectors is computed one number at a time.
KEY_MULTIPLE = 32


def best_kernel(equal: bool, longest: int, device: torch.device, dtype: torch.dtype, head_width: int) -> Kernel:
    """The fastest kernel that can do it, from what is known without looking into any tensor."""
    compiling = torch.compiler.is_compiling()
    if device.type == "cpu" and not torch.is_grad_enabled() and not compiling:
        return "tiled"
    if equal:
        return "dense"
    if device.type != "cuda" or dtype not in (torch.float16, torch.bfloat16):
        return "grouped"
    # Our own kernels are compiled before they run for the first time, which pays where the whole step is.
    if compiling and kernels_unavailable(device) is None:
        from bertsmith.nn.kernels import attention_long as long  # need Triton
        from bertsmith.nn.kernels import attention_short as short

        if short.fits(longest, head_width):
            return "short"
        if long.fits(head_width):
            return "long"
    # The flash kernel begins with Ampere.
    ampere = torch.cuda.get_device_properties(device).major >= 8
    return "varlen" if ampere and head_width % 8 == 0 and head_width <= 256 else "grouped"


def kernels_unavailable(device: torch.device) -> str | None:
    """What our own kernels lack on this GPU, if anything."""
    if find_spec("triton") is None:
        return "Triton is not installed"
    from bertsmith.nn.kernels import shared

    return None if shared.available(device) else "the GPU is older than an A100, or smaller"


# What torch.compiler.assume_constant_result does; but that imports the compiler, and with it Triton.
kernels_unavailable._dynamo_marked_constant = True  # type: ignore[attr-defined]


class Sequences(NamedTuple):
    """Where sequences lie that stand end to end."""

    bounds: Int[Tensor, "ends"]  # int32: where each begins, then the end
    longest: int
    tokens: int


def _without_empty(queries: Sequences, keys: Sequences) -> tuple[Sequences, Sequences]:
    """The same without empty sequences at the end, where looking for them makes nobody wait and breaks no graph."""
    if queries.bounds.device.type != "cpu" or torch.compiler.is_compiling():
        return queries, keys
    most = max(int((part.bounds < part.tokens).sum()) for part in (queries, keys))
    first = queries._replace(bounds=queries.bounds[: most + 1])
    return first, first if keys is queries else keys._replace(bounds=keys.bounds[: most + 1])


@dataclass(frozen=True)
class Group:
    """Sequences of nearly the same length, as the rows of one rectangle."""

    rows: int
    length: int
    mask: Bool[Tensor, "B 1 1 L"] | None  # True: may look. None when nothing is padded


@dataclass(frozen=True)
class Grouping:
    """All sequences in rectangles laid end to end, and the way there and back."""

    groups: tuple[Group, ...]
    tokens: Int[Tensor, "..."]  # for each slot of the rectangles the token that stands in it
    slots: Int[Tensor, "T"]  # for each token its slot


@dataclass(frozen=True)
class Run:
    """Sequences of one length, one behind the other, cut into tiles: one sequence, or several short ones."""

    start: int  # its first token
    tiles: int
    sequences_per_tile: int  # sequences in a tile
    length: int
    key_length: int  # keys a tile reads from its own start on; those of the next sequence are masked


@dataclass(frozen=True)
class Tiling:
    """All sequences in runs, and the way there and back where they did not lie sorted by length."""

    runs: tuple[Run, ...]
    tokens: Int[Tensor, "T"] | None = None  # for each place in the runs the token that stands there
    slots: Int[Tensor, "T"] | None = None  # for each token its place


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where each sequence lies and which kernel reads it; made once for a batch, shared by all layers."""

    bounds: Int[Tensor, "..."]  # int32: where each sequence begins, then the end
    longest: int
    kernel: Kernel
    window: Window  # how far each token looks
    grouping: Grouping | None = None  # for 'grouped'
    tiling: Tiling | None = None  # for 'tiled'
    rotary: tuple[Float[Tensor, "T 3 1 R"], Float[Tensor, "T 3 1 R"]] | None = None  # with rotary positions
    bias: Float[Tensor, "H Q S"] | None = None  # with relative positions: what is added to scores
    rows: tuple[PaddedRows, PaddedRows] | None = None  # for 'padded': queries and keys
    mask: Tensor | None = None  # for 'padded': who may look at whom, or what is added to the scores
    lengths: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))  # for 'eager': queries and keys
    attention_weights: list[list[Float[Tensor, "H _ _"]]] = field(default_factory=list)  # from 'eager': by layer
    cache: LayerCache | None = None  # where a layer keeps its keys and values, and 'cached' finds them
    memory: Float[Tensor, "S D"] | None = None  # the vectors of another text, whose keys are looked at
    key_sequences: Sequences | None = None  # for 'varlen': where that text lies
    cross: "Layout | None" = None  # how such a text is looked at, by layers that do that too

    @classmethod
    def of(cls, bounds: Int[Tensor, "..."], longest: int, kernel: Kernel, window: Window = FULL) -> "Layout":
        """Only 'grouped', 'tiled' and 'eager' read the bounds here, and so may wait for the device."""
        layout = cls(bounds=bounds, longest=longest, kernel=kernel, window=window)
        match kernel:
            case "tiled":
                return replace(layout, tiling=_tiling(bounds))
            case "grouped":
                return replace(layout, grouping=_grouping(bounds))
            case "eager":
                return replace(layout, lengths=(bounds.diff().tolist(),) * 2)
        return layout

    @classmethod
    def between(
        cls, queries: Sequences, keys: Sequences, kernel: Kernel, window: Window = FULL, bias: Tensor | None = None
    ) -> "Layout":
        """Queries and keys of two texts, or of one with relative positions: for 'padded' and 'eager', and of two
        texts for 'varlen'."""
        layout = cls(bounds=queries.bounds, longest=queries.longest, kernel=kernel, window=window, bias=bias)
        if kernel == "varlen":
            return replace(layout, key_sequences=keys)
        if kernel == "eager":
            return replace(layout, lengths=(queries.bounds.diff().tolist(), keys.bounds.diff().tolist()))
        queries, keys = _without_empty(queries, keys)
        rows = PaddedRows.of(*queries)
        pair = (rows, rows if keys is queries else PaddedRows.of(*keys))
        looks = build_mask(*pair, window)
        if bias is not None:
            looks = torch.where(looks, bias, -torch.inf)  # B H Q S: once for all layers
        return replace(layout, rows=pair, mask=looks)


def attend(
    query: Float[Tensor, "T H K"],
    key: Float[Tensor, "S H K"],
    value: Float[Tensor, "S H K"],
    layout: Layout,
    dropout: float = 0.0,
) -> Float[Tensor, "T H K"]:
    """What each token takes from its own sequence, or from another; `dropout` forgets that share of the weights."""
    if layout.cache is not None:
        layout.cache.update(key, value)
    match layout.kernel:
        case "varlen":
            return _varlen(query, key, value, layout, dropout)
        case "short":
            return _short(query, key, value, layout, dropout)
        case "long":
            from bertsmith.nn.kernels.attention_long import long_attention  # needs Triton

            return long_attention(
                query, key, value, layout.bounds, layout.longest, dropout, _seed(query, dropout), layout.window
            )
        case "dense":
            return _dense(query, key, value, layout, dropout)
        case "grouped":
            return _grouped(query, key, value, layout, dropout)
        case "tiled":
            return _windowed(query, key, value, layout, dropout)
        case "eager":
            return _recorded(query, key, value, layout, dropout)
        case "cached":
            return attend_cached(query, layout)
        case "padded":
            assert layout.rows is not None
            assert layout.mask is not None
            looks = layout.mask if layout.bias is None else layout.mask.to(query.dtype)
            return attend_padded(query, key, value, *layout.rows, looks, dropout)


def attend_qkv(qkv: Float[Tensor, "T 3 H K"], layout: Layout, dropout: float = 0.0) -> Float[Tensor, "T H K"]:
    """The same for query, key and value as one product made them, whose gradient then need not be put together."""
    if layout.kernel in ("short", "long") and layout.cache is None and layout.bias is None:
        from bertsmith.nn.kernels import attention_long as long  # need Triton
        from bertsmith.nn.kernels import attention_short as short

        joined = short.qkv_attention if layout.kernel == "short" else long.qkv_attention
        return joined(qkv, layout.bounds, layout.longest, dropout, _seed(qkv, dropout), layout.window)
    query, key, value = qkv.unbind(1)
    return attend(query, key, value, layout, dropout)


def _seed(like: Tensor, dropout: float) -> Tensor | None:
    """What decides which weights are forgotten: drawn from torch's own chance, where it is needed."""
    return torch.randint(1 << 62, (), device=like.device) if dropout else None


def _varlen(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout: float) -> Tensor:
    # The public varlen_attn calls this same operation with dropout fixed at nought. These arguments are the
    # same in torch 2.11 and 2.13, and the gradient is built in.
    bounds, longest, reach = layout.bounds, layout.longest, layout.window
    others, most = (bounds, longest) if layout.key_sequences is None else layout.key_sequences[:2]
    before, behind = reach.sizes
    window = {} if reach.full or reach.causal else {"window_size_left": before, "window_size_right": behind}
    attended: Tensor = torch.ops.aten._flash_attention_forward(
        query, key, value, bounds, others, longest, most, dropout, reach.causal, False, **window
    )[0]
    return attended


def _short(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout: float) -> Tensor:
    from bertsmith.nn.kernels.attention_bias import biased_attention  # need Triton
    from bertsmith.nn.kernels.attention_short import short_attention

    rest = (layout.bounds, layout.longest, dropout, _seed(query, dropout), layout.window)
    return (
        short_attention(query, key, value, *rest)
        if layout.bias is None
        else biased_attention(query, key, value, layout.bias, *rest)
    )


def _dense(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout: float) -> Tensor:
    group = Group(layout.bounds.shape[0] - 1, layout.longest, None)
    return _attend_rectangle(query, key, value, group, layout.window, dropout)


def _grouped(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout: float) -> Tensor:
    assert layout.grouping is not None
    groups, tokens = layout.grouping.groups, layout.grouping.tokens
    if not groups:
        return query  # every sequence is empty
    # One gather and one split: slices would make the backward pass fill a whole batch for each group.
    sizes = [group.rows * group.length for group in groups]
    queries, keys, values = (torch.split(part.index_select(0, tokens), sizes) for part in (query, key, value))
    attended = [
        _attend_rectangle(query, key, value, group, layout.window, dropout)
        for query, key, value, group in zip(queries, keys, values, groups, strict=True)
    ]
    return torch.cat(attended).index_select(0, layout.grouping.slots)


def _attend_rectangle(
    query: Tensor, key: Tensor, value: Tensor, group: Group, window: Window, dropout: float
) -> Tensor:
    shape = (group.rows, group.length, *query.shape[1:])
    query, key, value = (part.reshape(shape).transpose(1, 2) for part in (query, key, value))  # B H L K
    if query.requires_grad and query.device.type == "cpu" and (dropout > 0 or query.dtype != torch.float32):
        # A CPU's fused kernel knows no dropout, and is slow backwards in half precision: plain products take a third.
        attended, _ = _eager(query, key, value, _group_mask(group, window, query.device), dropout)
    elif window.causal:
        attended = F.scaled_dot_product_attention(query, key, value, None, dropout, is_causal=True)
    else:
        mask = _group_mask(group, window, query.device)
        attended = F.scaled_dot_product_attention(query, key, value, mask, dropout)
    return attended.transpose(1, 2).flatten(0, 1)


def _group_mask(group: Group, window: Window, device: torch.device) -> Tensor | None:
    """Who may look at whom in the rows of a rectangle; None where all may."""
    if window.full:
        return group.mask
    seen = window.mask(group.length, group.length, device)
    if group.mask is None or window.causal:  # padding stands behind all that is not
        return seen
    # What is padding looks at all that is not, so that it finds something: nothing at all would be no number.
    return group.mask & (seen | ~group.mask.mT)


def _windowed(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout: float) -> Tensor:
    assert layout.tiling is not None
    runs, tokens, slots = layout.tiling.runs, layout.tiling.tokens, layout.tiling.slots
    if not runs:
        return query  # every sequence is empty
    if tokens is not None:
        query, key, value = (part.index_select(0, tokens) for part in (query, key, value))
    attended = [_tiles(query, key, value, run, layout.window, dropout) for run in runs]
    together = attended[0] if len(attended) == 1 else torch.cat(attended)
    return together if slots is None else together.index_select(0, slots)


def _tiles(query: Tensor, key: Tensor, value: Tensor, run: Run, window: Window, dropout: float) -> Tensor:
    # A weight of nought makes nought of every number but inf and nan: those alone would reach the sequence before.
    size = run.sequences_per_tile * run.length
    causal = window.causal and run.sequences_per_tile == 1  # what follows a sequence is to come, too
    make = (
        _tile_mask if window.full or run.sequences_per_tile > 1 else _tile_mask.__wrapped__
    )  # large ones are not kept
    mask = None if causal else make(run.sequences_per_tile, run.length, run.key_length, query.dtype, window)

    parts = (
        _strided_tiles(query, run, size),
        _strided_tiles(key, run, run.key_length),
        _strided_tiles(value, run, run.key_length),
    )
    attended = F.scaled_dot_product_attention(*parts, mask, dropout, is_causal=causal)
    return attended.transpose(1, 2).flatten(0, 1)


def _strided_tiles(part: Tensor, run: Run, length: int) -> Tensor:
    """The tiles of a run, so many tokens from the beginning of each: B H L K, without a copy."""
    token, head, number = part.stride()
    shape, steps = (
        (run.tiles, part.shape[1], length, part.shape[2]),
        (run.sequences_per_tile * run.length * token, head, token),
    )
    return part.as_strided(shape, (*steps, number), part.storage_offset() + run.start * token)


@lru_cache(4096)
def _tile_mask(
    sequences_per_tile: int, length: int, key_length: int, dtype: torch.dtype, window: Window
) -> Tensor | None:
    """What is added to the scores of a tile: nought within each sequence and reach, minus infinity elsewhere."""
    if sequences_per_tile == 1 and length == key_length and window.full:
        return None
    with torch.inference_mode(False):
        one = sequences_per_tile == 1 and window.full  # the same for all tokens
        rows = torch.arange(1 if one else sequences_per_tile * length)
        own = rows[:, None] // length == torch.arange(key_length) // length
        own = own & window.mask(len(rows), key_length)
        return torch.zeros(own.shape, dtype=dtype).masked_fill(~own, -torch.inf)


def _tiling(bounds: Tensor) -> Tiling:
    """Sequences by length, the longest first, as those who sort them put them. Empty sequences fall out."""
    ends = bounds.numpy().astype(np.int64)
    starts, lengths = ends[:-1], np.diff(ends)
    total = int(ends[-1])
    order = np.argsort(-lengths, kind="stable")
    order = order[: np.count_nonzero(lengths)]
    sizes = lengths[order]
    places = np.cumsum(sizes) - sizes  # where each sequence begins among the sorted
    runs: list[Run] = []
    edges = np.flatnonzero(np.diff(sizes, prepend=0, append=0)).tolist()  # where one run ends, and the next begins
    for first, stop in pairwise(edges):
        length, start, rows = int(sizes[first]), int(places[first]), stop - first
        together = min(max(1, KEY_MULTIPLE // length), rows)
        size = together * length
        window = -(-size // KEY_MULTIPLE) * KEY_MULTIPLE
        # The last windows might reach beyond the last token: their sequences are read as they are.
        tiles = max(0, min(rows // together, (total - start - window) // size + 1))
        if tiles:
            runs.append(Run(start, tiles, together, length, window))
        if rest := rows - tiles * together:
            runs.append(Run(start + tiles * size, rest, 1, length, length))
    if (starts[order] == places).all():
        return Tiling(tuple(runs))
    tokens = np.repeat(starts[order] - places, sizes) + np.arange(total)
    slots = np.empty(total, np.int64)
    slots[tokens] = np.arange(total)
    return Tiling(tuple(runs), torch.from_numpy(tokens), torch.from_numpy(slots))


def _recorded(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout: float) -> Tensor:
    queries, keys = layout.lengths
    parts = (
        torch.split(part.transpose(0, 1), lengths, 1)  # H L K
        for part, lengths in ((query, queries), (key, keys), (value, keys))
    )
    shapes, bias = zip(queries, keys, strict=True), layout.bias
    added = [
        (
            None if layout.window.full else layout.window.mask(rows, columns, query.device),
            None if bias is None else bias[:, :rows, :columns],
        )
        for rows, columns in shapes
    ]
    found = [
        _eager(query, key, value, mask, dropout, bias)
        for query, key, value, (mask, bias) in zip(*parts, added, strict=True)
    ]
    layout.attention_weights.append([weights for _, weights in found])
    return torch.cat([attended for attended, _ in found], 1).transpose(0, 1)


def attend_cached(query: Float[Tensor, "T H K"], layout: Layout) -> Float[Tensor, "T H K"]:
    """What each token takes from what is kept already; nothing is added to it."""
    store = layout.cache
    assert store is not None
    query = torch.unflatten(query, 0, (len(store.keys), -1)).transpose(1, 2)  # B H W K
    attended = F.scaled_dot_product_attention(query, store.keys, store.values, store.mask)
    return attended.transpose(1, 2).flatten(0, 1)


def _eager(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """What is taken, and the weights by which it is taken."""
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
    scores = scores if bias is None else scores + bias
    weights = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1)
    return forget(weights, dropout) @ value, weights


def _grouping(bounds: Tensor) -> Grouping:
    """Sort sequences by length and cut them into rectangles. Empty sequences fall out."""
    ends = bounds.cpu().numpy().astype(np.int64)
    starts, lengths = ends[:-1], np.diff(ends)
    order = np.argsort(lengths, kind="stable")[np.count_nonzero(lengths == 0) :]  # shortest first
    groups: list[Group] = []
    tokens, slots, filled = [], np.zeros(int(ends[-1]), np.int64), 0
    while order.size:
        longest = int(lengths[order[-1]])
        last = len(groups) == MAX_GROUPS - 1
        wasted = np.cumsum(longest**2 - lengths[order[::-1]] ** 2)  # by taking in one more, the longest first
        most = len(order) - int(np.searchsorted(wasted, FREE_PADDING, side="right"))
        cut = 0 if last else min(most, int(np.searchsorted(lengths[order], MIN_LENGTH_RATIO * longest)))
        order, members = order[:cut], order[cut:]
        longest += -longest % LENGTH_MULTIPLE
        places = np.arange(longest)
        real = places < lengths[members, None]  # B L
        # A padded slot repeats its sequence's last token: always finite, never looked at, never read back.
        taken = starts[members, None] + np.minimum(places, lengths[members, None] - 1)
        slots[taken[real]] = filled + np.flatnonzero(real)
        mask = None if real.all() else torch.from_numpy(real[:, None, None]).to(bounds.device)
        groups.append(Group(len(members), longest, mask))
        tokens.append(taken.ravel())
        filled += taken.size
    taken = np.concatenate(tokens) if tokens else slots
    return Grouping(tuple(groups), *(torch.from_numpy(part).to(bounds.device) for part in (taken, slots)))
