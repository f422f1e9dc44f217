"""Vocabulary extension: the tokens that a text needs, added after those of a trained model."""

import json
import unicodedata
from collections.abc import Iterator, Sequence
from itertools import groupby

import numpy as np
import tokenizers
from tokenizers import models, trainers

from bertsmith.errors import FolderError, RecipeError
from bertsmith.text.fertility import batches, token_counts
from bertsmith.text.tokenizer import Tokenizer
from bertsmith.text.training_texts import LONGEST_WORD
from bertsmith.text.word_marks import SPACE

FIRST_CODE = 0x10000  # of the characters that stand for old tokens: from here on every code point is a character
SCORE_MARGIN = 0.001  # in Unigram: log-probability of a new token above that of its parts, per part that it saves
Run = tuple[int, ...]  # consecutive tokens inside of a word


def extend(tokenizer: Tokenizer, texts: Sequence[str], new_pieces: int) -> Tokenizer:
    """The tokenizer with at most `new_pieces` more tokens, those that shorten these texts most.

    A new token joins old ones that are often adjacent in the texts. Old tokens keep their ids, so that a model keeps
    its embeddings, and text without new tokens is encoded as before. Byte-level BPE does its new merges after the old
    ones. WordPiece and Unigram take the tokens with the largest savings: occurrences x (old tokens it replaces - 1).
    """
    if new_pieces < 1:
        raise RecipeError("--new-tokens", f"{new_pieces} is no number of tokens to add", "Give at least 1")
    match tokenizer.kind:
        case "bpe":
            return _extend_bpe(tokenizer, texts, new_pieces)
        case "wordpiece" | "unigram":
            return _extend_by_savings(tokenizer, texts, new_pieces)
    fact = "is neither WordPiece nor byte-level BPE nor Unigram"
    raise FolderError(tokenizer.location, fact, "Only such vocabularies can be extended")


def with_pieces(tokenizer: Tokenizer, pieces: Sequence[str], merges: Sequence[tuple[str, str]] = ()) -> Tokenizer:
    """The tokenizer with more tokens after its own; for BPE with the merges that make them.

    The library numbers added tokens from the end of the model's vocabulary, so that special tokens after it would get
    other ids: every token with an id is put into the model's vocabulary. In Unigram a new token is slightly likelier
    than its parts together, the more so the more parts it has: text is split as before, and then merged.
    """
    contents = tokenizer.to_json()
    model = contents["model"]
    if isinstance(model["vocab"], list):
        scores = [score for _, score in model["vocab"]]
        lowest = min(scores)
        model["vocab"] += [[tokenizer.piece(number), lowest] for number in range(len(scores), tokenizer.vocabulary)]
        for piece in pieces:
            parts = tokenizer.split_piece(piece)
            model["vocab"].append([piece, sum(scores[part] for part in parts) + SCORE_MARGIN * (len(parts) - 1)])
    else:
        model["vocab"] |= tokenizer.piece_ids | {piece: n for n, piece in enumerate(pieces, tokenizer.vocabulary)}
    if merges:
        model["merges"] += merges
    inner = tokenizers.Tokenizer.from_str(json.dumps(contents))
    return Tokenizer(inner, tokenizer.role_names, tokenizer.location)


def _extend_bpe(tokenizer: Tokenizer, texts: Sequence[str], new_pieces: int) -> Tokenizer:
    """The most frequent merges, after the old ones.

    A merge that would make an old token in a new way is left out, with all that builds on it: old merges would continue
    from there, and text without new tokens would be encoded differently.
    """
    left_out: set[Run] = set()
    merges: list[tuple[str, str]] = []
    new: dict[str, None] = {}  # in order; two merges may make the same token
    for first, second in _learn_merges(tokenizer, texts, 2 * new_pieces):
        piece = _spelling(tokenizer, first + second)
        fits = piece in new or len(new) < new_pieces
        if piece in tokenizer.piece_ids or not fits or not left_out.isdisjoint((first, second)):
            left_out.add(first + second)
            continue
        new[piece] = None
        merges.append((_spelling(tokenizer, first), _spelling(tokenizer, second)))
    return with_pieces(tokenizer, list(new), merges)


def _extend_by_savings(tokenizer: Tokenizer, texts: Sequence[str], new_pieces: int) -> Tokenizer:
    """The candidates that save the most tokens, counted with all candidates in the vocabulary."""
    merges = _learn_merges(tokenizer, texts, tokenizer.vocabulary + 2 * new_pieces)
    spellings = dict.fromkeys(_spelling(tokenizer, first + second) for first, second in merges)
    candidates = [piece for piece in spellings if piece not in tokenizer.piece_ids]
    extended = with_pieces(tokenizer, candidates)
    counts = np.zeros(extended.vocabulary, np.int64)
    for batch in batches(texts):
        counts += token_counts(extended, batch)
    saved = {
        piece: int(counts[extended.piece_ids[piece]]) * (len(tokenizer.split_piece(piece)) - 1) for piece in candidates
    }
    best = sorted(candidates, key=lambda piece: (-saved[piece], piece))
    return with_pieces(tokenizer, [piece for piece in best[:new_pieces] if saved[piece]])


def _learn_merges(tokenizer: Tokenizer, texts: Sequence[str], limit: int) -> list[tuple[Run, Run]]:
    """The merges of BPE over old tokens, in order. Sennrich et al. 2016, section 3.2, with tokens in place of letters.

    The library trains them: each old token is written as one character of an alphabet made for these texts.
    """
    letters: dict[int, str] = {}
    words = [
        "".join(letters.setdefault(piece, chr(FIRST_CODE + len(letters))) for piece in run)
        for run in _runs(tokenizer, texts)
    ]
    bpe = tokenizers.Tokenizer(models.BPE())
    limit = min(limit, sum(map(len, words)))  # the library takes memory for all merges that it may learn
    trainer = trainers.BpeTrainer(vocab_size=len(letters) + limit, min_frequency=2, show_progress=False)
    bpe.train_from_iterator(words, trainer)
    ids = {letter: piece for piece, letter in letters.items()}
    merges = json.loads(bpe.to_str())["model"]["merges"]
    return [(tuple(ids[it] for it in first), tuple(ids[it] for it in second)) for first, second in merges]


def _runs(tokenizer: Tokenizer, texts: Sequence[str]) -> Iterator[Run]:
    """The tokens of words that may be merged: no special or unknown ones, and no punctuation."""
    unmergeable = tokenizer.special_mask.copy()
    if tokenizer.kind == "unigram":  # the others split punctuation from words before
        unmergeable |= np.array([_is_mark(tokenizer.piece(number)) for number in range(tokenizer.vocabulary)])
    for batch in batches(texts):
        for word in tokenizer.encode_each_word(batch):
            if 1 < len(word) <= LONGEST_WORD:
                for excluded, run in groupby(word, unmergeable.__getitem__):
                    if not excluded:
                        yield tuple(run)


def _is_mark(piece: str) -> bool:
    """Whether a token of Unigram is punctuation, a symbol or a single byte, and no part of a word."""
    categories = [unicodedata.category(letter)[0] for letter in piece.removeprefix(SPACE)]
    return (bool(categories) and set(categories) <= {"P", "S"}) or piece.startswith("<0x")


def _spelling(tokenizer: Tokenizer, run: Run) -> str:
    """The spelling of the token that merges these."""
    mark = "##" if tokenizer.kind == "wordpiece" else ""
    first, *others = (tokenizer.piece(number) for number in run)
    return first + "".join(piece.removeprefix(mark) for piece in others)
