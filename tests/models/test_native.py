"""Folders of networks that transformers has no class for: what is refused, in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from models.small import refusal

from bertsmith.models.elmo import ElmoConfig
from bertsmith.models.hf import folder as folders
from bertsmith.models.networks import NetworkConfig, build_network
from bertsmith.models.recurrent import RecurrentConfig
from bertsmith.nn.init import initialise

SHAPES: dict[str, NetworkConfig] = {
    "recurrent": RecurrentConfig(vocabulary=10, width=4, hidden=6, cell="gru", dropout=0.25),
    "elmo": ElmoConfig(vocabulary=10, max_characters=8, character_width=4, filters=(3, 2), hidden=6, width=8),
}


def saved(folder: Path, name: str) -> dict[str, torch.Tensor]:
    made = build_network(SHAPES[name])
    initialise(made, 1)
    state = {f"trunk.{key}": one for key, one in made.state_dict().items()}
    folders.write(folder, SHAPES[name], state)
    return state


def changed(folder: Path, **words: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **words}))
    return folder


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            {"version": 1},
            "F/config.json: is of version 1 of our own format; this bertsmith reads version 2. Export the model anew.",
        ),
        ({"network": "recurent"}, "F/config.json: network is 'recurent'. Did you mean 'recurrent'?"),
        ({"network": None}, "F/config.json: network is 'None'. Known: elmo, recurrent, seq2seq, static."),
        ({"width": "4"}, "F/config.json width: expected a whole number, got '4'."),
        ({"width": 10**30}, f"F/config.json: width is {10**30}. Give at most 16777216."),
        ({"dropout": float("nan")}, "F/config.json: dropout is nan. Give at most 16777216."),
        ({"cell": "lstmm"}, "F/config.json cell: 'lstmm' is not a choice. Did you mean 'lstm'?"),
        ({"layers": 0}, "F/config.json: layers is 0. Give at least 1."),
        ({"layers": 9_000}, "F: config.json names 9000 layers for 11 weights."),
        (
            {"vocabulary": 11},
            "F/model.safetensors: 'trunk.bias' has shape [10] where config.json says [11].",
        ),
    ],
)
def test_settings_that_are_not_supported_are_refused(words: dict[str, Any], line: str, tmp_path: Path) -> None:
    saved(tmp_path / "model", "recurrent")
    assert refusal(changed(tmp_path / "model", **words)) == line


def test_weights_of_another_dtype_are_refused(tmp_path: Path) -> None:
    state = saved(tmp_path / "model", "elmo")
    stored = tmp_path / "model" / "model.safetensors"
    safetensors.torch.save_file({**state, "trunk.character_ids": state["trunk.character_ids"].float()}, stored)
    assert refusal(tmp_path / "model") == "F/model.safetensors: 'trunk.character_ids' holds F32, not integers."
    table = "trunk.char_cnn.embedding.weight"
    safetensors.torch.save_file({**state, table: state[table].to(torch.int32)}, stored)
    assert refusal(tmp_path / "model") == f"F/model.safetensors: '{table}' holds I32, not floating-point numbers."
    del state[table]
    safetensors.torch.save_file(state, stored)
    assert refusal(tmp_path / "model") == f"F: lacks the weight '{table}'."
