"""Attention for sequences of any length: one program of the GPU for each block of a sequence and head.

What `short` does for sequences that fit into one program, in the way of FlashAttention (Dao et al. 2022) for those
that do not. Forwards a program holds its queries and walks through the keys, correcting its softmax as it goes.
Backwards there are two walks: queries that meet all the keys, then keys that meet all the queries. So the weights are
made twice, but every program owns what it writes: nothing is added up in memory, and gradients are the same every time.

Imported only where it is wanted, since it needs Triton.
"""

from dataclasses import dataclass
from typing import Any, no_type_check

import torch
import triton
import triton.language as tl
from jaxtyping import Float, Int
from torch import Tensor
from torch.library import triton_op, wrap_triton

from bertsmith.nn.kernels.shared import (
    COMPILED,
    INITIAL_MAX,
    WIDTHS,
    apply_window,
    check_dropout,
    contiguous_heads,
    grad_scale,
    hash_bits,
    keep_mask,
    kernel_arguments,
    load_rows,
    register_gradients,
    store_rows,
)
from bertsmith.nn.window import FULL, Window

LENGTH_MULTIPLE = 128  # the longest sequence is taken for a multiple: few lengths, and so few recordings


@dataclass(frozen=True)
class LaunchConfig:
    """How a program is laid out. Only speed depends on it."""

    queries: int  # in a block, and so many keys: one of the two stays, the other is what the program walks through
    keys: int
    warps: int  # one for at least 16 of what stays
    stages: int = 2  # the next block is on its way while this one is looked at


# By width of a head. Of 64 the fastest of those that bench/attention.py tries on an H200, of others by what the
# compiler says of registers and shared memory there. The more stay, the fewer times the others are read; the fewer meet
# at a time, the more programs find room.
FORWARD = {
    16: LaunchConfig(64, 64, 4),
    32: LaunchConfig(128, 64, 4),
    64: LaunchConfig(64, 64, 4, 3),
    128: LaunchConfig(64, 64, 4),
}
QUERIES = {
    16: LaunchConfig(64, 64, 4),
    32: LaunchConfig(64, 64, 4),
    64: LaunchConfig(64, 64, 4),
    128: LaunchConfig(64, 64, 4),
}
KEYS = {
    16: LaunchConfig(64, 64, 4),
    32: LaunchConfig(64, 64, 4),
    64: LaunchConfig(32, 64, 4, 3),
    128: LaunchConfig(32, 128, 8),
}
FLOAT32 = LaunchConfig(32, 32, 8)  # float32 on a GPU, without tensor cores: right, not fast


def fits(head_width: int) -> bool:
    """Whether heads this wide fit, whatever the length."""
    return head_width in WIDTHS


def long_attention(
    query: Float[Tensor, "T H K"],
    key: Float[Tensor, "T H K"],
    value: Float[Tensor, "T H K"],
    bounds: Int[Tensor, "..."],
    longest: int,
    dropout: float = 0.0,
    seed: Int[Tensor, ""] | None = None,
    window: Window = FULL,
) -> Float[Tensor, "T H K"]:
    """What each token takes from its own sequence, none of which is longer than `longest`.

    With dropout, `seed` (int64, on the device) decides which weights are forgotten: by it, the first token's place, the
    head, and the two tokens. The three gradients are views of one tensor, `T 3 H K`.
    """
    longest = _checked_length(longest, query.shape[2], dropout, seed)
    attended: Tensor
    seed = bounds if seed is None else seed
    attended, _ = _separate(query, key, value, bounds, seed, longest, dropout, *window.sizes)
    return attended


def qkv_attention(
    qkv: Float[Tensor, "T 3 H K"],
    bounds: Int[Tensor, "..."],
    longest: int,
    dropout: float = 0.0,
    seed: Int[Tensor, ""] | None = None,
    window: Window = FULL,
) -> Float[Tensor, "T H K"]:
    """As `long`, of query, key and value as one product made them: its gradient is one tensor, with nothing copied."""
    longest = _checked_length(longest, qkv.shape[3], dropout, seed)
    attended: Tensor
    seed = bounds if seed is None else seed
    attended, _ = _together(qkv, bounds, seed, longest, dropout, *window.sizes)
    return attended


def _checked_length(longest: int, width: int, dropout: float, seed: Tensor | None) -> int:
    """The longest sequence, rounded up, if all is well."""
    if not fits(width):
        raise ValueError(f"long attention: heads of {width}. They can be {', '.join(map(str, WIDTHS))} wide.")
    check_dropout("long", dropout, seed)
    return max(1, -(-longest // LENGTH_MULTIPLE)) * LENGTH_MULTIPLE


# fmt: off
@triton.jit
@no_type_check
def _locate(bounds, seed, blocks, block: tl.constexpr, heads: tl.constexpr, forgotten: tl.constexpr):
    """Which sequence, head and block a program has: where they begin, how long the sequence is, and its two keys."""
    # Heads of a token lie side by side in memory: programs that run at one time are neighbours there.
    head, place = tl.program_id(0) % heads, tl.program_id(0) // heads
    first, place = place % blocks * block, place // blocks
    start = tl.load(bounds + place)
    length = tl.load(bounds + place + 1) - start
    one, other = start, start
    if forgotten > 0:
        one, other, _, _ = tl.philox(tl.load(seed), start, head, 0, 0, 7)
    return head, start.to(tl.int64), length, first, one, other


@triton.jit
@no_type_check
def _window_range(begin, length, block: tl.constexpr, other: tl.constexpr, before: tl.constexpr, behind: tl.constexpr):
    """Where the blocks (of `other` tokens) begin and end that a block reaches."""
    low, high = 0, length
    if before >= 0:
        low = tl.maximum(begin - before, 0) // other * other
    if behind >= 0:
        high = tl.minimum(begin + block + behind, length)
    return low, high


@triton.jit
@no_type_check
def _load_block(base, step: tl.constexpr, rows, numbers, length, last: tl.constexpr):
    """A block of keys or values; none but the last reaches behind the sequence, so the others need not look out."""
    places = base + rows[:, None] * step + numbers[None, :]
    return tl.load(places, mask=rows[:, None] < length, other=0.0) if last else tl.load(places)


@triton.jit
@no_type_check
def _forward_block(
    queries, key, value, key_step: tl.constexpr, value_step: tl.constexpr, highest, total, taken, first, lots, other,
    length, scale, begin, width: tl.constexpr, block: tl.constexpr, last: tl.constexpr, forgotten: tl.constexpr,
    before: tl.constexpr, behind: tl.constexpr
):
    """Queries meet a block of keys: what they have seen so far is scaled to the highest score, then added to."""
    numbers, columns = tl.arange(0, width), first + tl.arange(0, block)
    keys = _load_block(key, key_step, columns, numbers, length, last)
    values = _load_block(value, value_step, columns, numbers, length, last)
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee")
    rows = begin + tl.arange(0, queries.shape[0])
    scores = apply_window(scores, rows[:, None], columns[None, :], before, behind)
    if last:
        scores = tl.where(columns[None, :] < length, scores, -float("inf"))
    higher = tl.maximum(highest, tl.max(scores, 1) * scale)
    weights = tl.exp2(scores * scale - higher[:, None])
    less = tl.exp2(highest - higher)
    total = total * less + tl.sum(weights, 1)
    if forgotten > 0:
        # Nought, but not a constant: the compiler would round first and then choose, half a register at a time.
        nought = scale * 0.0
        keep = keep_mask(lots[:, None], hash_bits(other, first, block)[None, :], forgotten)
        weights = tl.where(keep, weights, nought)
    taken = tl.dot(weights.to(values.dtype), values, taken * less[:, None], input_precision="ieee")
    return higher, total, taken


@triton.jit
@no_type_check
def _forward(
    query, key, value, attended, lse, bounds, seed, tokens, blocks, scale, grow, query_step: tl.constexpr,
    query_head: tl.constexpr, key_step: tl.constexpr, key_head: tl.constexpr, value_step: tl.constexpr,
    value_head: tl.constexpr, heads: tl.constexpr, width: tl.constexpr, query_block: tl.constexpr,
    key_block: tl.constexpr, forgotten: tl.constexpr, before: tl.constexpr, behind: tl.constexpr
):
    head, token, length, begin, one, other = _locate(bounds, seed, blocks, query_block, heads, forgotten)
    scale, grow = tl.cast(scale, tl.float32), tl.cast(grow, tl.float32)  # inductor hands them over in double precision
    if begin < length:
        query += token * query_step + head * query_head
        key += token * key_step + head * key_head
        value += token * value_step + head * value_head
        numbers, rows = tl.arange(0, width), begin + tl.arange(0, query_block)
        queries = load_rows(query, query_step, rows, numbers, length)
        lots = hash_bits(one, begin, query_block)
        # Who has seen nothing yet: above what is out of reach, so that it has no weight, and below all that is not.
        highest = tl.full([query_block], INITIAL_MAX, tl.float32)
        total = tl.zeros([query_block], tl.float32)
        taken = tl.zeros([query_block, width], tl.float32)
        low, high = _window_range(begin, length, query_block, key_block, before, behind)
        whole = high // key_block * key_block  # only the last block may reach behind the sequence
        for first in tl.range(low, whole, key_block):
            highest, total, taken = _forward_block(
                queries, key, value, key_step, value_step, highest, total, taken, first, lots, other, length, scale,
                begin, width, key_block, False, forgotten, before, behind
            )
        if whole < high:
            highest, total, taken = _forward_block(
                queries, key, value, key_step, value_step, highest, total, taken, whole, lots, other, length, scale,
                begin, width, key_block, True, forgotten, before, behind
            )
        total = tl.where(rows < length, total, 1.0)  # queries behind the sequence may have seen nothing
        attended += (token * heads + head) * width
        lse += head.to(tl.int64) * tokens + token
        store_rows(attended, heads * width, rows, numbers, length, taken * (grow / total)[:, None])
        tl.store(lse + rows, highest + tl.log2(total), mask=rows < length)


@triton.jit
@no_type_check
def _store_statistics(notes, rows, length, lse, delta, lots, block: tl.constexpr):
    """What keys will have to know of these queries, side by side: 16 bytes to a query, which come in one piece."""
    found = tl.join(tl.join(lse, lots.to(tl.float32, bitcast=True)), tl.join(delta, delta))
    store_rows(notes, 4, rows, tl.arange(0, 4), length, tl.reshape(found, [block, 4]))


@triton.jit
@no_type_check
def _load_statistics(notes, rows, length, block: tl.constexpr):
    found = tl.reshape(load_rows(notes, 4, rows, tl.arange(0, 4), length), [block, 2, 2])
    one, other = tl.split(found)
    log, lots = tl.split(one)
    mean, _ = tl.split(other)
    return log, mean, lots.to(tl.uint32, bitcast=True)


@triton.jit
@no_type_check
def _backward_block(
    queries, here, lse, delta, key, value, key_step: tl.constexpr, value_step: tl.constexpr, found, first, lots, other,
    length, scale, begin, width: tl.constexpr, block: tl.constexpr, last: tl.constexpr, forgotten: tl.constexpr,
    before: tl.constexpr, behind: tl.constexpr
):
    """Queries meet a block of keys backwards: what it adds to their gradient."""
    numbers, columns = tl.arange(0, width), first + tl.arange(0, block)
    keys = _load_block(key, key_step, columns, numbers, length, last)
    values = _load_block(value, value_step, columns, numbers, length, last)
    scores = tl.dot(queries, tl.trans(keys), input_precision="ieee") * scale - lse[:, None]
    rows = begin + tl.arange(0, queries.shape[0])
    scores = apply_window(scores, rows[:, None], columns[None, :], before, behind)
    if last:
        # Behind the sequence keys are nought. Whatever weight is found there will do, if only it is finite; and no
        # true weight is above one.
        scores = tl.minimum(scores, 0.0)
    weights = tl.exp2(scores)
    slopes = tl.dot(here, tl.trans(values), input_precision="ieee")
    if forgotten > 0:
        slopes = tl.where(keep_mask(lots[:, None], hash_bits(other, first, block)[None, :], forgotten), slopes, 0.0)
    slopes = (weights * (slopes - delta[:, None])).to(keys.dtype)
    return tl.dot(slopes, keys, found, input_precision="ieee")


@triton.jit
@no_type_check
def _backward_queries(
    query, key, value, grad_output, attended, lse, notes, gradient, bounds, seed, tokens, blocks, scale, grow, shrink,
    query_step: tl.constexpr, query_head: tl.constexpr, key_step: tl.constexpr, key_head: tl.constexpr,
    value_step: tl.constexpr, value_head: tl.constexpr, heads: tl.constexpr, width: tl.constexpr,
    query_block: tl.constexpr, key_block: tl.constexpr, forgotten: tl.constexpr, before: tl.constexpr,
    behind: tl.constexpr
):
    """The gradient of the queries, and the mean slope of each: its weights times their slopes, all added up.

    That is also what was taken times what comes from above, which is known before any key is met.
    """
    head, token, length, begin, one, other = _locate(bounds, seed, blocks, query_block, heads, forgotten)
    scale, grow, shrink = tl.cast(scale, tl.float32), tl.cast(grow, tl.float32), tl.cast(shrink, tl.float32)
    if begin < length:
        step: tl.constexpr = heads * width
        query += token * query_step + head * query_head
        key += token * key_step + head * key_head
        value += token * value_step + head * value_head
        grad_output += token * step + head * width
        attended += token * step + head * width
        lse += head.to(tl.int64) * tokens + token
        notes += (head.to(tl.int64) * tokens + token) * 4
        numbers, rows = tl.arange(0, width), begin + tl.arange(0, query_block)
        queries = load_rows(query, query_step, rows, numbers, length)
        here = load_rows(grad_output, step, rows, numbers, length)
        taken = load_rows(attended, step, rows, numbers, length)
        log = tl.load(lse + rows, mask=rows < length, other=0.0)
        mean = tl.sum(here.to(tl.float32) * taken.to(tl.float32), 1) / grow
        lots = hash_bits(one, begin, query_block)
        _store_statistics(notes, rows, length, log, mean, lots, query_block)
        found = tl.zeros([query_block, width], tl.float32)
        low, high = _window_range(begin, length, query_block, key_block, before, behind)
        whole = high // key_block * key_block
        for first in tl.range(low, whole, key_block):
            found = _backward_block(
                queries, here, log, mean, key, value, key_step, value_step, found, first, lots, other, length, scale,
                begin, width, key_block, False, forgotten, before, behind
            )
        if whole < high:
            found = _backward_block(
                queries, here, log, mean, key, value, key_step, value_step, found, whole, lots, other, length, scale,
                begin, width, key_block, True, forgotten, before, behind
            )
        gradient += token * 3 * step + head * width
        store_rows(gradient, 3 * step, rows, numbers, length, found * shrink)


@triton.jit
@no_type_check
def _backward_keys(
    query, key, value, grad_output, notes, gradient, bounds, seed, tokens, blocks, scale, grow, shrink,
    query_step: tl.constexpr, query_head: tl.constexpr, key_step: tl.constexpr, key_head: tl.constexpr,
    value_step: tl.constexpr, value_head: tl.constexpr, heads: tl.constexpr, width: tl.constexpr,
    query_block: tl.constexpr, key_block: tl.constexpr, forgotten: tl.constexpr, before: tl.constexpr,
    behind: tl.constexpr
):
    """The gradients of keys and values. Scores lie on their side, keys by queries, as in `short`."""
    head, token, length, begin, _, other = _locate(bounds, seed, blocks, key_block, heads, forgotten)
    scale, grow, shrink = tl.cast(scale, tl.float32), tl.cast(grow, tl.float32), tl.cast(shrink, tl.float32)
    if begin < length:
        step: tl.constexpr = heads * width
        query += token * query_step + head * query_head
        key += token * key_step + head * key_head
        value += token * value_step + head * value_head
        grad_output += token * step + head * width
        notes += (head.to(tl.int64) * tokens + token) * 4
        numbers, columns = tl.arange(0, width), begin + tl.arange(0, key_block)
        keys = load_rows(key, key_step, columns, numbers, length)
        values = load_rows(value, value_step, columns, numbers, length)
        lots = hash_bits(other, begin, key_block)
        of_keys = tl.zeros([key_block, width], tl.float32)
        of_values = tl.zeros([key_block, width], tl.float32)
        # Behind the sequence what comes from above is nought, and so is its mean: such queries add nothing. Such keys
        # may find weights that are not finite, but those stay in their own rows, which nobody writes.
        low, high = _window_range(begin, length, key_block, query_block, behind, before)  # queries that see this key
        for first in tl.range(low, high, query_block):
            rows = first + tl.arange(0, query_block)
            queries = load_rows(query, query_step, rows, numbers, length)
            here = load_rows(grad_output, step, rows, numbers, length)
            log, mean, others = _load_statistics(notes, rows, length, query_block)
            scores = tl.dot(keys, tl.trans(queries), input_precision="ieee")
            scores = apply_window(scores, rows[None, :], columns[:, None], before, behind)
            weights = tl.exp2(scores * scale - log[None, :])
            slopes = tl.dot(values, tl.trans(here), input_precision="ieee")
            used = weights
            if forgotten > 0:
                stays = keep_mask(lots[:, None], others[None, :], forgotten)
                used, slopes = tl.where(stays, weights, scale * 0.0), tl.where(stays, slopes, 0.0)  # as in `_look`
            of_values = tl.dot(used.to(keys.dtype), here, of_values, input_precision="ieee")
            slopes = (weights * (slopes - mean[None, :])).to(keys.dtype)
            of_keys = tl.dot(slopes, queries, of_keys, input_precision="ieee")
        gradient += token * 3 * step + head * width
        store_rows(gradient + step, 3 * step, columns, numbers, length, of_keys * shrink)
        store_rows(gradient + 2 * step, 3 * step, columns, numbers, length, of_values * grow)
# fmt: on


def _launch_config(query: Tensor, table: dict[int, LaunchConfig]) -> LaunchConfig:
    return FLOAT32 if query.dtype == torch.float32 and COMPILED else table[query.shape[2]]


def _arguments(
    query: Tensor, key: Tensor, value: Tensor, setting: LaunchConfig, dropout: float, before: int, behind: int
) -> dict[str, Any]:
    """What all the kernels are told, by name."""
    return {
        **kernel_arguments(query, key, value, dropout, before, behind),
        "query_block": setting.queries,
        "key_block": setting.keys,
        "num_warps": setting.warps,
        "num_stages": setting.stages,
    }


def _launch_forward(
    query: Tensor, key: Tensor, value: Tensor, bounds: Tensor, seed: Tensor, longest: int, *how: Any
) -> tuple[Tensor, Tensor]:
    query, key, value = contiguous_heads(query), contiguous_heads(key), contiguous_heads(value)
    tokens, heads, _ = query.shape
    attended = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    logs = torch.empty((heads, tokens), dtype=torch.float32, device=query.device)
    setting = _launch_config(query, FORWARD)
    blocks = -(-longest // setting.queries)
    kernel = wrap_triton(_forward) if COMPILED else _forward
    kernel[((bounds.shape[0] - 1) * blocks * heads,)](
        query,
        key,
        value,
        attended,
        logs,
        bounds,
        seed,
        blocks=blocks,
        **_arguments(query, key, value, setting, *how),
    )
    return attended, logs


@triton_op("bertsmith::long_gradient", mutates_args={})
def _gradient(
    grad_output: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attended: Tensor,
    lse: Tensor,
    bounds: Tensor,
    seed: Tensor,
    longest: int,
    dropout: float,
    before: int = -1,
    behind: int = -1,
) -> Tensor:
    """The gradient of the product."""
    query, key, value, grad_output = (
        contiguous_heads(query),
        contiguous_heads(key),
        contiguous_heads(value),
        grad_output.contiguous(),
    )
    tokens, heads, width = query.shape
    gradient = torch.empty((tokens, 3, heads, width), dtype=query.dtype, device=query.device)
    notes = torch.empty((heads, tokens, 4), dtype=torch.float32, device=query.device)
    setting, other = _launch_config(query, QUERIES), _launch_config(query, KEYS)
    blocks = -(-longest // setting.queries)
    kernel = wrap_triton(_backward_queries) if COMPILED else _backward_queries
    kernel[((bounds.shape[0] - 1) * blocks * heads,)](
        query,
        key,
        value,
        grad_output,
        attended,
        lse,
        notes,
        gradient,
        bounds,
        seed,
        blocks=blocks,
        shrink=grad_scale(width, dropout),
        **_arguments(query, key, value, setting, dropout, before, behind),
    )
    blocks = -(-longest // other.keys)
    kernel = wrap_triton(_backward_keys) if COMPILED else _backward_keys
    kernel[((bounds.shape[0] - 1) * blocks * heads,)](
        query,
        key,
        value,
        grad_output,
        notes,
        gradient,
        bounds,
        seed,
        blocks=blocks,
        shrink=grad_scale(width, dropout),
        **_arguments(query, key, value, other, dropout, before, behind),
    )
    return gradient


@triton_op("bertsmith::long", mutates_args={})
def _separate(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bounds: Tensor,
    seed: Tensor,
    longest: int,
    dropout: float,
    before: int = -1,
    behind: int = -1,
) -> tuple[Tensor, Tensor]:
    return _launch_forward(query, key, value, bounds, seed, longest, dropout, before, behind)


@triton_op("bertsmith::long_joined", mutates_args={})
def _together(
    product: Tensor,
    bounds: Tensor,
    seed: Tensor,
    longest: int,
    dropout: float,
    before: int = -1,
    behind: int = -1,
) -> tuple[Tensor, Tensor]:
    return _launch_forward(product[:, 0], product[:, 1], product[:, 2], bounds, seed, longest, dropout, before, behind)


register_gradients(_separate, _together, _gradient)
