"""Speculative decoding by prompt lookup: a continuation is drafted from the text itself and verified in one pass.

Greedy decoding of one text on a CPU is memory-bound: a step reads all weights, and a few more tokens cost hardly more.
So the continuation that followed the last tokens before (Saxena 2023) is read together with the newest token, and the
logits verify it (Leviathan et al. 2023). Rejected tokens are rolled back; the generated text is the same.
"""

from collections.abc import Sequence
from operator import eq
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.models.generation.search import GenerationConfig

DRAFT_TOKENS = 4
NGRAM_AFTER_REJECTION, NGRAM_AFTER_ACCEPTANCE = 3, 2  # the last tokens that must have occurred before


class PromptLookup:
    """A text with an index from its n-grams to the position after their last occurrence."""

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
        """The continuation that followed the last n-gram at its previous occurrence; empty, if it is new."""
        start = self._continuations.get(tuple(self.text[-ngram:]))
        if start is None:
            return []
        period = len(self.text) - start  # at the end of the text the draft repeats itself
        return [self.text[start + number % period] for number in range(count)]


@runtime_checkable
class RollbackStep(Protocol):
    """A step that reads several tokens of one text at once; `rollback` removes the last ones from the cache."""

    def __call__(self, ids: Int[Tensor, "1 L"], parents: None) -> Float[Tensor, "1 L V"]: ...

    def rollback(self, count: int) -> None: ...


def speculative_decode(
    logits: Float[Tensor, "1 V"],
    step: RollbackStep,
    config: GenerationConfig,
    prompts: Sequence[Sequence[int]],
    limits: Int[Tensor, "1"],
    stop_ids: Int[Tensor, "_"],
) -> list[list[list[int]]]:
    """The greedy continuation of one prompt, the same as `search.sample`'s at temperature 0, in fewer steps."""
    max_new_tokens, stops = min(config.max_new_tokens, int(limits)), set(stop_ids.tolist())
    lookup, generated, draft, ngram = PromptLookup(*prompts), list[int](), list[int](), NGRAM_AFTER_ACCEPTANCE
    while True:
        without_stop = max(0, config.min_new_tokens - len(generated))
        logits[:without_stop].index_fill_(1, stop_ids, -torch.inf)
        best = logits.max(-1).indices.tolist()  # after the newest token, and after each token of the draft
        accepted = [*map(eq, draft, best), False].index(False)
        for token in best[: accepted + 1]:
            if token in stops:
                return [[generated]]
            generated.append(token)
            lookup.add(token)
        if len(generated) == max_new_tokens:
            return [[generated]]
        step.rollback(len(draft) - accepted)
        if draft:
            ngram = NGRAM_AFTER_ACCEPTANCE if accepted else NGRAM_AFTER_REJECTION
        draft = lookup.draft(ngram, min(DRAFT_TOKENS, max_new_tokens - len(generated) - 1))
        logits = step(torch.tensor([[generated[-1], *draft]]), None)[0]
