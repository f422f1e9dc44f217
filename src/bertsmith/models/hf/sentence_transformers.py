"""The files of sentence-transformers in a model folder: pooling, normalisation and maximum length."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bertsmith import files
from bertsmith.errors import FolderError
from bertsmith.files import file_inside, short_repr
from bertsmith.models.hf.values import MAX_SIZE
from bertsmith.nn.pooling import Pooling

MODULES, LENGTHS = "modules.json", "sentence_bert_config.json"
SETTINGS = "config_sentence_transformers.json"
MODULE_PREFIX = "sentence_transformers.models."  # the spelling that every version reads
MODES: dict[Pooling, str] = {
    "mean": "pooling_mode_mean_tokens",
    "first": "pooling_mode_cls_token",
    "last": "pooling_mode_lasttoken",
}
MODE_NAMES: dict[str, Pooling] = {"mean": "mean", "cls": "first", "lasttoken": "last"}  # since version 6, in one key
UNSUPPORTED_MODES = (
    "pooling_mode_max_tokens",
    "pooling_mode_mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens",
)


@dataclass(frozen=True, kw_only=True)
class SentenceConfig:
    """How the vectors of tokens become a sentence embedding."""

    pooling: Pooling = "mean"
    normalise: bool = True
    length: int | None = None  # tokens of a text at most; None: as many as the model takes
    prompts: dict[str, str] = field(default_factory=dict)  # by name; kept, and put before no text


def read(folder: Path) -> SentenceConfig | None:
    """The pooling and normalisation of a folder; None if it is not a sentence-transformers folder."""
    if not (folder / MODULES).exists():
        return None
    modules = files.read_json_list(file_inside(folder, MODULES))
    kinds = {str(module.get("type", "")).rpartition(".")[2]: module for module in modules if isinstance(module, dict)}
    if unknown := kinds.keys() - {"Transformer", "Pooling", "Normalize"}:
        raise FolderError(
            folder / MODULES, f"the module '{min(unknown)}' is unknown", "Pooling and Normalize are known"
        )
    config = SentenceConfig(normalise="Normalize" in kinds, length=_length(folder), prompts=_prompts(folder))
    if "Pooling" not in kinds:
        return config
    path = str(kinds["Pooling"].get("path", ""))
    pooling = _pooling(files.read_json(file_inside(folder, "config.json", path)))
    if pooling is None:
        raise FolderError(folder / path / "config.json", "is not pooled by mean, first or last token alone")
    return replace(config, pooling=pooling)


def write(folder: Path, config: SentenceConfig, width: int) -> None:
    """The files that make sentence-transformers open a model folder."""
    kinds = ["Transformer", "Pooling", *(["Normalize"] if config.normalise else [])]
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": number, "name": str(number), "path": path, "type": MODULE_PREFIX + kind}
        for number, (kind, path) in enumerate(zip(kinds, paths, strict=False))
    ]
    files.write_json(folder / MODULES, modules)
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {theirs: ours == config.pooling for ours, theirs in MODES.items()}
    pooling = {"word_embedding_dimension": width, **modes, **dict.fromkeys(UNSUPPORTED_MODES, False)}
    files.write_json(folder / "1_Pooling" / "config.json", pooling)
    if config.normalise:
        (folder / "2_Normalize").mkdir(exist_ok=True)
    # Where texts are lowercased the tokenizer that was opened does it, and so does the one that is written.
    files.write_json(folder / LENGTHS, {"max_seq_length": config.length, "do_lower_case": False})
    prompts = {"prompts": config.prompts} if config.prompts else {}
    files.write_json(folder / SETTINGS, {"similarity_fn_name": "cosine", **prompts})


def _pooling(config_json: dict[str, Any]) -> Pooling | None:
    """The pooling, if it is exactly one that we have."""
    mode = config_json.get("pooling_mode")
    if mode is not None:
        name = mode[0] if isinstance(mode, list) and len(mode) == 1 else mode
        return MODE_NAMES.get(name) if isinstance(name, str) else None
    found = [ours for ours, theirs in MODES.items() if config_json.get(theirs) is True]
    if len(found) != 1 or any(config_json.get(other) for other in UNSUPPORTED_MODES):
        return None
    return found[0]


def _prompts(folder: Path) -> dict[str, str]:
    """The prompts of a folder by name. One before every text is refused: vectors would differ without it."""
    if not (folder / SETTINGS).exists():
        return {}
    settings = files.read_json(file_inside(folder, SETTINGS))
    prompts, default = settings.get("prompts"), settings.get("default_prompt_name")
    named = {} if not isinstance(prompts, dict) else {name: text for name, text in prompts.items() if text}
    if default is not None and named.get(default):
        fact = f"default_prompt_name puts {short_repr(named[default])} before every text, which is not supported"
        raise FolderError(folder / SETTINGS, fact, "Set it to null, and write the prompt into the texts")
    return {name: text for name, text in named.items() if isinstance(text, str)}


def _length(folder: Path) -> int | None:
    """The maximum length in tokens: in sentence-transformers' file, or since version 6 in the tokenizer's."""
    for name, key in ((LENGTHS, "max_seq_length"), ("tokenizer_config.json", "model_max_length")):
        length = files.read_json(file_inside(folder, name)).get(key) if (folder / name).exists() else None
        if length is None:
            continue
        if not isinstance(length, int) or length < 3:
            raise FolderError(folder / name, f"{key} is {length!r}", "Give a whole number of at least 3")
        return length if length <= MAX_SIZE else None  # transformers writes 10^30 for no limit
    return None
