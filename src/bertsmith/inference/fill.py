"""Fill-mask: the most probable words for every [MASK] of a text, by a masked language model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.errors import TextError
from bertsmith.text.forbidden_ids import forbidden_ids
from bertsmith.text.tokenizer import Tokenizer

MaskPredictor = Callable[[Tokens, Tensor], Tensor]  # the logits over the vocabulary at some positions of a batch
BATCH_TOKENS = 16_384  # tokens in a batch, so that memory does not grow with the number of texts


@dataclass(frozen=True)
class WordPrediction:
    """A predicted word and its probability.

    >>> bertsmith.WordPrediction("dog", 0.25)
    dog 25.0%
    """

    word: str
    probability: float
    token: int = field(default=-1, compare=False)  # its id in the vocabulary

    def __repr__(self) -> str:
        return f"{self.word} {self.probability:.1%}"


@dataclass(frozen=True)
class FilledText:
    """A text with [MASK], its predictions for each blank, and `best`, the text with the most probable words.

    >>> filled = model.fill("the cat sees the [MASK] .")
    >>> filled.blanks[0][0].probability > filled.blanks[0][1].probability
    True
    """

    text: str
    best: str
    blanks: list[list[WordPrediction]]

    def to_dict(self) -> dict[str, Any]:
        """The fields as JSON values.

        >>> sorted(model.fill("the [MASK] .").to_dict())
        ['best', 'blanks', 'text']
        """
        blanks = [[{"word": one.word, "probability": one.probability} for one in blank] for blank in self.blanks]
        return {"text": self.text, "best": self.best, "blanks": blanks}

    def __repr__(self) -> str:
        return f"FilledText({self.best!r}, {', '.join(map(repr, self.blanks))})"


@torch.inference_mode()
def fill(
    predictor: MaskPredictor,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    top_k: int = 5,
    *,
    max_length: int,
    device: torch.device,
) -> list[FilledText]:
    """Predict every [MASK] of each text, with the other blanks still masked."""
    rows = [_encode(tokenizer, text, max_length) for text in texts]
    filled: list[FilledText] = []
    for batch in _batches(rows):
        filled += _fill(predictor, tokenizer, texts[len(filled) : len(filled) + len(batch)], batch, top_k, device)
    return filled


def _encode(tokenizer: Tokenizer, text: str, max_length: int) -> list[int]:
    ids, _ = tokenizer.encode_pair(text)
    if tokenizer.mask_id not in ids:
        blank = tokenizer.piece(tokenizer.mask_id)
        raise TextError(f"'{text}'", "has no blank to fill", f"Write {blank} where a word is missing")
    if len(ids) > max_length:
        raise TextError(f"'{text[:40]}...'", f"is {len(ids)} tokens long, the model reads {max_length}", "Shorten it")
    return ids


def _batches(rows: list[list[int]]) -> list[list[list[int]]]:
    """Consecutive rows in batches of at most `BATCH_TOKENS`."""
    batches: list[list[list[int]]] = []
    for row in rows:
        if not batches or sum(map(len, batches[-1])) + len(row) > BATCH_TOKENS:
            batches.append([])
        batches[-1].append(row)
    return batches


def _fill(
    predictor: MaskPredictor,
    tokenizer: Tokenizer,
    texts: Sequence[str],
    rows: list[list[int]],
    top_k: int,
    device: torch.device,
) -> list[FilledText]:
    tokens = Tokens.from_rows(rows, [[0] * len(row) for row in rows]).to(device)
    masked = (tokens.ids == tokenizer.mask_id).nonzero()[:, 0]
    logits = predictor(tokens, masked).float()[:, : tokenizer.vocabulary]  # N V; the table may have rows to spare
    no_words = forbidden_ids(tokenizer, tokenizer.vocabulary, ())
    logits[:, torch.tensor(no_words, dtype=torch.long, device=device)] = -torch.inf
    values, ids = logits.softmax(-1).topk(min(top_k, logits.shape[-1]))
    predictions = [
        [WordPrediction(tokenizer.readable(word), probability, word) for word, probability in zip(*pair, strict=True)]
        for pair in zip(ids.tolist(), values.tolist(), strict=True)
    ]
    best, results, start = ids[:, 0].tolist(), [], 0
    for text, row in zip(texts, rows, strict=True):
        count = row.count(tokenizer.mask_id)
        words = iter(best[start : start + count])
        whole = [next(words) if token == tokenizer.mask_id else token for token in row]
        results.append(FilledText(text, tokenizer.decode(whole), predictions[start : start + count]))
        start += count
    return results
