"""Law: a network that is written into a folder is read again, bit for bit, with its configuration."""

from pathlib import Path

import pytest
import torch
from laws.networks import MEMBERS, built

from bertsmith.models.hf import folder as folders


@pytest.mark.parametrize("name", MEMBERS)
def test_a_folder_is_read_as_it_was_written(name: str, tmp_path: Path) -> None:
    config = MEMBERS[name]
    state = {f"trunk.{key}": one for key, one in built(config).float().state_dict().items()}
    folders.write(tmp_path / "model", config, state)
    opened = folders.read(tmp_path / "model")
    assert opened.config == config
    assert opened.state_dict.keys() == state.keys()
    for key, weight in state.items():
        assert torch.equal(opened.state_dict[key], weight), key
        assert opened.state_dict[key].dtype == weight.dtype
