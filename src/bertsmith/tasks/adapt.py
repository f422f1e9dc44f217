"""Adapt: how much of a pretrained network a task may change. All of it, its heads alone, or heads and LoRA."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MethodType
from typing import Any, Literal

import safetensors.torch
from safetensors import SafetensorError, safe_open

from bertsmith.data import files
from bertsmith.errors import FolderError, RecipeError, nearest
from bertsmith.models import folder as folders
from bertsmith.models import foreign
from bertsmith.models.dialect import Dialect
from bertsmith.models.dialects import dialect_of
from bertsmith.models.transformer import Transformer
from bertsmith.nn import lora
from bertsmith.tasks.answer import Answer
from bertsmith.tasks.base import Task
from bertsmith.tasks.choose import Choose
from bertsmith.tasks.classify import Classify
from bertsmith.tasks.embed import Embed
from bertsmith.tasks.tag import Tag

Kind = Literal["full", "frozen", "lora"]


@dataclass(frozen=True, kw_only=True)
class AdaptConfig:
    """What learns: everything, the heads on a trunk that stays as it is, or the heads and updates of low rank."""

    kind: Kind = "full"
    rank: int = 8  # of LoRA's updates
    alpha: float = 16.0  # updates are multiplied by alpha / rank
    dropout: float = 0.0  # of LoRA's input
    # Of LoRA: query, key, value, or project where the three are one weight; output, widen, narrow. Where none is named:
    # query and value, or project.
    targets: tuple[str, ...] = ()
    layer_decay: float = 1.0  # how much slower each layer learns than the one above it
    freeze: int = 0  # with `full`, what stays as it is from below: 1 the embeddings, 2 also the first layer

    def __post_init__(self) -> None:
        if self.rank < 1:
            raise ValueError(f"rank is {self.rank}. Give at least 1")
        if not 0 < self.alpha < math.inf:
            raise ValueError(f"alpha is {self.alpha}. Give more than 0")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}. Give a share, at least 0 and below 1")
        if len(set(self.targets)) < len(self.targets):
            raise ValueError(f"targets are {list(self.targets)}. Name none twice")
        for target in self.targets:
            if target not in lora.TARGETS:
                raise ValueError(f"unknown target '{target}'. {nearest(target, lora.TARGETS)}")
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay is {self.layer_decay}. Give more than 0 and at most 1")
        if self.layer_decay < 1 and self.kind == "frozen":
            raise ValueError("layer_decay is for layers that learn. Leave it out, or use kind 'full' or 'lora'")
        if self.freeze < 0 or (self.freeze and self.kind != "full"):
            raise ValueError(f"freeze is {self.freeze}. Give at least 0, and more only with kind 'full'")


# ------------------------------------------------------------------------------------------------- what learns


def prepare(task: Task, config: AdaptConfig, seed: int) -> None:
    """Freeze what is to stay as it is, and put LoRA where it is asked for. Heads always learn.

    A frozen trunk is no part of the graph: none of its weights asks for a gradient, and neither does what comes in, so
    autograd keeps nothing of it and `backward` ends at the heads. It also runs without dropout, in training too: its
    vectors are then the same in every epoch, as when they are computed once and kept.
    """
    match config.kind:
        case "full":
            layers = task.trunk.config.distinct
            if config.freeze > layers + 1:
                fact = f"{config.freeze} is more than the embeddings and {layers} layers"
                raise RecipeError("adapt.freeze", fact, f"Give at most {layers + 1}")
            for name, parameter in task.named_parameters():
                if _depth(name, layers) < config.freeze:
                    parameter.requires_grad_(False)
        case "frozen":
            task.trunk.requires_grad_(False)
            # An attribute of this one trunk: `task.train()` calls it, and a copy of the task brings its own along.
            task.trunk.train = MethodType(_stay, task.trunk)  # type: ignore[method-assign]
            task.trunk.eval()
        case "lora":
            lora.adapt(
                task.trunk,
                rank=config.rank,
                alpha=config.alpha,
                dropout=config.dropout,
                targets=_targets(task, config),
                seed=seed,
            )
    if not any(parameter.requires_grad for parameter in task.parameters()):
        fact = f"with kind '{config.kind}' nothing is left to learn, as this task has no head"
        raise RecipeError("adapt", fact, "Use 'lora', or freeze less")


def finish(task: Task) -> None:
    """The network as it was built, for saving: LoRA merged, every weight under its first name and free to learn."""
    lora.merge(task.trunk)
    vars(task.trunk).pop("train", None)
    task.requires_grad_(True)
    task.trunk.train(task.training)


def rates(task: Task, config: AdaptConfig) -> dict[str, float]:
    """The share of the learning rate that each parameter has, by name: the deeper, the less.

    With N layers, the embeddings lie at depth 0, layer n at n + 1 and heads (the pooler is one) at N + 1; a share is
    layer_decay to the power of N + 1 - depth, so that heads have it all and the top layer one step less. Clark et al.
    2020 decay BERT and ELECTRA so; their code leaves one more step between the heads and the top layer.
    """
    layers = task.trunk.config.distinct
    return {name: config.layer_decay ** (layers + 1 - _depth(name, layers)) for name, _ in task.named_parameters()}


def _depth(name: str, layers: int) -> int:
    if not name.startswith("trunk."):
        return layers + 1
    if name.startswith("trunk.last_norm."):
        return layers
    layer = re.match(r"trunk\.layers\.(\d+)\.", name)
    return int(layer[1]) + 1 if layer else 0


def _stay(trunk: Transformer, mode: bool = True) -> Transformer:
    """What `train` is for a frozen trunk: it stays as in use."""
    return Transformer.train(trunk, False)


# -------------------------------------------------------------------------------------------- LoRA in a folder

CONFIG, WEIGHTS, PICKLE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
PREFIX = "base_model.model."  # before every name of a weight
USUAL = ("query", "value", "project")  # Hu et al. 2021, section 7.1; and the whole where there are no parts
# What a task is in transformers and in PEFT, which knows no choosing; and what it makes of "QUESTION_ANS" forgets which
# text is the second.
KINDS: dict[type[Task], tuple[str, str | None]] = {
    Answer: ("answer", None),
    Choose: ("choose", None),
    Classify: ("classify", "SEQ_CLS"),
    Embed: ("trunk", "FEATURE_EXTRACTION"),
    Tag: ("tag", "TOKEN_CLS"),
}
FIXED: dict[str, Any] = {  # the only value that can be written and read
    "peft_type": "LORA",
    "bias": "none",
    "use_rslora": False,
    "use_dora": False,
    "lora_bias": False,
    "rank_pattern": {},
    "alpha_pattern": {},
    "layer_replication": None,
}
WHOLE = "classifier"  # the module that PEFT always saves; in some classes the pooler is a part of it
NUMBERS = {"rank": "r", "alpha": "lora_alpha", "dropout": "lora_dropout"}  # ours: theirs


def write_adapter(folder: str | Path, task: Task, config: AdaptConfig, base: str) -> None:
    """What LoRA and the heads have learnt, without the trunk, as PEFT writes and reads it. `base` is the trunk's
    model folder, or its name on the Hub."""
    folder = Path(folder)
    learnt = list(lora.pairs(task.trunk))
    if not learnt:
        raise FolderError(folder, "the network has no LoRA to write", "Train it with adapt.kind=lora")
    state, dialect = task.state_dict(), dialect_of(task.trunk.config)
    if unknown := _parts(task) - dialect.parts.keys():
        raise FolderError(folder, f"transformers has no name for the head '{min(unknown)}'")
    heads = _heads(task)
    tensors = {name: state[ours] for ours, name in heads.items()}
    for layer, target, down, up in learnt:
        tensors |= dict(zip(_names(task, layer, target), (down, up), strict=True))
    words = {
        **_fixed(dialect),
        "base_model_name_or_path": base,
        "task_type": KINDS[type(task)][1],
        "r": len(learnt[0].down),
        "lora_alpha": int(config.alpha) if config.alpha == int(config.alpha) else config.alpha,
        "lora_dropout": config.dropout,
        # In full: `output.dense` alone would also mean the attention's.
        "target_modules": [_module(task, layer, target) for layer, target, _, _ in learnt],
        "modules_to_save": sorted({_saved(name, dialect) for name in heads.values()}) or None,
        "init_lora_weights": True,
        "inference_mode": True,
    }
    with files.explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / CONFIG).unlink(missing_ok=True)  # an older adapter's words never stand beside newer weights
    whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    files.put(folder / WEIGHTS, safetensors.torch.save(whole, {"format": "pt"}))
    files.write_json(folder / CONFIG, words)


def read_adapter(folder: str | Path, task: Task) -> AdaptConfig:
    """Put what `write_adapter` or PEFT has written onto a task whose trunk is the base. Returns how it was adapted.

    All is checked before anything changes. A pooler that is not there is the base's own, as is PEFT's habit.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FolderError(folder, "is not a folder" if folder.exists() else "is missing")
    if next(lora.pairs(task.trunk), None):
        raise FolderError(folder, "the network is adapted already", "Read it onto a fresh one")
    path = folders.inside(folder, CONFIG)
    if path.stat().st_size > folders.MOST_JSON:
        raise FolderError(path, f"is larger than {folders.MOST_JSON >> 20} MiB")
    words = files.read_json(path)
    if not (folder / WEIGHTS).exists() and (folder / PICKLE).exists():
        remedy = f"A pickle can run code: save it again with a newer PEFT, which writes {WEIGHTS}"
        raise FolderError(folder / PICKLE, "is a pickle and is not opened", remedy)
    weights = folders.inside(folder, WEIGHTS)
    try:
        with safe_open(weights, "pt") as opened:
            stored = {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 (no mapping)
            config = _config(words, stored, task, path)
            expected = _expected(stored, task, config)
            _check(stored, expected, weights)
            tensors = {name: opened.get_tensor(name) for name in expected}
    except (SafetensorError, OSError) as error:
        fact = f"is not a sound safetensors file: {foreign.shown(str(error))}"
        raise FolderError(weights, fact, "Fetch it again") from None
    prepare(task, config, seed=0)  # all that is drawn is written over
    state = task.state_dict()
    for ours, name in _heads(task).items():
        if name in tensors:
            state[ours].copy_(tensors[name])
    for layer, target, *pair in lora.pairs(task.trunk):
        for place, name in zip(pair, _names(task, layer, target), strict=True):
            place.copy_(tensors[name])
    return config


def _config(words: dict[str, Any], stored: Mapping[str, Any], task: Task, place: Path) -> AdaptConfig:
    """How the network was adapted, as the words say; where, as the names of the weights say."""
    for name, only in _fixed(dialect_of(task.trunk.config)).items():
        said = words.get(name, None if name == "peft_type" else only)
        if said != only and not (said is None and name != "peft_type"):
            raise FolderError(place, f"{name} is {foreign.shown(said)}", f"Only {foreign.shown(only)} can be opened")
    targets = tuple(target for target in _known(task) if _names(task, 0, target)[0] in stored)
    if not targets:
        wanted = _names(task, 0, _known(task)[0])[0]
        raise FolderError(place.parent, "adapts no matrix of layer 0", f"Its weights are to be named as in '{wanted}'")
    numbers: dict[str, Any] = {ours: words.get(theirs) for ours, theirs in NUMBERS.items()}
    for ours, value in numbers.items():
        whole = ours == "rank"
        known = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
        if not known or not 0 <= value <= foreign.LARGEST:
            fact = f"{NUMBERS[ours]} is {foreign.shown(value)}"
            raise FolderError(place, fact, f"Give a {'whole ' if whole else ''}number")
    try:
        return AdaptConfig(kind="lora", targets=targets, **numbers)
    except ValueError as error:
        raise FolderError(place, str(error)) from None


def _expected(stored: Mapping[str, Any], task: Task, config: AdaptConfig) -> dict[str, tuple[int, ...]]:
    """The shape of every weight that must be there."""
    state, shape, expected = task.state_dict(), task.trunk.config, {}
    for ours, name in _heads(task).items():
        pretrained = ours.startswith("pooler.") and shape.pooler != "gelu" and _saved(name, dialect_of(shape)) != WHOLE
        if name in stored or not pretrained:
            expected[name] = tuple(state[ours].shape)
    for layer in range(shape.distinct):
        for target in config.targets:
            path, _, count = lora.TARGETS[target]
            outputs, inputs = state[f"trunk.layers.{layer}.{path}.weight"].shape
            down, up = _names(task, layer, target)
            expected |= {down: (config.rank, inputs), up: (outputs // count, config.rank)}
    return expected


def _check(stored: Mapping[str, Any], expected: Mapping[str, tuple[int, ...]], place: Path) -> None:
    for name, shape in expected.items():
        if name not in stored:
            raise FolderError(place, f"lacks the weight '{name}'")
        found, dtype = stored[name].get_shape(), stored[name].get_dtype()
        if tuple(found) != shape:
            raise FolderError(place, f"'{name}' has shape {foreign.shown(found)}, not {list(shape)}")
        if dtype not in folders.FLOATS:
            raise FolderError(place, f"'{name}' holds {dtype}, not numbers with a point")
    if unknown := stored.keys() - expected.keys():
        fact = f"unknown weight {foreign.shown(min(unknown))}"
        raise FolderError(place, fact, "Only LoRA in the layers and the heads of this task are known")


def _fixed(dialect: Dialect) -> dict[str, Any]:
    """The same with what a network's folder decides: whether its matrices lie on their side, as GPT's do."""
    return {**FIXED, "fan_in_fan_out": dialect.transposed}


def _parts(task: Task) -> frozenset[str]:
    """The heads of a task."""
    return frozenset(name.partition(".")[0] for name in task.state_dict()) - {"trunk"}


def _heads(task: Task) -> dict[str, str]:
    """Our names of the heads' weights, and PEFT's."""
    rules, own = foreign.rules(task.trunk.config, _parts(task)), task.state_dict()
    heads = [rule for rule in rules if rule.ours in own and not rule.ours.startswith("trunk.")]
    return {rule.ours: PREFIX + _full(task, rule.theirs[0]) for rule in heads}


def _saved(name: str, dialect: Dialect) -> str:
    """What PEFT is told to save for a weight of a head: the module that has it. Of a classifier it saves the whole."""
    module = name.removeprefix(PREFIX).removeprefix(dialect.prefix).rpartition(".")[0]
    return WHOLE if module.startswith(WHOLE) else module


def _known(task: Task) -> list[str]:
    """The targets whose weights the network's folder has a name for: the parts of a matrix, or the whole."""
    return [name for name, (path, _, parts) in lora.TARGETS.items() if len(_theirs(task, path)) == parts]


def _targets(task: Task, config: AdaptConfig) -> tuple[str, ...]:
    """What is to be adapted, or the usual; refused before it has learnt what no folder can hold."""
    _class(task)
    known = _known(task)
    for target in config.targets:
        if target not in known:
            fact = f"'{target}' is no weight of its own in this network's folder"
            raise RecipeError("adapt.targets", fact, f"Known: {', '.join(known)}")
    return config.targets or tuple(target for target in USUAL if target in known)


def _theirs(task: Task, path: str) -> tuple[str, ...]:
    """Transformers' names of a layer's matrix: one, or one for each of its parts."""
    theirs = dialect_of(task.trunk.config).layer[f"trunk.layers.{{n}}.{path}"]
    return (theirs,) if isinstance(theirs, str) else theirs


def _module(task: Task, layer: int, target: str) -> str:
    """A target's name in transformers."""
    path, part, _ = lora.TARGETS[target]
    return _full(task, _theirs(task, path)[part].format(n=layer))


def _names(task: Task, layer: int, target: str) -> tuple[str, str]:
    """PEFT's names of the two thin matrices of a target."""
    module = PREFIX + _module(task, layer, target)
    return f"{module}.lora_A.weight", f"{module}.lora_B.weight"


def _full(task: Task, name: str) -> str:
    """A name as transformers' class for this task has it."""
    return dialect_of(task.trunk.config).full(name, _class(task))


def _class(task: Task) -> str:
    """Transformers' class for a task, after which PEFT names all weights."""
    classes, (kind, _) = dialect_of(task.trunk.config).classes, KINDS.get(type(task), ("", None))
    if kind not in classes:
        fact = f"transformers has no class for {type(task).__name__} with this network, and LoRA so no names"
        raise RecipeError("adapt.kind", fact, "Use 'full' or 'frozen'")
    return classes[kind]
