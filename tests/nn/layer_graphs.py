"""A script that compiles a layer; test_layers.py runs it where no shapes are checked at run time."""

import itertools
import sys

import torch
from torch import Tensor

from bertsmith.nn import layers
from bertsmith.nn.layers import Layer
from bertsmith.nn.layout import Layout

LENGTHS = {"short": [127, 128, 64, 0, 65, 1, 20, 0, 0], "long": [512, 300, 257, 0, 1, 64, 0, 0]}


def on_a_device() -> None:
    """By our own attention, GELU, sum and norm all gradients are those of the plain way."""
    for (name, lengths), masters in itertools.product(LENGTHS.items(), (torch.float32, torch.bfloat16)):
        torch.manual_seed(0)
        layer = Layer(128, 2, 256, "gelu", 1e-12, dropout=0.0, attention_dropout=0.0).to("cuda", masters)
        torch.nn.init.normal_(layer.attention.qkv.bias)
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


def forgetting_on_a_device() -> None:
    """With dropout, too: from the same seed our own kernel forgets what a compiler forgets by itself."""
    torch.manual_seed(0)
    layer = Layer(128, 2, 256, "gelu", 1e-12, dropout=0.3, attention_dropout=0.0).to("cuda", torch.bfloat16)
    lengths = LENGTHS["short"]
    layout = Layout.of(torch.tensor([0, *lengths], device="cuda").cumsum(0).to(torch.int32), max(lengths), "short")
    hidden, above = (torch.randn(sum(lengths), 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    parts, found = {"hidden": hidden.requires_grad_(), **dict(layer.named_parameters())}, []
    for ours in (True, False):
        if not ours:
            layers._can_fuse = lambda *_: False
        torch._dynamo.reset()
        compiled = torch.compile(layer, fullgraph=True)
        torch.manual_seed(7)
        said: Tensor = compiled(hidden, layout)
        found.append([said.detach(), *torch.autograd.grad(said, list(parts.values()), above)])
    for part, one, other in zip(("vectors", *parts), *found, strict=True):
        off = (one.double() - other.double()).norm() / other.double().norm()
        assert off < 3e-2, (part, float(off))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
