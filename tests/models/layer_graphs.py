"""A script that compiles a layer; test_layers.py runs it in a process without run-time shape checks."""

import itertools
import sys
from dataclasses import replace

import torch
from torch import Tensor

from bertsmith.models import layers
from bertsmith.models.layers import AttentionInputs, Layer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.attention import Sequences
from bertsmith.nn.kernel_choice import KernelName, self_attention

CONFIG = TransformerConfig(width=128, heads=2, feed_forward=256, dropout=0.0, attention_dropout=0.0)
LENGTHS: dict[KernelName, list[int]] = {
    "short": [127, 128, 64, 0, 65, 1, 20, 0, 0],
    "long": [512, 300, 257, 0, 1, 64, 0, 0],
}


def inputs_of(name: KernelName) -> AttentionInputs:
    lengths = LENGTHS[name]
    bounds = torch.tensor([0, *lengths], device="cuda").cumsum(0).to(torch.int32)
    return AttentionInputs(self_attention(name, Sequences(bounds, max(lengths), sum(lengths))))


def on_a_device() -> None:
    """With our fused attention, GELU and residual norm all gradients are those of the plain layer."""
    for (name, lengths), dtype in itertools.product(LENGTHS.items(), (torch.float32, torch.bfloat16)):
        torch.manual_seed(0)
        layer = Layer(CONFIG).to("cuda", dtype)
        torch.nn.init.normal_(layer.attention.qkv.bias)
        inputs = inputs_of(name)
        hidden = torch.randn(sum(lengths), 128, device="cuda", dtype=dtype, requires_grad=True)
        grad_output = torch.randn(sum(lengths), 128, device="cuda", dtype=dtype)
        parts = {"hidden": hidden, **dict(layer.named_parameters())}

        def gradients(way, hidden=hidden, inputs=inputs, grad_output=grad_output, parts=parts):  # type: ignore[no-untyped-def]
            with torch.autocast("cuda", torch.bfloat16):
                found: Tensor = way(hidden, inputs)
            return dict(
                zip(parts, torch.autograd.grad(found, list(parts.values()), grad_output.to(found)), strict=True)
            )

        true, found = gradients(layer), gradients(torch.compile(layer, fullgraph=True))
        for part, gradient in found.items():
            assert gradient.dtype == true[part].dtype
            off = (gradient.double() - true[part].double()).norm() / true[part].double().norm()
            assert off < 2e-2, (name, part, float(off))
        torch._dynamo.reset()


def dropout_on_a_device() -> None:
    """With dropout, too: from the same seed our kernel has the mask of compiled dropout."""
    torch.manual_seed(0)
    layer = Layer(replace(CONFIG, dropout=0.3)).to("cuda", torch.bfloat16)
    lengths, inputs = LENGTHS["short"], inputs_of("short")
    hidden, grad_output = (torch.randn(sum(lengths), 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    parts, found = {"hidden": hidden.requires_grad_(), **dict(layer.named_parameters())}, []
    for ours in (True, False):
        if not ours:
            layers._can_fuse = lambda *_: False
        torch._dynamo.reset()
        compiled = torch.compile(layer, fullgraph=True)
        torch.manual_seed(7)
        output: Tensor = compiled(hidden, inputs)
        found.append([output.detach(), *torch.autograd.grad(output, list(parts.values()), grad_output)])
    for part, one, other in zip(("vectors", *parts), *found, strict=True):
        off = (one.double() - other.double()).norm() / other.double().norm()
        assert off < 3e-2, (part, float(off))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
