"""A made-up language with many words, so that many counts are equal."""

from random import Random

SYLLABLES = ["ka", "lo", "mi", "nu", "ra", "se", "ti", "vo", "zú", "pé"]


def lines(count: int, seed: int = 0) -> list[str]:
    """Sentences of words of one to four syllables, the short ones the most frequent."""
    draw = Random(seed)
    return [" ".join(_word(draw) for _ in range(draw.randint(4, 12))).capitalize() + "." for _ in range(count)]


def _word(draw: Random) -> str:
    return "".join(draw.choice(SYLLABLES) for _ in range(min(4, 1 + int(draw.expovariate(0.9)))))
