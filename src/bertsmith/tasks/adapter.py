"""A LoRA adapter: the weights of LoRA and of the heads, in a folder that PEFT reads and writes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError, safe_open

from bertsmith import files
from bertsmith.errors import FolderError
from bertsmith.files import file_inside, short_repr
from bertsmith.models.hf import folder as folders
from bertsmith.models.hf.layout import HFLayout
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.hf.values import MAX_SIZE
from bertsmith.nn import lora
from bertsmith.tasks import peft
from bertsmith.tasks.adapt import AdaptConfig, adapt_task
from bertsmith.tasks.base import Task

CONFIG, WEIGHTS, PICKLE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
PEFT_FIXED: dict[str, Any] = {  # settings of PEFT with a single supported value
    "peft_type": "LORA",
    "bias": "none",
    "use_rslora": False,
    "use_dora": False,
    "lora_bias": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "layer_replication": None,
}
PEFT_KEYS = {"rank": "r", "alpha": "lora_alpha", "dropout": "lora_dropout"}  # ours: theirs


def save(folder: str | Path, task: Task, config: AdaptConfig, base_model: str) -> None:
    """Write LoRA and the heads, without the trunk, in PEFT's format. `base_model` is the trunk's folder, or its name on
    the Hub."""
    folder = Path(folder)
    learnt = list(lora.pairs(task.trunk))
    if not learnt:
        raise FolderError(folder, "the network has no LoRA to write", "Train it with adapt.kind=lora")
    state, layout = task.state_dict(), layout_of(task.trunk.config)
    if unknown := peft.head_names(task) - layout.parts.keys():
        raise FolderError(folder, f"transformers has no name for the head '{min(unknown)}'")
    heads = peft.head_weight_names(task)
    tensors = {name: state[ours] for ours, name in heads.items()}
    for layer, target, down, up in learnt:
        tensors |= dict(zip(peft.lora_weight_names(task, layer, target), (down, up), strict=True))
    config_json = {
        **_fixed(layout),
        "base_model_name_or_path": base_model,
        "task_type": peft.TASK_TYPES[type(task)][1],
        "r": len(learnt[0].lora_a),
        "lora_alpha": int(config.alpha) if config.alpha == int(config.alpha) else config.alpha,
        "lora_dropout": config.dropout,
        # Full names: `output.dense` alone would also match the attention's.
        "target_modules": [peft.target_module(task, layer, target) for layer, target, _, _ in learnt],
        "modules_to_save": sorted({peft.module_to_save(name, layout) for name in heads.values()}) or None,
        "init_lora_weights": True,
        "inference_mode": True,
    }
    with files.explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).unlink(missing_ok=True)  # an older config never stands next to newer weights
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    files.write_atomic(folder / WEIGHTS, safetensors.torch.save(whole, {"format": "pt"}))
    files.write_json(folder / CONFIG, config_json)


def load(folder: str | Path, task: Task) -> AdaptConfig:
    """Load an adapter that `save` or PEFT wrote into a task whose trunk is the base model. Returns its settings.

    Everything is checked before anything changes. Without a pooler in it, the base model's is used, as by PEFT.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FolderError(folder, "is not a folder" if folder.exists() else "is missing")
    if next(lora.pairs(task.trunk), None):
        raise FolderError(folder, "the network is adapted already", "Load it into a new one")
    path = file_inside(folder, CONFIG)
    if path.stat().st_size > folders.MAX_JSON_BYTES:
        raise FolderError(path, f"is larger than {folders.MAX_JSON_BYTES >> 20} MiB")
    config_json = files.read_json(path)
    if not (folder / WEIGHTS).exists() and (folder / PICKLE).exists():
        remedy = f"A pickle can run code: save it again with a newer PEFT, which writes {WEIGHTS}"
        raise FolderError(folder / PICKLE, "is a pickle and is not opened", remedy)
    weights = file_inside(folder, WEIGHTS)
    try:
        with safe_open(weights, "pt") as opened:
            stored = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (no mapping)
            config = _config(config_json, stored, task, path)
            expected = _expected(stored, task, config)
            _check(stored, expected, weights)
            tensors = {name: opened.get_tensor(name) for name in expected}
    except (SafetensorError, OSError) as error:
        fact = f"is not a sound safetensors file: {short_repr(str(error))}"
        raise FolderError(weights, fact, "Fetch it again") from None
    adapt_task(task, config, seed=0)  # the random initial weights are overwritten
    state = task.state_dict()
    for ours, name in peft.head_weight_names(task).items():
        if name in tensors:
            state[ours].copy_(tensors[name])
    for layer, target, *pair in lora.pairs(task.trunk):
        for weight, name in zip(pair, peft.lora_weight_names(task, layer, target), strict=True):
            weight.copy_(tensors[name])
    return config


def _config(peft_config: dict[str, Any], stored: Mapping[str, Any], task: Task, path: Path) -> AdaptConfig:
    """The settings of LoRA by PEFT's config, and its targets by the names of the weights."""
    for name, only in _fixed(layout_of(task.trunk.config)).items():
        value = peft_config.get(name, None if name == "peft_type" else only)
        if value != only and not (value is None and name != "peft_type"):
            raise FolderError(path, f"{name} is {short_repr(value)}", f"Only {short_repr(only)} can be opened")
    targets = tuple(
        target for target in peft.supported_targets(task) if peft.lora_weight_names(task, 0, target)[0] in stored
    )
    if not targets:
        wanted = peft.lora_weight_names(task, 0, peft.supported_targets(task)[0])[0]
        raise FolderError(path.parent, "adapts no matrix of layer 0", f"Its weights must have names such as '{wanted}'")
    numbers: dict[str, Any] = {ours: peft_config.get(theirs) for ours, theirs in PEFT_KEYS.items()}
    for ours, value in numbers.items():
        whole = ours == "rank"
        known = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not known or not 0 <= value <= MAX_SIZE:
            fact = f"{PEFT_KEYS[ours]} is {short_repr(value)}"
            raise FolderError(path, fact, f"Give a {'whole ' if whole else ''}number")
    try:
        return AdaptConfig(kind="lora", targets=targets, **numbers)
    except ValueError as error:
        raise FolderError(path, str(error)) from None


def _expected(stored: Mapping[str, Any], task: Task, config: AdaptConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every required weight."""
    state, shape, expected = task.state_dict(), task.trunk.config, {}
    for ours, name in peft.head_weight_names(task).items():
        pretrained = (
            ours.startswith("pooler.")
            and shape.pooler != "gelu"
            and peft.module_to_save(name, layout_of(shape)) != peft.CLASSIFIER
        )
        if name in stored or not pretrained:
            expected[name] = tuple(state[ours].shape)
    for layer in range(shape.distinct):
        for target in config.targets:
            path, _, count = lora.TARGETS[target]
            outputs, inputs = state[f"trunk.layers.{layer}.{path}.weight"].shape
            down, up = peft.lora_weight_names(task, layer, target)
            expected |= {down: (config.rank, inputs), up: (outputs // count, config.rank)}
    return expected


def _check(stored: Mapping[str, Any], expected: Mapping[str, tuple[int, ...]], path: Path) -> None:
    for name, shape in expected.items():
        if name not in stored:
            raise FolderError(path, f"lacks the weight '{name}'")
        found, dtype = stored[name].get_shape(), stored[name].get_dtype()
        if tuple(found) != shape:
            raise FolderError(path, f"'{name}' has shape {short_repr(found)}, not {list(shape)}")
        if dtype not in folders.FLOATS:
            raise FolderError(path, f"'{name}' holds {dtype}, not floating-point numbers")
    if unknown := stored.keys() - expected.keys():
        fact = f"unknown weight {short_repr(min(unknown))}"
        raise FolderError(path, fact, "Only LoRA in the layers and the heads of this task are known")


def _fixed(layout: HFLayout) -> dict[str, Any]:
    """The fixed settings, with the one that depends on the layout: whether matrices are transposed, as in GPT-2."""
    return {**PEFT_FIXED, "fan_in_fan_out": layout.transposed}
