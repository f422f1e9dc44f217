"""Law: a network that is written into a folder is read again, bit for bit, with its configuration."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from laws.networks import MEMBERS, NETWORKS, built, dropouts

from bertsmith.models.family import FAMILY
from bertsmith.models.hf import folder as folders
from bertsmith.models.networks import NATIVE
from bertsmith.models.transformer_config import TransformerConfig

# Members with their own dropout; and every choice of our own networks, which have no layout of others to fit.
CONFIGS = {
    name: replace(config, **{one: getattr(FAMILY.get(name, config), one) for one in dropouts(config)})
    for name, config in NETWORKS.items()
    if name in MEMBERS or not isinstance(config, TransformerConfig)
}


def test_every_network_of_our_own_format_is_among_them() -> None:
    assert {one.architecture for one in CONFIGS.values() if not isinstance(one, TransformerConfig)} == NATIVE.keys()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_folder_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    config = CONFIGS[name]
    state = {f"trunk.{key}": one for key, one in built(config).float().state_dict().items()}
    folders.write(tmp_path / "model", config, state)
    opened = folders.read(tmp_path / "model")
    assert opened.config == config
    assert opened.state_dict.keys() == state.keys()
    for key, weight in state.items():
        assert torch.equal(opened.state_dict[key], weight), key
        assert opened.state_dict[key].dtype == weight.dtype
    if not isinstance(config, TransformerConfig):
        said = json.loads((tmp_path / "model" / "config.json").read_text())
        assert (said["model_type"], said["network"]) == ("bertsmith", config.architecture)
