"""Forbidden ids: the rows of an output layer that a model must not generate, since they are no text."""

from collections.abc import Collection

from bertsmith.text.tokenizer import Tokenizer


def forbidden_ids(tokenizer: Tokenizer, rows: int, allowed: Collection[int | None]) -> list[int]:
    """The special tokens that are not allowed, and the ids without a token, of an output layer with `rows` rows.

    A table may have more rows than the tokenizer has tokens: T5's has 32,128 for 32,100.
    """
    special = set(tokenizer.special_mask.nonzero()[0].tolist()) - set(allowed)
    complete = len(tokenizer._pieces) == tokenizer.vocabulary  # as nearly all are, and then this takes no time
    missing = () if complete else set(range(tokenizer.vocabulary)) - tokenizer._pieces.keys()
    return sorted(special.union(missing, range(tokenizer.vocabulary, rows)))
