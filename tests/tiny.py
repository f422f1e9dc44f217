"""A run small enough to be killed fifty times: a made-up language, two layers, thirty-two wide."""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch

from bertsmith import config
from bertsmith.commands import pretrain
from bertsmith.data.corpus.corpus import Corpus
from bertsmith.data.shards.prepare import prepare
from bertsmith.errors import BertsmithError
from bertsmith.random_bits import mix
from bertsmith.recipe import Recipe
from bertsmith.text.special_tokens import Kind
from bertsmith.text.tokenizer import TokenizerConfig, train
from bertsmith.train import checkpoint, log
from bertsmith.train.trainer import Trainer

NOUNS = ["cat", "dog", "bird", "fish", "horse", "king", "queen", "child", "tree", "river"]
VERBS = ["sees", "likes", "follows", "feeds", "hears", "helps", "finds", "wants"]
PLACES = ["house", "garden", "forest", "field", "city", "market"]


def write_text(path: Path, documents: int = 60) -> Path:
    """Documents of eight sentences about one noun each, so that next-sentence prediction can be learnt."""
    lines = []
    for document in range(documents):
        hero = NOUNS[document % len(NOUNS)]
        for sentence in range(8):
            draw = int(mix(document, sentence))
            other, verb, place = NOUNS[draw % 10], VERBS[draw // 16 % 8], PLACES[draw // 256 % 6]
            lines.append(f"the {hero} {verb} the {other} in the {place} .")
        lines.append("")
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def prepared(folder: Path, kind: Kind = "wordpiece") -> Path:
    """The text, its tokenizer and its shards, made once for all tests of a worker."""
    for name, (content, when) in _files(kind).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        os.utime(path, ns=(when, when))
    return folder / "data"


@cache
def _files(kind: Kind) -> dict[Path, tuple[bytes, int]]:
    """The files by name, with their content and time."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        corpus = Corpus([str(write_text(folder / "text.txt"))], layout="lines")
        pieces = TokenizerConfig(kind=kind, vocabulary=300 if kind in ("bpe", "t5") else 100, min_frequency=1)
        prepare(corpus, train(corpus.lines(), pieces), folder / "data", validation_share=0.1, workers=1)
        made = [path for path in folder.rglob("*") if path.is_file()]
        return {path.relative_to(folder): (path.read_bytes(), path.stat().st_mtime_ns) for path in made}


def recipe(data: Path, out: Path, *changes: str) -> Recipe:
    """A recipe for it; a step takes milliseconds."""
    values = {
        "out": str(out),
        "model": {"kind": "bert-tiny", "width": 32, "heads": 2, "feed_forward": 64, "max_length": 32, "dropout": 0.1},
        "objective": {"kind": "masked_lm", "pairs": "nsp"},
        "data": {"folder": str(data), "max_length": 32, "batch_tokens": 512, "workers": 1},
        "optimizer": {"learning_rate": 0.003},
        "schedule": {"warmup": 0.1},
        "train": {"steps": 40, "precision": "float32", "evaluations": 2, "checkpoints": 10},
    }
    return config.build(config.override(values, changes), Recipe, "tiny.toml")


def losses(out: Path) -> list[tuple[int, float]]:
    return [(entry["step"], entry["loss"]) for entry in log.read(out / log.NAME) if entry["kind"] == "step"]


def weights(out: Path) -> dict[str, torch.Tensor]:
    found = checkpoint.load_newest(out / "checkpoints")
    assert found is not None
    return found[0].tensors["model"] | found[0].tensors["optimizer"]


def assert_same(first: Path, second: Path) -> None:
    assert losses(first) == losses(second)
    one, other = weights(first), weights(second)
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name


def fail_at(step: int, recipe: Recipe) -> None:
    """A run that fails with an error at a step."""
    update = Trainer.update

    def failing(self: Trainer, *arguments: Any) -> None:
        if self.state.step == step:
            raise RuntimeError("the plug was pulled")
        update(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "update", failing)
        with pytest.raises(RuntimeError, match="plug"):
            pretrain.pretrain(recipe)


def train_in_a_child(recipe: Recipe, quiet: Path) -> None:
    """A run in a child process."""
    in_a_child(lambda: pretrain.pretrain(recipe), quiet)


def in_a_child(train: Callable[[], object], quiet: Path) -> None:
    """Train in a child process, and end it as the command line would."""
    torch.set_num_threads(1)
    with quiet.open("a") as stream:
        os.dup2(stream.fileno(), 1)
        os.dup2(stream.fileno(), 2)
    try:
        train()
    except BertsmithError as error:
        print(error, flush=True)
        os._exit(3 if "saved" in str(error) else 4)
