"""Yardsticks for a language model: its validation targets, guessed by counting tokens alone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import SelectedBatch, TargetBatch
from bertsmith.data.shards.shards import Shards
from bertsmith.objectives.spans import SpanBatch
from bertsmith.text.tokenizer import Tokenizer

BIGRAM_TOKENS = 1 << 19  # of the training text, from which pairs of neighbours are counted: a tenth of a second


@dataclass(frozen=True)
class Yardsticks:
    """How well the validation targets are guessed by counting, and how many of them begin a word."""

    unigram_loss: float  # of predicting every token by its frequency in the training text, in nats
    unigram_accuracy: float  # of always guessing the commonest token
    bigram_accuracy: float | None  # of guessing the commonest successor of the token before; None of streams
    word_share: float  # punctuation and the end of a text count as words


def measure(
    counts: NDArray[np.int64], train: Shards, batches: Sequence[TargetBatch], tokenizer: Tokenizer
) -> Yardsticks:
    """The yardsticks of validation batches. `counts`: how often each token occurs in the training text."""
    pairs = [_targets_and_previous(batch) for batch in batches]
    targets = torch.cat([target.cpu() for target, _ in pairs]).numpy()
    before = [previous.cpu() for _, previous in pairs if previous is not None]
    is_target = targets >= 0
    commonest = int(np.argmax(counts))
    bigram = None
    if before:
        guesses = _successors(train, commonest)[torch.cat(before).numpy()]
        bigram = float((guesses == targets)[is_target].mean())
    targets = targets[is_target]
    return Yardsticks(
        _unigram_loss(counts, train.documents, targets, tokenizer),
        float((targets == commonest).mean()),
        bigram,
        float((~tokenizer.continuation_mask[targets]).mean()),
    )


def _unigram_loss(counts: NDArray[np.int64], documents: int, targets: NDArray[np.int64], tokenizer: Tokenizer) -> float:
    """The unigram baseline: the loss of predicting every token by its frequency in the training text."""
    frequencies = counts + 1.0
    for token in {tokenizer.stop_id, tokenizer.roles.get("start", tokenizer.stop_id)}:
        if (targets == token).any():  # the special token at the end or the beginning of a document is predicted, too
            frequencies[token] += documents
    losses = -np.log(frequencies / frequencies.sum())
    return float(losses[targets].mean())


def _targets_and_previous(batch: TargetBatch) -> tuple[Tensor, Tensor | None]:
    """The targets of a batch, and the token before each as the model sees it, which may be masked; None of streams."""
    if isinstance(batch, SpanBatch):  # without sentinels; the decoder's input is the target text, shifted right
        return batch.targets[batch.text_mask], batch.decoder_tokens.ids[batch.text_mask]
    if isinstance(batch, SelectedBatch):
        masked, next_token = "masked" in batch.counts, "next_token" in batch.counts
        shift = 0 if next_token and not masked else 1  # a next token is predicted at the position of the one before it
        return batch.targets, batch.tokens.ids[(batch.target_positions - shift).clamp(min=0)]
    return batch.targets, None


def _successors(train: Shards, commonest: int) -> NDArray[np.int64]:
    """The commonest successor of each token of the vocabulary; of those that are not met, the commonest token."""
    ends = train.sentence_ends
    ends = ends[: max(1, int(np.searchsorted(ends, BIGRAM_TOKENS)))]
    starts = np.concatenate([[0], ends[:-1]])
    ids = train.gather(starts, ends - starts).astype(np.int64)
    pairs, counts = np.unique(ids[:-1] * train.vocabulary + ids[1:], return_counts=True)
    first, second = np.divmod(pairs[np.argsort(counts, kind="stable")], train.vocabulary)
    successors = np.full(train.vocabulary, commonest, np.int64)
    successors[first] = second  # the last assignment wins: that of the largest count
    return successors
