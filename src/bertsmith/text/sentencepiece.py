"""SentencePiece's model files, read without its library: a vocabulary with scores, in protocol buffers.

Kudo and Richardson 2018. Only the fields that are needed are read; others are skipped by their wire type, and no length
is trusted beyond the end of the file.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models

from bertsmith.errors import FolderError

UNIGRAM, BPE = 1, 2  # model types
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # types of pieces
NEVER_CHOSEN_SCORE = -1e4  # a score with which a piece is never chosen


@dataclass(frozen=True)
class Piece:
    """A piece with its score (log-probability of Unigram, rank of BPE) and its type."""

    text: str
    score: float = 0.0
    kind: int = 1


@dataclass(frozen=True)
class SentencePiece:
    """The contents of a model file."""

    path: Path
    pieces: list[Piece]
    kind: int
    unknown_id: int
    byte_fallback: bool  # unknown characters are spelled as bytes
    charsmap: bytes  # the character map of the normalisation
    add_dummy_prefix: bool  # a space is put before the text
    remove_extra_whitespaces: bool  # several spaces become one, and those at the ends are removed

    def to_tokenizer(self, pieces: list[Piece], unknown: int) -> Tokenizer:
        """A tokenizer of the library with these pieces: those of the file, or in the order of a model's ids."""
        vocabulary = [(piece.text, NEVER_CHOSEN_SCORE if piece.kind == UNUSED else piece.score) for piece in pieces]
        if self.kind == UNIGRAM:
            tokenizer = Tokenizer(models.Unigram(vocabulary, unknown, byte_fallback=self.byte_fallback))
        else:
            ids = {text: number for number, (text, _) in enumerate(vocabulary)}
            merges, name = _merges(vocabulary), pieces[unknown].text
            model = models.BPE(ids, merges, unk_token=name, fuse_unk=True, byte_fallback=self.byte_fallback)
            tokenizer = Tokenizer(model)
        tokenizer.add_tokens(
            [
                AddedToken(piece.text, normalized=False, special=piece.kind == CONTROL)
                for piece in pieces
                if piece.kind in (CONTROL, USER_DEFINED)
            ]
        )
        return tokenizer


def read(path: Path) -> SentencePiece:
    """Read a .model file."""
    try:
        fields = list(_fields(path.read_bytes()))
        pieces = [_piece(value) for number, value in fields if number == 1 and isinstance(value, bytes)]
        trained = dict(_fields(b"".join(value for number, value in fields if number == 2 and isinstance(value, bytes))))
        norm = dict(_fields(b"".join(value for number, value in fields if number == 3 and isinstance(value, bytes))))
    except (ValueError, IndexError, struct.error, UnicodeDecodeError):
        raise FolderError(path, "is not a model of SentencePiece", "Fetch it again") from None
    except OSError as error:
        raise FolderError(path, f"cannot be read ({error.strerror})") from None
    kind, unknown, charsmap = trained.get(3, UNIGRAM), trained.get(40, 0), norm.get(2, b"")
    if kind not in (UNIGRAM, BPE):
        raise FolderError(path, "is a model of words or characters", "Only Unigram and BPE are opened")
    if not isinstance(unknown, int) or unknown >= len(pieces) or not isinstance(charsmap, bytes):
        raise FolderError(path, "is not a model of SentencePiece", "Fetch it again")
    return SentencePiece(
        path, pieces, kind, unknown, bool(trained.get(35, 0)), charsmap, bool(norm.get(3, 1)), bool(norm.get(4, 1))
    )


def _piece(message: bytes) -> Piece:
    fields = dict(_fields(message))
    text, score, kind = fields.get(1, b""), fields.get(2, b"\0\0\0\0"), fields.get(3, 1)
    if not isinstance(text, bytes) or not isinstance(score, bytes) or not isinstance(kind, int):
        raise ValueError
    return Piece(text.decode(), struct.unpack("<f", score)[0], kind)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: integers for varints, bytes for all other wire types."""
    offset = 0
    while offset < len(message):
        key, offset = _varint(message, offset)
        if key < 8:  # no field has the number 0
            raise ValueError
        match key & 7:
            case 0:
                value, offset = _varint(message, offset)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, offset = _varint(message, offset)
            case 5:
                size = 4
            case _:
                raise ValueError
        if offset + size > len(message):
            raise ValueError
        yield key >> 3, message[offset : offset + size]
        offset += size


def _varint(message: bytes, offset: int) -> tuple[int, int]:
    """An integer of seven bits per byte, and the offset after it."""
    if message[offset] < 128:
        return message[offset], offset + 1
    value = 0
    for shift in range(0, 70, 7):
        byte = message[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, offset
    raise ValueError


def _merges(vocabulary: list[tuple[str, float]]) -> list[tuple[str, str]]:
    """The merges that the library needs, from the scores: SentencePiece merges the pair that gives the best piece."""
    ids = {text: number for number, (text, _) in enumerate(vocabulary)}
    merges = []
    for text, score in vocabulary:
        splits = [(text[:size], text[size:]) for size in range(1, min(len(text), 256))]
        pairs = [pair for pair in splits if pair[0] in ids and pair[1] in ids]
        merges += [(-score, ids[text], ids[first], first, second) for first, second in pairs]
    return [(first, second) for *_, first, second in sorted(merges)]
