"""Extending a vocabulary: the pieces that a text of one's own needs, behind those that a model has learnt already."""

from collections.abc import Sequence

import numpy as np

from bertsmith.errors import FolderError, RecipeError
from bertsmith.text.measure import batches, needed
from bertsmith.text.pieces import SMALLEST, TokenizerConfig
from bertsmith.text.tokenizer import Tokenizer, train


def extend(tokenizer: Tokenizer, texts: Sequence[str], more: int) -> Tokenizer:
    """The vocabulary with at most so many pieces more, those that save the most tokens of these texts.

    Pieces are learnt from the texts alone. Of those that the vocabulary lacks, each saves so many tokens as it would be
    needed, times the pieces less one that it is cut into now. Old pieces keep their numbers, so that a model keeps its
    rows.
    """
    if more < 1:
        raise RecipeError("--more", f"{more} is no number of pieces to add", "Give at least 1")
    lowercase = tokenizer.lowercase
    if lowercase is None:
        raise FolderError(tokenizer.place, "is not WordPiece as BERT has it", "Only such vocabularies can be extended")
    size = max(SMALLEST["wordpiece"], tokenizer.vocabulary)
    learnt = train(texts, TokenizerConfig(vocabulary=size, lowercase=lowercase))
    lacking = [piece for piece in learnt.numbered if len(tokenizer.spelt(piece)) > 1]
    all_of_them = tokenizer.extended(lacking)
    counts = np.zeros(all_of_them.vocabulary, np.int64)
    for batch in batches(texts):
        counts += needed(all_of_them, batch)
    saved = {piece: int(counts[all_of_them.numbered[piece]]) * (len(tokenizer.spelt(piece)) - 1) for piece in lacking}
    best = sorted(lacking, key=lambda piece: (-saved[piece], piece))
    return tokenizer.extended([piece for piece in best[:more] if saved[piece]])
