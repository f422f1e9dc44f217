"""A compiled step of image classification; test_image_classification.py runs this where no shapes are checked."""

import sys
from dataclasses import replace
from functools import partial

import numpy as np
import torch
from objectives import masked_graph
from tasks.small_images import CONVNET, VIT, labelled, pixels, task

from bertsmith.data.images.augmentation import AugmentationConfig
from bertsmith.data.images.draws import Draws
from bertsmith.train.forward import cast_weights
from bertsmith.train.optimizers import Optimizer, OptimizerConfig
from bertsmith.train.step import Step
from bertsmith.train.train_config import TrainConfig

CHANGES = AugmentationConfig(padding=2, operations=1)
WIDE = replace(VIT, layers=1, width=64, feed_forward=96, distillation_token=True)


def without_a_device() -> None:
    """One graph, in half precision, whose losses are those of the plain step."""
    data = labelled(pixels(6))
    for config in (WIDE, CONVNET):
        one = task(config, CHANGES, teacher=lambda images: torch.eye(3)[torch.arange(6) % 3]).train()
        batch = one.prepare(one.collate(Draws(1, 0, np.arange(6)), data), torch.device("cpu"))
        batch = replace(batch, counts={})
        how = {"fullgraph": True, "dynamic": False, "backend": "aot_eager"}
        compiled = torch.compile(partial(cast_weights, one, torch.bfloat16), **how)
        plain, half = one(batch), compiled(batch)
        for name, term in plain.items():
            torch.testing.assert_close(half[name].total, term.total, rtol=0.1, atol=0.1)
        sum(term.total for term in half.values()).backward()
        assert all(weight.grad is not None for weight in one.parameters())
    masked_graph.without_a_device()


def on_a_device() -> None:
    """Steps that are compiled, captured and replayed give the losses of plain ones."""
    data = labelled(pixels(24))
    found = []
    for compiles in ("never", "always"):
        one = task(WIDE, CHANGES, mixup=0.8).cuda()
        optimizer = Optimizer(one, OptimizerConfig(learning_rate=1e-3), capturable=compiles == "always")
        step = Step(one, optimizer, TrainConfig(steps=9, compile=compiles), torch.bfloat16)
        values = [
            step([one.collate(Draws(1, number, np.arange(12)), data)], number, 1.0).values[0] for number in range(5)
        ]
        found.append(torch.stack(values).float().cpu())
    torch.testing.assert_close(found[0], found[1], rtol=0.05, atol=0.02)
    masked_graph.on_a_device()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
