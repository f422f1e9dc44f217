"""Each of our kernels beside torch's own on the same shapes: milliseconds of a forward and backward pass.

    python bench/beside_torch.py [--only short grouped] [--tokens 65536] [--out bench/results/beside-torch.json]

On a GPU in bfloat16: attention by flash varlen (torch's public `varlen_attn`, and the operation below it, which has
dropout), by FlexAttention with a mask of sequences, or by SDPA on a padded rectangle; norms, GELU and the loss by what
`torch.compile` makes of the formula, and by `linear_cross_entropy`. On a CPU in float32: what our CPU kernels replace.
What this torch does not have is left out. Every contender begins with the same tensors and ends with their gradients,
attention with one projection of query, key and value; masks and indices, which a batch makes once for all layers, are
made beforehand. `off` is how far output and gradients are from ours, where there is no dropout.
"""

import argparse
import inspect
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from attention import lengths_of, measure
from record import record
from torch import Tensor

from bertsmith.nn.attention import Sequences
from bertsmith.nn.dropout import draw_keys
from bertsmith.nn.dropout import dropout as apply_dropout
from bertsmith.nn.kernel_choice import KernelName, self_attention
from bertsmith.nn.kernels.availability import kernels_unavailable
from bertsmith.nn.padded import Padded
from bertsmith.nn.varlen import Varlen
from bertsmith.nn.window import CAUSAL, FULL, Window
from bertsmith.train import hardware

HEADS, HEAD_WIDTH, DROPOUT = 12, 64, 0.1
WIDTH = HEADS * HEAD_WIDTH
ROUNDS, SECONDS = 7, 0.3  # of the clock of a CPU

Contender = Callable[..., Tensor]


@dataclass
class Case:
    """A kernel of ours, what torch has for it, and tensors whose gradients are wanted; some cases want none."""

    name: str
    shape: dict[str, Any]
    inputs: tuple[Tensor, ...]
    ours: Contender
    others: dict[str, Contender] = field(default_factory=dict)
    gradients: bool = True

    def once(self, contender: Contender) -> tuple[Tensor, ...]:
        """The output, and the gradients of a fixed weighted sum of it."""
        found = contender(*self.inputs)
        if not self.gradients:
            return (found,)
        above = torch.linspace(-1, 1, found.numel(), device=found.device, dtype=found.dtype).view(found.shape)
        return found.detach(), *torch.autograd.grad(found, self.inputs, above)

    def row(self) -> dict[str, Any]:
        """The milliseconds of every contender, and what failed."""
        row: dict[str, Any] = {"kernel": self.name, **self.shape, "milliseconds": {}, "off": {}, "failed": {}}
        print(self.name, self.shape, flush=True)
        for name, contender in {"ours": self.ours, **self.others}.items():
            try:
                row["milliseconds"][name] = self._milliseconds(contender)
                if not self.shape.get("dropout") and name != "ours":
                    row["off"][name] = self._off(contender)
            except Exception as error:  # whatever a backend throws is a finding
                row["failed"][name] = f"{type(error).__name__}: {error}".split("\n")[0][:200]
            took, off = row["milliseconds"].get(name), row["off"].get(name)
            print(f"    {name:28} {row['failed'].get(name) or f'{took:9.3f} ms'}", "" if off is None else f"{off:.0e}")
        return row

    def _milliseconds(self, contender: Contender) -> float:
        if self.inputs[0].is_cuda:
            return measure(partial(self.once, contender))[0]
        with torch.set_grad_enabled(self.gradients):
            self.once(contender)
            rounds = []
            for _ in range(ROUNDS):
                began, times = time.perf_counter(), 0
                while times == 0 or time.perf_counter() - began < SECONDS:
                    self.once(contender)
                    times += 1
                rounds.append((time.perf_counter() - began) / times * 1000)
        return statistics.median(rounds)

    def _off(self, contender: Contender) -> float:
        with torch.set_grad_enabled(self.gradients):
            pairs = zip(self.once(contender), self.once(self.ours), strict=True)
            return max(float((one.double() - two.double()).norm() / two.double().norm()) for one, two in pairs)


def drawn(*shape: int, device: torch.device, dtype: torch.dtype, scale: float = 1, mean: float = 0) -> Tensor:
    generator = torch.Generator(device).manual_seed(len(shape) + shape[0])
    numbers = torch.randn(shape, generator=generator, device=device) * scale + mean
    return numbers.to(dtype).requires_grad_()


def sequences_of(lengths: list[int], device: torch.device) -> Sequences:
    bounds = torch.tensor([0, *lengths], device=device).cumsum(0).to(torch.int32)
    return Sequences(bounds, max(lengths), sum(lengths))


# ------------------------------------------------------------------------------------------------ attention on a GPU


def attention_cases(tokens: int, device: torch.device) -> Iterator[Case]:
    """Self-attention of ragged and of full rows, over whole sequences and over windows."""
    shapes: list[tuple[KernelName, int, Window, str]] = [
        ("short", 128, FULL, "all"),
        ("short", 256, FULL, "all"),
        ("long", 512, FULL, "all"),
        ("long", 1024, CAUSAL, "causal"),
        ("long", 1024, Window(64, 64), "64 each way"),
    ]
    for name, longest, window, seen in shapes:
        for rows in ("full", "ragged"):
            lengths = lengths_of(longest, rows == "ragged", tokens)
            own = sequences_of(lengths, device)
            qkv = drawn(tokens, 3, HEADS, HEAD_WIDTH, device=device, dtype=torch.bfloat16)
            for dropout in (0.0, DROPOUT):
                shape = {"rows": rows, "longest": longest, "window": seen, "dropout": dropout}
                ours = partial(self_attention(name, own, window).attend_qkv, dropout=dropout)
                flash = partial(Varlen(own, own, window=window).attend_qkv, dropout=dropout)
                others: dict[str, Contender] = {"flash varlen": flash}
                if rows == "full" and window.full:
                    others["dense SDPA"] = partial(self_attention("dense", own).attend_qkv, dropout=dropout)
                if rows == "ragged" and not dropout:
                    others |= without_dropout(own, window)
                yield Case(name, shape, (qkv,), ours, others)


def without_dropout(own: Sequences, window: Window) -> dict[str, Contender]:
    """torch's public functions for sequences of several lengths, which have no dropout."""
    found: dict[str, Contender] = {"FlexAttention": flex(own, window)}
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return found
    if "window_size" in inspect.signature(varlen_attn).parameters:
        sizes: dict[str, Any] = {"window_size": window.sizes}
    elif window.full or window.causal:  # as torch 2.10 has it
        sizes = {"is_causal": window.causal}
    else:
        return found
    rest = (own.bounds, own.bounds, own.longest, own.longest)
    found["varlen_attn"] = lambda qkv: varlen_attn(*qkv.unbind(1), *rest, **sizes)
    return found


def flex(own: Sequences, window: Window) -> Contender:
    """FlexAttention over all tokens, of which each sees its own sequence."""
    from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

    lengths, device = own.bounds.diff().long(), own.bounds.device
    numbers = torch.repeat_interleave(torch.arange(len(lengths), device=device), lengths)
    positions = torch.arange(own.tokens, device=device) - own.bounds[:-1].long()[numbers]
    left, right = (own.tokens if size < 0 else size for size in window.sizes)

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        near = (query - key <= left) & (key - query <= right)
        return (numbers[query] == numbers[key]) & near

    @cache  # at the first call, which is not timed
    def mask() -> BlockMask:
        return torch.compile(create_block_mask)(visible, None, None, own.tokens, own.tokens, device=device)

    compiled = torch.compile(flex_attention, dynamic=False)

    def attend(qkv: Tensor, bias: Tensor | None = None) -> Tensor:
        query, key, value = (part.transpose(0, 1)[None] for part in qkv.unbind(1))  # 1 H T K
        score = None
        if bias is not None:

            def score(number: Tensor, batch: Tensor, head: Tensor, one: Tensor, other: Tensor) -> Tensor:
                return number + bias[head, positions[one], positions[other]]

        attended: Tensor = compiled(query, key, value, score_mod=score, block_mask=mask())
        return attended[0].transpose(0, 1)

    return attend


def biased_cases(tokens: int, device: torch.device) -> Iterator[Case]:
    """Self-attention with relative position bias, whose gradient is wanted, too."""
    for rows in ("full", "ragged"):
        own = sequences_of(lengths_of(128, rows == "ragged", tokens), device)
        qkv = drawn(tokens, 3, HEADS, HEAD_WIDTH, device=device, dtype=torch.bfloat16)
        bias = drawn(HEADS, 128, 128, device=device, dtype=torch.bfloat16)
        for dropout in (0.0, DROPOUT):

            def by(name: KernelName, qkv: Tensor, bias: Tensor, own: Sequences = own, rate: float = dropout) -> Tensor:
                return self_attention(name, own, bias=bias).attend_qkv(qkv, rate)

            others: dict[str, Contender] = {"padded SDPA": partial(by, "padded")}
            if rows == "ragged" and not dropout:
                others["FlexAttention"] = flex(own, FULL)
            shape = {"rows": rows, "longest": 128, "dropout": dropout}
            yield Case("biased", shape, (qkv, bias), partial(by, "short"), others)


# ------------------------------------------------------------------------------------- what else is fused on a GPU


def fused_cases(tokens: int, device: torch.device) -> Iterator[Case]:
    """The residual connection with its norm, bias and GELU, and the loss over a vocabulary."""
    from bertsmith.nn.kernels.bias_gelu import bias_gelu
    from bertsmith.nn.kernels.linear_cross_entropy import linear_cross_entropy
    from bertsmith.nn.kernels.residual_layer_norm import residual_layer_norm

    make = partial(drawn, device=device, dtype=torch.bfloat16)
    parts = (make(tokens, WIDTH), make(WIDTH), make(tokens, WIDTH), make(WIDTH, scale=0.1, mean=1), make(WIDTH))
    for dropout in (0.0, DROPOUT):

        def ours(*parts: Tensor, rate: float = dropout) -> Tensor:
            return residual_layer_norm(*parts, 1e-12, rate, draw_keys(device))

        def plain(*parts: Tensor, rate: float = dropout) -> Tensor:
            product, bias, skip, weight, shift = parts
            return F.layer_norm(skip + apply_dropout(product + bias, rate), (WIDTH,), weight, shift, 1e-12)

        compiled: dict[str, Contender] = {"torch.compile": torch.compile(plain, dynamic=False)}
        yield Case("residual_layer_norm", {"width": WIDTH, "dropout": dropout}, parts, ours, compiled)
    for gated in (False, True):
        wide, bias = make(tokens, 4 * WIDTH), make(4 * WIDTH)

        def gelu(wide: Tensor, bias: Tensor, gated: bool = gated) -> Tensor:
            if not gated:
                return F.gelu(wide + bias)
            gate, value = (wide + bias).chunk(2, -1)
            return F.gelu(gate) * value

        compiled = {"torch.compile": torch.compile(gelu, dynamic=False)}
        shape = {"width": 4 * WIDTH, "gated": gated}
        yield Case("bias_gelu", shape, (wide, bias), partial(bias_gelu, gated=gated), compiled)
    for positions in (tokens // 7, tokens):  # masked words; every word
        parts = (make(positions, WIDTH), make(30_528, WIDTH, scale=0.05), make(30_528))
        yield loss_case("linear_cross_entropy", parts, linear_cross_entropy)


def loss_case(name: str, parts: tuple[Tensor, ...], ours: Contender) -> Case:
    """The summed loss of some positions over a vocabulary: of hidden vectors, a table and a bias."""
    (positions, width), words, device = parts[0].shape, len(parts[1]), parts[0].device
    targets = torch.randint(words, (positions,), generator=torch.Generator().manual_seed(0)).to(device)

    def plain(hidden: Tensor, table: Tensor, bias: Tensor) -> Tensor:
        return F.cross_entropy(F.linear(hidden, table, bias).float(), targets, reduction="sum")

    def torchs(hidden: Tensor, table: Tensor, bias: Tensor, options: Any = None) -> Tensor:
        return F.linear_cross_entropy(hidden, table, targets, linear_bias=bias, reduction="sum", options=options)

    others: dict[str, Contender] = {"cross_entropy of linear": plain}
    if device.type == "cuda":
        others["the same, torch.compile"] = torch.compile(plain, dynamic=False)
    if hasattr(F, "linear_cross_entropy"):  # torch 2.13; in chunks it cannot be compiled into one graph
        others["linear_cross_entropy"] = torchs
        others["the same, in chunks"] = partial(torchs, options=torch.nn.LinearCrossEntropyOptions())
    shape = {"positions": positions, "vocabulary": words, "width": width}
    return Case(name, shape, parts, lambda hidden, table, bias: ours(hidden, table, bias, targets), others)


# -------------------------------------------------------------------------------------------------------- on a CPU


def cpu_cases(tokens: int, device: torch.device) -> Iterator[Case]:
    """Ragged attention with and without gradients, beside a padded rectangle; and the loss over a vocabulary."""
    from bertsmith.nn.kernels.linear_cross_entropy_cpu import linear_cross_entropy

    make = partial(drawn, device=device, dtype=torch.float32)
    for longest in (32, 128, 512):
        lengths = sorted(lengths_of(longest, True, tokens), reverse=True)
        own = sequences_of(lengths, device)
        qkv = make(tokens, 3, HEADS, HEAD_WIDTH)
        others: dict[str, Contender] = {"padded SDPA": Padded.of(own, own).attend_qkv, "nested SDPA": nested(own)}
        names: list[KernelName] = ["grouped", "tiled"]
        for name in names:
            ours = self_attention(name, own).attend_qkv
            yield Case(name, {"rows": "ragged", "longest": longest}, (qkv,), ours, others, gradients=name == "grouped")
    for width in (128, WIDTH):
        parts = (make(tokens // 7, width), make(8_192, width, scale=0.05), make(8_192))
        yield loss_case("linear_cross_entropy_cpu", parts, linear_cross_entropy)


def nested(own: Sequences) -> Contender:
    """SDPA of nested tensors: torch's own way to say that rows have different lengths."""

    def attend(qkv: Tensor) -> Tensor:
        rows = (torch.nested.nested_tensor_from_jagged(part.contiguous(), own.bounds.long()) for part in qkv.unbind(1))
        query, key, value = (part.transpose(1, 2) for part in rows)
        attended: Tensor = F.scaled_dot_product_attention(query, key, value).transpose(1, 2).contiguous().values()
        return attended

    return attend


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", help="kernels of these names")
    parser.add_argument("--tokens", type=int, help="in a batch: 65,536 on a GPU, 4,096 on a CPU")
    parser.add_argument("--out", type=Path, default=Path("bench/results/beside-torch.json"))
    given = parser.parse_args()
    device = hardware.select_device("auto")
    if device.type == "cuda" and (lacking := kernels_unavailable(device)):
        raise SystemExit(f"bench/beside_torch.py: {lacking}")
    makers = (attention_cases, biased_cases, fused_cases) if device.type == "cuda" else (cpu_cases,)
    tokens, rows = given.tokens or (65_536 if device.type == "cuda" else 4_096), []
    for maker in makers:
        for case in maker(tokens, device):
            if given.only is None or case.name in given.only:
                rows.append(case.row())
                torch.compiler.reset()
                sizes = {"tokens": tokens, "heads": HEADS, "head_width": HEAD_WIDTH}
                record(given.out, {**sizes, "rows": rows}, hardware.describe(device))


if __name__ == "__main__":
    main()
