"""The verdict on a pretrained model: whether it has learnt, and how far it can be used, by plain thresholds."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import Any

from bertsmith.insight.report import TERM_LABELS

NO_GAIN, SMALL_GAIN = 0.02, 0.3  # nats below the unigram baseline: has not learnt, has begun to learn
# In the race of seven minutes BERT's recipe, about 2 nats below the baseline, was fine-tuned to 55.5 points of GLUE,
# hardly above guessing, and smith-base, about 4 below, to 68. docs/diary.md.
FAIR_GAIN, GOOD_GAIN = 2.0, 3.0
MIN_FOUND = 0.1  # share of the replaced tokens that a discriminator finds, below which it is not used
MIN_PIXEL_GAIN = 0.02  # of the loss of predicting the mean of each patch, below which nothing was learnt
OVERFIT_RISE = 0.15  # nats above the lowest validation loss


class Level(IntEnum):
    """How much a model has learnt."""

    NOTHING = 0
    LITTLE = 1  # has begun to learn
    WEAK = 2
    FAIR = 3
    GOOD = 4


def main_term(figures: Mapping[str, float]) -> str:
    """The name of the loss by which a model is judged."""
    return next(kind for kind in TERM_LABELS if f"{kind}_loss" in figures)


def level(figures: Mapping[str, float], baseline: float) -> Level:
    """The level of a model, by its validation loss and the unigram baseline; of ELECTRA also by what it finds."""
    gain = baseline - figures[f"{main_term(figures)}_loss"]
    if not gain >= NO_GAIN:  # also if it is NaN
        return Level.NOTHING
    if gain < SMALL_GAIN or figures.get("replaced_found", 1.0) < MIN_FOUND:
        return Level.LITTLE
    return Level.WEAK if gain < FAIR_GAIN else Level.FAIR if gain < GOOD_GAIN else Level.GOOD


def pixel_verdict(loss: float, baseline: float) -> str:
    """The same for a masked autoencoder: its loss compared with predicting the mean of each patch."""
    gain = 1 - loss / baseline
    if not gain >= MIN_PIXEL_GAIN:  # also if it is NaN
        remedy = "Give it more images or more time."
        return f"The model has not learnt yet: it predicts no better than the mean of each patch does. {remedy}"
    return f"The model has learnt: its validation loss is {gain:.0%} below that of predicting the mean of each patch."


def verdict(figures: Mapping[str, float], baseline: float, records: Sequence[Mapping[str, Any]]) -> str:
    """One sentence on whether a model has learnt: its validation loss compared with the word-frequency baseline."""
    kind = main_term(figures)
    loss, accuracy = figures[f"{kind}_loss"], figures[f"{kind}_accuracy"]
    gain, remedy = baseline - loss, "Give it more text or more time."
    below = f"its validation loss is {gain:.2f} nats below that of predicting by word frequency"
    reached = level(figures, baseline)
    if not gain >= 0:  # also if it is NaN
        above = f"its validation loss is {-gain:.2f} nats above that of predicting by word frequency"
        sentence = f"The model has not learnt yet: {above}. {remedy}"
    elif reached == Level.NOTHING:
        sentence = f"The model has not learnt yet: it predicts no better than word frequency does. {remedy}"
    elif reached == Level.LITTLE:
        sentence = f"The model has begun to learn: {below}. {remedy}"
    else:
        sentence = f"The model has learnt: {below}, and it predicts {accuracy:.0%} of {TERM_LABELS[kind]} correctly."
    earlier = [
        float(one[f"{kind}_loss"]) for one in records if one.get("kind") == "validation" and f"{kind}_loss" in one
    ]
    if earlier and loss - min(earlier) > OVERFIT_RISE:
        sentence += f" It overfits: its validation loss was lower before ({min(earlier):.2f}, now {loss:.2f})."
        sentence += " Give it more text, or less time."
    return sentence
