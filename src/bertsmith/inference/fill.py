"""Filling blanks: the words a model would put where a text has [MASK]."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from bertsmith.data.batch import Tokens
from bertsmith.errors import TextError
from bertsmith.objectives.masked import MaskedLM
from bertsmith.text.tokenizer import Tokenizer

BATCH_TOKENS = 16_384  # tokens in one pass of the network, so that memory stays small however many texts there are


@dataclass(frozen=True)
class WordPrediction:
    """A word and how likely the model holds it to be."""

    word: str
    probability: float

    def __repr__(self) -> str:
        return f"{self.word} {self.probability:.1%}"


@dataclass(frozen=True)
class FilledText:
    """A text with blanks, the best guesses for each blank in order, and the text with the best of them put in."""

    text: str
    best: str
    blanks: list[list[WordPrediction]]

    def to_dict(self) -> dict[str, Any]:
        """The same as JSON values."""
        return asdict(self)

    def __repr__(self) -> str:
        return f"FilledText({self.best!r}, {', '.join(map(repr, self.blanks))})"


@torch.inference_mode()
def fill(objective: MaskedLM, tokenizer: Tokenizer, texts: Sequence[str], top_k: int = 5) -> list[FilledText]:
    """Each text's blanks filled. Every blank is guessed with the others still blank."""
    objective.eval()
    rows = [_encode(objective, tokenizer, text) for text in texts]
    filled: list[FilledText] = []
    for part in _batches(rows):
        filled += _fill(objective, tokenizer, texts[len(filled) : len(filled) + len(part)], part, top_k)
    return filled


def _encode(objective: MaskedLM, tokenizer: Tokenizer, text: str) -> list[int]:
    ids, _ = tokenizer.encode_pair(text)
    if tokenizer.mask_id not in ids:
        blank = tokenizer.piece(tokenizer.mask_id)
        raise TextError(f"'{text}'", "has no blank to fill", f"Write {blank} where a word is missing")
    if len(ids) > objective.trunk.config.max_length:
        most = objective.trunk.config.max_length
        raise TextError(f"'{text[:40]}...'", f"is {len(ids)} tokens long, the model reads {most}", "Shorten it")
    return ids


def _batches(rows: list[list[int]]) -> list[list[list[int]]]:
    """Consecutive rows, cut where a part would become too large for one pass."""
    parts: list[list[list[int]]] = []
    for row in rows:
        if not parts or sum(map(len, parts[-1])) + len(row) > BATCH_TOKENS:
            parts.append([])
        parts[-1].append(row)
    return parts


def _fill(
    objective: MaskedLM, tokenizer: Tokenizer, texts: Sequence[str], rows: list[list[int]], top_k: int
) -> list[FilledText]:
    where = objective.mlm_head.bias.device
    tokens = Tokens.from_rows(rows, [[0] * len(row) for row in rows]).to(where)
    chosen = (tokens.ids == tokenizer.mask_id).nonzero()[:, 0]
    scores = objective.logits(objective.trunk(tokens, selected=chosen)).float()  # N V
    scores[:, torch.from_numpy(tokenizer.special_mask).to(where)] = -torch.inf  # [SEP] is never a word
    values, ids = scores.softmax(-1).topk(min(top_k, scores.shape[-1]))
    guesses = [
        [WordPrediction(tokenizer.readable(word), probability) for word, probability in zip(*pair, strict=True)]
        for pair in zip(ids.tolist(), values.tolist(), strict=True)
    ]
    firsts, results, at = ids[:, 0].tolist(), [], 0
    for text, row in zip(texts, rows, strict=True):
        count = row.count(tokenizer.mask_id)
        words = iter(firsts[at : at + count])
        whole = [next(words) if token == tokenizer.mask_id else token for token in row]
        results.append(FilledText(text, tokenizer.decode(whole), guesses[at : at + count]))
        at += count
    return results
