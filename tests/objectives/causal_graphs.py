"""Scripts that compile guessing next tokens; test_causal_run.py runs them where no shapes are checked at run time."""

import sys
from dataclasses import replace

import compiled
import torch

from bertsmith.data.batch import Batch, Tokens
from bertsmith.models.family import GPT2
from bertsmith.models.transformer import Transformer
from bertsmith.nn.init import initialise
from bertsmith.objectives.causal import CausalLM

SIZES = {"vocabulary": 300, "width": 128, "heads": 2, "layers": 2, "feed_forward": 96, "max_length": 24}
SHAPE = replace(GPT2, **SIZES, dropout=0.0, attention_dropout=0.0)
EQUAL = [list(range(9)), list(range(9, 18))]
RAGGED = [[7, 8, 9], [1] * 24, list(range(20)), [5], [9, 8, 7, 6] * 5, [], []]


def objective(layers: int) -> CausalLM:
    made = CausalLM(Transformer(replace(SHAPE, layers=layers)), CausalLM.Config())
    initialise(made, 0, std=0.1)
    return made


def batch(rows: list[list[int]], seed: int = 1) -> Batch:
    dice, size = torch.Generator().manual_seed(seed), sum(map(len, rows))
    chosen = torch.randperm(size, generator=dice)[: size - 4].sort().values
    targets = torch.randint(300, (size - 4,), generator=dice)
    targets[-3:] = -100
    return Batch(tokens=Tokens.from_rows(rows), target_positions=chosen, targets=targets)


def without_a_device() -> None:
    compiled.without_a_device(objective, batch(EQUAL), batch(RAGGED), "varlen")


def on_a_device() -> None:
    compiled.on_a_device(objective, batch(RAGGED, 1), batch(RAGGED, 2))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
