"""BLEU: how many of the words of a translation, alone and in runs of up to four, stand in the one a person wrote.

Papineni et al. 2002, counted as sacreBLEU does by default (Post 2018, "A Call for Clarity in Reporting BLEU Scores"):
words as its `13a` cuts them, and a length of runs that never matched counts as half a match, then a quarter and so on.
"""

import math
import re
from collections import Counter
from collections.abc import Sequence

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp"  # in sacreBLEU's words
MAX_NGRAM = 4  # words in a run
ENTITIES = {"<skipped>": "", "-\n": "", "\n": " ", "&quot;": '"', "&amp;": "&", "&lt;": "<", "&gt;": ">"}
TOKENIZER_RULES = [
    (re.compile(r"([\{-\~\[-\` -\&\(-\+\:-\@\/])"), r" \1 "),  # marks, but for those that stand in numbers
    (re.compile(r"([^0-9])([\.,])"), r"\1 \2 "),
    (re.compile(r"([\.,])([^0-9])"), r" \1 \2"),
    (re.compile(r"([0-9])(-)"), r"\1 \2 "),
]


def bleu(predicted: Sequence[str], references: Sequence[str]) -> float:
    """Of all translations together, from 0 to 100."""
    right, whole = Counter[int](), Counter[int]()
    lengths = [0, 0]
    for one, other in zip(map(tokenize_13a, predicted), map(tokenize_13a, references), strict=True):
        lengths[0] += len(one)
        lengths[1] += len(other)
        for size in range(1, MAX_NGRAM + 1):
            runs = _ngrams(one, size)
            right[size] += (runs & _ngrams(other, size)).total()
            whole[size] += runs.total()
    if not right.total() or not all(whole[size] for size in range(1, MAX_NGRAM + 1)):
        return 0.0
    logarithm, missed = 0.0, 1.0
    for size in range(1, MAX_NGRAM + 1):
        if not right[size]:
            missed *= 2
        logarithm += math.log((right[size] or 1 / missed) / whole[size]) / MAX_NGRAM
    brevity = min(0.0, 1 - lengths[1] / lengths[0])
    return 100 * math.exp(logarithm + brevity)


def tokenize_13a(text: str) -> list[str]:
    """A text as it is counted: marks apart from words, points and commas only where they stand in no number."""
    text = text.rstrip()
    for written, meant in ENTITIES.items():
        text = text.replace(written, meant)
    text = f" {text} "
    for pattern, parted in TOKENIZER_RULES:
        text = pattern.sub(parted, text)
    return text.split()


def _ngrams(words: list[str], size: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[start : start + size]) for start in range(len(words) - size + 1))
