"""Shared code of the generation benchmarks: libraries generate in turns; speeds and equal texts are recorded."""

import statistics
import time
from collections.abc import Callable, Mapping
from operator import truediv
from typing import Any

import torch

Rows = list[list[int]]
Write = Callable[[Rows, int, int], Rows]  # texts, beams and new tokens to what was written


def compared(
    writers: Mapping[str, Write], rows: Rows, *, precision: str, beams: int, new: int, rounds: int, device: torch.device
) -> dict[str, Any]:
    """Speeds of all writers, and the number of texts equal to ours, after one warm-up round."""
    texts = {name: write(rows, beams, new) for name, write in writers.items()}
    seconds: dict[str, list[float]] = {name: [] for name in writers}
    for _ in range(rounds):
        for name, write in writers.items():
            _wait(device)
            began = time.perf_counter()
            write(rows, beams, new)
            _wait(device)
            seconds[name].append(time.perf_counter() - began)
    results = {}
    for name in writers:
        same = f"{sum(map(list.__eq__, texts[name], texts['bertsmith']))} of {len(rows)}"
        speed = len(rows) * new / statistics.median(seconds[name])
        # Ratios within each round: other work on the machine slows both sides.
        slower = statistics.median(map(truediv, seconds[name], seconds["bertsmith"]))
        results[name] = {"tokens_per_second": speed, "seconds": seconds[name], "same_as_ours": same}
        results[name]["times_slower"] = slower
        case = f"{precision:8} batch {len(rows):3} beams {beams}"
        print(f"{case}  {name:22} {speed:9.1f} tokens/s  {slower:6.2f}x  same {same}", flush=True)
    return {"precision": precision, "batch": len(rows), "beams": beams, "results": results}


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()
