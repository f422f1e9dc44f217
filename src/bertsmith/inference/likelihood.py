"""Log-likelihood and perplexity of texts; of masked language models, the pseudo-log-likelihood.

A causal model scores a text in one pass: each token is predicted from those before it, and the product of these
probabilities is the probability of the text. A masked language model predicts each token from all others. The sum of
these log-probabilities is no log-probability of the text, but it ranks texts as one would: Salazar et al. 2020. Later
tokens of a word give earlier ones away, so they are masked together: Kauf and Ivanova 2023.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, get_args

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32
from torch import Tensor

from bertsmith.data.batch import SelectedBatch, TargetBatch
from bertsmith.data.rows import BATCH_TOKENS, Row, batch_by_length, pack_rows
from bertsmith.errors import RecipeError, TextError, suggest
from bertsmith.inference.masked_copies import MaskedCopies, PllForm
from bertsmith.objectives.base import LanguageModel
from bertsmith.text.tokenizer import Tokenizer

MAX_LOGITS = 1 << 25  # logits in memory at once, so that memory does not grow with the vocabulary or the batch


@dataclass(frozen=True)
class ScoredText:
    """A text with its log-likelihood or pseudo-log-likelihood (natural logarithm), as a whole and by token.

    >>> scored = model.score("the cat sees")
    >>> len(scored.token_log_probabilities) == len(scored.pieces) == scored.tokens
    True
    """

    text: str
    log_likelihood: float
    words: int  # counted by the tokenizer: tokens that do not continue a word
    bytes: int  # of the text in UTF-8
    pieces: list[str]  # the tokens as text
    token_log_probabilities: list[float]

    @property
    def tokens(self) -> int:
        """The number of tokens.

        >>> model.score("").tokens
        0
        """
        return len(self.token_log_probabilities)

    @property
    def perplexity(self) -> float:
        """Perplexity: exp of the mean negative log-likelihood per token.

        >>> model.score("the cat sees").perplexity > 1
        True
        """
        return perplexity([self])

    def __repr__(self) -> str:
        return f"ScoredText({self.text[:60]!r}, log_likelihood={self.log_likelihood:.2f}, {self.tokens} tokens)"

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values, with the number of tokens.

        >>> sorted(model.score("the cat").to_dict())
        ['bytes', 'log_likelihood', 'pieces', 'text', 'token_log_probabilities', 'tokens', 'words']
        """
        return asdict(self) | {"tokens": self.tokens}


def score(
    objective: LanguageModel,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    pll_form: PllForm = "within_word",
    device: torch.device | str | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> list[ScoredText]:
    """The log-likelihood or pseudo-log-likelihood of each text, in order; equal texts are computed once.

    A text longer than the model reads is cut between words into as few windows as possible, of similar length, each
    scored alone. An empty text has no tokens and a log-likelihood of 0. The objective is moved to `device`, if given.
    `pll_form` applies to masked language models only.
    """
    if pll_form not in get_args(PllForm):
        raise RecipeError("pll_form", f"there is none called '{pll_form}'", suggest(pll_form, get_args(PllForm)))
    if device is not None:
        objective.to(device)
    once = list(dict.fromkeys(texts))
    encoded = tokenizer.encode(once)
    causal, length = objective.trunk.config.causal, objective.trunk.config.max_length
    max_length = length if causal else max(1, length - 2)  # the last token is predicted and not read
    numbers: dict[tuple[int, ...], int] = {}  # the distinct windows
    windows_of = []
    for text, ids in zip(once, encoded, strict=True):
        if not causal and tokenizer.mask_id in ids:
            blank = tokenizer.piece(tokenizer.mask_id)
            raise TextError(f"'{text[:40]}'", f"has {blank} where a word should be", "Write the word")
        windows_of.append(
            [numbers.setdefault(part, len(numbers)) for part in windows(ids, tokenizer.continuation_mask, max_length)]
        )
    if causal:
        logs = _causal_log_likelihoods(objective, list(numbers), tokenizer.start_id if numbers else 0, batch_tokens)
    else:
        logs = _pseudo_log_likelihoods(objective, MaskedCopies.of(list(numbers), tokenizer, pll_form), batch_tokens)
    ends = np.cumsum([0, *map(len, numbers)])
    scored = {}
    for text, ids, parts in zip(once, encoded, windows_of, strict=True):
        each = [log for part in parts for log in logs[ends[part] : ends[part + 1]].tolist()]
        words = int((~tokenizer.continuation_mask[ids[1:]]).sum()) + 1 if ids else 0
        pieces = [tokenizer.piece(number) for number in ids]
        scored[text] = ScoredText(text, math.fsum(each), words, len(text.encode()), pieces, each)
    return [scored[text] for text in texts]


@dataclass(frozen=True)
class LikelihoodTotals:
    """Sums over any number of texts, for their perplexity and bits per byte."""

    log_likelihood: float = 0.0
    tokens: int = 0
    bytes: int = 0
    texts: int = 0

    def plus(self, scores: Sequence[ScoredText]) -> "LikelihoodTotals":
        return LikelihoodTotals(
            math.fsum([self.log_likelihood, *(one.log_likelihood for one in scores)]),
            self.tokens + sum(one.tokens for one in scores),
            self.bytes + sum(one.bytes for one in scores),
            self.texts + len(scores),
        )

    @property
    def perplexity(self) -> float:
        """Perplexity: exp of the mean negative log-likelihood per token."""
        if not self.tokens:
            raise TextError("texts", "there is nothing to score in them", "Give at least one word")
        return math.exp(-self.log_likelihood / self.tokens)

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of text, which compares models with different vocabularies."""
        if not self.bytes:
            raise TextError("texts", "there is nothing to score in them", "Give at least one word")
        return -self.log_likelihood / math.log(2) / self.bytes


def perplexity(scored: Sequence[ScoredText]) -> float:
    """Perplexity of several texts: exp of the mean negative log-likelihood over all their tokens."""
    return LikelihoodTotals().plus(scored).perplexity


def bits_per_byte(scored: Sequence[ScoredText]) -> float:
    """Bits per byte of text, which compares models with different vocabularies."""
    return LikelihoodTotals().plus(scored).bits_per_byte


def windows(ids: Sequence[int], continues: Bool[np.ndarray, "V"], max_length: int) -> list[tuple[int, ...]]:
    """A text in windows of at most `max_length` tokens: as few as possible, of similar length, cut between words."""
    parts = []
    start = 0
    while (left := len(ids) - start) > max_length:
        limit = math.ceil(left / math.ceil(left / max_length))
        begins = np.flatnonzero(~continues[np.asarray(ids[start + 1 : start + limit + 1])])
        stop = start + (1 + int(begins[-1]) if len(begins) else limit)  # a word longer than a window is cut
        parts.append(tuple(ids[start:stop]))
        start = stop
    return [*parts, tuple(ids[start:])] if left else parts


@torch.inference_mode()
def _pseudo_log_likelihoods(
    objective: LanguageModel, copies: MaskedCopies, batch_tokens: int
) -> Float32[np.ndarray, "N"]:
    """The log-probability of each copy's target. Nothing waits for a GPU before all batches are queued."""
    device = objective.trunk.embedding.weight.device
    lengths = copies.lengths[copies.sequence_numbers].tolist()
    found = torch.empty(len(lengths), device=device)
    order: list[int] = []
    training = objective.training
    objective.eval()
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            for rows in batch_by_length(lengths, batch_tokens):
                found[len(order) : len(order) + len(rows)] = token_log_probabilities(
                    objective, copies.collate(rows, device)
                )
                order += rows
    finally:
        objective.train(training)
    logs = np.empty(len(lengths), np.float32)
    logs[np.asarray(order, np.int64)] = found.cpu().numpy()
    return logs


@torch.inference_mode()
def _causal_log_likelihoods(
    objective: LanguageModel, sequences: Sequence[Sequence[int]], start: int, batch_tokens: int
) -> Float32[np.ndarray, "N"]:
    """The log-probability of each token given the start token and those before it, in the order of the sequences."""
    device, training = objective.trunk.embedding.weight.device, objective.training
    ends = np.cumsum([0, *map(len, sequences)])
    found, indices = [torch.empty(0, device=device)], [np.empty(0, np.int64)]
    objective.eval()
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            for some in batch_by_length([len(sequence) for sequence in sequences], batch_tokens):
                rows = [np.array([start, *sequences[row][:-1]], np.int32) for row in some]
                tokens = pack_rows([Row(ids, np.zeros_like(ids)) for ids in rows]).to(device)
                targets = torch.tensor([piece for row in some for piece in sequences[row]], device=device)
                found.append(token_log_probabilities(objective, TargetBatch(tokens=tokens, targets=targets)))
                indices += [np.arange(ends[row], ends[row + 1]) for row in some]
    finally:
        objective.train(training)
    logs = np.empty(ends[-1], np.float32)
    logs[np.concatenate(indices)] = torch.cat(found).cpu().numpy()
    return logs


def token_log_probabilities(objective: LanguageModel, batch: TargetBatch) -> Float[Tensor, "N"]:
    """The log-probability of each target token of a batch."""
    device = batch.targets.device
    selected = batch.target_positions if isinstance(batch, SelectedBatch) else None
    hidden = objective.trunk(batch.tokens, selected=selected)  # N D: logits for the targets only
    hidden = hidden.to(objective.trunk.embedding.weight.dtype)
    # In bfloat16 a logit of 20 is off by up to 1/16, more than good and bad sentences often differ by, so the head, a
    # small part of the work, computes in the precision of its weights.
    with torch.autocast(device.type, enabled=False):
        chunk = max(1, MAX_LOGITS // objective.trunk.config.vocabulary)
        parts = zip(torch.split(hidden, chunk), torch.split(batch.targets, chunk), strict=True)
        logs = [-F.cross_entropy(objective.logits(some).float(), true, reduction="none") for some, true in parts]
    return torch.cat(logs)
