"""Prompt-lookup decoding changes no token of a text, only the number of steps."""

from dataclasses import replace
from typing import Any, ClassVar

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nn.causal import everywhere, prompts, trunk_of
from tasks.small import stirred
from torch import Tensor

from bertsmith.models import prepacked
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import T5, T5_V1_1
from bertsmith.models.generation.engine import CachedStep, GenerationEngine, generate
from bertsmith.models.generation.prompt_lookup import DRAFT_TOKENS, PromptLookup, speculative_decode
from bertsmith.models.generation.search import GenerationConfig, sample
from bertsmith.models.recurrent import Recurrent, RecurrentConfig
from bertsmith.random_bits import uniform

pytestmark = pytest.mark.slow("generates every text twice, for every member")

GREEDY = GenerationConfig(max_new_tokens=20, temperature=0)


def test_the_draft_is_what_followed_the_same_ngram() -> None:
    lookup = PromptLookup([1, 2, 3, 4, 5, 1, 2])
    assert lookup.draft(2, 3) == [3, 4, 5]
    assert lookup.draft(3, 3) == []  # 5 1 2 is new
    lookup.add(3)
    assert lookup.draft(3, 1) == [4]
    assert lookup.draft(3, 0) == []


def test_the_last_occurrence_counts() -> None:
    assert PromptLookup([1, 2, 3, 1, 2, 4, 1, 2]).draft(2, 2) == [4, 1]


def test_the_draft_of_a_periodic_text_is_periodic() -> None:
    assert PromptLookup([7, 8, 9, 8, 9]).draft(2, 5) == [8, 9, 8, 9, 8]
    assert PromptLookup([5, 5, 5]).draft(2, 4) == [5, 5, 5, 5]
    assert PromptLookup([5]).draft(2, 4) == []
    assert PromptLookup([]).draft(2, 4) == []


class Rounds:
    """A network without weights, whose logits depend on the last few tokens only, so that it repeats itself."""

    def __init__(self, seed: int, vocabulary: int, memory: int) -> None:
        self.seed, self.vocabulary, self.memory = seed, vocabulary, memory
        self.text: list[int] = []
        self.steps = 0

    def scores(self) -> Tensor:
        last = self.text[-self.memory :] if self.memory else []
        return torch.tensor([float(uniform(self.seed, *last, token)) for token in range(-self.vocabulary, 0)])

    def __call__(self, ids: Tensor, parents: Tensor | None) -> Tensor:
        self.steps += 1
        found = []
        for token in ids[0].tolist():
            self.text.append(token)
            found.append(self.scores())
        return torch.stack(found)[None]

    def rollback(self, count: int) -> None:
        del self.text[len(self.text) - count :]


@settings(max_examples=200, deadline=None)
@given(
    seed=st.integers(0, 1 << 30),
    vocabulary=st.integers(2, 9),
    memory=st.integers(0, 9),
    most=st.integers(1, 40),
    least=st.integers(0, 20),
    limit=st.integers(1, 40),
    text=st.lists(st.integers(0, 8), max_size=12),
    stops=st.sets(st.integers(0, 1)),
)
def test_the_text_is_that_of_greedy_decoding_token_by_token(
    seed: int, vocabulary: int, memory: int, most: int, least: int, limit: int, text: list[int], stops: set[int]
) -> None:
    config = GenerationConfig(max_new_tokens=most, min_new_tokens=min(least, most), temperature=0)
    slow, fast, ends = Rounds(seed, vocabulary, memory), Rounds(seed, vocabulary, memory), torch.tensor([*stops]).long()
    true = sample(slow.scores()[None], slow, config, [text], torch.tensor([limit]), ends)
    assert speculative_decode(fast.scores()[None], fast, config, [text], torch.tensor([limit]), ends) == true
    assert fast.steps <= slow.steps
    assert len(fast.text) <= min(most, limit)  # not beyond the limit


def test_a_repetitive_text_takes_a_fifth_of_the_steps() -> None:
    network, most = Rounds(0, 5, 1), 500
    config = GenerationConfig(max_new_tokens=most, temperature=0)
    none = torch.tensor([], dtype=torch.long)
    [[text]] = speculative_decode(network.scores()[None], network, config, [[]], torch.tensor([most]), none)
    assert len(text) == most
    assert network.steps < most / (1 + DRAFT_TOKENS) + 10


class Counted(CachedStep):
    """The number of tokens read at each step."""

    rows: ClassVar[list[int]] = []

    def __call__(self, ids: Tensor, parents: Tensor | None) -> Tensor:
        self.rows.append(ids.shape[1])
        return super().__call__(ids, parents)


@pytest.fixture
def rows(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    found: list[int] = []
    monkeypatch.setattr(Counted, "rows", found)
    monkeypatch.setattr("bertsmith.models.generation.engine.CachedStep", Counted)
    return found


@pytest.mark.exhaustive(suite=3)
@everywhere
def test_a_decoder_generates_the_same_with_drafts_as_without(changes: dict[str, Any], rows: list[int]) -> None:
    trunk, texts = trunk_of(changes), [*prompts([7, 3, 12, 1, 30]), [4, 5, 6] * 5]
    plain = [generate(GenerationEngine(trunk, prepack_weights=False), [text], GREEDY, [3])[0] for text in texts]
    assert set(rows) == {1}
    rows.clear()
    decoder = GenerationEngine(trunk)
    assert [generate(decoder, [text], GREEDY, [3])[0] for text in texts] == plain
    if decoder.prepacked:
        assert max(rows) > 1
        assert len(rows) < sum(len(text) for [text] in plain)


@pytest.mark.parametrize("config", [T5, T5_V1_1], ids=["t5", "later"])
def test_an_encoder_decoder_generates_the_same_with_drafts_as_without(config: Any, rows: list[int]) -> None:
    sizes: dict[str, Any] = {
        "vocabulary": 61,
        "width": 32,
        "layers": 2,
        "decoder_layers": 3,
        "heads": 4,
        "feed_forward": 48,
    }
    network = stirred(EncoderDecoder(replace(config, **sizes, buckets=8, max_distance=20, max_length=48))).eval()
    with torch.no_grad():
        for weight in network.parameters():  # large enough for texts to differ
            weight.mul_(2 if weight.ndim > 1 else 1)
    texts, most = (
        [[5, 9, 33, 7, 1], [*range(40, 60)], [8, 1]],
        replace(GREEDY, max_new_tokens=60),
    )  # more than the maximum length
    plain = [generate(GenerationEngine(network, prepack_weights=False), [text], most)[0] for text in texts]
    assert [len(text) for [text] in plain] == [47] * 3
    rows.clear()
    decoder = GenerationEngine(network)
    assert [generate(decoder, [text], most)[0] for text in texts] == plain
    assert not decoder.prepacked or len(rows) < 3 * 46


def test_nothing_is_drafted_where_it_would_not_pay_or_change_the_text(
    rows: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    trunk, text = trunk_of(), [4, 5, 6] * 3
    decoder, recurrent = GenerationEngine(trunk), GenerationEngine(Recurrent(RecurrentConfig(vocabulary=50)))
    generate(decoder, [text, text], GREEDY)
    generate(decoder, [text], replace(GREEDY, temperature=1.0))
    generate(GenerationEngine(trunk, torch.bfloat16), [text], GREEDY)
    generate(recurrent, [text], GREEDY)
    monkeypatch.setattr(prepacked, "can_prepack", lambda dtype: False)
    monkeypatch.setattr("bertsmith.models.generation.engine.can_prepack", prepacked.can_prepack)
    generate(GenerationEngine(trunk), [text], GREEDY)
    assert set(rows) == {1}
