"""A script that compiles a layer; test_layers.py runs it where no shapes are checked at run time."""

import itertools
import sys

import torch
from torch import Tensor

from bertsmith.nn.attention import Layout
from bertsmith.nn.layers import Layer

LENGTHS = {"short": [127, 128, 64, 0, 65, 1, 20, 0, 0], "long": [512, 300, 257, 0, 1, 64, 0, 0]}


def on_a_device() -> None:
    """By our own attention and GELU all gradients are those of the plain way."""
    for (name, lengths), masters in itertools.product(LENGTHS.items(), (torch.float32, torch.bfloat16)):
        torch.manual_seed(0)
        layer = Layer(128, 2, 256, "gelu", 1e-12, dropout=0.0, attention_dropout=0.0).to("cuda", masters)
        torch.nn.init.normal_(layer.attention.project.bias)
        bounds = torch.tensor([0, *lengths], device="cuda").cumsum(0).to(torch.int32)
        layout = Layout.of(bounds, max(lengths), name)
        hidden = torch.randn(sum(lengths), 128, device="cuda", dtype=masters, requires_grad=True)
        above = torch.randn(sum(lengths), 128, device="cuda", dtype=masters)
        parts = {"hidden": hidden, **dict(layer.named_parameters())}

        def slopes(way, hidden=hidden, layout=layout, above=above, parts=parts):  # type: ignore[no-untyped-def]
            with torch.autocast("cuda", torch.bfloat16):
                found: Tensor = way(hidden, layout)
            return dict(zip(parts, torch.autograd.grad(found, list(parts.values()), above.to(found)), strict=True))

        true, found = slopes(layer), slopes(torch.compile(layer, fullgraph=True))
        for part, slope in found.items():
            assert slope.dtype == true[part].dtype
            off = (slope.double() - true[part].double()).norm() / true[part].double().norm()
            assert off < 2e-2, (name, part, float(off))
        torch._dynamo.reset()


if __name__ == "__main__":
    globals()[sys.argv[1]]()
