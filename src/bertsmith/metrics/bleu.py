"""BLEU: the n-grams, up to four words, that a translation shares with its reference. Papineni et al. 2002.

Computed as sacreBLEU does by default (Post 2018, "A Call for Clarity in Reporting BLEU Scores"): its `13a` tokenizer,
and exponential smoothing, by which the first n-gram size without a match counts as half a match, the next as a quarter.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"  # sacreBLEU's
MAX_NGRAM = 4
ENTITIES = {"<skipped>": "", "-\n": "", "\n": " ", "&quot;": '"', "&amp;": "&", "&lt;": "<", "&gt;": ">"}
TOKENIZER_RULES = [
    (re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])"), r" \1 "),  # punctuation except the marks that occur in numbers
    (re.compile(r"([^0-9])([\.,])"), r"\1 \2 "),
    (re.compile(r"([\.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
]


def bleu(predicted: Sequence[str], references: Sequence[str]) -> float:
    """Corpus BLEU of all translations, from 0 to 100."""
    matches, totals = Counter[int](), Counter[int]()
    predicted_length = reference_length = 0
    for words, reference in zip(map(tokenize_13a, predicted), map(tokenize_13a, references), strict=True):
        predicted_length += len(words)
        reference_length += len(reference)
        for size in range(1, MAX_NGRAM + 1):
            ngrams = _ngrams(words, size)
            matches[size] += (ngrams & _ngrams(reference, size)).total()
            totals[size] += ngrams.total()
    if not matches.total() or not all(totals[size] for size in range(1, MAX_NGRAM + 1)):
        return 0.0
    log_precision, smoothing = 0.0, 1.0
    for size in range(1, MAX_NGRAM + 1):
        if not matches[size]:
            smoothing *= 2
        log_precision += math.log((matches[size] or 1 / smoothing) / totals[size]) / MAX_NGRAM
    log_brevity_penalty = min(0.0, 1 - reference_length / predicted_length)
    return 100 * math.exp(log_precision + log_brevity_penalty)


def tokenize_13a(text: str) -> list[str]:
    """sacreBLEU's `13a` tokens: punctuation separated from words, points and commas only outside of numbers."""
    text = text.rstrip()
    for entity, character in ENTITIES.items():
        text = text.replace(entity, character)
    text = f" {text} "
    for pattern, separated in TOKENIZER_RULES:
        text = pattern.sub(separated, text)
    return text.split()


def _ngrams(words: list[str], size: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[start : start + size]) for start in range(len(words) - size + 1))
