"""Cloze sentences to try a model on: sentences it has not seen, with a word masked, or prompts to be continued."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from bertsmith.data.shards.shards import Shards
from bertsmith.random_bits import mix
from bertsmith.text.language import is_word
from bertsmith.text.tokenizer import Tokenizer

MIN_TOKENS, MAX_TOKENS = 8, 24  # tokens: enough to guess from, short enough to read


@dataclass(frozen=True)
class Cloze:
    """A sentence with a blank, and the word that stood there."""

    text: str
    truth: str


def cloze_sentences(shards: Shards, tokenizer: Tokenizer, count: int) -> list[Cloze]:
    """So many sentences spread over the text; the word taken out is whole and of three letters or more.

    Where there are too few such, as in scripts without spaces, shorter words are taken, and parts of long sentences.
    """
    found: list[Cloze] = []
    for least, cut in ((3, False), (1, False), (1, True)):
        for sentence, ids in islice(_sentences(shards, cut), 20 * count):
            places = [place for place in range(2, len(ids) - 1) if _is_word(ids, place, tokenizer, least)]
            if not places or len(found) == count:
                continue
            place = places[int(mix(sentence)) % len(places)]
            truth = tokenizer.readable(int(ids[place]))
            blank = [*ids[:place].tolist(), tokenizer.mask_id, *ids[place + 1 :].tolist()]
            found.append(Cloze(tokenizer.decode(blank, keep_special=True), truth))
        if found:
            break
    return found


def openings(shards: Shards, tokenizer: Tokenizer, count: int) -> list[str]:
    """The first half of so many sentences; where the vocabulary has sentinels, whole ones with two pieces taken out."""
    found = []
    for _, ids in islice(_sentences(shards), count):
        row, half = ids.tolist(), len(ids) // 2
        rest = [tokenizer.sentinels[0], *row[half + 2 :]] if tokenizer.sentinels else []
        found.append(tokenizer.decode(row[:half] + rest, keep_special=True))
    return found


def _sentences(shards: Shards, truncate: bool = False) -> Iterator[tuple[int, np.ndarray]]:
    """Sentences of a length that is good to read, spread over the text: their numbers and pieces.

    `cut`: of longer ones the beginning, too.
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
        and len(word) >= min_letters
        and is_word(word)
    )
