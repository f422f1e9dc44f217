"""Speculative decoding by prompt lookup: a continuation is drafted from the text itself and verified in one pass.

A token of one text takes a processor as long as memory needs to give it all weights, and a few tokens more take it
hardly longer. So what came behind the same tokens before (Saxena 2023) is read together with the newest token, and the
scores behind it tell how much of it was right (Leviathan et al. 2023). The rest is taken back.
"""

from collections.abc import Callable, Sequence
from operator import eq

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.models.generation.search import GenerationConfig, Step

DRAFT_TOKENS = 4  # tokens that are guessed at once
NGRAM_AFTER_REJECTION, NGRAM_AFTER_ACCEPTANCE = (
    3,
    2,
)  # tokens that must have come before: after a wrong guess, and after a right one


class PromptLookup:
    """A text that remembers what came behind every few of its tokens the last time."""

    def __init__(self, text: Sequence[int]) -> None:
        self.text: list[int] = []
        self._continuations: dict[tuple[int, ...], int] = {}
        for token in text:
            self.add(token)

    def add(self, token: int) -> None:
        for size in (NGRAM_AFTER_REJECTION, NGRAM_AFTER_ACCEPTANCE):
            if len(self.text) >= size:
                self._continuations[tuple(self.text[-size:])] = len(self.text)
        self.text.append(token)

    def draft(self, ngram: int, count: int) -> list[int]:
        """What comes if the text goes on as it did behind its last `size` tokens; nothing, if they are new."""
        place = self._continuations.get(tuple(self.text[-ngram:]))
        if place is None:
            return []
        turn = len(self.text) - place  # at its end it has come round
        return [self.text[place + number % turn] for number in range(count)]


def speculative_decode(
    logits: Float[Tensor, "1 V"],
    step: Step,
    rollback: Callable[[int], None],
    config: GenerationConfig,
    text: Sequence[int],
    limit: int,
    stop_ids: Int[Tensor, "_"],
) -> list[int]:
    """What `search.write` writes behind one text when it takes the likeliest tokens, in fewer steps.

    `take_back` makes a network forget the last so many tokens that a step gave it.
    """
    most, ends = min(config.max_new_tokens, limit), set(stop_ids.tolist())
    echo, written, guesses, size = PromptLookup(text), list[int](), list[int](), NGRAM_AFTER_ACCEPTANCE
    while True:
        early = max(0, config.min_new_tokens - len(written))
        logits[:early].index_fill_(1, stop_ids, -torch.inf)
        chosen = logits.max(-1).indices.tolist()  # behind the newest token, and behind each guess
        right = [*map(eq, guesses, chosen), False].index(False)
        for token in chosen[: right + 1]:
            if token in ends:
                return written
            written.append(token)
            echo.add(token)
        if len(written) == most:
            return written
        rollback(len(guesses) - right)
        if guesses:
            size = NGRAM_AFTER_ACCEPTANCE if right else NGRAM_AFTER_REJECTION
        guesses = echo.draft(size, min(DRAFT_TOKENS, most - len(written) - 1))
        logits = step(torch.tensor([[written[-1], *guesses]]), None)[0]
