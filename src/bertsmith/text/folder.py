"""A tokenizer's folder: tokenizer.json, or a vocabulary as first published, and tokenizer_config.json."""

import json
from os.path import lexists
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, models, normalizers

from bertsmith.errors import FolderError
from bertsmith.files import check_local, check_size, file_inside
from bertsmith.text import limits, published
from bertsmith.text.special_tokens import BOS_EOS_KEYS, ROLES
from bertsmith.text.train import BERT_MAX_WORD

MAX_BYTES, MAX_JSON_BYTES = 1 << 28, 1 << 24  # of a vocabulary, and of settings
SENTENCES = "sentence_bert_config.json"  # of sentence-transformers
BERT_CLASSES = ("BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")  # of an added token


def find_file(path: Path) -> Path:
    """The file with the vocabulary: the path itself, or a file inside of the folder, but no link out of it."""
    if path.is_file():
        return path
    check_local(path)
    for name in ("tokenizer.json", "vocab.txt", "vocab.json", *published.MODELS):
        complete = name != "vocab.json" or (path / "merges.txt").exists()
        if complete and lexists(path / name):
            return file_inside(path, name)
    missing = "holds no tokenizer.json, vocab.txt, vocab.json with merges.txt or spiece.model"
    fact = missing if path.is_dir() else "does not exist"
    raise FolderError(path, fact, "Make one with: bertsmith tokenizer TEXT --out FOLDER")


def read_settings(folder: Path) -> dict[str, Any]:
    """The keys of tokenizer_config.json, and those of special_tokens_map.json that it lacks; empty without both."""
    return {**_read_object(folder, "special_tokens_map.json"), **_read_object(folder, "tokenizer_config.json")}


def read(file: Path, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    """The tokenizer of a file. No code in it is run, and rules that make texts far longer are refused."""
    match file.suffix:
        case ".json" if file.name != "vocab.json":
            tokenizer = _with_bert_rules(tokenizers.Tokenizer.from_str(_text(file)), settings)
        case ".json":
            merges = _text(file_inside(file.parent, "merges.txt"))
            tokenizer = _with_added_tokens(
                published.load_bpe(file, _text(file), merges, settings, _member(file.parent, settings)), file
            )
        case ".model":
            check_size(file, MAX_BYTES)
            tokenizer = _with_added_tokens(
                published.load_sentencepiece(file, settings, _member(file.parent, settings)), file
            )
        case _:
            tokenizer = _with_added_tokens(published.load_wordpiece(file, _text(file), settings), file)
    if _read_object(file.parent, SENTENCES).get("do_lower_case") is True:
        tokenizer = _lowercasing(tokenizer)
    limits.check(tokenizer, file)
    return tokenizer


def _with_bert_rules(tokenizer: tokenizers.Tokenizer, settings: dict[str, Any]) -> tokenizers.Tokenizer:
    """The same with the rules of tokenizer_config.json, which win in transformers' BertTokenizer."""
    rules = tokenizer.normalizer
    known = str(settings.get("tokenizer_class")).removesuffix("Fast") in BERT_CLASSES
    if not known or not isinstance(rules, normalizers.BertNormalizer):
        return tokenizer
    lower, strip = settings.get("do_lower_case", rules.lowercase), settings.get("strip_accents", rules.strip_accents)
    tokenizer.normalizer = normalizers.BertNormalizer(
        clean_text=rules.clean_text,
        handle_chinese_chars=bool(settings.get("tokenize_chinese_chars", rules.handle_chinese_chars)),
        strip_accents=None if strip is None else bool(strip),
        lowercase=bool(lower),
    )
    return tokenizer


def _lowercasing(tokenizer: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same with lowercasing before all its rules, as sentence-transformers lowercases texts."""
    rules = tokenizer.normalizer
    if not isinstance(rules, normalizers.BertNormalizer):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Lowercase(), *([rules] if rules is not None else [])])
    elif not rules.lowercase:
        accents = bool(rules.strip_accents)  # lowercasing alone strips none, where BERT's rule would
        tokenizer.normalizer = normalizers.BertNormalizer(
            clean_text=rules.clean_text,
            handle_chinese_chars=rules.handle_chinese_chars,
            strip_accents=accents,
            lowercase=True,
        )
    return tokenizer


def special_names(settings: dict[str, Any]) -> dict[str, str]:
    """The names of special tokens by role; a setting is a name, or an object with the name in it."""
    named = {role: settings.get(key) or settings.get(BOS_EOS_KEYS.get(role, "")) for role, (key, *_) in ROLES.items()}
    names = {role: name.get("content") if isinstance(name, dict) else name for role, name in named.items()}
    return {role: name for role, name in names.items() if isinstance(name, str)}


def marks_pairs(settings: dict[str, Any]) -> bool:
    """Whether the network is given the segments of a pair. RoBERTa's is not, and reads both texts as the first."""
    names = settings.get("model_input_names")
    return not isinstance(names, list) or "token_type_ids" in names


def settings_of(
    tokenizer: tokenizers.Tokenizer,
    names: dict[str, str],
    sentinels: list[str],
    max_length: int | None = None,
    segments: bool = True,
) -> dict[str, Any]:
    """The contents of tokenizer_config.json, given the special tokens by role and T5's sentinels."""
    keys = {role: key for role, (key, *_) in ROLES.items()} | (BOS_EOS_KEYS if sentinels else {})
    settings: dict[str, Any] = {keys[role]: name for role, name in names.items()}
    if sentinels:
        settings |= {"extra_ids": len(sentinels), "additional_special_tokens": sentinels}
    if isinstance(tokenizer.model, models.BPE | models.WordLevel):
        settings |= {key: names[role] for role, key in BOS_EOS_KEYS.items() if role in names}
    settings["tokenizer_class"] = "PreTrainedTokenizerFast"
    type_ids = ["token_type_ids"] if segments and not sentinels else []  # T5 has no segments
    settings["model_input_names"] = ["input_ids", *type_ids, "attention_mask"]
    normalizer, model = tokenizer.normalizer, tokenizer.model
    is_bert = isinstance(model, models.WordPiece) and isinstance(normalizer, normalizers.BertNormalizer)
    if is_bert and model.max_input_chars_per_word == BERT_MAX_WORD:  # transformers' class knows no other limit
        settings |= {
            "tokenizer_class": "BertTokenizer",
            "do_lower_case": bool(normalizer.lowercase),
            "strip_accents": normalizer.strip_accents,
            "tokenize_chinese_chars": normalizer.handle_chinese_chars,
        }
    if max_length is not None:
        settings["model_max_length"] = max_length
    return settings


def write(folder: Path, tokenizer: str, settings: dict[str, Any]) -> None:
    """Write tokenizer.json and tokenizer_config.json, as transformers' AutoTokenizer opens them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _put(folder / "tokenizer.json", tokenizer)
        _put(folder / "tokenizer_config.json", json.dumps(settings, indent=2, sort_keys=True))
    except OSError as error:
        raise FolderError(folder, f"the tokenizer cannot be written there ({error.strerror})") from None


def _read_object(folder: Path, name: str) -> dict[str, Any]:
    """A JSON object in a file of the folder; empty where there is no such file."""
    if not lexists(folder / name):
        return {}
    file = check_size(file_inside(folder, name), MAX_JSON_BYTES)
    try:
        contents = json.loads(_text(file))
    except (ValueError, RecursionError):
        raise FolderError(file, "is not JSON") from None
    if not isinstance(contents, dict):
        raise FolderError(file, "does not hold a JSON object")
    return contents


def _member(folder: Path, settings: dict[str, Any]) -> str:
    """The model_type of the vocabulary, by the class of the tokenizer, or else by config.json."""
    name = str(settings.get("tokenizer_class") or "").removesuffix("Fast").removesuffix("Tokenizer").lower()
    model_types = {"openaigpt": "openai-gpt", "xlmroberta": "xlm-roberta", "mt5": "t5", "pretrained": ""}
    return model_types.get(name, name) or str(_read_object(folder, "config.json").get("model_type") or "")


def _with_added_tokens(tokenizer: tokenizers.Tokenizer, file: Path) -> tokenizers.Tokenizer:
    """The same with the added tokens: those of added_tokens.json, or of a list in tokenizer_config.json."""
    ids: dict[str, Any] = _read_object(file.parent, "added_tokens.json")
    tokens = {number: AddedToken(name, normalized=False) for name, number in ids.items() if type(number) is int}
    if len(tokens) < len(ids):
        raise FolderError(file.with_name("added_tokens.json"), "does not hold the ids of tokens")
    settings = _read_object(file.parent, "tokenizer_config.json")
    decoder = settings.get("added_tokens_decoder")
    for number, token in decoder.items() if isinstance(decoder, dict) else ():
        if not str(number).isdecimal() or not isinstance(token, dict) or not isinstance(token.get("content"), str):
            fact = f"'{str(number)[:40]}' of added_tokens_decoder is no token"
            raise FolderError(file.with_name("tokenizer_config.json"), fact)
        flags = {flag: bool(token[flag]) for flag in FLAGS if flag in token}
        tokens[int(number)] = AddedToken(token["content"], **flags)
    names = set(special_names(settings).values())
    for number, added in sorted(tokens.items(), key=lambda pair: pair[0]):
        special = added.special or added.content in names
        (tokenizer.add_special_tokens if special else tokenizer.add_tokens)([added])
        if tokenizer.token_to_id(added.content) != number:
            fact = f"the added token '{added.content[:40]}' cannot have the id {number}"
            raise FolderError(file, fact, "Added tokens follow the vocabulary without a gap")
    return tokenizer


def _text(file: Path) -> str:
    try:
        return check_size(file, MAX_BYTES).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise FolderError(file, "is not UTF-8 text") from None
    except OSError as error:
        raise FolderError(file, f"cannot be read ({error.strerror})") from None


def _put(file: Path, text: str) -> None:
    """Write a file in one move, so that no reader sees a part of it."""
    partial = file.with_name(file.name + ".writing")
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(file)
