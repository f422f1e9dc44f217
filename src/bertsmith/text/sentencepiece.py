"""SentencePiece's model files, read without its library: a vocabulary with scores, in protocol buffers.

Kudo and Richardson 2018. Of the message only what the pieces need is read: fields are skipped by their kind, and
nothing is believed to be longer than the file.
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, models

from bertsmith.errors import FolderError

UNIGRAM, BPE = 1, 2  # kinds of models
CONTROL, USER_DEFINED, UNUSED = 3, 4, 5  # kinds of pieces
NEVER = -1e4  # a score that no path through a text takes


@dataclass(frozen=True)
class Piece:
    """A piece with the logarithm of its chance, or its rank, and what kind of piece it is."""

    text: str
    score: float = 0.0
    kind: int = 1


@dataclass(frozen=True)
class SentencePiece:
    """What a model file holds."""

    path: Path
    pieces: list[Piece]
    kind: int
    unknown_id: int
    byte_fallback: bool  # what no piece spells is spelt by bytes
    charsmap: bytes
    add_dummy_prefix: bool  # a text begins as if a blank stood before it
    remove_extra_whitespaces: bool  # blanks are single, and none is at an end

    def to_tokenizer(self, pieces: list[Piece], unknown: int) -> Tokenizer:
        """The library's model over these pieces: those of the file, or as a member of the family numbers them."""
        vocabulary = [(piece.text, NEVER if piece.kind == UNUSED else piece.score) for piece in pieces]
        if self.kind == UNIGRAM:
            made = Tokenizer(models.Unigram(vocabulary, unknown, byte_fallback=self.byte_fallback))
        else:
            numbers = {text: number for number, (text, _) in enumerate(vocabulary)}
            joined = _merges(vocabulary)
            named = pieces[unknown].text
            made = Tokenizer(
                models.BPE(numbers, joined, unk_token=named, fuse_unk=True, byte_fallback=self.byte_fallback)
            )
        made.add_tokens(
            [
                AddedToken(piece.text, normalized=False, special=piece.kind == CONTROL)
                for piece in pieces
                if piece.kind in (CONTROL, USER_DEFINED)
            ]
        )
        return made


def read(path: Path) -> SentencePiece:
    """A .model file."""
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
        raise FolderError(path, "cuts text into whole words or characters", "Only Unigram and BPE are opened")
    if not isinstance(unknown, int) or unknown >= len(pieces) or not isinstance(charsmap, bytes):
        raise FolderError(path, "is not a model of SentencePiece", "Fetch it again")
    return SentencePiece(
        path, pieces, kind, unknown, bool(trained.get(35, 0)), charsmap, bool(norm.get(3, 1)), bool(norm.get(4, 1))
    )


def _piece(message: bytes) -> Piece:
    said = dict(_fields(message))
    text, score, kind = said.get(1, b""), said.get(2, b"\0\0\0\0"), said.get(3, 1)
    if not isinstance(text, bytes) or not isinstance(score, bytes) or not isinstance(kind, int):
        raise ValueError
    return Piece(text.decode(), struct.unpack("<f", score)[0], kind)


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: whole numbers, and bytes of all else."""
    place = 0
    while place < len(message):
        key, place = _number(message, place)
        if key < 8:  # no field has the number 0
            raise ValueError
        match key & 7:
            case 0:
                value, place = _number(message, place)
                yield key >> 3, value
                continue
            case 1:
                size = 8
            case 2:
                size, place = _number(message, place)
            case 5:
                size = 4
            case _:
                raise ValueError
        if place + size > len(message):
            raise ValueError
        yield key >> 3, message[place : place + size]
        place += size


def _number(message: bytes, place: int) -> tuple[int, int]:
    """A whole number, seven bits to a byte, and where the next field begins."""
    if message[place] < 128:
        return message[place], place + 1
    value = 0
    for shift in range(0, 70, 7):
        byte = message[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
    raise ValueError


def _merges(vocabulary: list[tuple[str, float]]) -> list[tuple[str, str]]:
    """SentencePiece joins the neighbours that make the best piece; the library wants pairs, the best first."""
    ranks = {text: number for number, (text, _) in enumerate(vocabulary)}
    found = []
    for text, score in vocabulary:
        halves = [(text[:size], text[size:]) for size in range(1, min(len(text), 256))]
        pairs = [pair for pair in halves if pair[0] in ranks and pair[1] in ranks]
        found += [(-score, ranks[text], ranks[first], first, second) for first, second in pairs]
    return [(first, second) for *_, first, second in sorted(found)]
