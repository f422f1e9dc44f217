"""Peak memory of `embed` and `finetune` as their input grows: streamed work takes the same for any number of rows.

    python bench/memory.py [--lines 20000 100000 400000] [--rows 400000 5000000] [--out bench/results/memory.json]

A small BERT, made in half a minute, reads random sentences, so that reading, writing and shuffling dominate and not the
network. Fine-tuning stops after twenty updates: by then every row has been read, split and encoded.
"""

import argparse
import csv
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

SYLLABLES = ("ba", "co", "di", "fe", "gu", "ha", "lan", "mer", "nos", "pit", "rus")
WORDS = [first + second for first in SYLLABLES for second in SYLLABLES]


def sentences(count: int) -> Iterator[str]:
    draw = random.Random(0)
    return (" ".join(draw.choices(WORDS, k=draw.randint(6, 24))) for _ in range(count))


def written(path: Path, count: int) -> Path:
    """Texts, one a line; in a .csv each with the class that its first word belongs to."""
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            rows = csv.writer(file)
            rows.writerow(["text", "label"])
            rows.writerows((text, text[0]) for text in sentences(count))
        else:
            file.writelines(text + "\n" for text in sentences(count))
    return path


def peak(*words: object) -> dict[str, float]:
    """The most memory that a command held, in MB, and its seconds.

    Linux counts the parent's memory at the fork as the child's, so this file imports torch only when all is measured.
    """
    began = time.monotonic()
    child = subprocess.Popen([sys.executable, "-m", "bertsmith", *map(str, words)])
    _, status, usage = os.wait4(child.pid, 0)
    if status:
        raise SystemExit(f"{words[0]} failed: see above")
    unit = 1 if sys.platform == "darwin" else 1024
    return {"megabytes": round(usage.ru_maxrss * unit / 1e6), "seconds": round(time.monotonic() - began, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lines", type=int, nargs="*", default=[20_000, 100_000, 400_000], help="texts for `embed`")
    parser.add_argument("--rows", type=int, nargs="*", default=[400_000, 5_000_000], help="rows for `finetune`")
    parser.add_argument("--out", type=Path, default=Path("bench/results/memory.json"))
    options = parser.parse_args()
    figures: dict[str, dict[int, dict[str, float]]] = {"embed": {}, "finetune": {}}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = folder / "small" / "model"
        peak("make", written(folder / "text.txt", 5_000), "--out", model.parent, "--budget", "30s")
        for count in options.lines:
            figures["embed"][count] = peak(
                "embed", model, written(folder / "lines.txt", count), "--out", folder / f"{count}.npy"
            )
        for count in options.rows:
            data = written(folder / "rows.csv", count)
            size = round(data.stat().st_size / 1e6)
            found = peak("finetune", model, data, "--out", folder / f"rows-{count}", "train.steps=20")
            figures["finetune"][count] = {"file_megabytes": size, **found}
    for verb, sizes in figures.items():
        for count, found in sizes.items():
            print(f"{verb:10}{count:>12,} rows {found['megabytes']:>7,} MB {found['seconds']:>8,} s")
    from record import record

    from bertsmith.train import hardware

    record(options.out, figures, hardware.describe(hardware.select_device("cpu")))


if __name__ == "__main__":
    main()
