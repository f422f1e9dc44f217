"""The pace of training on this machine: tokens per second of a recipe, by a few of its own updates."""

import time

import torch

from bertsmith.recipe import Recipe
from bertsmith.runs import build
from bertsmith.train import hardware
from bertsmith.train.optimizers import Optimizer
from bertsmith.train.step import Step

UPDATES = 3  # of which the first warms up, and the fastest of the others counts


def measure_pace(recipe: Recipe, device: torch.device) -> float:
    """Tokens per second of training, measured now on a network that is thrown away. Compilation is not waited for."""
    tokenizer, train, _ = build.load_data(recipe)
    objective = build.objective(recipe, tokenizer).to(device).train()
    feed = build.feed(recipe, objective, tokenizer, train)
    optimizer = Optimizer(objective, recipe.optimizer, hidden_matrices=objective.hidden_matrices())
    step = Step(objective, optimizer, recipe.train, hardware.select_precision(recipe.train.precision, device))
    batch, seconds = feed(feed.first_position()), []
    for number in range(UPDATES):
        began = time.monotonic()
        step([batch.to(device)], number, rate_factor=1.0)
        seconds.append(time.monotonic() - began)
    return float(batch.counts["tokens"] / min(seconds[1:]))
