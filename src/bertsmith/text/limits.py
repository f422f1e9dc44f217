"""Limits of a tokenizer file: rules that would make a text many times longer are refused before they are applied.

A file of a few kilobytes may hold nine rules that each replace a character by fifty: fifty to the ninth power. The
growth of a character is computed from the last rule to the first, over the characters that the rules mention.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers

from bertsmith.errors import FolderError

MAX_GROWTH = 64  # characters that rules may make of one; Unicode normalisation makes 18 of the longest ligature
ALPHABET = 20_000  # characters that rules may mention
MAX_RULES = 200  # in one chain
MAX_SPECIAL_TOKENS = 64  # special tokens around a text
CHARSMAP = 256  # bytes that a character map may write for one character
SAMPLE_CHARACTERS = "a é漢ﷺİ\U0001f600"  # characters that are always examined
# A pattern with one of these may match the empty string, and so insert text between any two characters.
ZERO_WIDTH_PATTERN = re.compile(r"[*?|^$()]|\{0|\{,|\\[AbBGKzZ]")

TOKENIZER_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")

Rule = dict[str, Any]
Write = Callable[[str], str]  # the output of a rule for one character


def check(tokenizer: Tokenizer, location: object) -> None:
    """Refuse a tokenizer that could cost far more than its size."""
    parts = {name: _description(getattr(tokenizer, name)) for name in TOKENIZER_PARTS}
    for part in ("normalizer", "decoder"):
        chain = _chain(parts.get(part))
        if part == "normalizer":
            chain += [rule for rule in _chain(parts.get("pre_tokenizer")) if rule.get("type") == "ByteLevel"]
        if len(chain) > MAX_RULES:
            raise FolderError(location, f"its {part} has {len(chain)} rules", f"At most {MAX_RULES} are opened")
        grown = _growth(chain, location)
        if grown > MAX_GROWTH:
            times = f"{grown:,.0f}" if grown < 1e9 else "more than a billion"
            fact = f"its {part} can make a text {times} times as long"
            raise FolderError(location, fact, f"Take rules out of it: at most {MAX_GROWTH} times as long is opened")
    if (count := _specials(parts.get("post_processor"))) > MAX_SPECIAL_TOKENS:
        raise FolderError(
            location, f"it puts {count} special tokens around a text", f"At most {MAX_SPECIAL_TOKENS} are opened"
        )


def _description(part: Any) -> Any:
    """A part as tokenizer.json describes it, without the vocabulary."""
    return None if part is None else json.loads(part.__getstate__())


def _chain(rule: Any) -> list[Rule]:
    """The rules of a part in order, with those inside of sequences."""
    if not isinstance(rule, dict):
        return []
    inner = next((rule[key] for key in ("normalizers", "pretokenizers", "decoders", "processors") if key in rule), None)
    return [one for part in inner for one in _chain(part)] if isinstance(inner, list) else [rule]


def _growth(chain: list[Rule], location: object) -> float:
    """The largest number of characters that the chain can make of one."""
    letters = dict.fromkeys(SAMPLE_CHARACTERS)
    for rule in chain:
        mentioned = (_pattern(rule)[0], rule.get("content"), rule.get("prepend"))
        letters.update(dict.fromkeys("".join(str(text or "") for text in mentioned)))
    writes = [_write(rule, location) for rule in chain]
    alphabets = [letters]  # before each rule, and at the end: the output of one rule is the input of the next
    for write in writes:
        letters = letters if write is None else letters | dict.fromkeys("".join(map(write, letters)))
        alphabets.append(letters)
        if len(letters) > ALPHABET:
            raise FolderError(location, f"its rules mention more than {ALPHABET:,} characters", "Take some out")
    sizes, largest = dict.fromkeys(letters, 1.0), 1.0
    for rule, write, before in zip(chain[::-1], writes[::-1], alphabets[-2::-1], strict=True):
        sizes = _sizes(rule, write, before, sizes)
        if rule.get("type") == "Prepend":
            largest += sum(sizes[letter] for letter in str(rule.get("prepend") or ""))  # once per text
        largest = max(largest, *sizes.values())
    return largest


def _sizes(rule: Rule, write: Write | None, letters: Iterable[str], after: dict[str, float]) -> dict[str, float]:
    """The size of each character after this rule and all later ones, given the sizes after the later ones."""
    if write is not None:
        return {letter: sum(after[one] for one in write(letter)) for letter in letters}
    sizes = {letter: after[letter] for letter in letters}
    if rule.get("type") != "Replace":
        return sizes
    content = sum(after[letter] for letter in str(rule.get("content") or ""))
    pattern, literal = _pattern(rule)
    if literal and pattern:
        return sizes | {letter: max(sizes[letter], content / len(pattern)) for letter in pattern}
    empty_match = literal or ZERO_WIDTH_PATTERN.search(pattern)
    return {letter: size + content if empty_match else max(size, content) for letter, size in sizes.items()}


def _pattern(rule: Rule) -> tuple[str, bool]:
    """The pattern of a rule, and whether it is a literal string."""
    pattern = rule.get("pattern")
    if isinstance(pattern, Mapping):
        return str(next(iter(pattern.values()), "")), "String" in pattern
    return "", True


def _write(rule: Rule, location: object) -> Write | None:
    """The output of a rule without a pattern for one character, by the library itself; None for other rules."""
    match rule.get("type"):
        case "ByteLevel":
            split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            return lambda letter: "".join(part for part, _ in split.pre_tokenize_str(letter))
        case "NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase" as kind:
            return _by(getattr(normalizers, kind)())
        case "BertNormalizer":
            return _by(normalizers.BertNormalizer())
        case "Precompiled":
            return _by(normalizers.Precompiled(_charsmap(rule, location)))
    return None


def _by(normalizer: normalizers.Normalizer) -> Write:
    return lambda letter: str(normalizer.normalize_str(letter))


def _charsmap(rule: Rule, location: object) -> bytes:
    """SentencePiece's character map: a trie, then the replacements, each ended by a zero byte, and none too long."""
    try:
        table = base64.b64decode(str(rule.get("precompiled_charsmap")), validate=True)
    except (binascii.Error, ValueError):
        raise FolderError(location, "its character map is not in base 64") from None
    texts = table[4 + int.from_bytes(table[:4], "little") :]
    if max(map(len, texts.split(b"\0"))) > CHARSMAP:
        raise FolderError(location, f"its character map writes more than {CHARSMAP} bytes for one", "Take it out")
    return table


def _specials(rule: Any) -> int:
    """The largest number of special tokens around one text or two."""
    count = 0
    for one in _chain(rule):
        ids = one.get("special_tokens")
        if not isinstance(ids, dict):
            continue
        sizes = {name: len(entry.get("ids", ())) for name, entry in ids.items() if isinstance(entry, dict)}
        for template in ("single", "pair"):
            names = [part["SpecialToken"]["id"] for part in one.get(template) or () if "SpecialToken" in part]
            count = max(count, sum(sizes.get(name, 1) for name in names))
    return count * max(1, len(_chain(rule)))
