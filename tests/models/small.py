"""A small model folder, to be read, damaged and refused."""

from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from torch import Tensor, nn

from bertsmith.errors import FolderError
from bertsmith.models.hf import folder as folders
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.heads import MaskedLMHead, Pooler, SentencePairHead

SMALL = TransformerConfig(vocabulary=30, width=8, layers=2, heads=2, feed_forward=12, max_length=10)
EVERY = ("mlm_head", "pooler", "sentence_pair")


def state(config: TransformerConfig = SMALL, parts: tuple[str, ...] = EVERY) -> dict[str, Tensor]:
    torch.manual_seed(0)
    heads = {
        "mlm_head": MaskedLMHead(config.width, config.vocabulary, config.activation, config.norm_eps),
        "pooler": Pooler(config.width),
        "sentence_pair": SentencePairHead(config.width),
    }
    whole = nn.ModuleDict({"trunk": Transformer(config), **{part: heads[part] for part in parts}})
    return {name: torch.randn_like(weight) for name, weight in whole.state_dict().items()}


def saved(folder: Path, **config: Any) -> Path:
    """A valid folder, with some keys of config.json changed."""
    folders.write(folder, SMALL, state(), config)
    return folder


def change(folder: Path, edit: Any) -> None:
    """Rewrite the weights of a folder."""
    tensors = safetensors.torch.load_file(folder / "model.safetensors")
    edit(tensors)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")


def refusal(folder: Path) -> str:
    """The one line with which a folder is refused, without its path."""
    with pytest.raises(FolderError) as caught:
        folders.read(folder)
    line = str(caught.value)
    assert "\n" not in line
    assert len(line) < 500
    return line.replace(str(folder), "F")
