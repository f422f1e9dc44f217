"""Scripts that compile both ways; test_mixed.py runs them where no shapes are checked at run time."""

import sys
from dataclasses import replace

import causal_graphs
import compiled
from causal_graphs import EQUAL, RAGGED, SIZES

from bertsmith.data.batch import Batch
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.objectives.mixed import MixedLM

SHAPE = TransformerConfig(**SIZES, dropout=0.0, attention_dropout=0.0)


def objective(layers: int) -> MixedLM:
    made = MixedLM(Transformer(replace(SHAPE, layers=layers)), MixedLM.Config(causal_weight=0.5))
    initialise(made, 0, std=0.1)
    return made


def batch(rows: list[list[int]], seed: int = 1) -> Batch:
    causal = causal_graphs.batch(rows[::-1] if rows is EQUAL else rows, seed + 10)
    return replace(causal_graphs.batch(rows, seed), causal=causal)


def without_a_device() -> None:
    compiled.without_a_device(objective, batch(EQUAL), batch(RAGGED), "varlen")


def on_a_device() -> None:
    compiled.on_a_device(objective, batch(RAGGED, 1), batch(RAGGED, 2))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
