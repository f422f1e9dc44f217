"""Word marks: how a token's spelling shows that it begins a word, or that it continues one."""

import json

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import decoders, models

SPACE = "▁"  # the space of SentencePiece, in Unigram and in BPE
BYTE_SPACE = "Ġ"  # the space of byte-level BPE
CONTINUATION = "##"  # of WordPiece


def continuation_mask(inner: tokenizers.Tokenizer, pieces: list[str]) -> NDArray[np.bool_]:
    """Which of the pieces continue the word before them, by the marks of this kind of tokenizer."""
    model = inner.model
    if isinstance(model, models.BPE) and model.end_of_word_suffix:
        return np.zeros(len(pieces), np.bool_)  # GPT's tokens show where words end, not where they begin
    if isinstance(model, models.BPE | models.Unigram):
        mark = SPACE if shows_word_starts(inner) else BYTE_SPACE
        return np.array([not piece.startswith(mark) for piece in pieces])
    wordpiece = isinstance(model, models.WordPiece)
    return np.array([wordpiece and piece.startswith(CONTINUATION) for piece in pieces])


def is_byte_level(inner: tokenizers.Tokenizer) -> bool:
    """Whether it spells bytes as letters, as GPT-2's: by its decoder, or by the rule that splits text."""
    if not isinstance(inner.model, models.BPE):
        return False
    if isinstance(inner.decoder, decoders.ByteLevel):
        return True
    rules = json.loads(inner.pre_tokenizer.__getstate__()) if inner.pre_tokenizer is not None else {}
    return any(rule.get("type") == "ByteLevel" for rule in (rules, *rules.get("pretokenizers", ())))


def shows_word_starts(inner: tokenizers.Tokenizer) -> bool:
    """Whether its tokens begin with SentencePiece's space where a word begins."""
    return isinstance(inner.model, models.Unigram) or (
        isinstance(inner.model, models.BPE) and not inner.model.end_of_word_suffix and not is_byte_level(inner)
    )


def greedy_split(piece: str, ids: dict[str, int], mark: str) -> list[int]:
    """The ids of the longest matches from the left, as WordPiece splits a word; empty where one is missing."""
    found: list[int] = []
    while piece not in ("", mark):
        size = next((size for size in range(len(piece), 0, -1) if piece[:size] in ids), 0)
        if size == 0 or piece[:size] == mark:
            return []
        found.append(ids[piece[:size]])
        piece = mark + piece[size:]
    return found
