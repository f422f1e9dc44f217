"""Limits of a tokenizer file: rules that would make a text many times longer are refused before any text meets them.

A file of a few kilobytes may hold nine rules that each write fifty characters for one: fifty to the ninth power. How
long a character can become is computed from the last rule to the first, over the characters that rules speak of.
"""

import base64
import binascii
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from tokenizers import Tokenizer, normalizers, pre_tokenizers

from bertsmith.errors import FolderError

GROWTH = 64  # characters that rules may make of one; Unicode's own forms make 18 of the longest ligature
ALPHABET = 20_000  # characters that rules may speak of
RULES = 200  # in one chain
SPECIALS = 64  # special pieces round a text
CHARSMAP = 256  # bytes that a table of characters may write for one
SAMPLE = "a é漢ﷺİ\U0001f600"  # what texts have, whatever the rules are for
# A pattern with one of these may match between two characters, and so write something where nothing was.
WIDTHLESS = re.compile(r"[*?|^$()]|\{0|\{,|\\[AbBGKzZ]")

PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")

Rule = dict[str, Any]
Write = Callable[[str], str]  # what a rule makes of one character


def check(tokenizer: Tokenizer, location: object) -> None:
    """Refuse a tokenizer that could cost far more than its size."""
    said = {name: _description(getattr(tokenizer, name)) for name in PARTS}
    for part in ("normalizer", "decoder"):
        chain = _chain(said.get(part))
        if part == "normalizer":
            chain += [rule for rule in _chain(said.get("pre_tokenizer")) if rule.get("type") == "ByteLevel"]
        if len(chain) > RULES:
            raise FolderError(location, f"its {part} has {len(chain)} rules", f"At most {RULES} are opened")
        grown = _growth(chain, location)
        if grown > GROWTH:
            times = f"{grown:,.0f}" if grown < 1e9 else "more than a billion"
            fact = f"its {part} can make a text {times} times as long"
            raise FolderError(location, fact, f"Take rules out of it: at most {GROWTH} times as long is opened")
    if (count := _specials(said.get("post_processor"))) > SPECIALS:
        raise FolderError(location, f"it sets {count} special pieces round a text", f"At most {SPECIALS} are opened")


def _description(part: Any) -> Any:
    """A part in the words of the file, without its vocabulary."""
    return None if part is None else json.loads(part.__getstate__())


def _chain(rule: Any) -> list[Rule]:
    """Rules in their order, those inside sequences, too."""
    if not isinstance(rule, dict):
        return []
    inner = next((rule[key] for key in ("normalizers", "pretokenizers", "decoders", "processors") if key in rule), None)
    return [one for part in inner for one in _chain(part)] if isinstance(inner, list) else [rule]


def _growth(chain: list[Rule], place: object) -> float:
    """How many characters one may become at most, at the end of the chain."""
    letters = dict.fromkeys(SAMPLE)
    for rule in chain:
        named = (_pattern(rule)[0], rule.get("content"), rule.get("prepend"))
        letters.update(dict.fromkeys("".join(str(text or "") for text in named)))
    writes = [_write(rule, place) for rule in chain]
    met = [letters]  # before each rule, and at the end: what one rule writes the next may speak of
    for write in writes:
        letters = letters if write is None else letters | dict.fromkeys("".join(map(write, letters)))
        met.append(letters)
        if len(letters) > ALPHABET:
            raise FolderError(place, f"its rules speak of more than {ALPHABET:,} characters", "Take some out")
    sizes, most = dict.fromkeys(letters, 1.0), 1.0
    for rule, write, before in zip(chain[::-1], writes[::-1], met[-2::-1], strict=True):
        sizes = _sizes(rule, write, before, sizes)
        if rule.get("type") == "Prepend":
            most += sum(sizes[letter] for letter in str(rule.get("prepend") or ""))  # once a text, and not a character
        most = max(most, *sizes.values())
    return most


def _sizes(rule: Rule, write: Write | None, letters: Iterable[str], after: dict[str, float]) -> dict[str, float]:
    """How long each character becomes from this rule on, by how long what the rule makes of it becomes after it."""
    if write is not None:
        return {letter: sum(after[one] for one in write(letter)) for letter in letters}
    kept = {letter: after[letter] for letter in letters}
    if rule.get("type") != "Replace":
        return kept
    content = sum(after[letter] for letter in str(rule.get("content") or ""))
    pattern, plain = _pattern(rule)
    if plain and pattern:
        return kept | {letter: max(kept[letter], content / len(pattern)) for letter in pattern}
    between = plain or WIDTHLESS.search(pattern)
    return {letter: size + content if between else max(size, content) for letter, size in kept.items()}


def _pattern(rule: Rule) -> tuple[str, bool]:
    """What a rule replaces, and whether it is meant as it stands."""
    pattern = rule.get("pattern")
    if isinstance(pattern, Mapping):
        return str(next(iter(pattern.values()), "")), "String" in pattern
    return "", True


def _write(rule: Rule, place: object) -> Write | None:
    """What a rule without a pattern makes of a single character, by the library itself; None of one with a pattern."""
    match rule.get("type"):
        case "ByteLevel":
            split = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
            return lambda letter: "".join(part for part, _ in split.pre_tokenize_str(letter))
        case "NFC" | "NFD" | "NFKC" | "NFKD" | "Lowercase" as kind:
            return _by(getattr(normalizers, kind)())
        case "BertNormalizer":
            return _by(normalizers.BertNormalizer())
        case "Precompiled":
            return _by(normalizers.Precompiled(_charsmap(rule, place)))
    return None


def _by(normalizer: normalizers.Normalizer) -> Write:
    return lambda letter: str(normalizer.normalize_str(letter))


def _charsmap(rule: Rule, place: object) -> bytes:
    """SentencePiece's table of characters: after a search tree its texts, each ended by a zero, and none too long."""
    try:
        table = base64.b64decode(str(rule.get("precompiled_charsmap")), validate=True)
    except (binascii.Error, ValueError):
        raise FolderError(place, "its table of characters is not in base 64") from None
    texts = table[4 + int.from_bytes(table[:4], "little") :]
    if max(map(len, texts.split(b"\0"))) > CHARSMAP:
        raise FolderError(place, f"its table of characters writes more than {CHARSMAP} bytes for one", "Take it out")
    return table


def _specials(rule: Any) -> int:
    """How many special pieces are set round two texts at most."""
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
