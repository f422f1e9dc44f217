"""Likelihood: how probable a model holds a text to be.

One that looks only back says it in one reading: each piece is guessed from those before it, and the product of the
guesses is the text's probability. A masked-word model guesses each piece from all the others. The sum of such guesses
is no probability of the text, yet it ranks texts as one would: Salazar et al. 2020. The later pieces of a word give the
earlier ones away, so they are hidden with them: Kauf and Ivanova 2023.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Float32, Int32, Int64
from numpy.typing import NDArray
from torch import Tensor

from bertsmith.data.batch import Batch, Tokens
from bertsmith.data.rows import BATCH_TOKENS, Row, batch_by_length, pack_rows
from bertsmith.errors import RecipeError, TextError, suggest
from bertsmith.objectives.causal import CausalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.recurrent_lm import RecurrentLM
from bertsmith.text.tokenizer import Tokenizer

PllForm = Literal["within_word", "original"]
MAX_LOGITS = 1 << 25  # scores of words held at once: memory does not grow with the vocabulary or the pass


@dataclass(frozen=True)
class ScoredText:
    """A text and the natural logarithm of its likelihood, or pseudo-likelihood, whole and by piece."""

    text: str
    log_likelihood: float
    words: int  # as the tokenizer sees them: pieces that do not go on with the word before
    bytes: int  # of the text in UTF-8
    pieces: list[str]
    token_log_probabilities: list[float]  # of each piece

    @property
    def tokens(self) -> int:
        return len(self.token_log_probabilities)

    @property
    def perplexity(self) -> float:
        """e to minus the mean log-likelihood of its pieces."""
        return perplexity([self])

    def __repr__(self) -> str:
        return f"ScoredText({self.text[:60]!r}, log_likelihood={self.log_likelihood:.2f}, {self.tokens} tokens)"

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        return asdict(self) | {"tokens": self.tokens}


@dataclass(frozen=True)
class MaskedCopies:
    """Sequences, each to be read as often as it has pieces; a copy is a piece and all that is hidden with it.

    Copies are only made when their pass comes, so that a long text does not take its length squared in memory.
    """

    ids: Int32[np.ndarray, "T"]  # the sequences end to end, special pieces included
    starts: Int64[np.ndarray, "B"]  # where each begins
    lengths: Int64[np.ndarray, "B"]
    sequence_numbers: Int64[np.ndarray, "N"]  # of each copy: its sequence,
    positions: Int64[np.ndarray, "N"]  # where in `ids` the piece stands that is guessed,
    visible_from: Int64[np.ndarray, "N"]  # and where the text can be seen again
    mask_id: int

    @classmethod
    def of(cls, sequences: Sequence[Sequence[int]], tokenizer: Tokenizer, pll_form: PllForm) -> "MaskedCopies":
        """A copy for each piece, in the order of the sequences and their pieces."""
        sizes = np.fromiter(map(len, sequences), np.int64, len(sequences))
        lengths = sizes + 2
        ends = np.cumsum(lengths)
        starts = ends - lengths
        text = np.ones(int(lengths.sum()), np.bool_)
        text[starts] = text[ends - 1] = False
        ids = np.full(len(text), tokenizer.start_id, np.int32)
        ids[ends - 1] = tokenizer.stop_id
        ids[text] = np.fromiter((piece for sequence in sequences for piece in sequence), np.int32, int(sizes.sum()))
        places = np.flatnonzero(text)
        shown = places + 1
        if pll_form == "within_word":
            begins = ~tokenizer.continuation_mask[ids] | ~text
            begins[starts + 1] = True  # nothing of the word stands before it
            edges = np.flatnonzero(begins)
            shown = edges[np.searchsorted(edges, places, side="right")]
        return cls(ids, starts, lengths, np.repeat(np.arange(len(sizes)), sizes), places, shown, tokenizer.mask_id)

    def collate(self, rows: Sequence[int], device: torch.device) -> Batch:
        """Some copies end to end, with what is to be guessed; a GPU fetches them from pinned memory as it computes."""

        def sent(array: NDArray[Any]) -> Tensor:
            tensor = torch.from_numpy(array)
            return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)

        numbers = np.asarray(rows, np.int64)
        owners, places = self.sequence_numbers[numbers], self.positions[numbers]
        lengths = self.lengths[owners]
        bounds = np.zeros(len(numbers) + 1, np.int32)
        np.cumsum(lengths, out=bounds[1:])
        positions = np.arange(bounds[-1], dtype=np.int32) - np.repeat(bounds[:-1], lengths)
        sources = positions + np.repeat(self.starts[owners], lengths)
        ids = self.ids[sources]
        ids[(sources >= np.repeat(places, lengths)) & (sources < np.repeat(self.visible_from[numbers], lengths))] = (
            self.mask_id
        )
        longest = int(lengths.max())
        tokens = Tokens(
            ids=sent(ids),
            bounds=sent(bounds),
            positions=sent(positions),
            max_length=longest,
            equal_lengths=bool((lengths == longest).all()),
        )
        chosen, targets = bounds[:-1] + places - self.starts[owners], self.ids[places].astype(np.int64)
        return Batch(tokens=tokens, target_positions=sent(chosen), targets=sent(targets))


def score(
    objective: MaskedLM | CausalLM | RecurrentLM,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    *,
    pll_form: PllForm = "within_word",
    device: torch.device | str | None = None,
    batch_tokens: int = BATCH_TOKENS,
) -> list[ScoredText]:
    """Each text's log-likelihood or pseudo-log-likelihood, in order. What reads the same is computed once.

    A text longer than the model is cut where words begin, into as few windows of like length as it takes, each scored
    alone. An empty text has no tokens and a log-likelihood of 0. The objective is moved to `device`, if one is named.
    `pll_form` applies to masked language models only.
    """
    if pll_form not in get_args(PllForm):
        raise RecipeError("pll_form", f"there is none called '{pll_form}'", suggest(pll_form, get_args(PllForm)))
    if device is not None:
        objective.to(device)
    once = list(dict.fromkeys(texts))
    encoded = tokenizer.encode(once)
    causal, length = isinstance(objective, CausalLM | RecurrentLM), objective.trunk.config.max_length
    room = length if causal else max(1, length - 2)  # the last piece of all is guessed, and not read
    numbers: dict[tuple[int, ...], int] = {}  # the windows, without repetition
    own = []
    for text, ids in zip(once, encoded, strict=True):
        if not causal and tokenizer.mask_id in ids:
            blank = tokenizer.piece(tokenizer.mask_id)
            raise TextError(f"'{text[:40]}'", f"has {blank} where a word should be", "Write the word")
        own.append([numbers.setdefault(part, len(numbers)) for part in windows(ids, tokenizer.continuation_mask, room)])
    if isinstance(objective, CausalLM | RecurrentLM):
        logs = _causal_log_likelihoods(objective, list(numbers), tokenizer.start_id if numbers else 0, batch_tokens)
    else:
        logs = _pseudo_log_likelihoods(objective, MaskedCopies.of(list(numbers), tokenizer, pll_form), batch_tokens)
    ends = np.cumsum([0, *map(len, numbers)])
    scored = {}
    for text, ids, parts in zip(once, encoded, own, strict=True):
        each = [log for part in parts for log in logs[ends[part] : ends[part + 1]].tolist()]
        words = int((~tokenizer.continuation_mask[ids[1:]]).sum()) + 1 if ids else 0
        pieces = [tokenizer.piece(number) for number in ids]
        scored[text] = ScoredText(text, math.fsum(each), words, len(text.encode()), pieces, each)
    return [scored[text] for text in texts]


@dataclass(frozen=True)
class LikelihoodTotals:
    """Sums over any number of texts, from which their perplexity follows."""

    log_likelihood: float = 0.0  # of the logarithms
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
        """e to minus the mean log-likelihood of a token."""
        if not self.tokens:
            raise TextError("texts", "there is nothing to score in them", "Give at least one word")
        return math.exp(-self.log_likelihood / self.tokens)

    @property
    def bits_per_byte(self) -> float:
        """Bits for each byte of the texts, so that models with different vocabularies can be compared."""
        if not self.bytes:
            raise TextError("texts", "there is nothing to score in them", "Give at least one word")
        return -self.log_likelihood / math.log(2) / self.bytes


def perplexity(scored: Sequence[ScoredText]) -> float:
    """e to minus the mean log-likelihood of all tokens."""
    return LikelihoodTotals().plus(scored).perplexity


def bits_per_byte(scored: Sequence[ScoredText]) -> float:
    """Bits for each byte of the texts, so that models with different vocabularies can be compared."""
    return LikelihoodTotals().plus(scored).bits_per_byte


def windows(ids: Sequence[int], continues: Bool[np.ndarray, "V"], max_length: int) -> list[tuple[int, ...]]:
    """A text as it fits: whole, or in as few parts as it takes, of like length, cut where a word begins."""
    parts = []
    start = 0
    while (left := len(ids) - start) > max_length:
        most = math.ceil(left / math.ceil(left / max_length))
        begins = np.flatnonzero(~continues[np.asarray(ids[start + 1 : start + most + 1])])
        stop = start + (1 + int(begins[-1]) if len(begins) else most)  # a word that is too long is cut all the same
        parts.append(tuple(ids[start:stop]))
        start = stop
    return [*parts, tuple(ids[start:])] if left else parts


@torch.inference_mode()
def _pseudo_log_likelihoods(objective: MaskedLM, copies: MaskedCopies, batch_tokens: int) -> Float32[np.ndarray, "N"]:
    """The logarithm of each copy's guess. Nothing waits for a GPU until all its work is handed over."""
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
    objective: CausalLM | RecurrentLM, sequences: Sequence[Sequence[int]], start: int, batch_tokens: int
) -> Float32[np.ndarray, "N"]:
    """The logarithm of each piece after the start and the pieces before it, in the order of the sequences."""
    device, training = objective.trunk.embedding.weight.device, objective.training
    ends = np.cumsum([0, *map(len, sequences)])
    found, places = [torch.empty(0, device=device)], [np.empty(0, np.int64)]
    objective.eval()
    try:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            for some in batch_by_length([len(sequence) for sequence in sequences], batch_tokens):
                rows = [np.array([start, *sequences[row][:-1]], np.int32) for row in some]
                tokens = pack_rows([Row(ids, np.zeros_like(ids)) for ids in rows]).to(device)
                targets = torch.tensor([piece for row in some for piece in sequences[row]], device=device)
                found.append(token_log_probabilities(objective, Batch(tokens=tokens, targets=targets)))
                places += [np.arange(ends[row], ends[row + 1]) for row in some]
    finally:
        objective.train(training)
    logs = np.empty(ends[-1], np.float32)
    logs[np.concatenate(places)] = torch.cat(found).cpu().numpy()
    return logs


def token_log_probabilities(objective: MaskedLM | CausalLM | RecurrentLM, batch: Batch) -> Float[Tensor, "N"]:
    """The logarithm of the chance that each token which is asked for has."""
    assert batch.targets is not None
    device = batch.targets.device
    hidden = objective.trunk(batch.tokens, selected=batch.target_positions)  # N D: only the guesses cost a vocabulary
    hidden = hidden.to(objective.trunk.embedding.weight.dtype)
    # In bfloat16 a score of 20 is off by up to a sixteenth, more than good and bad sentences often differ by: the
    # head, a small part of the work, computes as exactly as its weights are kept.
    with torch.autocast(device.type, enabled=False):
        most = max(1, MAX_LOGITS // objective.trunk.config.vocabulary)
        parts = zip(torch.split(hidden, most), torch.split(batch.targets, most), strict=True)
        logs = [-F.cross_entropy(objective.logits(some).float(), true, reduction="none") for some, true in parts]
    return torch.cat(logs)
