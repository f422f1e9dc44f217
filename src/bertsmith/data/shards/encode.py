"""Fast tokenisation of sentences: the ids of words are cached, since most words of a text recur."""

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

MAX_CACHED_WORDS = 1 << 18  # cached words, about 50 MB; in English text 4 to 8 words in a hundred are then not cached
MAX_MEAN_WORD_LENGTH = 32  # characters a word on average; text without spaces would fill the cache with whole sentences
SPLIT_CHARACTERS = 1 << 14  # characters of a text that are split at a time
FIRST_WORD_MARK = "\n"  # marks the first word of a text, which has no space before it and may have other ids
ARRAY_TYPECODES = {"uint16": "H", "uint32": "I"}
# Characters that BERT splits off as words, as in the tokenizer library.
IDEOGRAPHS = re.compile(
    "([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df"
    "\U0002a700-\U0002b73f\U0002b740-\U0002b81f\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f])"
)


class Encoder:
    """The tokenizer of a folder, with a cache of words.

    Where no token spans a space, the ids of a sentence are those of its words one after the other. Then only new
    words go to the tokenizer; the others come from the cache, which is emptied when full.
    """

    def __init__(self, folder: Path, dtype: str) -> None:
        self._tokenizer, self._array = Tokenizer.load(folder), ARRAY_TYPECODES[dtype]
        self._itemsize = array(self._array).itemsize
        description = files.read_json(folder / "tokenizer.json")
        self._splits_on_spaces = splits_on_spaces(description)
        self._punctuation, self._ideographs = splitting_punctuation(description), splits_ideographs(description)
        self._space = " " if space_sensitive(description) else ""
        self._cache: dict[str, bytes] = {}

    def encode(self, documents: Sequence[Sequence[str]]) -> EncodedDocuments:
        """The ids of documents, each a list of sentences; sentences without tokens are dropped and counted."""
        texts = [sentence for document in documents for sentence in document]
        opens = [not self._space or number == 0 for document in documents for number in range(len(document))]
        words = [text.split() for text in texts]
        encoded = (
            self._encode_cached(texts, words, opens)
            if self._splits_on_spaces
            else self._encode_plain(self._with_spaces(texts, opens))
        )
        sizes = [  # tokens, bytes and words of each sentence
            (len(ids) // self._itemsize, *((len(text), len(found)) if text.isascii() else _bytes_and_words(text)))
            for ids, text, found in zip(encoded, texts, words, strict=True)
        ]
        lengths: list[int] = []
        rows: list[tuple[int, int, int]] = []
        start = 0
        for document in documents:
            sentences = [size for size in sizes[start : start + len(document)] if size[0]]
            start += len(document)
            if sentences:
                token_counts, byte_counts, word_counts = zip(*sentences, strict=True)
                lengths += token_counts
                rows.append((len(sentences), sum(byte_counts), sum(word_counts)))
        return EncodedDocuments(
            b"".join(encoded),
            np.array(lengths, np.int32),
            np.array(rows, np.int64).reshape(-1, 3),
            dropped=len(texts) - len(lengths),
            empty=len(documents) - len(rows),
        )

    def _with_spaces(self, texts: Sequence[str], opens: Sequence[bool]) -> list[str]:
        """Texts with a space before each but a document's first, where a space is a part of the word after it."""
        return [text if first or not text else self._space + text for text, first in zip(texts, opens, strict=True)]

    def _encode_cached(self, texts: list[str], words: list[list[str]], opens: list[bool]) -> list[bytes]:
        """The ids of each text, from those of its words."""
        # Two spaces, or other kinds of space, may be tokens: such texts go to the tokenizer whole.
        plain_spaces = [bool(found) and " ".join(found) == text for found, text in zip(words, texts, strict=True)]
        split = iter(self._split_words([text for text, plain in zip(texts, plain_spaces, strict=True) if plain]))
        sentences = [next(split) if plain else [] for plain in plain_spaces]
        cacheable = [
            0 < len(text) <= MAX_MEAN_WORD_LENGTH * len(found) for found, text in zip(sentences, texts, strict=True)
        ]
        known = list(compress(sentences, cacheable))
        for found, first in zip(known, compress(opens, cacheable), strict=True):
            found[0] = FIRST_WORD_MARK + found[0] if first else found[0]
        self._fill_cache(known)
        look_up = self._cache.__getitem__
        cached = (b"".join(map(look_up, found)) for found in known)
        rest = [not simple for simple in cacheable]
        whole = iter(self._encode_plain(self._with_spaces(list(compress(texts, rest)), list(compress(opens, rest)))))
        return [next(cached if simple else whole) for simple in cacheable]

    def _split_words(self, texts: list[str]) -> list[list[str]]:
        """The words of each text, split also at punctuation and ideographs where tokens always end there."""
        if not (self._punctuation or self._ideographs):
            return [text.split(" ") for text in texts]
        if self._ideographs:
            texts = [text if text.isascii() else _spaced(text) for text in texts]
        joined = "\n".join(texts)
        for mark in self._punctuation:
            joined = joined.replace(mark, f" {mark} ")
        return [_words(line) for line in joined.split("\n")] if texts else []

    def _fill_cache(self, sentences: list[list[str]]) -> None:
        """Make sure that every word of these sentences is cached."""
        words = set[str]().union(*sentences)
        new = list(words.difference(self._cache))
        if len(self._cache) + len(new) > MAX_CACHED_WORDS:
            self._cache, new = {}, list(words)
        texts = [word[1:] if word[0] == FIRST_WORD_MARK else " " + word for word in new]
        self._cache.update(zip(new, self._encode_plain(texts), strict=True))

    def _encode_plain(self, texts: list[str]) -> list[bytes]:
        return [array(self._array, ids).tobytes() for ids in self._tokenizer.encode(texts)] if texts else []


def splits_on_spaces(tokenizer: dict[str, Any]) -> bool:
    """Whether no token spans a space, so that the ids of a word do not depend on its neighbours.

    Decided by the tokenizer's description; for any component that is not known here the answer is no.
    """
    # Normalizers that change characters without looking past a space.
    local = {"BertNormalizer", "Lowercase", "StripAccents", "NFC", "NFD", "NFKC", "NFKD"}
    match _steps(tokenizer.get("pre_tokenizer"), "pretokenizers"):
        case [{"type": "BertPreTokenizer"}]:
            splits = True
        case [{"type": "ByteLevel"} as step]:
            splits = bool(step.get("use_regex", True))
        case [{"type": "Metaspace"} as step] | [{"type": "WhitespaceSplit"}, {"type": "Metaspace"} as step]:
            splits = bool(step.get("split", True)) and step.get("prepend_scheme", "always") == "always"
        case _:
            splits = False
    added = tokenizer.get("added_tokens") or []
    return (
        splits
        and all(step.get("type") in local for step in _steps(tokenizer.get("normalizer"), "normalizers"))
        and all(" " not in token["content"] and not token.get("rstrip") for token in added)
        and not tokenizer.get("model", {}).get("dropout")
    )


def space_sensitive(tokenizer: dict[str, Any]) -> bool:
    """Whether a word has other ids after a space: sentences of a document are then separated by one."""
    splits = _steps(tokenizer.get("pre_tokenizer"), "pretokenizers")
    return any(step.get("type") == "ByteLevel" and not step.get("add_prefix_space", True) for step in splits)


def splitting_punctuation(tokenizer: dict[str, Any]) -> str:
    """Punctuation at which tokens always end: words split there are half as many to cache."""
    kinds = [step.get("type") for step in _steps(tokenizer.get("normalizer"), "normalizers")]
    splits = [step.get("type") for step in _steps(tokenizer.get("pre_tokenizer"), "pretokenizers")]
    if splits != ["BertPreTokenizer"] or kinds not in ([], ["BertNormalizer"]):
        return ""
    added = {letter for token in tokenizer.get("added_tokens") or [] for letter in token["content"]}
    return "".join(mark for mark in ".,()\"':;-" if mark not in added)


def splits_ideographs(tokenizer: dict[str, Any]) -> bool:
    """Whether each Chinese character is split off as a word, so that text without spaces can be cached, too."""
    splits = [step.get("type") for step in _steps(tokenizer.get("pre_tokenizer"), "pretokenizers")]
    match _steps(tokenizer.get("normalizer"), "normalizers"):
        case [{"type": "BertNormalizer", "handle_chinese_chars": True}]:
            added = tokenizer.get("added_tokens") or []
            return splits == ["BertPreTokenizer"] and not any(IDEOGRAPHS.search(token["content"]) for token in added)
    return False


def _spaced(text: str) -> str:
    """The text with a space on both sides of every Chinese character; in parts, since the pieces take much memory."""
    parts = (text[start : start + SPLIT_CHARACTERS] for start in range(0, len(text), SPLIT_CHARACTERS))
    return "".join(" ".join(IDEOGRAPHS.split(part)) for part in parts)


def _bytes_and_words(text: str) -> tuple[int, int]:
    """The bytes and the words of a text that is not ASCII."""
    return len(text.encode()), count_words(text)


def _words(line: str) -> list[str]:
    """The words of a line; those of a giant one in parts, equal words sharing memory."""
    if len(line) <= SPLIT_CHARACTERS:
        return line.split()
    words: list[str] = []
    start = 0
    while start < len(line):
        stop = line.find(" ", start + SPLIT_CHARACTERS)
        stop = stop if stop >= 0 else len(line)
        words += map(sys.intern, line[start:stop].split())
        start = stop
    return words


def _steps(step: dict[str, Any] | None, name: str) -> list[dict[str, Any]]:
    """A normalizer or pre-tokenizer as the list of its steps."""
    if step is None:
        return []
    return list(step[name]) if step.get("type") == "Sequence" else [step]
