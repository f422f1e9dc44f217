"""The pace of training on this machine: tokens per second of a recipe, by a few of its own updates."""

import time

import torch

from bertsmith.recipe import Recipe
from bertsmith.runs import build
from bertsmith.train import hardware
from bertsmith.train.forward import ForwardPass
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.update import Update

UPDATES = 3  # of which the first warms up, and the fastest of the others counts


def measure_pace(recipe: Recipe, device: torch.device) -> float:
    """Tokens per second of training, measured now on a network that is thrown away. Compilation is not waited for."""
    tokenizer, train, _ = build.load_data(recipe)
    objective = build.objective(recipe, tokenizer).to(device).train()
    feed = build.feed(recipe, objective, tokenizer, train)
    optimizer = Optimizer(objective, recipe.optimizer, hidden_matrices=objective.hidden_matrices())
    forward = ForwardPass(objective, recipe.train, hardware.select_precision(recipe.train.precision, device))
    update, batch, seconds = (
        Update(objective, optimizer, forward, seed=0, capture=False),
        feed(feed.first_position()),
        [],
    )
    for step in range(UPDATES):
        began = time.monotonic()
        update([batch.to(device)], batch.counts, step)
        seconds.append(time.monotonic() - began)
    return float(batch.counts["tokens"] / min(seconds[1:]))
