"""Blanks to try a model on: sentences it has not seen, each with one word taken out."""

from dataclasses import dataclass

import numpy as np

from bertsmith.data.shards import Shards
from bertsmith.data.shuffle import mix
from bertsmith.text.tokenizer import Tokenizer

SHORTEST, LONGEST = 8, 24  # tokens: enough to guess from, short enough to read


@dataclass(frozen=True)
class Cloze:
    """A sentence with a blank, and the word that stood there."""

    text: str
    truth: str


def blanks(shards: Shards, tokenizer: Tokenizer, count: int) -> list[Cloze]:
    """So many sentences spread over the text; the word taken out is whole and of three letters or more."""
    starts = np.concatenate([[0], shards.sentence_ends[:-1]])
    lengths = shards.sentence_ends - starts
    fitting = np.flatnonzero((lengths >= SHORTEST) & (lengths <= LONGEST))
    order = fitting[np.argsort(mix(fitting.astype(np.uint64)))]
    found: list[Cloze] = []
    for sentence in order[: 20 * count]:
        ids = shards.gather(starts[[sentence]], lengths[[sentence]])
        places = [place for place in range(2, len(ids) - 1) if _is_word(ids, place, tokenizer)]
        if not places:
            continue
        place = places[int(mix(int(sentence))) % len(places)]
        truth = tokenizer.piece(int(ids[place]))
        blank = [*ids[:place].tolist(), tokenizer.mask, *ids[place + 1 :].tolist()]
        found.append(Cloze(tokenizer.decode(blank, keep_special=True), truth))
        if len(found) == count:
            break
    return found


def _is_word(ids: np.ndarray, place: int, tokenizer: Tokenizer) -> bool:
    here, after = int(ids[place]), int(ids[place + 1])
    word = tokenizer.piece(here).lstrip("Ġ▁")
    return not tokenizer.continues[here] and not tokenizer.continues[after] and len(word) > 2 and word.isalpha()
