"""The speed of `prepare`, compared with `tokenizers.encode_batch` alone on the same text and the same cores.

    python bench/prepare.py TEXT.xz... --megabytes 150 --out bench/results/prepare.json
    python bench/prepare.py TEXT.xz --megabytes 100 --cluster --growth 100 300 1000 --out bench/results/prepare-ray.json

The peer only encodes lines that are in memory already, and discards the ids. `prepare` reads, cleans, hashes, encodes,
writes, syncs. Each measurement is a separate process; rounds alternate; the median counts.

With --cluster also a Ray cluster of this machine (`--on auto`; its start is also measured apart), `datasets.map` (pip
install datasets), which keeps the ids in Arrow files, and what one process reads and splits without encoding: the
ceiling of any cluster. With --growth the peak of memory, for text of each size: the same text again and again, with
other first words.
"""

import argparse
import json
import lzma
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

from record import record

PEER = """
import json, os, sys, time
os.environ["TOKENIZERS_PARALLELISM"] = "true"
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[2] + "/tokenizer.json")
encode = getattr(tokenizer, sys.argv[3])
with open(sys.argv[1], encoding="utf-8") as file:
    lines = [line for line in file.read().split("\\n") if line]
encode(lines[:1000])
start, tokens = time.perf_counter(), 0
for first in range(0, len(lines), 1000):
    tokens += sum(map(len, encode(lines[first : first + 1000], add_special_tokens=False)))
print(json.dumps({"seconds": time.perf_counter() - start, "tokens": tokens}))
"""

PEER_MAP = """
import json, os, sys, tempfile, time
import datasets
from tokenizers import Tokenizer
datasets.disable_progress_bars()
tokenizer = Tokenizer.from_file(sys.argv[2] + "/tokenizer.json")
def encode(batch):
    return {"ids": [found.ids for found in tokenizer.encode_batch(batch["text"], add_special_tokens=False)]}
start = time.perf_counter()
with tempfile.TemporaryDirectory(dir=os.path.dirname(sys.argv[1])) as cache:
    text = datasets.load_dataset("text", data_files=sys.argv[1], split="train", cache_dir=cache)
    ids = text.map(encode, batched=True, num_proc=len(os.sched_getaffinity(0)), remove_columns=["text"])
    seconds = time.perf_counter() - start
    tokens = sum(len(batch.column("ids").flatten()) for batch in ids.data.to_batches())
print(json.dumps({"seconds": seconds, "tokens": tokens}))
"""

READING = """
import json, sys, time
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.chunks import chunks
from bertsmith.data.shards.duplicates import DigestSet
from bertsmith.data.shards.validation import choose_validation
corpus = Corpus([sys.argv[1]])
start = time.perf_counter()
validation = choose_validation(corpus, 0.01)
for chunk in chunks(corpus, 0, DigestSet(), validation):
    pass
print(json.dumps({"seconds": time.perf_counter() - start, "tokens": 0}))
"""

OURS = """
import json, sys, time
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.prepare import prepare
from bertsmith.text.tokenizer import Tokenizer
tokenizer = Tokenizer.load(sys.argv[2])
start = time.perf_counter()
summary = prepare(Corpus([sys.argv[1]]), tokenizer, sys.argv[3], on=(sys.argv[4:] or [None])[0])
seconds = time.perf_counter() - start
tokens = summary.train["tokens"] + summary.valid["tokens"]
print(json.dumps({"seconds": seconds, "tokens": tokens, "start_seconds": seconds - summary.seconds}))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", nargs="+", type=Path, help="text, plain or .xz")
    parser.add_argument("--megabytes", type=int, default=150, help="how much of the text, unpacked")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer's folder; by default one is trained")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cluster", action="store_true", help="a Ray cluster of this machine, and datasets.map")
    parser.add_argument("--growth", type=int, nargs="*", default=[], help="megabytes of text whose memory is measured")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    machine = {
        "cpu": processor(),
        "cores": str(len(os.sched_getaffinity(0))),
        "system": platform.platform(),
        "python": platform.python_version(),
        "tokenizers": version("tokenizers"),
        "numpy": version("numpy"),
    }
    if options.cluster:
        machine |= {name: version(name) for name in ("ray", "datasets")}
    with tempfile.TemporaryDirectory(dir=options.out.parent if options.out.parent.is_dir() else None) as name:
        results = measure(options, Path(name))
        print(table(results), flush=True)
        record(options.out, {"results": results}, machine)
        growth = list[dict[str, Any]]()
        for row in measure_growth(options, Path(name)):
            growth.append(row)
            record(options.out, {"results": results, "growth": growth}, machine)


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    sizes = sorted({min(20, options.megabytes), options.megabytes})
    texts = {size: unpack(options.text, folder / f"{size}.txt", size * 1_000_000) for size in sizes}
    tokenizer = options.tokenizer or trained(texts[sizes[0]], folder / "tokenizer")
    rows: dict[str, list[dict[str, float]]] = {}
    for turn in range(options.rounds):
        for peer in ("encode_batch", "encode_batch_fast"):
            found = run(PEER, texts[sizes[-1]], tokenizer, peer)
            rows.setdefault(f"tokenizers.{peer}, {sizes[-1]} MB", []).append(found)
        for size in sizes:
            found = run(OURS, texts[size], tokenizer, folder / f"{size}-{turn}")
            rows.setdefault(f"bertsmith prepare, {size} MB", []).append(found)
        if options.cluster:
            found = run(OURS, texts[sizes[-1]], tokenizer, folder / f"cluster-{turn}", "auto")
            rows.setdefault(f"bertsmith prepare --on auto, {sizes[-1]} MB", []).append(found)
            for name, program in {"datasets.map": PEER_MAP, "bertsmith, reading alone": READING}.items():
                rows.setdefault(f"{name}, {sizes[-1]} MB", []).append(run(program, texts[sizes[-1]], tokenizer))
    results = {}
    for name, rounds in rows.items():
        size = texts[int(name.split()[-2])].stat().st_size
        seconds = statistics.median(row["seconds"] for row in rounds)
        results[name] = {
            "megabytes_per_second": size / 1e6 / seconds,
            "tokens_per_second": rounds[0]["tokens"] / seconds,
            "seconds": [row["seconds"] for row in rounds],
            "peak_megabytes": max(row["peak_megabytes"] for row in rounds),
        }
        if "start_seconds" in rounds[0]:  # of the cluster; a part of the seconds
            results[name]["start_seconds"] = statistics.median(row["start_seconds"] for row in rounds)
    return results


def measure_growth(options: argparse.Namespace, folder: Path) -> Iterator[dict[str, Any]]:
    """The peak of memory of `prepare`, with and without a cluster, for text of growing size."""
    base = folder / f"{options.megabytes}.txt"
    for size in options.growth:
        text = repeated(base, folder / f"growth-{size}.txt", size * 1_000_000)
        for on in ["", "auto"] if options.cluster else [""]:
            out = folder / f"growth-{size}-{on}"
            found = run(OURS, text, options.tokenizer or folder / "tokenizer", out, *filter(None, [on]))
            print(f"{size:6} MB on {on or 'this machine':14} peak {found['peak_megabytes']:,.0f} MB", flush=True)
            shutil.rmtree(out)
            yield {"megabytes": size, "on": on or "this machine", **found}
        text.unlink()


def repeated(base: Path, target: Path, size: int) -> Path:
    """The text again and again up to a size, each time with other first words, so that no document is a duplicate."""
    body = base.read_bytes()
    with target.open("wb") as out:
        for turn in range(-(-size // len(body))):
            out.write(body.replace(b"\n\n", b"\n\nPart %d. " % turn)[: size - out.tell()])
    return target


def unpack(sources: list[Path], target: Path, most: int) -> Path:
    """The first bytes of the text, whole documents only."""
    with target.open("wb") as out:
        for source in sources:
            with lzma.open(source) if source.suffix == ".xz" else source.open("rb") as file:
                out.write(file.read(max(0, most - out.tell())))
                out.write(b"\n\n")
    with target.open("r+b") as out:
        out.seek(-min(target.stat().st_size, 1_000_000), os.SEEK_END)
        last = out.read().rpartition(b"\n\n")[2]
        out.truncate(target.stat().st_size - len(last))
    return target


def trained(text: Path, folder: Path) -> Path:
    from bertsmith.text.tokenizer import TokenizerConfig, train

    with text.open(encoding="utf-8") as lines:
        train(lines, TokenizerConfig()).save(folder)
    return folder


def run(program: str, *arguments: Any) -> dict[str, float]:
    """Run a program and watch the memory of it and its children."""
    process = subprocess.Popen([sys.executable, "-c", program, *map(str, arguments)], stdout=subprocess.PIPE)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, sum(map(resident, family(process.pid))))
        time.sleep(0.2)
    assert process.stdout is not None
    if process.returncode:
        raise SystemExit(f"a measurement failed with code {process.returncode}")
    return json.loads(process.stdout.read()) | {"peak_megabytes": peak}


def family(parent: int) -> list[int]:
    members = [parent]
    for thread in Path(f"/proc/{parent}/task").glob("*/children"):
        try:
            members += [member for child in thread.read_text().split() for member in family(int(child))]
        except OSError:
            continue
    return members


def resident(process: int) -> float:
    """Megabytes of a process, pages shared with others counted in part."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1000


def processor() -> str:
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return names[0].partition(":")[2].strip() if names else platform.machine()


def table(results: dict[str, Any]) -> str:
    peer = next(row for name, row in results.items() if name.startswith("tokenizers.encode_batch,"))
    lines = [f"{'':38} {'MB/s':>7} {'tok/s':>11} {'of peer':>8} {'peak MB':>8}"]
    for name, row in results.items():
        share = row["megabytes_per_second"] / peer["megabytes_per_second"]
        speed = f"{row['megabytes_per_second']:7.2f} {row['tokens_per_second']:11,.0f}"
        lines.append(f"{name:38} {speed} {share:8.0%} {row['peak_megabytes']:8.0f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
