"""The composition root of the whole way, from text to a trained model folder in one command: `make` and `demo`."""

import time
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from bertsmith import apply, choose, prepare, run, terminal
from bertsmith.data.corpus import Corpus
from bertsmith.errors import RunError
from bertsmith.recipe import Recipe, settle
from bertsmith.text.tokenizer import Tokenizer, TokenizerConfig
from bertsmith.train import machine
from bertsmith.train.clock import spoken
from bertsmith.train.lock import Lock

SAY = terminal.console()
DEMO_BLANKS = [
    "the old man shook his [MASK] and said nothing .",
    "she opened the [MASK] and went into the room .",
    "once upon a [MASK] there was a king who had three sons .",
    "the ship sailed across the [MASK] .",
    "he put his [MASK] on her shoulder and looked into her [MASK] .",
]


def make(
    texts: Sequence[str], out: Path, *, budget: str = "10m", seed: int = 0, lowercase: bool = True, **reading: Any
) -> dict[str, float]:
    """From text to a trained model folder: vocabulary, shards, a recipe that fits, and the run itself."""
    began, path = time.monotonic(), out / "recipe.toml"
    whole = choose.allowed(budget)
    with Lock(out):
        _prepared(texts, out, lowercase, reading)
        if path.exists():
            SAY.print(f"going on with {path}, and with the time it has left")
        else:
            settle(_chosen(out, whole, whole - (time.monotonic() - began), seed), run.MAY_CHANGE)
    return run.pretrain(run.read(path, []))


def _prepared(texts: Sequence[str], out: Path, lowercase: bool, reading: dict[str, Any]) -> None:
    """A vocabulary and shards of the text, made now or found to be of the same text."""
    corpus = Corpus(texts, **reading)
    corpus.keep()  # it is read three times
    size, reason = choose.vocabulary(corpus.words)
    if not (out / "tokenizer" / "tokenizer.json").exists():
        SAY.print(f"why: {reason}")
        prepare.learn(corpus, TokenizerConfig(vocabulary=size, lowercase=lowercase), out / "tokenizer")
    prepare.shards(corpus, Tokenizer.load(out / "tokenizer"), out / "data", choose.valid_share(corpus.words))


def _chosen(out: Path, whole: float, left: float, seed: int) -> Recipe:
    """The recipe that suits the prepared text, this machine, and the time that is left of the whole."""
    device = machine.device("auto")
    gpu = device.type == "cuda"
    left -= choose.reserve(whole, gpu=gpu)
    if left < whole / 4:
        fact = f"of {spoken(whole)}, reading and preparing the text left {spoken(max(left, 0))} for training"
        raise RunError(out, fact, "Give it a longer --budget; what is prepared is kept")
    flops = machine.training_flops(device)
    choice = choose.choose(out / "data", out, budget=left, flops=flops, gpu=gpu, seed=seed)
    for reason in choice.reasons:
        SAY.print(f"why: {reason}")
    return choice.recipe


def demo(out: Path, *, budget: str = "5m") -> dict[str, float]:
    """`make` on the text in the package; then some blanks are filled, and the next steps named."""
    with resources.as_file(resources.files("bertsmith.text") / "sample" / "sample.txt.xz") as sample:
        figures = make([str(sample)], out, budget=budget, layout="lines")
    apply.fill(out / "model", DEMO_BLANKS, top=5, as_json=False)
    SAY.print(f"""What to do next
  look at the report        {out / "report.html"}
  fill blanks of your own   bertsmith fill {out / "model"} "She looked at the [MASK] and smiled."
  use your own text         bertsmith make my-texts/ --budget 10m --out runs/mine""")
    return figures
