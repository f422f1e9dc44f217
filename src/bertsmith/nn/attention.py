"""Self-attention and cross-attention: each token takes a weighted mean of other tokens. Vaswani et al. 2017.

One formula, softmax(Q K' / sqrt K) V, computed by the kernel that the batch's `Layout` names.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from bertsmith.nn.dropout import dropout as apply_dropout
from bertsmith.nn.grouping import Group
from bertsmith.nn.layout import Layout
from bertsmith.nn.padded import attend_padded
from bertsmith.nn.tiling import Run, strided_tiles, tile_mask
from bertsmith.nn.window import Window


def attend(
    query: Float[Tensor, "T H K"],
    key: Float[Tensor, "S H K"],
    value: Float[Tensor, "S H K"],
    layout: Layout,
    dropout: float = 0.0,
) -> Float[Tensor, "T H K"]:
    """Attention of all heads, by the layout's kernel; `dropout` applies to the attention weights."""
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
            return _tiled(query, key, value, layout, dropout)
        case "eager":
            return _eager(query, key, value, layout, dropout)
        case "cached":
            return attend_cached(query, layout)
        case "padded":
            assert layout.rows is not None
            assert layout.mask is not None
            mask = layout.mask if layout.bias is None else layout.mask.to(query.dtype)
            queries, keys = layout.rows
            return attend_padded(query, key, value, queries, keys, mask, dropout)


def attend_qkv(qkv: Float[Tensor, "T 3 H K"], layout: Layout, dropout: float = 0.0) -> Float[Tensor, "T H K"]:
    """The same of query, key and value in one tensor: our Triton kernels return its gradient without a copy."""
    if layout.kernel in ("short", "long") and layout.cache is None and layout.bias is None:
        from bertsmith.nn.kernels import attention_long as long  # need Triton
        from bertsmith.nn.kernels import attention_short as short

        qkv_attention = short.qkv_attention if layout.kernel == "short" else long.qkv_attention
        return qkv_attention(qkv, layout.bounds, layout.longest, dropout, _seed(qkv, dropout), layout.window)
    query, key, value = qkv.unbind(1)
    return attend(query, key, value, layout, dropout)


def attend_cached(query: Float[Tensor, "T H K"], layout: Layout) -> Float[Tensor, "T H K"]:
    """Attention to the keys and values in the KV cache, to which nothing is added."""
    cache = layout.cache
    assert cache is not None
    query = torch.unflatten(query, 0, (len(cache.keys), -1)).transpose(1, 2)  # B H W K
    attended = F.scaled_dot_product_attention(query, cache.keys, cache.values, cache.mask)
    return attended.transpose(1, 2).flatten(0, 1)


def _seed(like: Tensor, dropout: float) -> Tensor | None:
    """The seed of the dropout mask of a Triton kernel, drawn by torch's generator of the device."""
    return torch.randint(1 << 62, (), device=like.device) if dropout else None


def _varlen(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout: float) -> Tensor:
    # The public varlen_attn calls this same operation with dropout fixed at 0. These arguments are the same in torch
    # 2.11 and 2.13, and the gradient is built in.
    bounds, longest, window = layout.bounds, layout.longest, layout.window
    key_bounds, longest_key = (bounds, longest) if layout.key_sequences is None else layout.key_sequences[:2]
    left, right = window.sizes
    sizes = {} if window.full or window.causal else {"window_size_left": left, "window_size_right": right}
    attended: Tensor = torch.ops.aten._flash_attention_forward(
        query, key, value, bounds, key_bounds, longest, longest_key, dropout, window.causal, False, **sizes
    )[0]
    return attended


def _short(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout: float) -> Tensor:
    from bertsmith.nn.kernels.attention_bias import biased_attention  # need Triton
    from bertsmith.nn.kernels.attention_short import short_attention

    rest = (layout.bounds, layout.longest, dropout, _seed(query, dropout), layout.window)
    if layout.bias is None:
        return short_attention(query, key, value, *rest)
    return biased_attention(query, key, value, layout.bias, *rest)


def _dense(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout: float) -> Tensor:
    group = Group(layout.bounds.shape[0] - 1, layout.longest, None)
    return _attend_rectangle(query, key, value, group, layout.window, dropout)


def _grouped(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout: float) -> Tensor:
    assert layout.grouping is not None
    groups, tokens = layout.grouping.groups, layout.grouping.tokens
    if not groups:
        return query  # every sequence is empty
    # One gather and one split: with slices the backward pass would fill a whole batch for each group.
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
        # A CPU's fused kernel has no dropout, and its backward pass in half precision takes three times as long.
        attended, _ = _formula(query, key, value, _group_mask(group, window, query.device), dropout)
    elif window.causal:
        attended = F.scaled_dot_product_attention(query, key, value, None, dropout, is_causal=True)
    else:
        mask = _group_mask(group, window, query.device)
        attended = F.scaled_dot_product_attention(query, key, value, mask, dropout)
    return attended.transpose(1, 2).flatten(0, 1)


def _group_mask(group: Group, window: Window, device: torch.device) -> Tensor | None:
    """The attention mask of a rectangle; None if nothing is masked."""
    if window.full:
        return group.mask
    visible = window.mask(group.length, group.length, device)
    if group.mask is None or window.causal:  # padding is at the end, where no earlier token attends
        return visible
    # Padding attends to all real tokens: a query without any key would be nan.
    return group.mask & (visible | ~group.mask.mT)


def _tiled(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout: float) -> Tensor:
    assert layout.tiling is not None
    runs, tokens, slots = layout.tiling.runs, layout.tiling.tokens, layout.tiling.slots
    if not runs:
        return query  # every sequence is empty
    if tokens is not None:
        query, key, value = (part.index_select(0, tokens) for part in (query, key, value))
    attended = [_attend_run(query, key, value, run, layout.window, dropout) for run in runs]
    joined = attended[0] if len(attended) == 1 else torch.cat(attended)
    return joined if slots is None else joined.index_select(0, slots)


def _attend_run(query: Tensor, key: Tensor, value: Tensor, run: Run, window: Window, dropout: float) -> Tensor:
    # A weight of 0 times any finite number is 0: only inf and nan of a sequence could reach the one before it.
    size = run.sequences_per_tile * run.length
    causal = window.causal and run.sequences_per_tile == 1  # keys after a sequence are masked as its future
    # Large masks are not cached.
    make = tile_mask if window.full or run.sequences_per_tile > 1 else tile_mask.__wrapped__
    mask = None if causal else make(run.sequences_per_tile, run.length, run.key_length, query.dtype, window)
    queries = strided_tiles(query, run, size)
    keys, values = (strided_tiles(part, run, run.key_length) for part in (key, value))
    attended = F.scaled_dot_product_attention(queries, keys, values, mask, dropout, is_causal=causal)
    return attended.transpose(1, 2).flatten(0, 1)


def _eager(query: Tensor, key: Tensor, value: Tensor, layout: Layout, dropout: float) -> Tensor:
    query_lengths, key_lengths = layout.lengths
    parts = (
        torch.split(part.transpose(0, 1), lengths, 1)  # H L K
        for part, lengths in ((query, query_lengths), (key, key_lengths), (value, key_lengths))
    )
    masks = [
        (
            None if layout.window.full else layout.window.mask(rows, columns, query.device),
            None if layout.bias is None else layout.bias[:, :rows, :columns],
        )
        for rows, columns in zip(query_lengths, key_lengths, strict=True)
    ]
    results = [
        _formula(query, key, value, mask, dropout, bias)
        for query, key, value, (mask, bias) in zip(*parts, masks, strict=True)
    ]
    layout.attention_weights.append([weights for _, weights in results])
    return torch.cat([attended for attended, _ in results], 1).transpose(0, 1)


def _formula(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, dropout: float, bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The output and the attention weights."""
    scores = (query * query.shape[-1] ** -0.5) @ key.transpose(-2, -1)
    scores = scores if bias is None else scores + bias
    weights = (scores if mask is None else scores.masked_fill(~mask, -torch.inf)).softmax(-1)
    return apply_dropout(weights, dropout) @ value, weights
