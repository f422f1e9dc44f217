"""The speed of making batches from shards, and the time to resume at a position far into a run.

    python bench/batches.py [FOLDER] --out bench/results/batches.json

FOLDER was made by `bertsmith prepare`; without one, random text is used. Batches are packed, masked and handed over as
tensors, by 0, 1 and 2 workers; the best of several rounds counts, since the machine may be busy. Then a loader is
built at sample 10^9 of a corpus of about a million sequences.
"""

import argparse
import os
import platform
import time
from importlib.metadata import version
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from record import record

from bertsmith.data.feed import Feed
from bertsmith.data.packing.pack import Packer
from bertsmith.data.packing.pairs import Pairs
from bertsmith.data.packing.sequences import TokenSource
from bertsmith.data.shards.shards import Shards
from bertsmith.objectives.masked import Collator, MaskedLM
from bertsmith.objectives.masking import MaskingVocabulary
from bertsmith.random_bits import uniform
from bertsmith.text.tokenizer import Tokenizer

TOKENS = 65_536
VOCABULARY = 30_522
SPECIALS = {"start_id": 2, "stop_id": 3, "padding_id": 0}


class MadeUp:
    """Text in memory: documents of 25 sentences of 22 tokens on average, spread as in a language."""

    def __init__(self, documents: int) -> None:
        counts = 1 + (-np.log1p(-uniform(1, np.arange(documents))) * 24).astype(np.int64)
        lengths = 1 + (-np.log1p(-uniform(2, np.arange(counts.sum()))) * 21).astype(np.int64)
        self.sentence_ends, self.document_ends = np.cumsum(lengths), np.cumsum(counts)
        self.ids = (5 + uniform(3, np.arange(lengths.sum())) ** 3 * (VOCABULARY - 5)).astype(np.uint16)

    def gather(self, starts: Any, lengths: Any) -> Any:
        shift = np.repeat(starts - (np.cumsum(lengths) - lengths), lengths)
        return self.ids[shift + np.arange(len(shift))].astype(np.int32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    parser.add_argument("--batches", type=int, default=60, help="in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("bench/results/batches.json"))
    given = parser.parse_args()

    source: TokenSource
    if given.folder:
        source, tokenizer = Shards(given.folder / "train"), Tokenizer.load(given.folder / "tokenizer")
        pieces = MaskingVocabulary.of(tokenizer.continuation_mask, tokenizer.special_mask, tokenizer.mask_id)
    else:
        source, ids = MadeUp(20_000), np.arange(VOCABULARY)
        pieces = MaskingVocabulary.of(uniform(4, ids) < 0.2, ids < 5, 4)

    rows = []
    print(f"{'pairs':6}{'length':>7}{'unit':>7}{'workers':>9}{'ms a batch':>12}{'tokens/s':>14}{'filler':>9}")
    pairs: Pairs
    for pairs in ("none", "nsp"):
        for length in (128, 512):
            pack = Packer(source, max_length=length, batch_tokens=TOKENS, pairs=pairs, seed=1, **SPECIALS)
            filler = 1 - np.mean([pack(index).real_tokens for index in range(given.batches)]) / TOKENS
            for unit, workers in (("token", 0), ("token", 1), ("token", 2), ("word", 2), ("span", 2)):
                collate = Collator(MaskedLM.Config(pairs=pairs, unit=unit), pieces)
                seconds = min(speed(pack, collate, workers, given.batches) for _ in range(given.rounds))
                row: dict[str, Any] = {"pairs": pairs, "length": length, "unit": unit, "workers": workers}
                row |= {"milliseconds": seconds * 1000, "tokens_per_second": TOKENS / seconds, "filler": float(filler)}
                rows.append(row)
                figures = f"{seconds * 1000:12.2f}{TOKENS / seconds:14,.0f}{filler:9.3%}"
                print(f"{pairs:6}{length:7}{unit:>7}{workers:9}{figures}", flush=True)
    found = [restore(pairs, tokens) for pairs in ("none", "nsp") for tokens in (TOKENS, 4096)]
    text = str(given.folder) if given.folder else "made up"
    machine = {
        "cpu": cpu(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "numpy": version("numpy"),
    }
    record(given.out, {"text": text, "tokens": TOKENS, "batches": rows, "restore": found}, machine)


def speed(pack: Packer, collate: Collator, workers: int, batches: int) -> float:
    """Seconds a batch."""
    with Feed(pack, collate, "", workers).loader(pack.first_position(), pin_memory=False) as loader:
        next(loader)
        start = time.perf_counter()
        for _ in islice(loader, batches):
            pass
        return (time.perf_counter() - start) / batches


def restore(pairs: Pairs, tokens: int) -> dict[str, Any]:
    """Seconds from nothing to a batch of epoch 1000 of a million sequences, which is sample 10^9; the best of three."""
    source, seconds, busy = MadeUp(180_000 if pairs == "none" else 137_000), [], []
    for _ in range(3):
        start, cpu_start = time.perf_counter(), time.process_time()
        pack = Packer(source, max_length=128, batch_tokens=tokens, pairs=pairs, seed=1, **SPECIALS)
        packed = pack(1000 * pack.sections_per_round << 32 | 100)
        seconds.append(time.perf_counter() - start)
        busy.append(time.process_time() - cpu_start)
    batches = sum(pack.batches(1000 * pack.sections_per_round + part) for part in range(pack.sections_per_round))
    sequences = round(packed.real_sequences * batches, -4)
    print(
        f"found epoch {packed.epoch} of {sequences:,} sequences ({pairs}, {tokens:,} tokens a batch): "
        f"{min(seconds):.2f} s, {min(busy):.2f} s of a processor",
        flush=True,
    )
    found = {"pairs": pairs, "tokens": tokens, "sequences": sequences}
    return found | {"seconds": min(seconds), "processor_seconds": min(busy)}


def cpu() -> str:
    """The processor's name, if the system has it."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.exists() else []
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.processor()
    )


if __name__ == "__main__":
    main()
