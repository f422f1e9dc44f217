"""Sentences into token ids, fast: most words of a text have been met before, so their ids are remembered."""

import re
import sys
from array import array
from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np

from bertsmith import files
from bertsmith.data.shards.encoded import EncodedDocuments
from bertsmith.text.language import count_words
from bertsmith.text.tokenizer import Tokenizer

REMEMBERED = 1 << 18  # words, about 50 MB; of English text 4 to 8 words in a hundred are then not among them
LONGEST = 32  # letters a word on average; text without spaces would fill the table with whole sentences
PART = 1 << 14  # letters of a text that are looked at together
OPENING = "\n"  # marks the first word of a text, which has no space before it and may have other ids
ARRAYS = {"uint16": "H", "uint32": "I"}
# Characters that BERT makes words of their own, as written in the tokenizer library.
IDEOGRAPHS = re.compile(
    "([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df"
    "\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f])"
)


class Encoder:
    """The tokenizer of a folder, with a memory for words.

    Where a space always parts two tokens, a sentence's ids are those of its words one after the other. Then
    only words not met before go to the tokenizer; the rest is a look into a table, begun anew when full.
    """

    def __init__(self, folder: Path, dtype: str) -> None:
        self._tokenizer, self._array = Tokenizer.load(folder), ARRAYS[dtype]
        self._itemsize = array(self._array).itemsize
        description = files.read_json(folder / "tokenizer.json")
        self._splits_on_spaces, self._punctuation, self._ideographs = (
            splits_on_spaces(description),
            splitting_punctuation(description),
            splits_ideographs(description),
        )
        self._space = " " if space_sensitive(description) else ""
        self._cache: dict[str, bytes] = {}

    def encode(self, documents: Sequence[Sequence[str]]) -> EncodedDocuments:
        """Documents, each a list of sentences, into one block; what has no tokens is dropped and counted."""
        texts = [sentence for document in documents for sentence in document]
        opens = [not self._space or place == 0 for document in documents for place in range(len(document))]
        words = [text.split() for text in texts]
        encoded = (
            self._encode_cached(texts, words, opens)
            if self._splits_on_spaces
            else self._encode_plain(self._with_spaces(texts, opens))
        )
        measures = [
            (len(ids) // self._itemsize, *((len(text), len(found)) if text.isascii() else _counted(text)))
            for ids, text, found in zip(encoded, texts, words, strict=True)
        ]
        lengths: list[int] = []
        rows: list[tuple[int, int, int]] = []
        start = 0
        for document in documents:
            kept = [measure for measure in measures[start : start + len(document)] if measure[0]]
            start += len(document)
            if kept:
                tokens, sizes, counts = zip(*kept, strict=True)
                lengths += tokens
                rows.append((len(kept), sum(sizes), sum(counts)))
        return EncodedDocuments(
            b"".join(encoded),
            np.array(lengths, np.int32),
            np.array(rows, np.int64).reshape(-1, 3),
            dropped=len(texts) - len(lengths),
            empty=len(documents) - len(rows),
        )

    def _with_spaces(self, texts: Sequence[str], opens: Sequence[bool]) -> list[str]:
        """Texts with a space before each that opens no document, where a space is a part of the word behind it."""
        return [text if first or not text else self._space + text for text, first in zip(texts, opens, strict=True)]

    def _encode_cached(self, texts: list[str], words: list[list[str]], opens: list[bool]) -> list[bytes]:
        """The ids of each text, from those of its words."""
        # Two spaces, or other kinds of space, may be tokens of their own: such text takes the plain way.
        plain_spaces = [bool(found) and " ".join(found) == text for found, text in zip(words, texts, strict=True)]
        parted = iter(self._split_words([text for text, plain in zip(texts, plain_spaces, strict=True) if plain]))
        sentences = [next(parted) if plain else [] for plain in plain_spaces]
        easy = [0 < len(text) <= LONGEST * len(found) for found, text in zip(sentences, texts, strict=True)]
        known = [found for found, simple in zip(sentences, easy, strict=True) if simple]
        for found, first in zip(known, compress(opens, easy), strict=True):
            found[0] = OPENING + found[0] if first else found[0]
        self._fill_cache(known)
        look = self._cache.__getitem__
        quick = (b"".join(map(look, found)) for found in known)
        rest = [not simple for simple in easy]
        plain = iter(self._encode_plain(self._with_spaces(list(compress(texts, rest)), list(compress(opens, rest)))))
        return [next(quick if simple else plain) for simple in easy]

    def _split_words(self, texts: list[str]) -> list[list[str]]:
        """The words of each text, cut also where no space stands but tokens always part."""
        if not (self._punctuation or self._ideographs):
            return [text.split(" ") for text in texts]
        if self._ideographs:
            texts = [text if text.isascii() else _spaced(text) for text in texts]
        joined = "\n".join(texts)
        for mark in self._punctuation:
            joined = joined.replace(mark, f" {mark} ")
        return [_words(line) for line in joined.split("\n")] if texts else []

    def _fill_cache(self, sentences: list[list[str]]) -> None:
        """Make sure that every word of these sentences is known."""
        words = set[str]().union(*sentences)
        new = list(words.difference(self._cache))
        if len(self._cache) + len(new) > REMEMBERED:
            self._cache, new = {}, list(words)
        texts = [word[1:] if word[0] == OPENING else " " + word for word in new]
        self._cache.update(zip(new, self._encode_plain(texts), strict=True))

    def _encode_plain(self, texts: list[str]) -> list[bytes]:
        return [array(self._array, ids).tobytes() for ids in self._tokenizer.encode(texts)] if texts else []


def splits_on_spaces(tokenizer: dict[str, Any]) -> bool:
    """Whether a space always parts two tokens, so that no word's ids depend on its neighbours.

    Read from the tokenizer's own description; whatever is not known here counts as no.
    """
    letters = {
        "BertNormalizer",
        "Lowercase",
        "StripAccents",
        "NFC",
        "NFD",
        "NFKC",
        "NFKD",
    }  # never look past a space
    match _steps(tokenizer.get("pre_tokenizer"), "pretokenizers"):
        case [{"type": "BertPreTokenizer"}]:
            parted = True
        case [{"type": "ByteLevel"} as split]:
            parted = bool(split.get("use_regex", True))
        case [{"type": "Metaspace"} as split] | [{"type": "WhitespaceSplit"}, {"type": "Metaspace"} as split]:
            parted = bool(split.get("split", True)) and split.get("prepend_scheme", "always") == "always"
        case _:
            parted = False
    added = tokenizer.get("added_tokens") or []
    return (
        parted
        and all(step.get("type") in letters for step in _steps(tokenizer.get("normalizer"), "normalizers"))
        and all(" " not in token["content"] and not token.get("rstrip") for token in added)
        and not tokenizer.get("model", {}).get("dropout")
    )


def space_sensitive(tokenizer: dict[str, Any]) -> bool:
    """Whether a word is told from the same word behind a space: sentences of a document are then parted by one."""
    splits = _steps(tokenizer.get("pre_tokenizer"), "pretokenizers")
    return any(step.get("type") == "ByteLevel" and not step.get("add_prefix_space", True) for step in splits)


def splitting_punctuation(tokenizer: dict[str, Any]) -> str:
    """Punctuation that always parts two tokens as well: words without it are half as many to remember."""
    kinds = [step.get("type") for step in _steps(tokenizer.get("normalizer"), "normalizers")]
    splits = [step.get("type") for step in _steps(tokenizer.get("pre_tokenizer"), "pretokenizers")]
    if splits != ["BertPreTokenizer"] or kinds not in ([], ["BertNormalizer"]):
        return ""
    added = {letter for token in tokenizer.get("added_tokens") or [] for letter in token["content"]}
    return "".join(mark for mark in ".,()\"':;-" if mark not in added)


def splits_ideographs(tokenizer: dict[str, Any]) -> bool:
    """Whether each Chinese character is a word of its own, which makes text without spaces easy to remember."""
    splits = [step.get("type") for step in _steps(tokenizer.get("pre_tokenizer"), "pretokenizers")]
    match _steps(tokenizer.get("normalizer"), "normalizers"):
        case [{"type": "BertNormalizer", "handle_chinese_chars": True}]:
            added = tokenizer.get("added_tokens") or []
            return splits == ["BertPreTokenizer"] and not any(IDEOGRAPHS.search(token["content"]) for token in added)
    return False


def _spaced(text: str) -> str:
    """With a space on both sides of every Chinese character; part by part, since the pieces take much memory."""
    parts = (text[start : start + PART] for start in range(0, len(text), PART))
    return "".join(" ".join(IDEOGRAPHS.split(part)) for part in parts)


def _counted(text: str) -> tuple[int, int]:
    """The bytes and the words of a text that is not plain English."""
    return len(text.encode()), count_words(text)


def _words(line: str) -> list[str]:
    """The words of a line; those of a giant one part by part, each spelt but once in memory."""
    if len(line) <= PART:
        return line.split()
    words: list[str] = []
    start = 0
    while start < len(line):
        stop = line.find(" ", start + PART)
        stop = stop if stop >= 0 else len(line)
        words += map(sys.intern, line[start:stop].split())
        start = stop
    return words


def _steps(step: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """A normalizer or pre-tokenizer as the list of its steps."""
    if step is None:
        return []
    return list(step[name]) if step.get("type") == "Sequence" else [step]
