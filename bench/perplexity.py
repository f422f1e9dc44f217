"""Word-level perplexity of a recurrent language model on WikiText-2's validation text, trained on other text.

    python bench/perplexity.py TEXT... --valid wikitext-2/valid.txt.xz [--recipe tiny/lstm] [--budget 8m]
        [--vocabulary 10000] [--change model.width=256]... [--out bench/results/perplexity-cpu.json]

A vocabulary of whole words, cased, is learnt from TEXT, the recipe is trained on it for the budget, and WikiText-2 is
read from its first article to its last with the state carried over, in ten streams as usual. We do not have WikiText's
own training text, so the figures say how well a model that was trained on other text predicts it, and are not
comparable with published ones.

WikiText's punctuation is already split off; " @-@ " and the like are joined again, so that both texts are split alike,
and its <unk> is our own unknown word. Perplexity is given per our words, punctuation and ends of articles included, and
per WikiText's count of words. The loss of unknown words is included, and their number is reported: a small vocabulary
makes many words unknown, and those are easily predicted. The unigram baseline is reported with it.
"""

import argparse
import lzma
import math
import re
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record import code, record

from bertsmith.commands import prepare, pretrain
from bertsmith.data.packing.streams import Streams
from bertsmith.data.shards.shards import Shards
from bertsmith.inference.load import load
from bertsmith.objectives.recurrent_lm import RecurrentLM, collate
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig
from bertsmith.train import hardware, log
from bertsmith.train.evaluate import evaluate

STREAMS, LENGTH = 10, 70
HEADING = re.compile(r" = [^=]+ = ?")


class Articles:
    """WikiText in memory, as `Streams` reads prepared text: an article a document, a line a sentence."""

    def __init__(self, path: Path, tokenizer: Tokenizer) -> None:
        with lzma.open(path, "rt", encoding="utf-8") as file:
            lines = [line.rstrip("\n") for line in file if line.strip()]
        self.words = sum(len(line.split()) for line in lines)
        first = [number for number, line in enumerate(lines) if HEADING.fullmatch(line)]
        encoded = tokenizer.encode([re.sub(r" @(\S)@ ", r"\1", line).strip() for line in lines])
        self.ids = np.array([piece for row in encoded for piece in row], np.int32)
        self.sentence_ends = np.cumsum([len(row) for row in encoded])
        self.document_ends = np.array([*first[1:], len(lines)], np.int64)

    def gather(self, starts: Any, lengths: Any) -> Any:
        rows = zip(starts.tolist(), lengths.tolist(), strict=True)
        return np.concatenate([self.ids[start : start + length] for start, length in rows])


def trained(options: argparse.Namespace, folder: Path) -> Path:
    """The run's folder."""
    pieces = TokenizerConfig(kind="words", vocabulary=options.vocabulary, lowercase=False)
    prepare.tokenizer(options.texts, folder / "words", pieces, layout="lines")
    prepare.prepare(options.texts, folder / "data", folder / "words", validation_share=0.005, layout="lines")
    changes = [f"out={folder / 'run'}", f"data.folder={folder / 'data'}", f"train.budget={options.budget}"]
    pretrain.pretrain(pretrain.read_recipe(options.recipe, [*changes, "train.checkpoints=1", *options.change]))
    return folder / "run"


@torch.inference_mode()
def measured(out: Path, data: Path, valid: Path) -> dict[str, Any]:
    model = load(out / "model", device=hardware.select_device("auto").type)
    tokenizer, objective = model.tokenizer, model.objective
    assert isinstance(objective, RecurrentLM)
    text, shape = Articles(valid, tokenizer), objective.trunk.config
    how: dict[str, Any] = {"length": LENGTH, "tokens": STREAMS * LENGTH, "seed": 0, "once": True}
    streams = Streams(text, separator=(tokenizer.stop_id,), padding_id=tokenizer.padding_id, **how)
    batches = [collate(streams(index)).to(model.device) for index in range(streams.batches())]
    began = time.perf_counter()
    loss = evaluate(objective, batches, bytes_per_token=1.0)["next_token_loss"]
    ends = len(text.document_ends)
    counts = Shards(data / "train").frequencies() + 1.0
    counts[tokenizer.stop_id] += Shards(data / "train").documents
    asked = np.append(text.ids, [tokenizer.stop_id] * ends)
    return {
        "perplexity": round(math.exp(loss), 2),
        "perplexity by WikiText's words": round(math.exp(loss * streams.total_tokens / (text.words + ends)), 2),
        "perplexity by frequency alone": round(float(np.exp(-np.log(counts / counts.sum())[asked].mean())), 2),
        "words": streams.total_tokens,
        "words by WikiText": text.words + ends,
        "unknown": round(float((text.ids == tokenizer.unknown_id).mean()), 4),
        "articles": ends,
        "seconds": round(time.perf_counter() - began, 1),
        "parameters": sum(weight.numel() for weight in objective.parameters()),
        "model": {name: getattr(shape, name) for name in ("cell", "width", "hidden", "layers", "tied")},
        "vocabulary": tokenizer.vocabulary,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--valid", type=Path, required=True)
    parser.add_argument("--recipe", type=Path, default=Path("tiny/lstm"))
    parser.add_argument("--budget", default="8m")
    parser.add_argument("--vocabulary", type=int, default=10_000)
    parser.add_argument("--change", action="append", default=[])
    parser.add_argument("--out", type=Path, default=Path("bench/results/perplexity-cpu.json"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        out = trained(options, folder)
        figures = measured(out, folder / "data", options.valid)
        *_, seen = (line for line in log.read(out / log.NAME) if line["kind"] == "step")
    figures |= {"tokens seen": seen["tokens"], "training seconds": seen["seconds"], "threads": torch.get_num_threads()}
    for name, value in figures.items():
        print(f"{name:32s} {value}")
    record(options.out, {**figures, "code": code()}, hardware.describe(hardware.select_device("auto")))


if __name__ == "__main__":
    main()
