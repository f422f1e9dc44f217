"""A model folder: config.json and model.safetensors, as transformers writes and reads them.

A file is checked before it is believed: nothing in it runs, nothing outside the folder is opened, and no
memory is taken for sizes that its weights do not have.
"""

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from bertsmith import files
from bertsmith.errors import FolderError, suggest
from bertsmith.files import check_size, file_inside, short_repr
from bertsmith.models.hf import convert, manifest
from bertsmith.models.hf.convert import FinetunedTask
from bertsmith.models.hf.layout import HFLayout
from bertsmith.models.hf.layouts import layout_of
from bertsmith.models.networks import NetworkConfig, build_network
from bertsmith.models.transformer import make_pooler
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.heads import Classifier, DiscriminatorHead, MaskedLMHead, SentencePairHead, SpanHead
from bertsmith.nn.positions import sinusoids

CONFIG, WEIGHTS, INDEX = "config.json", "model.safetensors", "model.safetensors.index.json"
TRAINED_ON = "learnt_from"  # in config.json, under bertsmith: the kind of file and the columns of the training data
MAX_LAYERS = 10_000
MAX_JSON_BYTES = 16 << 20  # bytes; a larger configuration or index is not one
FLOATS = {"F64", "F32", "F16", "BF16"}
INTEGERS = {"U8", "I16", "I32", "I64"}


@dataclass(frozen=True, kw_only=True)
class ModelFolder:
    """What a folder holds, in our words."""

    config: NetworkConfig
    state_dict: dict[str, Tensor]  # float32 on the CPU, named trunk.*, and by part: head.*, pooler.* and so on
    parts: frozenset[str]  # which of mlm_head, pooler, sentence_pair, discriminator, classifier and span are there
    finetuned: FinetunedTask | None  # what it was fine-tuned for
    config_json: dict[str, Any]  # config.json as it stands


@dataclass(frozen=True)
class StoredWeight:
    """A weight in a file, seen from the file's header alone."""

    file: Path
    name: str
    shape: tuple[int, ...]
    dtype: str

    def load(self) -> Tensor:
        with safe_open(self.file, "pt") as opened:
            weight: Tensor = opened.get_tensor(self.name)
            return weight.float() if weight.is_floating_point() else weight


def model_folder(path: str | Path) -> Path:
    """The model folder that a path means: itself, or `model` in it where the path is the folder of a run."""
    path = Path(path)
    inner = path / "model"
    return inner if (inner / CONFIG).is_file() and not (path / CONFIG).is_file() else path


def check_exists(folder: Path) -> None:
    """Refuse a folder that is not there, with one of nearly the same name, if any; and a run without a model."""
    if folder.is_dir():
        if (folder / "recipe.toml").is_file() and not (folder / CONFIG).is_file():
            fact, remedy = "is a run without a model yet", "Finish it: the command that began it goes on with it"
            raise FolderError(folder, fact, remedy)
        return
    beside = [path.name for path in folder.parent.iterdir() if path.is_dir()] if folder.parent.is_dir() else []
    remedy = suggest(folder.name, beside)
    remedy = remedy if remedy.startswith("Did") else "Name a model folder, or the folder of a run"
    raise FolderError(folder, "is not a folder" if folder.exists() else "is missing", remedy)


def read(folder: str | Path) -> ModelFolder:
    """Open a folder that transformers or `write` has saved, or that of a run."""
    folder = model_folder(folder)
    check_exists(folder)
    manifest.verify(folder)
    raw = _json(file_inside(folder, CONFIG))
    config = convert.from_config_json(raw, folder / CONFIG)
    dialect = layout_of(config)
    stored, twins = _stored_weights(folder, dialect)
    layers = config.layers + config.decoder_layers
    if (
        config.distinct + config.decoder_layers > len(stored) or layers > MAX_LAYERS
    ):  # one that is shared is named any number
        raise FolderError(folder, f"{CONFIG} names {layers} layers for {len(stored)} weights")
    parts = dialect.find_parts(stored, convert.architecture_of(raw))
    learnt = convert.finetuned_task(raw, dialect, parts, folder / CONFIG)
    expected = _expected_shapes(config, parts, learnt)
    for rule, shape in expected:
        for name in rule.theirs:
            if name not in stored and name in dialect.sinusoids:
                continue
            if name not in stored:
                raise FolderError(folder, f"lacks the weight '{name}'")
            piece = (shape[0] // len(rule.theirs), *shape[1:])
            _check(stored[name], piece[::-1] if rule.transposed else piece, INTEGERS if rule.integer else FLOATS)
    if unknown := stored.keys() - {name for rule, _ in expected for name in rule.theirs}:
        remedy = "Only the trunk, its pretraining heads, a classifier and a span head are known"
        raise FolderError(folder, f"unknown weight {short_repr(min(unknown))}", remedy)
    for twin, name in twins.items():
        _check(twin, stored[name].shape)
        if not torch.equal(twin.load(), stored[name].load()):
            fact = f"'{twin.name}' differs from '{name}'"
            raise FolderError(twin.file, fact, "Only a decoder tied to the embedding can be opened")
    # `cat` copies: a weight mapped from the file would change, or crash the program, when somebody writes to it.
    state = {
        rule.ours: torch.cat([_transposed(stored[name].load(), rule) for name in rule.theirs])
        if rule.theirs[0] in stored
        else sinusoids(*shape, halves=True)
        for rule, shape in expected
    }
    return ModelFolder(config=config, state_dict=state, parts=parts, finetuned=learnt, config_json=raw)


@contextmanager
def atomic_folder(folder: str | Path) -> Iterator[Path]:
    """A folder to write into, which takes its name, and the place of an older model, when all is written."""
    final = Path(folder).absolute()
    fresh, old = (final.with_name(f".{final.name}.{word}") for word in ("writing", "old"))
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
    """Put config.json, with whatever is extra, and model.safetensors into a folder."""
    folder = Path(folder)
    with files.explain_os_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    dialect = layout_of(config)
    parts = frozenset(part for part in dialect.parts if any(name.startswith(f"{part}.") for name in state_dict))
    expected = _expected_shapes(config, parts, finetuned)
    if odd := state_dict.keys() ^ {rule.ours for rule, _ in expected}:
        fact = "has no place in a folder" if min(odd) in state_dict else "is missing"
        raise FolderError(folder, f"the weight '{min(odd)}' {fact}")
    tensors = {}
    named = dialect.architectures[finetuned.task] if finetuned else dialect.architecture(parts)
    for rule, shape in expected:
        weight = state_dict[rule.ours].detach().cpu()
        if weight.shape != shape:
            fact = f"the weight '{rule.ours}' has shape {list(weight.shape)}, not {list(shape)}"
            raise FolderError(folder, fact)
        for name, piece in zip(rule.theirs, weight.chunk(len(rule.theirs)), strict=True):
            # Pieces that share memory cannot be saved.
            tensors[dialect.full_name(name, named)] = _transposed(piece, rule).clone(
                memory_format=torch.contiguous_format
            )
    dtype = str(next(iter(state_dict.values())).dtype).removeprefix("torch.")
    files.write(folder / WEIGHTS, safetensors.torch.save(tensors, {"format": "pt"}))
    words = {**convert.to_config_json(config, parts), "dtype": dtype}
    files.write_json(
        folder / CONFIG, {**words, **(finetuned.to_config_json(dialect) if finetuned else {}), **(extra or {})}
    )


def _stored_weights(folder: Path, layout: HFLayout) -> tuple[dict[str, StoredWeight], dict[StoredWeight, str]]:
    """Every weight of the folder by its plain name, and those that are second names of another."""
    stored: dict[str, StoredWeight] = {}
    for file in _weight_files(folder):
        for one in _header(file):
            name = layout.plain_name(one.name)
            if name in stored:
                raise FolderError(file, f"the weight {short_repr(name)} stands there a second time")
            if layout.is_weight(name):
                stored[name] = one
    for name in layout.zero_weights & stored.keys():
        if stored[name].load().any():
            fact = f"'{name}' is not nought"
            raise FolderError(stored[name].file, fact, "Only scores without a bias of their own can be opened")
        del stored[name]
    twins = {}
    for second, name in layout.tied_weights.items():
        if second in stored and name in stored:
            twins[stored.pop(second)] = name
        elif second in stored:
            stored[name] = stored.pop(second)
    return stored, twins


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).exists():
        return [file_inside(folder, WEIGHTS)]
    if (folder / INDEX).exists():
        named = _json(file_inside(folder, INDEX)).get("weight_map")
        if not isinstance(named, dict) or not all(isinstance(name, str) for name in named.values()):
            raise FolderError(folder / INDEX, "has no weight_map of file names")
        return [file_inside(folder, name) for name in sorted(set(named.values()))]
    if pickled := sorted(folder.glob("pytorch_model*.bin")):
        remedy = f"A pickle can run code: save the model again with transformers, which writes {WEIGHTS}"
        raise FolderError(pickled[0], "is a pickle and is not opened", remedy)
    raise FolderError(folder, f"has no {WEIGHTS}")


def _header(file: Path) -> list[StoredWeight]:
    """What a safetensors file says it holds; the library checks that it does."""
    try:
        with safe_open(file, "pt") as opened:
            slices = [(name, opened.get_slice(name)) for name in opened.keys()]  # noqa: SIM118 (no mapping)
            return [StoredWeight(file, name, tuple(one.get_shape()), one.get_dtype()) for name, one in slices]
    except (SafetensorError, OSError) as error:
        fact = f"is not a sound safetensors file: {short_repr(str(error))}"
        raise FolderError(file, fact, "Fetch it again") from None


def _json(path: Path) -> dict[str, Any]:
    return files.read_json(check_size(path, MAX_JSON_BYTES))


def _check(stored: StoredWeight, shape: tuple[int, ...], kinds: set[str] = FLOATS) -> None:
    if stored.shape != shape:
        fact = f"'{stored.name}' has shape {list(stored.shape)} where {CONFIG} says {list(shape)}"
        raise FolderError(stored.file, fact)
    if stored.dtype not in kinds:
        wanted = "whole numbers" if kinds is INTEGERS else "numbers with a point"
        raise FolderError(stored.file, f"'{stored.name}' holds {stored.dtype}, not {wanted}")


def _transposed(weight: Tensor, rule: convert.WeightRule) -> Tensor:
    """From their side to ours, and back."""
    return weight.T if rule.transposed else weight


def _expected_shapes(
    config: NetworkConfig, parts: frozenset[str], finetuned: FinetunedTask | None
) -> list[tuple[convert.WeightRule, tuple[int, ...]]]:
    """Every rule with the shape of our weight, found without taking memory."""
    if not isinstance(config, TransformerConfig):
        with torch.device("meta"):
            own = build_network(config).state_dict(prefix="trunk.")
        return [
            (convert.WeightRule(name, (name,), integer=not one.is_floating_point()), tuple(one.shape))
            for name, one in own.items()
        ]
    shape = (config.activation, config.norm_eps, config.biases)
    classes = finetuned.classes if finetuned else 0
    bare = config.causal and finetuned is not None and finetuned.task == "classify"
    heads: dict[str, Callable[[], nn.Module]] = {
        "mlm_head": lambda: MaskedLMHead(config.width, config.vocabulary, *shape, config.table),
        "pooler": lambda: make_pooler(config),
        "sentence_pair": lambda: SentencePairHead(config.width),
        "discriminator": lambda: DiscriminatorHead(config.width, config.activation),
        "classifier": lambda: Classifier(config.width, classes, 0.0, bias=not bare),
        "span": lambda: SpanHead(config.width),
    }
    with torch.device("meta"):
        whole = nn.ModuleDict({part: heads[part]() for part in parts})
        # From the second layer on all are alike.
        whole["trunk"] = build_network(
            replace(config, layers=min(2, config.layers), decoder_layers=min(2, config.decoder_layers))
        )
    shapes = {name: tuple(weight.shape) for name, weight in whole.state_dict().items()}
    expected = []
    for rule in convert.weight_rules(config, parts):
        alike = re.sub(r"^(trunk\.(?:\w+\.)?layers)\.[1-9]\d*", r"\1.1", rule.ours)
        if alike in shapes:  # not every network has biases, and not every layer a norm
            expected.append((rule, shapes[alike]))
    return expected
