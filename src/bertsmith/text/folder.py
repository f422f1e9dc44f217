"""A tokenizer's folder: tokenizer.json, or BERT's vocab.txt alone, and the settings beside it."""

import json
from pathlib import Path
from typing import Any

import tokenizers

from bertsmith.errors import FolderError
from bertsmith.text.pieces import END, SPECIALS, bert

# By role: the key in tokenizer_config.json, and the names it usually has.
ROLES = {
    "padding": ("pad_token", "[PAD]", "<pad>", END),
    "unknown": ("unk_token", "[UNK]", "<unk>"),
    "start": ("cls_token", "[CLS]", "<s>", END),
    "stop": ("sep_token", "[SEP]", "</s>", END),
    "mask": ("mask_token", "[MASK]", "<mask>"),
}
LEFT_TO_RIGHT = {"start": "bos_token", "stop": "eos_token"}  # what models that write text call the same


def found(place: Path) -> Path:
    """The file that holds the pieces: the one that is named, or the one of a folder."""
    if place.is_file():
        return place
    for name in ("tokenizer.json", "vocab.txt"):
        if (place / name).is_file():
            return place / name
    fact = "holds neither tokenizer.json nor vocab.txt" if place.is_dir() else "does not exist"
    raise FolderError(place, fact, "Make one with: bertsmith tokenizer TEXT --out FOLDER")


def settings(folder: Path) -> dict[str, Any]:
    """What tokenizer_config.json says; nothing where there is none."""
    file = folder / "tokenizer_config.json"
    if not file.is_file():
        return {}
    try:
        said = json.loads(_text(file))
    except (ValueError, RecursionError):
        raise FolderError(file, "is not JSON") from None
    if not isinstance(said, dict):
        raise FolderError(file, "does not hold a JSON object")
    return said


def read(file: Path, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    """The pieces and the rules of a file. No code in it is ever run."""
    return _bert(file, settings) if file.suffix == ".txt" else tokenizers.Tokenizer.from_str(_text(file))


def names(settings: dict[str, Any]) -> dict[str, str]:
    """What the folder calls its special pieces: a name, or a record with the name in it."""
    named = {role: settings.get(key) or settings.get(LEFT_TO_RIGHT.get(role, "")) for role, (key, *_) in ROLES.items()}
    plain = {role: name.get("content") if isinstance(name, dict) else name for role, name in named.items()}
    return {role: name for role, name in plain.items() if isinstance(name, str)}


def write(folder: Path, pieces: str, settings: dict[str, Any]) -> None:
    """Both files, as transformers' AutoTokenizer opens them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _put(folder / "tokenizer.json", pieces)
        _put(folder / "tokenizer_config.json", json.dumps(settings, indent=2, sort_keys=True))
    except OSError as error:
        raise FolderError(folder, f"the tokenizer cannot be written there ({error.strerror})") from None


def _bert(file: Path, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    """BERT as first published: one piece a line, in the order of their ids."""
    lines = _text(file).replace("\r\n", "\n").removesuffix("\n").split("\n")
    vocabulary = {piece: number for number, piece in enumerate(lines)}
    if missing := [name for name in SPECIALS["wordpiece"] if name not in vocabulary]:
        raise FolderError(file, f"has no line {missing[0]}", "BERT's vocabulary has one piece a line")
    strip = settings.get("strip_accents")
    return bert(
        vocabulary,
        lowercase=bool(settings.get("do_lower_case", True)),
        accents=None if strip is None else not strip,
        han=bool(settings.get("tokenize_chinese_chars", True)),
    )


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise FolderError(file, "is not UTF-8 text") from None
    except OSError as error:
        raise FolderError(file, f"cannot be read ({error.strerror})") from None


def _put(file: Path, text: str) -> None:
    """Put the file in place at once, so that nobody ever opens half of it."""
    beside = file.with_name(file.name + ".writing")
    beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(file)
