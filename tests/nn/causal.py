"""Small causal networks with every kind of position, window and norm, and prompts for them."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig

CONFIG = TransformerConfig(
    vocabulary=50,
    width=32,
    layers=4,
    heads=4,
    feed_forward=64,
    max_length=40,
    segments=0,
    causal=True,
    norm_position="pre",
    embedding_norm=False,
)
PROMPTS = [7, 3, 12, 1]
NETWORKS: dict[str, dict[str, Any]] = {
    "gpt2": {},
    "gpt": {"norm_position": "post"},
    "sinusoidal": {"positions": "sinusoidal"},
    "rotary": {"positions": "rotary"},
    "local": {"positions": "rotary", "window": 3, "global_every": 2},
    "near": {"window": 2},
    "shared": {"share_layers": True, "gated": True},
    "offset": {"position_offset": 2, "embedding_norm": True},
}
everywhere = pytest.mark.parametrize("changes", NETWORKS.values(), ids=NETWORKS)


def trunk_of(changes: dict[str, Any] | None = None) -> Transformer:
    torch.manual_seed(0)
    trunk = Transformer(replace(CONFIG, **(changes or {}))).eval()
    with torch.no_grad():
        for name, parameter in trunk.named_parameters():
            parameter.normal_(float("norm" in name and name.endswith("weight")), 0.1 if parameter.ndim == 1 else 0.3)
    return trunk


def prompts(lengths: list[int] = PROMPTS) -> list[list[int]]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randint(50, (length,), generator=generator).tolist() for length in lengths]
