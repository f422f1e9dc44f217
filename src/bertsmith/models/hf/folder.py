"""A model folder: config.json and model.safetensors, as transformers writes and reads them.

Files are not trusted: no code in them runs, nothing outside the folder is opened, and the sizes in config.json are
compared with the headers of the weights before memory is taken for them.
"""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from bertsmith import files
from bertsmith.errors import FolderError, suggest
from bertsmith.files import check_local, check_size, file_inside, short_repr
from bertsmith.models.hf import convert, manifest
from bertsmith.models.hf.finetuned import FinetunedTask, architecture_of, finetuned_task
from bertsmith.models.hf.layout import HFLayout
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.hf.weights import write_weights
from bertsmith.models.networks import NetworkConfig, build_network
from bertsmith.models.transformer import make_pooler
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.heads import Classifier, DiscriminatorHead, MaskedLMHead, SentencePairHead, SpanHead
from bertsmith.nn.positions import sinusoids

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TRAINED_ON = "trained_on"  # in config.json, under bertsmith: the kind of file and the columns of the training data
SECOND_SEGMENT = "second_segment"  # in it: 0 where pairs were read without marking the second text; else it was marked
MAX_LAYERS = 10_000
MAX_JSON_BYTES = 16 << 20  # of a configuration or an index
FLOATS = {"F64", "F32", "F16", "BF16"}
INTEGERS = {"U8", "I16", "I32", "I64"}


@dataclass(frozen=True, kw_only=True)
class ModelFolder:
    """The contents of a model folder: our configuration and state dict, and config.json itself."""

    config: NetworkConfig
    state_dict: dict[str, Tensor]  # float32 on the CPU, named trunk.*, mlm_head.*, pooler.* and so on
    parts: frozenset[str]  # heads: mlm_head, pooler, sentence_pair, discriminator, classifier, span
    finetuned: FinetunedTask | None
    config_json: dict[str, Any]


@dataclass(frozen=True)
class StoredWeight:
    """A weight in a file, as the file's header describes it."""

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: str

    def load(self) -> Tensor:
        with safe_open(self.file, "pt") as opened:
            weight: Tensor = opened.get_tensor(self.name)
            return weight.float() if weight.is_floating_point() else weight


def model_folder(path: str | Path) -> Path:
    """The model folder of a path: the path itself, or `model` inside of it where it is the folder of a run."""
    path = Path(path)
    inner = path / "model"
    return inner if (inner / CONFIG).is_file() and not (path / CONFIG).is_file() else path


def finetune_command(path: str | Path, task: str = "") -> str:
    """The command that fine-tunes a model, into another folder than the run's own."""
    folder = Path(path)
    run = folder.parent if folder.name == "model" and folder.parent.name else folder
    return f"bertsmith finetune {path} DATA {f'--task {task} ' if task else ''}--out {run}-tuned"


def check_exists(folder: Path) -> None:
    """Refuse a folder that does not exist, with a suggestion of a similar name, and a run without a model."""
    if folder.is_dir():
        if (folder / "recipe.toml").is_file() and not (folder / CONFIG).is_file():
            fact, remedy = "is a run without a model yet", "Finish it: the command that began it goes on with it"
            raise FolderError(folder, fact, remedy)
        return
    check_local(folder)
    siblings = [path.name for path in folder.parent.iterdir() if path.is_dir()] if folder.parent.is_dir() else []
    remedy = suggest(folder.name, siblings)
    remedy = remedy if remedy.startswith("Did") else "Name a model folder, or the folder of a run"
    raise FolderError(folder, "is not a folder" if folder.exists() else "is missing", remedy)


def read(folder: str | Path) -> ModelFolder:
    """Read a folder that transformers or `write` has saved, or the model of a run."""
    folder = model_folder(folder)
    check_exists(folder)
    manifest.verify(folder)
    config_json = read_json(file_inside(folder, CONFIG))
    config = convert.from_config_json(config_json, folder / CONFIG)
    layout = layout_of(config)
    second_names = layout.second_names(config)
    stored, tied = _stored_weights(folder, layout, second_names)
    if config_json.get("tie_word_embeddings") is True:  # transformers 5 ties T5 v1.1, too, and writes one table
        apart = {copy: name for copy, name in layout.tied_weights.items() if copy not in second_names}
        stored = {copy: stored[name] for copy, name in apart.items() if name in stored} | stored
    layers = config.layers + config.decoder_layers
    distinct = config.distinct + config.decoder_layers  # a shared layer has one set of weights
    if distinct > len(stored) or layers > MAX_LAYERS:
        raise FolderError(folder, f"{CONFIG} names {layers} layers for {len(stored)} weights")
    parts = layout.find_parts(stored, architecture_of(config_json))
    finetuned = finetuned_task(config_json, layout, parts, folder / CONFIG)
    expected = _expected_shapes(config, parts, finetuned)
    for rule, shape in expected:
        for name in rule.theirs:
            if name not in stored and name in layout.sinusoids:
                continue
            if name not in stored:
                raise FolderError(folder, f"lacks the weight '{name}'")
            part = (shape[0] // len(rule.theirs), *shape[1:])
            check_weight(stored[name], part[::-1] if rule.transposed else part, INTEGERS if rule.integer else FLOATS)
    if unknown := stored.keys() - {name for rule, _ in expected for name in rule.theirs}:
        remedy = "Only the trunk, its pretraining heads, a classifier and a span head are known"
        raise FolderError(folder, f"unknown weight {short_repr(min(unknown))}", remedy)
    for copy, name in tied.items():
        check_weight(copy, stored[name].shape)
        if not torch.equal(copy.load(), stored[name].load()):
            fact = f"'{copy.name}' differs from '{name}'"
            raise FolderError(copy.file, fact, "Only a decoder tied to the embedding can be opened")
    # `cat` copies: a memory-mapped weight would change, or crash the program, when the file is overwritten.
    state_dict = {
        rule.ours: torch.cat([_transposed(stored[name].load(), rule) for name in rule.theirs])
        if rule.theirs[0] in stored
        else sinusoids(*shape, halves=True)
        for rule, shape in expected
    }
    return ModelFolder(config=config, state_dict=state_dict, parts=parts, finetuned=finetuned, config_json=config_json)


@contextmanager
def atomic_folder(folder: str | Path) -> Iterator[Path]:
    """A temporary folder to write into, which is renamed, in the place of an older model, when all is written."""
    final = Path(folder).absolute()
    fresh, old = (final.with_name(f".{final.name}.{suffix}") for suffix in ("writing", "old"))
    if final.exists() and not (final / CONFIG).is_file():
        raise FolderError(final, "exists and is not a model folder", "Choose another name")
    with files.explain_os_errors(final):
        shutil.rmtree(fresh, ignore_errors=True)  # of a run that was killed
        fresh.mkdir(parents=True)
    try:
        yield fresh
        manifest.write(fresh)
    except BaseException:
        shutil.rmtree(fresh, ignore_errors=True)
        raise
    if final.exists():
        shutil.rmtree(old, ignore_errors=True)
        final.replace(old)
    files.publish(fresh, final)
    shutil.rmtree(old, ignore_errors=True)


def write(
    folder: str | Path,
    config: NetworkConfig,
    state_dict: Mapping[str, Tensor],
    extra: Mapping[str, Any] | None = None,
    finetuned: FinetunedTask | None = None,
) -> None:
    """Write config.json, with the extra keys, and model.safetensors into a folder."""
    folder = Path(folder)
    with files.explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    layout = layout_of(config)
    parts = frozenset(part for part in layout.parts if any(name.startswith(f"{part}.") for name in state_dict))
    expected = _expected_shapes(config, parts, finetuned)
    architecture = layout.architectures[finetuned.task] if finetuned else layout.architecture(parts)

    def theirs(rule: convert.WeightRule, name: str, weight: Tensor) -> tuple[str, Tensor]:
        return layout.full_name(name, architecture), _transposed(weight, rule)

    dtype = write_weights(folder / WEIGHTS, state_dict, expected, theirs)
    task = finetuned.to_config_json(layout) if finetuned else {}
    config_json = {**convert.to_config_json(config, parts), "dtype": dtype, **task, **(extra or {})}
    files.write_json(folder / CONFIG, config_json)


def _stored_weights(
    folder: Path, layout: HFLayout, second_names: Mapping[str, str]
) -> tuple[dict[str, StoredWeight], dict[StoredWeight, str]]:
    """Every weight of the folder by its plain name, and the tied weights that repeat one of them."""
    stored: dict[str, StoredWeight] = {}
    for file in weight_files(folder):
        for weight in header(file):
            name = layout.plain_name(weight.name)
            if name in stored:
                raise FolderError(file, f"the weight {short_repr(name)} is there twice")
            if layout.is_weight(name):
                stored[name] = weight
    for name in layout.zero_weights & stored.keys():
        if stored[name].load().any():
            raise FolderError(stored[name].file, f"'{name}' is not zero", "Only logits without a bias can be opened")
        del stored[name]
    tied = {}
    for copy, name in second_names.items():
        if copy in stored and name in stored:
            tied[stored.pop(copy)] = name
        elif copy in stored:
            stored[name] = stored.pop(copy)
    return stored, tied


def weight_files(folder: Path) -> list[Path]:
    """The files of weights: one, or those that an index names."""
    if (folder / WEIGHTS).exists():
        return [file_inside(folder, WEIGHTS)]
    if (folder / INDEX).exists():
        weight_map = read_json(file_inside(folder, INDEX)).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(name, str) for name in weight_map.values()):
            raise FolderError(folder / INDEX, "has no weight_map of file names")
        return [file_inside(folder, name) for name in sorted(set(weight_map.values()))]
    if pickled := sorted(folder.glob("pytorch_model*.bin")):
        remedy = f"A pickle can run code: save the model again with transformers, which writes {WEIGHTS}"
        raise FolderError(pickled[0], "is a pickle and is not opened", remedy)
    graph = "It is an export for ONNX Runtime: name the model that it was made of"
    raise FolderError(folder, f"has no {WEIGHTS}", graph if (folder / "model.onnx").exists() else "")


def header(file: Path) -> list[StoredWeight]:
    """The weights in the header of a safetensors file, which the library checks against the file's size."""
    try:
        with safe_open(file, "pt") as opened:
            slices = [(name, opened.get_slice(name)) for name in opened.keys()]  # noqa: SIM118 (no mapping)
            return [StoredWeight(file, name, tuple(one.get_shape()), one.get_dtype()) for name, one in slices]
    except (SafetensorError, OSError) as error:
        fact = f"is not a sound safetensors file: {short_repr(str(error))}"
        raise FolderError(file, fact, "Fetch it again") from None


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file of a model folder."""
    return files.read_json(check_size(path, MAX_JSON_BYTES))


def check_weight(stored: StoredWeight, shape: tuple[int, ...], dtypes: set[str] = FLOATS) -> None:
    """Refuse a weight of another shape or type."""
    if stored.shape != shape:
        fact = f"'{stored.name}' has shape {list(stored.shape)} where {CONFIG} says {list(shape)}"
        raise FolderError(stored.file, fact)
    if stored.dtype not in dtypes:
        expected = "integers" if dtypes is INTEGERS else "floating-point numbers"
        raise FolderError(stored.file, f"'{stored.name}' holds {stored.dtype}, not {expected}")


def _transposed(weight: Tensor, rule: convert.WeightRule) -> Tensor:
    """A weight of transformers in our orientation, or the other way round."""
    return weight.T if rule.transposed else weight


def _expected_shapes(
    config: NetworkConfig, parts: frozenset[str], finetuned: FinetunedTask | None
) -> list[tuple[convert.WeightRule, tuple[int, ...]]]:
    """Every rule with the shape of our weight, found on the meta device, which takes no memory."""
    if not isinstance(config, TransformerConfig):
        with torch.device("meta"):
            native = build_network(config).state_dict(prefix="trunk.")
        return [
            (convert.WeightRule(name, (name,), integer=not weight.is_floating_point()), tuple(weight.shape))
            for name, weight in native.items()
        ]
    settings = (config.activation, config.norm_eps, config.biases)
    classes = finetuned.classes if finetuned else 0
    without_bias = config.causal and finetuned is not None and finetuned.task == "classify"
    heads: dict[str, Callable[[], nn.Module]] = {
        "mlm_head": lambda: MaskedLMHead(config.width, config.vocabulary, *settings, config.table),
        "pooler": lambda: make_pooler(config),
        "sentence_pair": lambda: SentencePairHead(config.width),
        "discriminator": lambda: DiscriminatorHead(config.width, config.activation),
        "classifier": lambda: Classifier(config.width, classes, 0.0, bias=not without_bias),
        "span": lambda: SpanHead(config.width),
    }
    with torch.device("meta"):
        model = nn.ModuleDict({part: heads[part]() for part in parts})
        # All layers after the first have the same shapes, so two are enough.
        model["trunk"] = build_network(
            replace(config, layers=min(2, config.layers), decoder_layers=min(2, config.decoder_layers))
        )
    shapes = {name: tuple(weight.shape) for name, weight in model.state_dict().items()}
    expected = []
    for rule in convert.weight_rules(config, parts):
        second_layer = re.sub(r"^(trunk\.(?:\w+\.)?layers)\.[1-9]\d*", r"\1.1", rule.ours)
        if second_layer in shapes:  # not every network has biases, and not every layer a norm
            expected.append((rule, shapes[second_layer]))
    return expected
