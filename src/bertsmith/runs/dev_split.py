"""The dev set that is held out of the training examples where a user gives none; nothing of it stands in training."""

from collections.abc import Sequence
from dataclasses import replace
from hashlib import blake2b, sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bertsmith.data.labelled.examples import Question, Sentence, take
from bertsmith.data.labelled.reader import LabelledData
from bertsmith.random_bits import permute

DEV_SHARE = 0.1  # of the training examples, if there is no dev file
MAX_DEV_EXAMPLES = 20_000  # of that split: more would cost time and add little
SPLIT_CANDIDATES = 200_000  # examples that a stratified split draws from


def split_dev(whole: LabelledData, classes: bool) -> tuple[LabelledData, LabelledData]:
    """Split off a tenth of the examples as a dev set, the same on every run; stratified by class.

    Questions are drawn with all others of their passage. Other examples go back to training where it has the same
    texts, unless no dev example would be left.
    """
    examples: Any = whole.examples
    count = len(examples)
    wanted = min(MAX_DEV_EXAMPLES, max(1, int(DEV_SHARE * count)), count - 1)
    order = permute(np.arange(min(SPLIT_CANDIDATES, count) if classes else wanted), count, 0)
    held_out = stratified(order, [examples[number].label for number in order], wanted) if classes else order
    chosen, note = np.zeros(count, np.bool_), ", stratified by class" if classes else ""
    chosen[held_out] = True
    groups = _groups(examples, held_out)
    if isinstance(examples[0], Question):
        passages = _whole_passages(groups, wanted)
        if passages is not None:
            chosen, note = passages, ", with all questions of their passages"
    else:
        repeated = np.unique(groups[~chosen & (groups >= 0)])
        kept = chosen & ~np.isin(groups, repeated)
        if len(repeated) and kept.any():
            returned = int(chosen.sum() - kept.sum())
            chosen, note = kept, f"{note}; {returned:,} more had texts that stand in training, and were left there"
    train, dev = (take(examples, np.flatnonzero(part)) for part in (~chosen, chosen))
    fingerprint = sha256(whole.fingerprint.encode() + np.packbits(chosen).tobytes()).hexdigest()
    description = f"{len(dev):,} of the training examples, held out{note}"
    held = replace(whole, examples=dev, description=description, dropped={}, fingerprint=fingerprint)
    return replace(whole, examples=train), held


def stratified(numbers: NDArray[np.int64], labels: Sequence[Any], wanted: int) -> NDArray[np.int64]:
    """A stratified sample: the first numbers of each class, in proportion to its size; never all of a class.

    `labels` are those of the numbers, in the same order.

    Shares are rounded down, and the rest goes to the classes with the largest remainders.
    """
    _, classes, sizes = np.unique(np.array(labels, np.str_), return_inverse=True, return_counts=True)
    shares = sizes * (wanted / len(labels))
    takes = np.minimum(shares.astype(np.int64), sizes - 1)
    for index in np.argsort(takes - shares, kind="stable")[: wanted - int(takes.sum())]:
        takes[index] += takes[index] < sizes[index] - 1
    ranks = np.empty(len(numbers), np.int64)  # of each number within its class
    ranks[np.argsort(classes, kind="stable")] = np.arange(len(numbers)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return numbers[ranks < takes[classes]]


def _groups(examples: Sequence[Any], candidates: NDArray[np.int64]) -> NDArray[np.int16]:
    """For every example the first candidate with the same texts, by its place among them; -1 where there is none.

    Only the hashes of the candidates are kept in memory, and two bytes an example.
    """
    places: dict[bytes, int] = {}
    for place, number in enumerate(candidates):
        places.setdefault(_text_hash(examples[number]), place)
    found = (places.get(_text_hash(example), -1) for example in examples)
    return np.fromiter(found, np.int16, len(examples))  # MAX_DEV_EXAMPLES fit


def _whole_passages(groups: NDArray[np.int16], wanted: int) -> NDArray[np.bool_] | None:
    """Whether a question is in the dev set: whole passages in the order drawn, as many as fit, at least the smallest.

    None where every passage has one question, or there is only one passage.
    """
    sizes = np.bincount(groups[groups >= 0], minlength=1)
    drawn = np.flatnonzero(sizes)
    if sizes.max() <= 1 or sizes.max() == len(groups):
        return None
    held_out, left = list[int](), wanted
    for place in drawn:
        if sizes[place] <= left:
            held_out.append(int(place))
            left -= int(sizes[place])
    return np.isin(groups, held_out or drawn[np.argmin(sizes[drawn])])


def _text_hash(example: Any) -> bytes:
    match example:
        case Question():
            texts: tuple[str, ...] = (example.context,)
        case Sentence():
            texts = example.words
        case _:
            texts = example.texts
    # No text holds a NUL, so that it separates them; a lone surrogate has no UTF-8.
    return blake2b("\0".join(texts).encode(errors="surrogatepass"), digest_size=8).digest()
