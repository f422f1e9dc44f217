"""Cloze sentences to try a model on: sentences it has not seen, with a word masked, or prompts to be continued."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from bertsmith.data.shards.shards import Shards
from bertsmith.random_bits import mix
from bertsmith.text.language import UNSPACED_LETTER, is_word
from bertsmith.text.tokenizer import Tokenizer

MIN_TOKENS, MAX_TOKENS = 8, 24  # tokens of a sentence: enough context, and short enough to read


@dataclass(frozen=True)
class Cloze:
    """A sentence with one word masked, and that word."""

    text: str
    truth: str


def cloze_sentences(shards: Shards, tokenizer: Tokenizer, count: int) -> list[Cloze]:
    """`count` sentences spread over the text; the masked word is one token of three letters or more.

    In scripts without spaces one character will do. Where there are none, shorter words and truncated sentences are
    taken.
    """
    found: list[Cloze] = []
    for min_letters, truncate in ((3, False), (1, False), (1, True)):
        for sentence, ids in islice(_sentences(shards, truncate), 20 * count):
            positions = [one for one in range(2, len(ids) - 1) if _is_word(ids, one, tokenizer, min_letters)]
            if not positions or len(found) == count:
                continue
            position = positions[int(mix(sentence)) % len(positions)]
            truth = tokenizer.readable(int(ids[position]))
            masked = [*ids[:position].tolist(), tokenizer.mask_id, *ids[position + 1 :].tolist()]
            found.append(Cloze(tokenizer.decode(masked, keep_special=True), truth))
        if found:
            break
    return found


def openings(shards: Shards, tokenizer: Tokenizer, count: int) -> list[str]:
    """The first halves of `count` sentences, as prompts; for T5, sentences with two tokens replaced by a sentinel."""
    found = []
    for _, ids in islice(_sentences(shards), count):
        row, half = ids.tolist(), len(ids) // 2
        rest = [tokenizer.sentinels[0], *row[half + 2 :]] if tokenizer.sentinels else []
        found.append(tokenizer.decode(row[:half] + rest, keep_special=True))
    return found


def _sentences(shards: Shards, truncate: bool = False) -> Iterator[tuple[int, np.ndarray]]:
    """Sentences of `MIN_TOKENS` to `MAX_TOKENS`, spread over the text: their numbers and token ids.

    `truncate`: also the beginnings of longer ones.
    """
    starts = np.concatenate([[0], shards.sentence_ends[:-1]])
    lengths = shards.sentence_ends - starts
    lengths = np.minimum(lengths, MAX_TOKENS) if truncate else lengths
    fitting = np.flatnonzero((lengths >= MIN_TOKENS) & (lengths <= MAX_TOKENS))
    for sentence in fitting[np.argsort(mix(fitting.astype(np.uint64)))].tolist():
        yield sentence, shards.gather(starts[[sentence]], lengths[[sentence]])


def _is_word(ids: np.ndarray, position: int, tokenizer: Tokenizer, min_letters: int) -> bool:
    here, after = int(ids[position]), int(ids[position + 1])
    word = tokenizer.piece(here).lstrip("Ġ▁")
    return (
        not tokenizer.continuation_mask[here]
        and not tokenizer.continuation_mask[after]
        and (len(word) >= min_letters or UNSPACED_LETTER.match(word) is not None)
        and is_word(word)
    )
