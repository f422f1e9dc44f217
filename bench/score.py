"""Sentence scoring compared with transformers, in one run: pseudo-log-likelihoods of BLiMP's minimal pairs.

    python bench/score.py BLIMP [--model FOLDER] [--vocabulary vocab.txt.xz] [--out bench/results/score.json]

BLIMP is an archive, a folder or a file of pairs. Without a model folder, a random model is written to a temporary
folder, with the given vocabulary or one learnt from the sentences. Both sides go from text to numbers, in bfloat16 on a
GPU. transformers gets masked copies sorted by length and padded, in batches of several sizes of which the best counts,
with one synchronisation at the end. The error of both against transformers in float32 is measured on some sentences.
"""

import argparse
import lzma
import tempfile
import time
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import record

from bertsmith.data.rows import BATCH_TOKENS
from bertsmith.inference.likelihood import score
from bertsmith.inference.load import load
from bertsmith.inference.minimal_pairs import accuracies, read_minimal_pairs
from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.nn.init import initialise
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig, train
from bertsmith.train import hardware

WARM = 256  # sentences, before any clock runs


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(compute: Any, texts: list[str], device: torch.device) -> tuple[np.ndarray, dict[str, float]]:
    """The scores, and the speed."""
    compute(texts[:WARM])
    wait(device)
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    totals = compute(texts)
    wait(device)
    seconds = time.perf_counter() - began
    memory = torch.cuda.max_memory_allocated() / 2**30 if device.type == "cuda" else 0.0
    return totals, {"seconds": seconds, "sentences_per_second": len(texts) / seconds, "memory_gib": memory}


class Theirs:
    """transformers' BertForMaskedLM on padded copies."""

    def __init__(self, folder: Path, form: str, device: torch.device) -> None:
        from transformers import AutoModelForMaskedLM, AutoTokenizer

        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModelForMaskedLM.from_pretrained(folder, attn_implementation="sdpa").to(device).eval()
        self.form, self.device = form, device

    @torch.inference_mode()
    def __call__(self, texts: list[str], batch: int, half: bool = True) -> np.ndarray:
        rows = self.copies(texts)
        rows.sort(key=lambda row: -len(row[2]))
        logs = []
        with torch.autocast(self.device.type, torch.bfloat16, enabled=half and self.device.type == "cuda"):
            for start in range(0, len(rows), batch):
                _, places, copies, truth = zip(*rows[start : start + batch], strict=True)
                ids = torch.nn.utils.rnn.pad_sequence(
                    copies, batch_first=True, padding_value=self.tokenizer.pad_token_id
                )
                marks = (torch.arange(ids.shape[1]) < torch.tensor([len(copy) for copy in copies])[:, None]).long()
                sent = [part.to(self.device, non_blocking=True) for part in (ids, marks)]
                where = torch.tensor([places, truth]).to(self.device, non_blocking=True)
                guesses = self.model(input_ids=sent[0], attention_mask=sent[1]).logits
                picked = guesses[torch.arange(len(copies), device=self.device), where[0]].float().log_softmax(-1)
                logs.append(picked.gather(1, where[1][:, None])[:, 0])
        owners = [owner for owner, *_ in rows]
        return np.bincount(owners, torch.cat(logs).double().cpu().numpy(), len(texts))

    def copies(self, texts: list[str]) -> list[tuple[int, int, torch.Tensor, int]]:
        """Of every copy: its sentence, the place that is guessed, the ids, and the true one."""
        encoded = self.tokenizer(texts)
        rows = []
        for owner, numbers in enumerate(encoded["input_ids"]):
            words, ids = encoded.word_ids(owner), torch.tensor(numbers)
            for place in range(1, len(numbers) - 1):
                stop = place + 1
                while self.form == "within_word" and words[stop] == words[place]:
                    stop += 1
                copy = ids.clone()
                copy[place:stop] = self.tokenizer.mask_token_id
                rows.append((owner, place, copy, numbers[place]))
        return rows


def made_up(folder: Path, size: str, vocabulary: Path | None, texts: list[str]) -> Path:
    """A model folder with random weights."""
    config = FAMILY[size]
    if vocabulary:
        raw = vocabulary.read_bytes()
        (folder / "vocab.txt").write_bytes(lzma.decompress(raw) if vocabulary.suffix == ".xz" else raw)
        tokenizer = Tokenizer.load(folder / "vocab.txt")
    else:
        tokenizer = train(texts, TokenizerConfig(vocabulary=8000))
    config = replace(config, vocabulary=max(config.vocabulary, tokenizer.vocabulary))
    objective = MaskedLM(Transformer(config), MaskedLM.Config(pairs="none"))
    initialise(objective, 0, 0.05)  # wide enough that words differ in probability
    model = folder / "model"
    folders.write(model, config, objective.state_dict())
    tokenizer.save(model, max_length=config.max_length)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("blimp", type=Path)
    parser.add_argument("--model", type=Path, help="a folder with a masked-word head; without one it is made up")
    parser.add_argument("--size", default="bert-base", help="of the model that is made up")
    parser.add_argument("--vocabulary", type=Path, help="vocab.txt, or vocab.txt.xz, of the model that is made up")
    parser.add_argument("--pairs", type=int, default=200, help="of each phenomenon")
    parser.add_argument("--form", default="within_word", choices=["within_word", "original"])
    parser.add_argument(
        "--budgets", nargs="+", type=int, default=[BATCH_TOKENS, 65_536], help="tokens in a pass of ours"
    )
    parser.add_argument("--batches", nargs="+", type=int, default=[64, 256, 1024], help="copies in a pass of theirs")
    parser.add_argument("--exact", type=int, default=500, help="sentences computed in float32, too")
    parser.add_argument("--alone", action="store_true", help="without transformers")
    parser.add_argument("--out", type=Path, default=Path("bench/results/score.json"))
    options = parser.parse_args()
    device = hardware.select_device("auto")
    began = time.perf_counter()
    pairs = read_minimal_pairs(options.blimp, options.pairs)
    texts = [text for pair in pairs for text in (pair.good, pair.bad)]
    print(f"{len(pairs):,} pairs read in {time.perf_counter() - began:.1f} s", flush=True)

    with tempfile.TemporaryDirectory() as temporary:
        folder = options.model or made_up(Path(temporary), options.size, options.vocabulary, texts)
        model = load(folder, str(device))
        if not model.has_lm_head or not isinstance(model.objective, MaskedLM):
            parser.error(f"{folder} has no masked-word head")
        theirs = None if options.alone else Theirs(folder, options.form, device)

    def ours(some: list[str], budget: int) -> np.ndarray:
        scored = score(model.objective, model.tokenizer, some, pll_form=options.form, batch_tokens=budget)
        return np.array([one.log_likelihood for one in scored])

    cases: list[dict[str, Any]] = []
    totals: dict[str, np.ndarray] = {}

    def measure(who: str, setting: str, compute: Any) -> None:
        totals[who], figures = timed(compute, texts, device)
        cases.append({"who": who, setting.split()[0]: int(setting.split()[1]), **figures})
        speed, seconds = figures["sentences_per_second"], figures["seconds"]
        print(
            f"{who:14}{setting:>14}{speed:12,.0f} sentences/s{seconds:9.1f} s{figures['memory_gib']:8.1f} GiB",
            flush=True,
        )

    for budget in options.budgets:
        measure("bertsmith", f"budget {budget}", lambda some, budget=budget: ours(some, budget))
    for batch in options.batches if theirs else []:
        measure("transformers", f"batch {batch}", lambda some, batch=batch: theirs(some, batch))

    best = {who: max(case["sentences_per_second"] for case in cases if case["who"] == who) for who in totals}
    verdicts = {who: accuracies(pairs, list(map(tuple, some.reshape(-1, 2).tolist()))) for who, some in totals.items()}
    figures: dict[str, Any] = {
        "pairs": len(pairs),
        "sentences": len(texts),
        "form": options.form,
        "model": str(options.model or f"{options.size}, random"),
        "cases": cases,
        "accuracy": {who: verdict.accuracy for who, verdict in verdicts.items()},
    }
    if theirs:
        some = np.linspace(0, len(texts) - 1, min(options.exact, len(texts))).astype(int)
        exact = theirs([texts[number] for number in some], options.batches[0], half=False)
        same = [(some.reshape(-1, 2)[:, 0] > some.reshape(-1, 2)[:, 1]) for some in totals.values()]
        gaps = {who: np.abs(found[some] - exact) for who, found in totals.items()}
        gap = np.abs(totals["bertsmith"] - totals["transformers"])
        figures |= {
            "ratio": best["bertsmith"] / best["transformers"],
            "same_verdict": float((same[0] == same[1]).mean()),
            "difference": {"mean": float(gap.mean()), "most": float(gap.max())},
            "difference_from_float32": {
                who: {"mean": float(gap.mean()), "most": float(gap.max())} for who, gap in gaps.items()
            },
            "mean_score": float(exact.mean()),
        }
        print(
            f"ratio {figures['ratio']:.2f}; the same verdict on {figures['same_verdict']:.2%} of the pairs; "
            f"scores differ by {gap.mean():.2g} (most {gap.max():.2g}) of {exact.mean():.1f}"
        )
        for who, part in gaps.items():
            print(f"   {who:14} is {part.mean():.2g} (most {part.max():.2g}) away from float32")
    libraries = {} if options.alone else {"transformers": version("transformers")}
    record(options.out, figures, hardware.describe(device) | libraries)


if __name__ == "__main__":
    main()
