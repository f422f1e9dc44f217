"""Vocabulary extension: the tokens that a text needs, added after those that a model has learnt already."""

import json
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import tokenizers
from tokenizers import models, trainers

from bertsmith.errors import FolderError, RecipeError
from bertsmith.text.fertility import batches, token_counts
from bertsmith.text.tokenizer import BEGINS, Tokenizer
from bertsmith.text.train import LONGEST_WORD

FIRST_CODE = 0x10000  # of those that stand for pieces: from here on every code is a character
Run = tuple[int, ...]  # pieces that stand one after the other inside a word


def extend(tokenizer: Tokenizer, texts: Sequence[str], new_pieces: int) -> Tokenizer:
    """The vocabulary with at most so many pieces more, such as shorten these texts.

    A new piece joins old ones that the texts repeat side by side. Old pieces keep their numbers, so that a model keeps
    its rows, and text without new pieces is cut as before. Byte-level BPE does its new merges after the old ones. Else
    each piece saves so many tokens as it would be needed, times the pieces less one that it is cut into now, and those
    are added that save the most.
    """
    if new_pieces < 1:
        raise RecipeError("--new-tokens", f"{new_pieces} is no number of pieces to add", "Give at least 1")
    match tokenizer.kind:
        case "bpe":
            return _extend_bpe(tokenizer, texts, new_pieces)
        case "wordpiece" | "unigram":
            return _extend_by_savings(tokenizer, texts, new_pieces)
    fact = "is neither WordPiece nor byte-level BPE nor Unigram"
    raise FolderError(tokenizer.location, fact, "Only such vocabularies can be extended")


def _extend_bpe(tokenizer: Tokenizer, texts: Sequence[str], more: int) -> Tokenizer:
    """The commonest joins, each a merge behind the old ones.

    What would make an old piece in a new way is left out, with all that builds on it: old merges would go on from
    there, and text without new pieces would be cut differently.
    """
    left_out: set[Run] = set()
    merges: list[tuple[str, str]] = []
    new: dict[str, None] = {}  # in order; two merges may make the same piece
    for first, second in _learn_merges(tokenizer, texts, 2 * more):
        piece = _spelling(tokenizer, first + second)
        room = piece in new or len(new) < more
        if piece in tokenizer.piece_ids or not room or not left_out.isdisjoint((first, second)):
            left_out.add(first + second)
            continue
        new[piece] = None
        merges.append((_spelling(tokenizer, first), _spelling(tokenizer, second)))
    return tokenizer.with_pieces(list(new), merges)


def _extend_by_savings(tokenizer: Tokenizer, texts: Sequence[str], more: int) -> Tokenizer:
    """Of all joins those that save the most."""
    joins = _learn_merges(tokenizer, texts, tokenizer.vocabulary + 2 * more)
    spellings = dict.fromkeys(_spelling(tokenizer, first + second) for first, second in joins)
    lacking = [piece for piece in spellings if piece not in tokenizer.piece_ids]
    all_of_them = tokenizer.with_pieces(lacking)
    counts = np.zeros(all_of_them.vocabulary, np.int64)
    for batch in batches(texts):
        counts += token_counts(all_of_them, batch)
    saved = {
        piece: int(counts[all_of_them.piece_ids[piece]]) * (len(tokenizer.split_piece(piece)) - 1) for piece in lacking
    }
    best = sorted(lacking, key=lambda piece: (-saved[piece], piece))
    return tokenizer.with_pieces([piece for piece in best[:more] if saved[piece]])


def _learn_merges(tokenizer: Tokenizer, texts: Sequence[str], most: int) -> list[tuple[Run, Run]]:
    """Which pieces to join, the commonest neighbours first; each pair is joined everywhere before the next is sought.

    Sennrich et al. 2016, section 3.2, beginning with old pieces instead of letters. The library learns that too, where
    each old piece is written as one letter of an alphabet made for this text.
    """
    letters: dict[int, str] = {}
    words = [
        "".join(letters.setdefault(piece, chr(FIRST_CODE + len(letters))) for piece in run)
        for run in _runs(tokenizer, texts)
    ]
    learner = tokenizers.Tokenizer(models.BPE())
    most = min(most, sum(map(len, words)))  # the library takes memory for all that it may learn
    trainer = trainers.BpeTrainer(vocab_size=len(letters) + most, min_frequency=2, show_progress=False)
    learner.train_from_iterator(words, trainer)
    pieces = {letter: piece for piece, letter in letters.items()}
    merges = json.loads(learner.to_str())["model"]["merges"]
    return [(tuple(pieces[it] for it in first), tuple(pieces[it] for it in second)) for first, second in merges]


def _runs(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[Run]:
    """The pieces of words that may be joined: no special or unknown ones, and no marks."""
    alone = tokenizer.special_mask.copy()
    if tokenizer.kind == "unigram":  # the others part words from marks before they cut them
        alone |= np.array([_is_mark(tokenizer.piece(number)) for number in range(tokenizer.vocabulary)])
    for batch in batches(texts):
        for word in tokenizer.encode_each_word(batch):
            if 1 < len(word) <= LONGEST_WORD:
                for apart, run in groupby(word, alone.__getitem__):
                    if not apart:
                        yield tuple(run)


def _is_mark(piece: str) -> bool:
    """Whether a piece of Unigram is punctuation, a symbol or a single byte, and no part of a word."""
    kinds = [unicodedata.category(letter)[0] for letter in piece.removeprefix(BEGINS[models.Unigram])]
    return (bool(kinds) and set(kinds) <= {"P", "S"}) or piece.startswith("<0x")


def _spelling(tokenizer: Tokenizer, run: Run) -> str:
    """How the piece is written that joins these."""
    mark = "##" if tokenizer.kind == "wordpiece" else ""
    first, *others = (tokenizer.piece(number) for number in run)
    return first + "".join(piece.removeprefix(mark) for piece in others)
