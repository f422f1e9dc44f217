"""Nearest neighbours of words in context: the words of a text whose hidden vectors are most similar.

The vector of a word is the mean of its hidden vectors in several sentences (Bommasani et al. 2020), so that words of
any number of tokens can be compared, and models with different vocabularies. The mean of all words is subtracted first:
hidden vectors of a transformer share a large common part (Ethayarajh 2019).
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float32

from bertsmith.data.rows import Row, map_rows
from bertsmith.models.transformer import Transformer
from bertsmith.text.tokenizer import Tokenizer

WORD = re.compile(r"[^\W\d_]+")
MIN_LETTERS, MIN_OCCURRENCES, MAX_OCCURRENCES = 4, 4, 12  # of a word; more occurrences change its mean little
MAX_WORDS = 500  # words that are compared, the most frequent ones


def typical_words(sentences: Sequence[str], reference: Sequence[str], count: int) -> list[str]:
    """The words that occur most in some sentences compared with a reference: Dunning's log-likelihood ratio (1993)."""
    own, other = (Counter(_words(texts)) for texts in (sentences, reference))
    total, other_total = max(own.total(), 1), max(other.total(), 1)

    def ratio(word: str) -> float:
        expected = total * (own[word] + other[word]) / (total + other_total)
        return own[word] * math.log(own[word] / expected)

    frequent = [word for word, times in own.items() if times >= MIN_OCCURRENCES]
    return sorted(frequent, key=lambda word: (-ratio(word), word))[:count]


def nearest_words(
    trunk: Transformer, tokenizer: Tokenizer, sentences: Sequence[str], words: Sequence[str], count: int = 5
) -> dict[str, list[str]]:
    """The nearest neighbours of each word among the frequent words of the sentences, nearest first."""
    counts = Counter(_words(sentences))
    frequent = [word for word, times in counts.most_common() if times >= MIN_OCCURRENCES][:MAX_WORDS]
    names = list(dict.fromkeys([*(word for word in words if counts[word]), *frequent]))
    found = _word_vectors(trunk, tokenizer, sentences, set(names))
    names = [name for name in names if name in found]
    if len(names) < 2:
        return {}
    vectors = np.stack([found[name] for name in names])
    vectors -= vectors.mean(0)
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    nearest = {}
    for index, word in enumerate(names):
        if word in words:
            order = np.argsort(-(vectors @ vectors[index]), kind="stable")
            nearest[word] = [names[other] for other in order.tolist() if other != index][:count]
    return nearest


def _words(sentences: Sequence[str]) -> list[str]:
    """The words of sentences in lower case, of four letters and more."""
    found = (match[0].lower() for text in sentences for match in WORD.finditer(text))
    return [word for word in found if len(word) >= MIN_LETTERS]


@torch.inference_mode()
def _word_vectors(
    trunk: Transformer, tokenizer: Tokenizer, sentences: Sequence[str], wanted: set[str]
) -> dict[str, Float32[np.ndarray, " D"]]:
    """The mean hidden vector of each word's tokens, over some of its occurrences."""
    rows, spans = list[Row](), list[list[tuple[str, list[int]]]]()
    seen, room = Counter[str](), trunk.config.max_length - 2
    for text, (ids, offsets) in zip(sentences, tokenizer.encode_with_offsets(sentences), strict=True):
        occurrences = []
        for match in WORD.finditer(text):
            if (word := match[0].lower()) in wanted and seen[word] < MAX_OCCURRENCES:
                start, end = match.span()
                inside = [at for at, (_, last) in enumerate(offsets[:room]) if start < last <= end]
                if inside:
                    seen[word] += 1
                    occurrences.append((word, [at + 1 for at in inside]))  # after the start token
        if occurrences:
            row = np.array([tokenizer.start_id, *ids[:room], tokenizer.stop_id], np.int32)
            rows.append(Row(row, np.zeros_like(row)))
            spans.append(occurrences)
    device, training = trunk.embedding.weight.device, trunk.training
    trunk.eval()
    states = map_rows(rows, lambda tokens: [*trunk(tokens).split(tokens.bounds.diff().tolist())], device, 4_096)
    trunk.train(training)
    sums: dict[str, Float32[np.ndarray, " D"]] = {}
    for state, occurrences in zip(states, spans, strict=True):
        hidden = state.float().cpu().numpy()
        for word, positions in occurrences:
            sums[word] = sums.get(word, 0.0) + hidden[positions].mean(0)
    return {word: total / seen[word] for word, total in sums.items()}
