"""A tokenizer's folder: tokenizer.json, or the pieces alone as first published, and the settings beside it."""

import json
from os.path import lexists
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from bertsmith.errors import FolderError
from bertsmith.files import check_size, file_inside
from bertsmith.text import limits, published
from bertsmith.text.train import END

# By role: the key in tokenizer_config.json, and the names it usually has.
ROLES = {
    "padding": ("pad_token", "[PAD]", "<pad>", END),
    "unknown": ("unk_token", "[UNK]", "<unk>"),
    "start": ("cls_token", "[CLS]", "<s>", END),
    "stop": ("sep_token", "[SEP]", "</s>", END),
    "mask": ("mask_token", "[MASK]", "<mask>"),
}
BOS_EOS_KEYS = {"start": "bos_token", "stop": "eos_token"}  # what models that write text call the same
MAX_BYTES, MAX_JSON_BYTES = 1 << 28, 1 << 24  # bytes of a file of pieces, and of settings
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")  # of an added piece


def find_file(place: Path) -> Path:
    """The file that holds the pieces: the one that is named, or the one of a folder, which it cannot lead out of."""
    if place.is_file():
        return place
    for name in ("tokenizer.json", "vocab.txt", "vocab.json", *published.MODELS):
        whole = name != "vocab.json" or (place / "merges.txt").exists()
        if whole and lexists(place / name):
            return file_inside(place, name)
    fact = (
        "holds no tokenizer.json, vocab.txt, vocab.json with merges.txt or spiece.model"
        if place.is_dir()
        else "does not exist"
    )
    raise FolderError(place, fact, "Make one with: bertsmith tokenizer TEXT --out FOLDER")


def read_settings(folder: Path) -> dict[str, Any]:
    """What tokenizer_config.json says, and where it is silent special_tokens_map.json; nothing if neither is there."""
    return {**_read_object(folder, "special_tokens_map.json"), **_read_object(folder, "tokenizer_config.json")}


def read(file: Path, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    """The pieces and the rules of a file. No code in it is ever run, and no rule that makes texts far longer."""
    match file.suffix:
        case ".json" if file.name != "vocab.json":
            made = tokenizers.Tokenizer.from_str(_text(file))
        case ".json":
            merges = _text(file_inside(file.parent, "merges.txt"))
            made = _with_added_tokens(
                published.load_bpe(file, _text(file), merges, settings, _member(file.parent, settings)), file
            )
        case ".model":
            check_size(file, MAX_BYTES)
            made = _with_added_tokens(
                published.load_sentencepiece(file, settings, _member(file.parent, settings)), file
            )
        case _:
            made = _with_added_tokens(published.load_wordpiece(file, _text(file), settings), file)
    limits.check(made, file)
    return made


def special_names(settings: dict[str, Any]) -> dict[str, str]:
    """What the folder calls its special pieces: a name, or a record with the name in it."""
    named = {role: settings.get(key) or settings.get(BOS_EOS_KEYS.get(role, "")) for role, (key, *_) in ROLES.items()}
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


def _read_object(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object of the folder; empty where there is no such file."""
    if not lexists(folder / name):
        return {}
    file = check_size(file_inside(folder, name), MAX_JSON_BYTES)
    try:
        said = json.loads(_text(file))
    except (ValueError, RecursionError):
        raise FolderError(file, "is not JSON") from None
    if not isinstance(said, dict):
        raise FolderError(file, "does not hold a JSON object")
    return said


def _member(folder: Path, settings: dict[str, Any]) -> str:
    """Whose pieces they are, as transformers names its members: by the tokenizer's class, or the network's."""
    named = str(settings.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer").lower()
    known = {"openaigpt": "openai-gpt", "xlmroberta": "xlm-roberta", "mt5": "t5", "pretrained": ""}
    return known.get(named, named) or str(_read_object(folder, "config.json").get("model_type") or "")


def _with_added_tokens(tokenizer: tokenizers.Tokenizer, file: Path) -> tokenizers.Tokenizer:
    """The same with the pieces that were added later: added_tokens.json, or a list in tokenizer_config.json."""
    listed: dict[str, Any] = _read_object(file.parent, "added_tokens.json")
    pieces = {number: AddedToken(piece, normalized=False) for piece, number in listed.items() if type(number) is int}
    if len(pieces) < len(listed):
        raise FolderError(file.with_name("added_tokens.json"), "does not hold the numbers of pieces")
    settings = _read_object(file.parent, "tokenizer_config.json")
    decoder = settings.get("added_tokens_decoder")
    for number, said in decoder.items() if isinstance(decoder, dict) else ():
        if not str(number).isdecimal() or not isinstance(said, dict) or not isinstance(said.get("content"), str):
            fact = f"'{str(number)[:40]}' of added_tokens_decoder is no piece"
            raise FolderError(file.with_name("tokenizer_config.json"), fact)
        flags = {flag: bool(said[flag]) for flag in FLAGS if flag in said}
        pieces[int(number)] = AddedToken(said["content"], **flags)
    special = set(special_names(settings).values())
    for number, piece in sorted(pieces.items(), key=lambda pair: pair[0]):
        marked = piece.special or piece.content in special
        (tokenizer.add_special_tokens if marked else tokenizer.add_tokens)([piece])
        if tokenizer.token_to_id(piece.content) != number:
            fact = f"the added piece '{piece.content[:40]}' cannot have the number {number}"
            raise FolderError(file, fact, "Added pieces follow the vocabulary without a gap")
    return tokenizer


def _text(file: Path) -> str:
    try:
        return check_size(file, MAX_BYTES).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise FolderError(file, "is not UTF-8 text") from None
    except OSError as error:
        raise FolderError(file, f"cannot be read ({error.strerror})") from None


def _put(file: Path, text: str) -> None:
    """Put the file in place at once, so that nobody ever opens half of it."""
    beside = file.with_name(file.name + ".writing")
    beside.write_text(text + "\n", encoding="utf-8")
    beside.replace(file)
