"""The speed of near-duplicate detection, and the share that is found, beside datasketch's MinHash LSH on the same text.

    python bench/clean.py TEXT.xz --megabytes 20 --out bench/results/clean.json

Documents of a text, with near-duplicates inserted at random: copies of which a share of the words is replaced. The peer
holds all documents in memory, makes the same word 5-grams and as many permutations, and keeps a document if its LSH
index finds none like it. `bertsmith clean` reads the file twice, judges it by all its rules, and writes the rest;
"near-duplicates alone" leaves out the other rules. Each measurement is a process of its own; rounds alternate; medians
count.
"""

import argparse
import json
import lzma
import os
import platform
import random
import statistics
import subprocess
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

from record import record

COPIES = 0.1  # inserted near-duplicates, as a share of the documents
EDITS = (0.0, 0.005, 0.01, 0.02)  # share of the words of a copy that are replaced
MIN_WORDS = 100  # of a document that is copied
FOUND = 0.75  # Jaccard similarity from which a pair counts as near-duplicates, for all

USED = """
import os
def used():
    # Of the main process; the peak by /proc, since ru_maxrss counts the process that started this one, too.
    peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
    return {"megabytes": int(peak.split()[1]) / 1024, "processor_seconds": sum(os.times()[:4])}
"""

PEER = (
    USED
    + """
import json, re, sys, time
from datasketch import MinHash, MinHashLSH
start = time.perf_counter()
texts = open(sys.argv[1], encoding="utf-8").read().split("\\n\\n")
lsh, dropped = MinHashLSH(threshold=float(sys.argv[2]), num_perm=126), []
for number, text in enumerate(texts):
    words = re.findall(r"[^\\W_]+", text.lower())
    if len(words) < 10:
        continue
    signature = MinHash(num_perm=126, seed=42)
    signature.update_batch([" ".join(words[at : at + 5]).encode() for at in range(len(words) - 4)])
    if lsh.query(signature):
        dropped.append(number)
    else:
        lsh.insert(number, signature)
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "dropped": dropped, **used()}))
"""
)

OURS = (
    USED
    + """
import json, sys, time
from pathlib import Path
import numpy as np
from bertsmith.data.cleaning import clean, decisions
from bertsmith.data.cleaning.config import REASONS, CleaningConfig
from bertsmith.data.corpus.corpus import Corpus
kept = {}
real = decisions.decide
def decide(folder, config):
    answer = real(folder, config)
    verdicts = np.fromfile(folder / decisions.VERDICTS, np.uint8)
    kept["dropped"] = np.flatnonzero(verdicts == decisions.NUMBERS["near-duplicates"]).tolist()
    return answer
decisions.decide = decide
skip = [] if sys.argv[4] == "all" else [name for name in REASONS if name != "near-duplicates"]
config = CleaningConfig(similarity=float(sys.argv[2]), skip=tuple(skip))
start = time.perf_counter()
clean.clean(Corpus([sys.argv[1]], layout="lines"), Path(sys.argv[3]), config, workers=int(sys.argv[5]))
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, **used(), **kept}))
"""
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path, help="text, one sentence a line and a blank line between documents; .xz")
    parser.add_argument("--megabytes", type=int, default=20, help="how much of the text, unpacked")
    parser.add_argument("--workers", type=int, default=0, help="measure with worker processes, too: on an idle machine")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        figures = measure(options, Path(name))
    print(json.dumps(figures, indent=1))
    libraries = {name: version(name) for name in ("rensa", "datasketch", "numpy")}
    cpu = next((line.partition(":")[2].strip() for line in Path("/proc/cpuinfo").read_text().splitlines()
                if line.startswith(("model name", "CPU part"))), platform.machine())  # fmt: skip
    machine = {"cpu": cpu, "cores": str(len(os.sched_getaffinity(0))), "system": platform.platform(), **libraries}
    record(options.out, figures, machine)


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    text = lzma.decompress(options.text.read_bytes()).decode()[: options.megabytes * 1_000_000]
    documents, copies = with_copies([one.strip() for one in text.split("\n\n") if one.strip()])
    path = folder / "text.txt"
    path.write_text("\n\n".join(documents), encoding="utf-8")
    similarities = [jaccard(documents[first], documents[later]) for first, later, _ in copies]
    true = {later for (_, later, _), alike in zip(copies, similarities, strict=True) if alike >= FOUND}
    commands = {
        "datasketch, one core": (PEER, []),
        "bertsmith near-duplicates alone, one core": (OURS, ["alone", "0"]),
        "bertsmith clean, all rules, one core": (OURS, ["all", "0"]),
    }
    if options.workers:
        commands[f"bertsmith clean, all rules, {options.workers} workers"] = (OURS, ["all", str(options.workers)])
    rounds: dict[str, list[dict[str, Any]]] = {name: [] for name in commands}
    for turn in range(options.rounds):
        for number, (name, (program, arguments)) in enumerate(commands.items()):
            out = [str(folder / f"out-{turn}-{number}"), *arguments] if program is OURS else []
            command = [sys.executable, "-c", program, str(path), str(FOUND), *out]
            answer = subprocess.run(command, capture_output=True, text=True, check=True)
            rounds[name].append(json.loads(answer.stdout.splitlines()[-1]))
    results = {name: summary(found, true, documents, path.stat().st_size / 1e6) for name, found in rounds.items()}
    peer = results["datasketch, one core"]
    for found in results.values():
        found["times_as_fast_as_datasketch"] = round(peer["seconds"] / found["seconds"], 2)
        found["times_less_processor_time"] = round(peer["processor_seconds"] / found["processor_seconds"], 2)
    inserted = {
        "documents": len(documents),
        "inserted copies": len(copies),
        f"of Jaccard similarity >= {FOUND}": len(true),
    }
    return {"text": inserted | {"megabytes": round(path.stat().st_size / 1e6, 1)}, "results": results}


def with_copies(documents: list[str]) -> tuple[list[str], list[tuple[int, int, float]]]:
    """The documents with edited copies at random places after their originals, and the numbers of both."""
    draw = random.Random(0)
    vocabulary = sorted({word for one in documents[:200] for word in one.split()})
    originals = [number for number, one in enumerate(documents) if len(one.split()) >= MIN_WORDS]
    chosen = draw.sample(originals, int(COPIES * len(documents)))
    places = [(number + 0.0, None, 0.0) for number in range(len(documents))]
    places += [(draw.uniform(number + 0.1, len(documents)), number, draw.choice(EDITS)) for number in chosen]
    order = sorted(places, key=lambda one: one[0])
    found, copies, place = list[str](), list[tuple[int, int, float]](), dict[int, int]()
    for at, original, share in order:
        if original is None:
            place[int(at)] = len(found)
            found.append(documents[int(at)])
        else:
            copies.append((place[original], len(found), share))
            found.append(edited(documents[original], share, vocabulary, draw))
    return found, copies


def edited(text: str, share: float, vocabulary: list[str], draw: random.Random) -> str:
    lines = [line.split() for line in text.split("\n")]
    return "\n".join(" ".join(draw.choice(vocabulary) if draw.random() < share else word for word in line)
                     for line in lines)  # fmt: skip


def jaccard(first: str, second: str) -> float:
    """The true similarity of the word 5-grams of two documents."""
    one, other = ({tuple(words[at : at + 5]) for at in range(len(words) - 4)}
                  for words in (first.lower().split(), second.lower().split()))  # fmt: skip
    return len(one & other) / len(one | other)


def summary(rounds: list[dict[str, Any]], true: set[int], documents: list[str], megabytes: float) -> dict[str, Any]:
    """Medians over the rounds; recall of the inserted copies; precision by the true similarity of dropped documents."""
    seconds, dropped = statistics.median(one["seconds"] for one in rounds), set(rounds[0]["dropped"])
    assert all(set(one["dropped"]) == dropped for one in rounds)
    others = dropped - true
    genuine = sum(any(jaccard(documents[one], documents[earlier]) >= FOUND for earlier in range(one)) for one in others)
    return {
        "seconds": round(seconds, 2),
        "megabytes_per_second": round(megabytes / seconds, 2),
        "processor_seconds": round(statistics.median(one["processor_seconds"] for one in rounds), 2),
        "peak_megabytes": round(statistics.median(one["megabytes"] for one in rounds)),
        "recall": round(len(dropped & true) / len(true), 4),
        "precision": round((len(dropped & true) + genuine) / max(len(dropped), 1), 4),
    }


if __name__ == "__main__":
    main()
