"""Compiled steps of a masked autoencoder; tasks/image_graph.py runs them, where no shapes are checked."""

from dataclasses import replace
from functools import partial

import numpy as np
import torch
from tasks.small_images import labelled, pixels

from bertsmith.data.images.augmentation import AugmentationConfig
from bertsmith.data.images.draws import Draws
from bertsmith.models.vision_config import VisionConfig
from bertsmith.models.vision_transformer import VisionTransformer
from bertsmith.nn.init import initialise
from bertsmith.objectives.masked_patches import MaskedPatches
from bertsmith.train.forward import cast_weights
from bertsmith.train.optimizers import Optimizer, OptimizerConfig
from bertsmith.train.step import Step
from bertsmith.train.train_config import TrainConfig


def objective(side: int) -> MaskedPatches:
    shape = VisionConfig(
        image_size=side, patch_size=4, positions="sinusoidal", width=64, layers=1, heads=2, feed_forward=96
    )
    config = MaskedPatches.Config(decoder_layers=1, decoder_width=64, decoder_heads=2, decoder_feed_forward=96)
    made = MaskedPatches(VisionTransformer(shape), config, AugmentationConfig(padding=1))
    initialise(made, 0)
    return made.train()


def without_a_device() -> None:
    """One graph for all masks, in half precision, whose loss is that of the plain step."""
    data, graphs = labelled(pixels(6)), []

    def count(graph: torch.fx.GraphModule, _: object) -> object:
        graphs.append(graph)
        return graph.forward

    one = objective(data.images[0].shape[-1])
    compiled = torch.compile(partial(cast_weights, one, torch.bfloat16), fullgraph=True, dynamic=False, backend=count)
    for epoch in range(3):
        batch = one.prepare(one.collate(Draws(1, epoch, np.arange(6)), data), torch.device("cpu"))
        batch = replace(batch, counts={})
        plain, half = one(batch)["pixels"].total, compiled(batch)["pixels"].total
        torch.testing.assert_close(half, plain, rtol=0.05, atol=0.1)
        half.backward()
    assert len(graphs) == 1
    trained = {name for name, weight in one.named_parameters() if weight.grad is not None}
    assert {name for name, _ in one.named_parameters()} - trained == {"trunk.embedding.positions", "decoder.positions"}


def on_a_device() -> None:
    """Steps that are compiled, captured and replayed give the losses of plain ones."""
    data = labelled(pixels(24))
    found = []
    for compiles in ("never", "always"):
        one = objective(data.images[0].shape[-1]).cuda()
        optimizer = Optimizer(one, OptimizerConfig(learning_rate=1e-3), capturable=compiles == "always")
        step = Step(one, optimizer, TrainConfig(steps=9, compile=compiles), torch.bfloat16)
        draws = [Draws(1, number, np.arange(12)) for number in range(5)]
        values = [step([one.collate(each, data)], number, 1.0).values[0] for number, each in enumerate(draws)]
        found.append(torch.stack(values).float().cpu())
    torch.testing.assert_close(found[0], found[1], rtol=0.05, atol=0.02)
