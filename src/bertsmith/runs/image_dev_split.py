"""The dev images that are held out of training where there are no others, and images that occur more than once."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from bertsmith import terminal
from bertsmith.data.images.labelled_images import LabelledImages
from bertsmith.errors import TextError
from bertsmith.random_bits import permute
from bertsmith.runs.dev_split import DEV_SHARE, MAX_DEV_EXAMPLES, stratified

NAMED = 3  # images of several classes that are named


def hold_out(whole: LabelledImages) -> tuple[LabelledImages, LabelledImages, str]:
    """A tenth of the images is held out, stratified by class where classes have several; and how, in words.

    Identical images stay together: all in training, or all held out.
    """
    _, firsts = np.unique(whole.digests, return_index=True)
    firsts.sort()  # different images, in their order: without duplicates all of them
    count = len(firsts)
    if count < 2:
        fact = "is the only image" if len(whole) < 2 else f"is the only image, {len(whole):,} times"
        raise TextError(whole.locations[0], fact, "Give at least two classes with two images each")
    wanted = min(MAX_DEV_EXAMPLES, max(1, int(DEV_SHARE * count)), count - 1)
    order = permute(np.arange(count), count, 0)
    held_out, how = stratified(order, whole.labels[firsts[order]].tolist(), wanted), ", stratified by class"
    if not len(held_out):  # each class has one image
        held_out, how = order[:wanted], ", at random: each class has one image"
    chosen = np.isin(whole.digests, whole.digests[firsts[held_out]])
    train, dev = (whole.take(np.flatnonzero(part)) for part in (~chosen, chosen))
    return train, replace(dev, dropped={}, bad=""), how


def duplicates(train: LabelledImages, dev: LabelledImages) -> Iterator[str]:
    """Warnings about identical images: copies in training, in training and dev, and under different labels."""
    if copies := len(train) - len(np.unique(train.digests)):
        yield f"duplicates: {terminal.count_of(copies, 'training image')} identical to another"
    if shared := int(np.isin(dev.digests, train.digests).sum()):
        yield f"duplicates: {terminal.count_of(shared, 'dev image')} also in training, so that the score is too high"
    if rows := _conflicts(train, dev):
        named = ", ".join([*train.locations, *dev.locations][row] for row in rows[:NAMED])
        more = ", ..." if len(rows) > NAMED else ""
        yield f"conflicting labels: {terminal.count_of(len(rows), 'image')} in several classes ({named}{more})"


def _conflicts(train: LabelledImages, dev: LabelledImages) -> list[int]:
    """The first row of each image that occurs in several classes."""
    digests, labels = (
        np.concatenate([one, other]) for one, other in ((train.digests, dev.digests), (train.labels, dev.labels))
    )
    _, firsts, groups = np.unique(digests, return_index=True, return_inverse=True)
    different: NDArray[np.bool_] = labels != labels[firsts[groups]]
    return sorted(set(firsts[groups[different]].tolist()))
