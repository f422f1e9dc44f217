"""Bits per byte of texts, comparable between vocabularies: the same words are masked whole, and their bytes counted.

The probability of a masked token cannot be compared between vocabularies: of a word in three tokens two are visible
when one is masked, and of a word in one token none is. Here a seventh of the words is chosen by a hash of the text, all
tokens of a chosen word are masked together, and their bits are divided by the bytes of the word. In scripts without
spaces a word is a character, and a token of several is masked by its last one. The words of a text
are predicted at once and not one after the other, so this is a pseudo-likelihood: it ranks masked models, and is no
code length. Causal models need no masks: their log-likelihood of the whole text is divided by its bytes.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from zlib import crc32

import numpy as np
import torch
from jaxtyping import Int32, Int64

from bertsmith.data.batch import SelectedBatch
from bertsmith.data.rows import Row, batch_by_length, pack_rows
from bertsmith.inference import likelihood
from bertsmith.objectives.base import LanguageModel
from bertsmith.random_bits import uniform
from bertsmith.text.language import UNSPACED_LETTERS
from bertsmith.text.tokenizer import Tokenizer

MASK_RATE = 0.15  # share of the words that are masked, as in BERT
BATCH_TOKENS = 4_096  # tokens in one pass
WORD = re.compile(f"[{UNSPACED_LETTERS}]|[^\\s{UNSPACED_LETTERS}]+")  # in scripts without spaces, a character


@dataclass(frozen=True)
class MaskedText:
    """A text with some words masked, as token ids with special tokens around them."""

    ids: Int32[np.ndarray, "T"]
    positions: Int64[np.ndarray, "N"]  # of the masked tokens
    targets: Int64[np.ndarray, "N"]
    bytes: int  # of the masked words in UTF-8


def mask_words(
    tokenizer: Tokenizer, texts: Sequence[str], seed: int = 0, mask_rate: float = MASK_RATE
) -> list[MaskedText]:
    """Each text with a share of its words masked: the same words by any tokenizer."""
    masked = []
    for text, (ids, offsets) in zip(texts, tokenizer.encode_with_offsets(texts), strict=True):
        spans = np.array([found.span() for found in WORD.finditer(text)], np.int64).reshape(-1, 2)
        chosen = uniform(seed, crc32(text.encode()), np.arange(len(spans))) < mask_rate
        # By its last character: in byte-level BPE the first one is the space before a word.
        lasts = np.array([end - 1 for _, end in offsets], np.int64)
        words = np.searchsorted(spans[:, 0], lasts, side="right") - 1
        hidden = np.flatnonzero((words >= 0) & chosen[words]) if len(spans) else np.empty(0, np.int64)
        row = np.array([tokenizer.start_id, *ids, tokenizer.stop_id], np.int32)
        targets = row[hidden + 1].astype(np.int64)
        row[hidden + 1] = tokenizer.mask_id
        # A word that the tokenizer leaves out is not counted; of a token of several characters each one is.
        firsts = np.searchsorted(spans[:, 1], [start for start, _ in offsets], side="right")
        found = sorted({word for token in hidden for word in range(min(firsts[token], words[token]), words[token] + 1)})
        size = sum(len(text[start:end].encode()) for start, end in spans[found].tolist())
        masked.append(MaskedText(row, hidden + 1, targets, size))
    return masked


def collate(texts: Sequence[MaskedText]) -> SelectedBatch:
    """A flat batch of masked texts."""
    starts = np.cumsum([0, *(len(text.ids) for text in texts)])[:-1]
    positions = [start + text.positions for start, text in zip(starts, texts, strict=True)]
    return SelectedBatch(
        tokens=pack_rows([Row(text.ids, np.zeros_like(text.ids)) for text in texts]),
        target_positions=torch.from_numpy(np.concatenate(positions)),
        targets=torch.from_numpy(np.concatenate([text.targets for text in texts])),
    )


def batches(texts: Sequence[MaskedText], batch_tokens: int = BATCH_TOKENS) -> Iterator[tuple[list[int], SelectedBatch]]:
    """Batches of the texts that have masked words, with the indices of their texts."""
    some = [number for number, text in enumerate(texts) if len(text.targets)]
    for rows in batch_by_length([len(texts[number].ids) for number in some], batch_tokens):
        numbers = [some[row] for row in rows]
        yield numbers, collate([texts[number] for number in numbers])


@torch.inference_mode()
def bits_and_bytes(objective: LanguageModel, tokenizer: Tokenizer, texts: Sequence[str]) -> list[tuple[float, int]]:
    """For each text the bits of its masked words and their bytes; by a causal model, of all words."""
    if objective.trunk.config.causal:
        scored = likelihood.score(objective, tokenizer, texts)
        return [(-one.log_likelihood / math.log(2), one.bytes) for one in scored]
    masked = mask_words(tokenizer, texts)
    bits, device = [0.0] * len(texts), objective.trunk.embedding.weight.device
    training = objective.training
    objective.eval()
    for numbers, batch in batches(masked):
        logs = likelihood.token_log_probabilities(objective, batch.to(device)).cpu().numpy()
        ends = np.cumsum([len(masked[number].targets) for number in numbers])
        for number, part in zip(numbers, np.split(logs, ends[:-1]), strict=True):
            bits[number] = -float(part.sum()) / math.log(2)
    objective.train(training)
    return [(bits[number], text.bytes) for number, text in enumerate(masked)]


def bits_per_byte(found: Sequence[tuple[float, int]]) -> float:
    """Bits per byte of texts together."""
    return sum(bits for bits, _ in found) / max(sum(size for _, size in found), 1)


def cut_passages(sentences: Sequence[str], tokenizer: Tokenizer, max_tokens: int, count: int) -> list[str]:
    """At most `count` passages of consecutive sentences, spread evenly, of at most `max_tokens` tokens each."""
    encoded = tokenizer.encode_with_offsets(sentences)
    passages, first_free = [], 0
    for number in range(count):
        first = max(first_free, number * len(sentences) // count)
        chosen, size = list[str](), 0
        while first + len(chosen) < len(sentences):
            ids, offsets = encoded[first + len(chosen)]
            if size + len(ids) > max_tokens:
                if not chosen:  # a sentence that is too long is cut
                    chosen.append(sentences[first][: offsets[max_tokens - 1][1]])
                break
            chosen.append(sentences[first + len(chosen)])
            size += len(ids)
        if not chosen:
            break
        passages.append(" ".join(chosen))
        first_free = first + len(chosen)
    return passages
