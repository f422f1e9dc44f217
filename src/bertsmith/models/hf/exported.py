"""An exported folder: ONNX graphs instead of weights, with the config.json and the tokenizer of the model folder."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from bertsmith import files
from bertsmith.errors import FolderError
from bertsmith.files import check_size, file_inside
from bertsmith.models.hf import convert, folder, manifest
from bertsmith.models.hf.finetuned import finetuned_task
from bertsmith.models.hf.folder import CONFIG, MAX_JSON_BYTES, WEIGHTS, ModelFolder
from bertsmith.models.hf.layouts import layout_of

GRAPH, QUANTISED = "model.onnx", "model_quantized.onnx"  # optimum's names
GRAPHS = {"onnx": GRAPH, "onnx-int8": QUANTISED}  # by the backend that runs them
PARTS = "onnx_parts"  # in config.json, under bertsmith: the heads in the graph, which has no names of weights


def is_exported(path: Path) -> bool:
    """Whether a folder holds a graph and no weights."""
    return (path / GRAPH).is_file() and not (path / WEIGHTS).exists()


def read(path: Path) -> ModelFolder:
    """The configuration, the heads and the task of an exported folder. Its state dict is empty."""
    folder.check_exists(path)
    manifest.verify(path)
    config_json = files.read_json(check_size(file_inside(path, CONFIG), MAX_JSON_BYTES))
    config = convert.from_config_json(config_json, path / CONFIG)
    own = config_json.get("bertsmith")
    names = own.get(PARTS) if isinstance(own, dict) else None
    layout = layout_of(config)
    if not isinstance(names, list) or not set(map(str, names)) <= layout.parts.keys():
        raise FolderError(path, "has no graph that bertsmith exported", "Export one: bertsmith export MODEL --onnx")
    parts = frozenset(map(str, names))
    finetuned = finetuned_task(config_json, layout, parts, path / CONFIG)
    return ModelFolder(config=config, state_dict={}, parts=parts, finetuned=finetuned, config_json=config_json)


def write_config(path: Path, config_json: Mapping[str, Any], parts: Iterable[str]) -> None:
    """The config.json of the model folder, with the names of the heads in the graph."""
    own = config_json.get("bertsmith")
    own = {**(own if isinstance(own, dict) else {}), PARTS: sorted(parts)}
    files.write_json(path / CONFIG, {**config_json, "bertsmith": own})
