"""Attention kernels compared on one GPU: milliseconds of forward and backward pass for 65,536 tokens in bfloat16.

    python bench/attention.py [--heads 12 16] [--lengths 128 256 512] [--no-sweep] [--out bench/results/attention.json]

Rows of equal length, and ragged rows: lengths drawn uniformly from 1 to the longest. Every kernel starts from query,
key and value as three views of one projection and ends with three gradients; `from one product` also counts
concatenating the gradients. A pass is captured as a CUDA graph and replayed, so that kernels are timed and not Python;
kernels that cannot be captured are marked `eager`. First the settings of our own kernel are tuned for this length,
forward and backward separately, and the best ones are used.
"""

import argparse
import statistics
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from record import record
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from bertsmith.train import hardware

TOKENS, WIDTH = 65_536, 64
WARM, PLAYS, ROUNDS = 3, 10, 5
ROWS = ("full", "ragged")

Pass = Callable[[], object]


def lengths_of(longest: int, ragged: bool, tokens: int = TOKENS) -> list[int]:
    if not ragged:
        return [longest] * (tokens // longest)
    drawn = torch.randint(1, longest + 1, (tokens,), generator=torch.Generator().manual_seed(0)).tolist()
    lengths, left = [], tokens
    while left:
        lengths.append(min(drawn[len(lengths)], left))
        left -= lengths[-1]
    return lengths


def timed(work: Pass) -> float:
    """Milliseconds: the median of several rounds of several turns."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    rounds = []
    for _ in range(ROUNDS):
        begin.record()
        for _ in range(PLAYS):
            work()
        end.record()
        end.synchronize()
        rounds.append(begin.elapsed_time(end) / PLAYS)
    return statistics.median(rounds)


def measure(work: Pass) -> tuple[float, str]:
    """Milliseconds, and how they were measured."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM):
            work()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            work()
    except RuntimeError:
        torch.cuda.synchronize()
        return timed(work), "eager"
    return timed(graph.replay), "recorded"


class Case:
    """One shape: the projection, the bounds, the seed, and the gradient of the output."""

    def __init__(self, heads: int, longest: int, ragged: bool, dropout: float) -> None:
        torch.manual_seed(0)
        self.heads, self.longest, self.ragged, self.dropout = heads, longest, ragged, dropout
        self.lengths = lengths_of(longest, ragged)
        self.bounds = torch.tensor([0, *self.lengths], device="cuda").cumsum(0).to(torch.int32)
        shape = (TOKENS, 3, heads, WIDTH)
        self.product = torch.randn(shape, device="cuda", dtype=torch.bfloat16).requires_grad_()
        self.parts = tuple(part.requires_grad_() for part in self.product.detach().unbind(1))
        self.above = torch.randn(TOKENS, heads, WIDTH, device="cuda", dtype=torch.bfloat16)
        self.seed = torch.randint(1 << 62, (), device="cuda")

    def name(self) -> str:
        rows = "ragged" if self.ragged else "full"
        return f"{rows} {self.longest}, {self.heads} heads, dropout {self.dropout}"

    def flash(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        bounds, longest = self.bounds, self.longest
        found: Tensor = torch.ops.aten._flash_attention_forward(
            query, key, value, bounds, bounds, longest, longest, self.dropout, False, False
        )[0]
        return found

    def dense(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        shape = (-1, self.longest, self.heads, WIDTH)
        rows = (part.reshape(shape).transpose(1, 2) for part in (query, key, value))
        found = F.scaled_dot_product_attention(*rows, dropout_p=self.dropout)
        return found.transpose(1, 2).reshape(TOKENS, self.heads, WIDTH)

    def dense_cudnn(self, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return self.dense(query, key, value)

    def from_parts(self, attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Pass:
        return lambda: torch.autograd.grad(attend(*self.parts), self.parts, self.above)

    def from_product(self, attend: Callable[[Tensor], Tensor]) -> Pass:
        return lambda: torch.autograd.grad(attend(self.product), [self.product], self.above)

    def contenders(self) -> dict[str, Pass]:
        found = {
            "flash varlen": self.from_parts(self.flash),
            "flash varlen, from one product": self.from_product(lambda whole: self.flash(*whole.unbind(1))),
        }
        rest = (self.bounds, self.longest, self.dropout, self.seed)
        for name, module in ours(self.longest).items():
            apart, together = getattr(module, name), module.qkv_attention
            found[name] = self.from_parts(lambda *parts, apart=apart: apart(*parts, *rest))
            found[f"{name}, from one product"] = self.from_product(
                lambda whole, together=together: together(whole, *rest)
            )
        if not self.ragged:
            found["dense SDPA"] = self.from_parts(self.dense)
            found["dense SDPA, cuDNN"] = self.from_parts(self.dense_cudnn)
        return found


def ours(longest: int) -> dict[str, Any]:
    """Our own kernels that can do it here, by name."""
    if find_spec("triton") is None:
        return {}
    from bertsmith.nn.kernels import attention_long, attention_short, shared

    if not shared.available(torch.device("cuda")):
        return {}
    return ({"short": attention_short} if attention_short.fits(longest, WIDTH) else {}) | {"long": attention_long}


def choices(name: str, longest: int) -> dict[str, list[dict[int, dict[str, Any]]]]:
    """Settings to try, by the table that they stand in and their place there. The first are those of today.

    What wants one stage and 32 queries is miscompiled.
    """
    if name == "long":
        tried = {
            "FORWARD": [(128, 64, 4), (128, 64, 4, 3), (64, 64, 4), (64, 64, 4, 3), (128, 128, 8), (128, 64, 8)],
            "QUERIES": [(64, 64, 4), (64, 64, 4, 3), (128, 32, 8), (64, 128, 4), (128, 64, 8)],
            "KEYS": [(64, 64, 4), (64, 64, 4, 3), (32, 64, 4), (32, 64, 4, 3), (64, 128, 8)],
        }
        names = ("queries", "keys", "warps", "stages")
        return {
            table: [{WIDTH: dict(zip(names, numbers, strict=False))} for numbers in settings]
            for table, settings in tried.items()
        }
    if longest <= 64:
        forward, backward = [(64, 4, 2), (32, 2, 2)], [(32, 4, 2), (64, 4, 2), (16, 4, 2)]
        return {
            "FORWARD": [{64: one(*numbers, branch=True)} for numbers in forward],
            "BACKWARD": [{64: one(*numbers, branch=True)} for numbers in backward],
        }
    if longest <= 128:
        return {
            "FORWARD": [
                {128: one(64, 4, 2, halves=1), 64: one(64, 4)},
                {128: one(64, 4, 2, branch=True)},
                {128: one(64, 4, 2)},
                {128: one(64, 4, 2, halves=1), 64: one(32, 4, 2)},
                {128: one(64, 4, 2, halves=2), 64: one(64, 4), 32: one(32, 2)},
                {128: one(32, 4, 2, halves=1), 64: one(64, 4)},
            ],
            "BACKWARD": [
                {128: one(32, 4, 3, branch=True)},
                {128: one(16, 4, 3, branch=True)},
                {128: one(32, 4, 3)},
                {128: one(16, 4, 3, halves=1), 64: one(16, 4, 2)},
                {128: one(32, 4, 3, halves=1), 64: one(32, 4, 2)},
                {128: one(16, 4, 3, halves=2), 64: one(16, 4, 2), 32: one(16, 4, 2)},
                {128: one(16, 4, 4, branch=True)},
                {128: one(32, 8, 3, branch=True)},
            ],
        }
    forward, backward = [(64, 4, 2), (64, 8, 2), (128, 8, 1)], [(32, 8, 2), (16, 8, 2)]
    return {
        "FORWARD": [{256: one(*numbers, branch=True)} for numbers in forward],
        "BACKWARD": [{256: one(*numbers, branch=True)} for numbers in backward],
    }


def one(queries: int, warps: int, stages: int = 1, **more: int) -> dict[str, Any]:
    """A setting of the short kernel, by name, as far as it is no default."""
    return {"queries": queries, "warps": warps, "stages": stages, **more}


def work(module: Any, table: str, case: Case, size: int) -> Callable[[], Tensor]:
    """One pass by itself, as the tables of the module stand."""
    parts, rest = [part.detach() for part in case.parts], (case.bounds, case.seed, size, case.dropout)
    if table == "FORWARD":
        return lambda: module._attention(*parts, *rest)[0]
    kept = module._attention(*parts, *rest)
    given = (case.above, *parts, *kept, *rest)
    return lambda: module._gradient(*given)


def sweep(name: str, module: Any, heads: int, longest: int, dropout: float) -> list[dict[str, Any]]:
    """Try the settings on full and ragged rows, and leave the best of each table in the module.

    What is `off` by more than rounding from what the first found was miscompiled.
    """
    size = next(block for block in module.BLOCKS if longest <= block) if name == "short" else longest
    cases = {rows: Case(heads, longest, rows == "ragged", dropout) for rows in ROWS}
    tried: list[dict[str, Any]] = []

    def tell(table: str, settings: dict[int, dict[str, Any]], true: dict[str, Tensor]) -> float:
        getattr(module, table).update({place: module.LaunchConfig(**setting) for place, setting in settings.items()})
        row = {"kernel": name, "longest": longest, "table": table, "settings": settings}
        tried.append(row)
        words = "; ".join(f"{place}: {' '.join(f'{k}={v}' for k, v in one.items())}" for place, one in settings.items())
        print(f"{name} {longest} {table:8}", end=" ", flush=True)
        try:
            for rows, case in cases.items():
                turn = work(module, table, case, size)
                found = turn().float()
                off = (found - true.setdefault(rows, found)).norm() / true[rows].norm()
                row |= {rows: measure(turn)[0], f"{rows} off": float(off)}
                print(f"{rows} {row[rows]:.3f} ms ({float(off):.0e} off)", end=" ", flush=True)
        except Exception as error:  # whatever a compiler throws is a finding
            row["failed"] = f"{type(error).__name__}: {error}".split("\n")[0]
        print(row.get("failed", ""), words, flush=True)
        wrong = "failed" in row or any(row[f"{rows} off"] > 1e-2 for rows in ROWS)
        return float("inf") if wrong else float(sum(row[rows] for rows in ROWS))

    for table, settings in choices(name, longest).items():
        true: dict[str, Tensor] = {}
        took = [tell(table, setting, true) for setting in settings]
        best = settings[took.index(min(took))]
        print(f"best: {best}", flush=True)
        tell(table, best, true)
    return tried


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", nargs="+", type=int, default=[12, 16])
    parser.add_argument("--lengths", nargs="+", type=int, default=[128, 256, 512])
    parser.add_argument("--dropouts", nargs="+", type=float, default=[0.0, 0.1])
    parser.add_argument("--no-sweep", action="store_true", help="the kernel's own settings as they stand")
    parser.add_argument("--out", type=Path, default=Path("bench/results/attention.json"))
    given = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("bench/attention.py needs a CUDA device, and there is none here")

    tried = []
    for longest in given.lengths:
        for name, module in [] if given.no_sweep else list(ours(longest).items())[:1]:
            tried += sweep(name, module, given.heads[0], longest, given.dropouts[-1])
    rows = []
    shapes = [(heads, longest) for heads in given.heads for longest in given.lengths]
    for heads, longest in shapes:
        for ragged in (False, True):
            for dropout in given.dropouts:
                case = Case(heads, longest, ragged, dropout)
                print(case.name(), flush=True)
                row: dict[str, Any] = {"heads": heads, "longest": longest, "ragged": ragged, "dropout": dropout}
                row |= {"sequences": len(case.lengths), "milliseconds": {}, "eager": [], "failed": {}}
                for name, work in case.contenders().items():
                    try:
                        row["milliseconds"][name], how = measure(work)
                    except Exception as error:  # whatever a backend throws is a finding
                        row["failed"][name] = f"{type(error).__name__}: {error}".split("\n")[0]
                        print(f"    {name:34} {row['failed'][name][:150]}", flush=True)
                        continue
                    if how == "eager":
                        row["eager"].append(name)
                    mark = "" if how == "recorded" else "  eager"
                    print(f"    {name:34} {row['milliseconds'][name]:8.3f} ms{mark}", flush=True)
                rows.append(row)
                del case
    figures = {"tokens": TOKENS, "width": WIDTH, "settings": tried, "rows": rows}
    record(given.out, figures, hardware.describe(torch.device("cuda")))


if __name__ == "__main__":
    main()
