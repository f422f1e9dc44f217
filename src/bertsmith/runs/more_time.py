"""What twice the time would bring: an estimate from runs that were measured on other texts and machines."""

from bertsmith.runs import candidates

# Nats that twice the tokens take off the validation loss of smith, by the tokens that are seen in the first half. Of
# bench/results/choose-cpu.json: mini from 0.5 M tokens, tiny from 3 M (by the recipe of before from 0.4 and 0.6 M 0.69
# and 0.83, from 1.8 to 2.8 M 0.35 to 0.41); of docs/diary.md: base from 138 M.
GAINS = {4e5: 0.62, 1.5e6: 0.36, 2e7: 0.22}
CORRECT_PER_NAT = 10  # more of 100 hidden words are right for a nat less, in the same runs


def gain(tokens_seen: float) -> float | None:
    """The nats that twice as many tokens bring, about; None for fewer tokens than were measured."""
    return [None, *(nats for least, nats in GAINS.items() if tokens_seen >= least)][-1]


def twice_the_time(like: str, size: str, size_then: str, tokens_seen: float, epochs: float) -> str:
    """One line on what twice the time would bring; empty where nothing comparable was measured.

    `size` and `size_then`: what `make` chooses for this time and for twice the time.
    """
    if 2 * epochs > candidates.MANY_EPOCHS:
        return f"Little: the text is seen {epochs:.0f} times as it is. More text would bring more."
    then = f" It would be {candidates.size_name(like, size_then)} then." if size_then != size else ""
    if like != candidates.SMITH:
        return then.strip()
    nats = gain(tokens_seen)
    if nats is None:
        return f"Much, probably: a run of so few tokens has hardly begun to learn.{then}"
    more = f"about {CORRECT_PER_NAT * nats:.0f} more of 100 hidden words right, {nats:.1f} nats"
    return f"By estimate, from runs on another text: {more}.{then}"
