"""Decoding token by token with a KV cache gives the same as a whole forward pass."""

from typing import Any

import pytest
import torch
from nn.causal import everywhere, prompts, trunk_of
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.models.prepacked import prepack
from bertsmith.models.transformer import Transformer
from bertsmith.nn.attention import Eager
from bertsmith.nn.kv_cache import Cached, KVCache, LayerCache
from bertsmith.nn.window import CAUSAL

pytestmark = pytest.mark.slow("reads every sequence anew after every token")


def last(trunk: Transformer, rows: list[list[int]]) -> Tensor:
    """The vectors of the last tokens by a whole forward pass."""
    tokens = Tokens.from_rows(rows)
    return trunk(tokens, "eager")[tokens.bounds[1:].long() - 1]


def prefilled(trunk: Transformer, rows: list[list[int]], steps: int, beams: int = 1) -> tuple[KVCache, Tensor]:
    cache = trunk.cache(len(rows), max(map(len, rows)) + steps * beams, beams)
    return cache, trunk.prefill(Tokens.from_rows(rows), cache)


@everywhere
@torch.no_grad()
def test_steps_give_the_vectors_of_a_whole_pass(changes: dict[str, Any]) -> None:
    trunk, rows = trunk_of(changes), prompts()
    cache, hidden = prefilled(trunk, rows, 9)
    for step in range(9):
        torch.testing.assert_close(hidden, last(trunk, rows), rtol=0, atol=1e-5)
        ids = torch.arange(4) * 7 + step
        rows = [[*row, token] for row, token in zip(rows, ids.tolist(), strict=True)]
        hidden = trunk.step(ids[:, None], cache)[:, 0]
    torch.testing.assert_close(hidden, last(trunk, rows), rtol=0, atol=1e-5)


@pytest.mark.exhaustive(suite=8)
@pytest.mark.parametrize("slots", ["growing", "fixed", "pruned"])
@everywhere
@torch.no_grad()
def test_every_beam_is_computed_as_if_it_were_alone(changes: dict[str, Any], slots: str) -> None:
    trunk, rows, beams = trunk_of(changes), prompts([5, 2, 8]), 3
    generator = torch.Generator().manual_seed(2)
    cache, _ = prefilled(trunk, rows, 8, beams)
    cache.fixed = slots == "fixed"
    texts = [[row] * beams for row in rows]
    for step in range(8):
        parents = torch.randint(beams, (3, beams), generator=generator)
        ids = torch.randint(50, (3, beams), generator=generator)
        texts = [
            [[*several[old], new] for old, new in zip(olds, news, strict=True)]
            for several, olds, news in zip(texts, parents.tolist(), ids.tolist(), strict=True)
        ]
        cache.reorder(parents)
        hidden = trunk.step(ids, cache)
        alone = torch.stack([last(trunk, several) for several in texts])
        torch.testing.assert_close(hidden, alone, rtol=0, atol=1e-5)
        if slots == "pruned" and step in (3, 5):
            cache.prune()


@everywhere
@torch.no_grad()
def test_several_tokens_at_once_are_as_one_by_one_and_can_be_rolled_back(changes: dict[str, Any]) -> None:
    trunk, rows = trunk_of(changes), prompts([5, 2, 8])
    generator = torch.Generator().manual_seed(2)
    cache, _ = prefilled(trunk, rows, 12)
    for size, wrong in [(4, 3), (1, 0), (3, 0), (5, 5), (2, 1), (4, 0)]:
        ids = torch.randint(50, (3, size), generator=generator)
        hidden = trunk.step(ids, cache)
        for number in range(size):
            texts = [[*row, *new[: number + 1]] for row, new in zip(rows, ids.tolist(), strict=True)]
            torch.testing.assert_close(hidden[:, number], last(trunk, texts), rtol=0, atol=1e-5)
        cache.rollback(wrong)
        rows = [[*row, *new[: size - wrong]] for row, new in zip(rows, ids.tolist(), strict=True)]
    assert cache.lengths.tolist() == [len(row) for row in rows]
    assert cache.extent == 8 + 10


@torch.no_grad()
def test_pruning_frees_slots_of_no_beam() -> None:
    trunk, rows = trunk_of(), prompts([4, 4])
    cache, _ = prefilled(trunk, rows, 6, 2)
    for _ in range(5):
        cache.reorder(torch.zeros(2, 2, dtype=torch.long))
        trunk.step(torch.ones(2, 2, dtype=torch.long), cache)
    assert cache.extent == 4 + 5 * 2
    cache.prune()
    assert cache.extent == 4 + 4 + 2  # the prompt, four tokens that both beams share, and the last of each
    assert cache.slots.tolist() == [10, 11]


@torch.no_grad()
def test_repeated_sequences_are_continued_independently() -> None:
    trunk, rows = trunk_of(), prompts([5, 2])
    cache, hidden = prefilled(trunk, rows, 2)
    cache.repeat_interleave(3)
    ids = torch.tensor([3, 4, 5, 6, 7, 8])
    found = trunk.step(ids[:, None], cache)[:, 0]
    every = [[*rows[number // 3], token] for number, token in enumerate(ids.tolist())]
    torch.testing.assert_close(found, last(trunk, every), rtol=0, atol=1e-5)
    assert hidden.shape == (2, 32)


@everywhere
@torch.no_grad()
def test_prepacked_layers_fill_the_cache_as_plain_ones_do(changes: dict[str, Any]) -> None:
    trunk, rows = trunk_of(changes), prompts()
    light = prepack(trunk, torch.float32)
    cache, hidden = prefilled(light, rows, 2)
    torch.testing.assert_close(hidden, last(trunk, rows), rtol=0, atol=2e-5)
    found = light.step(torch.tensor([[1], [2], [3], [4]]), cache)[:, 0]
    longer = [[*row, number] for number, row in enumerate(rows, 1)]
    torch.testing.assert_close(found, last(trunk, longer), rtol=0, atol=2e-5)


@torch.no_grad()
def test_prepacked_layers_in_bfloat16_stay_near() -> None:
    trunk, rows = trunk_of(), prompts()
    light = prepack(trunk)
    cache = light.cache(4, 14, dtype=torch.bfloat16)
    light.prefill(Tokens.from_rows(rows), cache)
    found = light.step(torch.tensor([[1], [2], [3], [4]]), cache)[:, 0]
    longer = [[*row, number] for number, row in enumerate(rows, 1)]
    assert torch.nn.functional.cosine_similarity(found, last(trunk, longer)).min() > 0.999


@torch.no_grad()
def test_cached_attention_of_the_newest_token_is_that_of_the_whole_sequence() -> None:
    generator = torch.Generator().manual_seed(4)
    query, key, value = torch.randn(3, 2 * 5, 2, 8, generator=generator)  # two sequences of five tokens, two heads
    whole = Eager([5, 5], [5, 5], window=CAUSAL).attend(query, key, value)
    kept = LayerCache(*(part.view(2, 5, 2, 8).transpose(1, 2).clone() for part in (key, value)), torch.tensor([4]))
    kept.keys[:, :, 4] = kept.values[:, :, 4] = 0  # the call stores the newest token
    newest = slice(4, None, 5)
    found = Cached(kept).attend(query[newest], key[newest], value[newest])
    torch.testing.assert_close(found, whole[newest], rtol=0, atol=1e-6)
