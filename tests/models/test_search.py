"""Sampling and beam search on the logits of any network."""

from collections.abc import Callable
from itertools import product
from math import log
from typing import Any

import pytest
import torch
from torch import Tensor

from bertsmith.errors import RecipeError
from bertsmith.models.generation.search import (
    CHUNK,
    CHUNKED_FROM,
    GenerationConfig,
    beam_search,
    best_hypotheses,
    chunked_topk,
    draw_uniforms,
    sample,
    sample_token,
)
from bertsmith.random_bits import uniform

STOP = torch.tensor([0])
NONE = torch.tensor([], dtype=torch.long)


class Toy:
    """A network without weights: the logits of the next token are a hash of all earlier tokens."""

    def __init__(self, vocabulary: int, sequences: int = 2) -> None:
        self.vocabulary = vocabulary
        self.texts: list[list[tuple[int, ...]]] = [[()] for _ in range(sequences)]

    def logits(self, sequence: int, text: tuple[int, ...]) -> list[float]:
        return [4 * float(uniform(9, sequence, *text, token)) for token in range(-self.vocabulary, 0)]

    @property
    def first(self) -> Tensor:
        return torch.tensor([self.logits(sequence, ()) for sequence in range(len(self.texts))])

    def __call__(self, ids: Tensor, parents: Tensor | None) -> Tensor:
        ways = torch.zeros_like(ids) if parents is None else parents
        self.texts = [
            [
                (*several[way % len(several)], token) for way, token in zip(*pair, strict=True)
            ]  # at first there is one beam
            for several, pair in zip(self.texts, zip(ways.tolist(), ids.tolist(), strict=True), strict=True)
        ]
        scores = [[self.logits(sequence, text) for text in texts] for sequence, texts in enumerate(self.texts)]
        return torch.tensor(scores)

    def likelihood(self, sequence: int, text: tuple[int, ...]) -> float:
        shares = [torch.tensor(self.logits(sequence, text[:position])).log_softmax(0) for position in range(len(text))]
        return sum(float(share[token]) for share, token in zip(shares, text, strict=True))


def limits(*most: int) -> Tensor:
    return torch.tensor(most)


def wholes(vocabulary: int, most: int) -> list[tuple[int, ...]]:
    """All possible texts: those that stop, and those of the maximum length."""
    words = range(1, vocabulary)
    stopped = [(*text, 0) for length in range(most) for text in product(words, repeat=length)]
    return stopped + list(product(words, repeat=most))


@pytest.mark.slow
@pytest.mark.parametrize("penalty", [0.0, 0.7, 1.0, 2.0, -0.5])
@pytest.mark.parametrize("samples", [1, 4])
def test_a_beam_wide_enough_finds_the_best_texts_of_all(penalty: float, samples: int) -> None:
    toy = Toy(4)
    config = GenerationConfig(max_new_tokens=4, num_beams=120, length_penalty=penalty, samples=samples)
    found = best_hypotheses(toy.first, toy, config, limits(4, 4), STOP)
    for sequence, ours in enumerate(found):
        every = {text: toy.likelihood(sequence, text) / len(text) ** penalty for text in wholes(4, 4)}
        best = sorted(every, key=every.__getitem__, reverse=True)[:samples]
        assert [tuple(text) for text, _ in ours] == [text[:-1] if text[-1] == 0 else text for text in best]
        assert [score for _, score in ours] == pytest.approx([every[text] for text in best], abs=1e-5)


def test_beam_search_returns_no_more_texts_than_exist() -> None:
    toy = Toy(3)
    found = best_hypotheses(
        toy.first, toy, GenerationConfig(max_new_tokens=1, num_beams=5, samples=5), limits(1, 1), STOP
    )
    assert [sorted(text for text, _ in ours) for ours in found] == [[[], [1], [2]]] * 2


def test_the_scores_of_a_narrow_beam_are_true() -> None:
    toy = Toy(5)
    found = best_hypotheses(
        toy.first, toy, GenerationConfig(max_new_tokens=6, num_beams=3, samples=3), limits(6, 6), STOP
    )
    for sequence, ours in enumerate(found):
        scores = [score for _, score in ours]
        assert scores == sorted(scores, reverse=True)
        for text, score in ours:
            whole = tuple(text) if len(text) == 6 else (*text, 0)
            assert score == pytest.approx(toy.likelihood(sequence, whole) / len(whole), abs=1e-5)


def test_beam_search_stops_when_no_hypothesis_can_become_better() -> None:
    certain = torch.tensor([[9.0, 0.0, 0.0]])
    steps = []

    def step(ids: Tensor, parents: Tensor | None) -> Tensor:
        steps.append(ids)
        return torch.tensor([[[9.0, 0.0, 0.0]] * 2])

    [[best]] = best_hypotheses(
        certain, step, GenerationConfig(max_new_tokens=500, num_beams=2, length_penalty=0.0), limits(500), STOP
    )
    assert best == ([], pytest.approx(log(1 / (1 + 2 * 2.718281828**-9)), abs=1e-6))
    assert not steps


def test_one_beam_is_greedy() -> None:
    greedy, narrow = Toy(7), Toy(7)
    config = GenerationConfig(max_new_tokens=9, temperature=0)
    one = sample(greedy.first, greedy, config, [[1], [2]], limits(9, 9), NONE)
    assert one == beam_search(narrow.first, narrow, config, [[1], [2]], limits(9, 9), NONE)


def test_top_k_of_one_is_greedy() -> None:
    greedy, drawn = Toy(7), Toy(7)
    first, second = (
        GenerationConfig(max_new_tokens=9, temperature=0),
        GenerationConfig(max_new_tokens=9, top_k=1, temperature=3.0),
    )
    one = sample(greedy.first, greedy, first, [[1], [2]], limits(9, 9), STOP)
    assert one == sample(drawn.first, drawn, second, [[1], [2]], limits(9, 9), STOP)


@pytest.mark.parametrize("search", ["write", "beam"])
def test_stop_tokens_limits_and_min_new_tokens_are_respected(search: str) -> None:
    def texts(config: GenerationConfig, most: Tensor) -> list[list[int]]:
        toy, strategy = Toy(3, sequences=40), sample if search == "write" else beam_search
        return [best[0] for best in strategy(toy.first, toy, config, [[n] for n in range(40)], most, STOP)]

    own: dict[str, Any] = {"temperature": 1.0} if search == "write" else {"num_beams": 3, "length_penalty": 0.0}
    free = texts(GenerationConfig(max_new_tokens=8, **own), limits(*[8] * 40))
    assert {len(text) for text in free} >= {0, 1}
    assert all(0 not in text for text in free)
    least = texts(GenerationConfig(max_new_tokens=8, min_new_tokens=3, **own), limits(*[8] * 40))
    assert min(map(len, least)) == 3
    bound = texts(GenerationConfig(max_new_tokens=8, min_new_tokens=8, **own), limits(*[1 + n % 10 for n in range(40)]))
    assert [len(text) for text in bound] == [min(8, 1 + n % 10) for n in range(40)]


@pytest.mark.parametrize(
    "config",
    [
        GenerationConfig(temperature=1.0, top_k=0, top_p=1.0),
        GenerationConfig(temperature=0.7, top_k=0, top_p=0.8),
        GenerationConfig(temperature=1.5, top_k=6, top_p=1.0),
        GenerationConfig(temperature=1.3, top_k=9, top_p=0.6),
        GenerationConfig(temperature=1.3, top_k=9, top_p=1e-6),
    ],
)
def test_probabilities_are_those_of_transformers(config: GenerationConfig) -> None:
    from transformers.generation import logits_process as theirs

    torch.manual_seed(3)
    scores = 2 * torch.randn(1, 30)
    warpers: list[Callable[..., Tensor]] = [theirs.TemperatureLogitsWarper(config.temperature)]
    warpers += [theirs.TopKLogitsWarper(config.top_k)] if config.top_k else []
    warpers += [theirs.TopPLogitsWarper(config.top_p)] if config.top_p < 1 else []
    warped = scores
    for warper in warpers:
        warped = warper(None, warped)
    steps = 20_000  # evenly spaced numbers: the share that draws a token is its probability
    uniforms = (torch.arange(steps, dtype=torch.float64) + 0.5) / steps
    found = sample_token(scores.expand(steps, -1), config, uniforms).bincount(minlength=30) / steps
    torch.testing.assert_close(found, warped.softmax(-1)[0], rtol=0, atol=2 / steps)
    assert (found[warped[0].isinf()] == 0).all()


def test_samples_follow_the_probabilities() -> None:
    config = GenerationConfig(max_new_tokens=4, temperature=1.0, top_k=0, top_p=1.0, samples=500, seed=5)
    uniforms = draw_uniforms([[1, 2, 3], [4]], config, config.max_new_tokens)
    scores = torch.tensor([[2.0, 1.0, 0.0, -1.0, 0.5]])
    ids = torch.stack([sample_token(scores.expand(1000, -1), config, uniforms[:, position]) for position in range(4)])
    expected = scores.softmax(-1)[0] * 4000
    counts = ids.flatten().bincount(minlength=5)
    assert ((counts - expected) ** 2 / expected).sum() < 18.5  # chi-square with four degrees, one in a thousand


def test_random_numbers_depend_on_seed_prompt_sample_and_position_only() -> None:
    config = GenerationConfig(max_new_tokens=6, samples=2)
    both = draw_uniforms([[1, 2], [3]], config, 6)
    assert both.shape == (4, 6)
    assert len(both.unique()) == 24
    assert torch.equal(both[2:], draw_uniforms([[3]], config, 6))
    assert torch.equal(both[2:3, :4], draw_uniforms([[3]], GenerationConfig(), 4))
    assert not torch.equal(both, draw_uniforms([[1, 2], [3]], GenerationConfig(samples=2, seed=1), 6))


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"max_new_tokens": 0}, "max_new_tokens: is 0. Give at least 1."),
        ({"temperature": -0.5}, "temperature: is -0.5. Give at least 0."),
        ({"top_k": -1}, "top_k: is -1. Give at least 0."),
        ({"top_p": 0.0}, "top_p: is 0.0. Give a share above 0, at most 1."),
        ({"top_p": 1.5}, "top_p: is 1.5. Give a share above 0, at most 1."),
        ({"num_beams": 0}, "num_beams: is 0. Give at least 1."),
        ({"max_new_tokens": "5"}, "max_new_tokens: is '5'. Give a whole number."),
        ({"max_new_tokens": 2.5}, "max_new_tokens: is 2.5. Give a whole number."),
        ({"top_k": 1.5}, "top_k: is 1.5. Give a whole number."),
        ({"samples": True}, "samples: is True. Give a whole number."),
        ({"seed": None}, "seed: is None. Give a whole number."),
        ({"temperature": float("nan")}, "temperature: is nan. Give a number."),
        ({"temperature": "hot"}, "temperature: is 'hot'. Give a number."),
        (
            {"temperature": 1e-39},
            "temperature: is 1e-39, and logits are divided by it. Give 0, which is greedy decoding, or at least 0.001.",
        ),
        (
            {"temperature": 1e39},
            "temperature: is 1e+39, at which every token is as likely. Give at most 1000.",
        ),
        ({"top_p": 1e-46}, "top_p: is 1e-46, which leaves no token. Give at least 0.000001."),
        ({"length_penalty": float("nan")}, "length_penalty: is nan. Give a number."),
        ({"length_penalty": 1e6}, "length_penalty: is 1000000.0, an exponent. Give -10 to 10."),
        ({"num_beams": 2, "samples": 3}, "samples: is 3, of 2 beams. Take as many beams."),
        (
            {"max_new_tokens": 5, "min_new_tokens": 9},
            "min_new_tokens: is 9, and max_new_tokens 5. Give at most as many.",
        ),
        (
            {"num_beams": 2, "temperature": 1.5},
            "temperature: is 1.5, and a beam search draws nothing. Leave it out, or set num_beams=1.",
        ),
        (
            {"length_penalty": 2.0},
            "length_penalty: is 2.0, of beam search alone. Set num_beams to 2 or more, or leave it out.",
        ),
    ],
)
def test_impossible_settings_are_refused(wrong: dict, line: str) -> None:
    config = GenerationConfig()
    for name, value in wrong.items():  # not by the constructor, whose types are checked in tests, and only there
        object.__setattr__(config, name, value)
    with pytest.raises(RecipeError) as caught:
        config.__post_init__()
    assert str(caught.value) == line


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_random_numbers_are_drawn_for_the_tokens_that_fit_only(temperature: float) -> None:
    config = GenerationConfig(max_new_tokens=10**15, temperature=temperature)  # which no memory holds
    found = sample(torch.zeros(1, 5), lambda ids, _: torch.zeros(1, 1, 5), config, [[1]], torch.tensor([3]), NONE)
    assert [len(text) for text in found[0]] == [3]


@pytest.mark.parametrize("size", [5, 10 * CHUNK, 10 * CHUNK + 1, 20 * CHUNK, 1_000])
@pytest.mark.parametrize("together", [False, True])
def test_chunked_topk_equals_topk(size: int, together: bool) -> None:
    """Few scores and many, full chunks and partial ones; the highest scores spread out, or in one chunk."""
    count = min(10, size)
    uniforms = torch.Generator().manual_seed(size)
    scores = torch.randperm(2 * 3 * size, generator=uniforms).view(2, 3, size).float()
    scores = scores.sort(-1).values if together else scores
    values, ids = chunked_topk(scores, count)
    truth = scores.topk(count)
    assert torch.equal(values, truth.values)
    assert torch.equal(ids, truth.indices)


def test_chunked_topk_finds_the_few_tokens_that_are_not_forbidden() -> None:
    scores = torch.full((1, 1, 700), -torch.inf)
    scores[..., [3, 650, 699]] = torch.tensor([1.0, 3.0, 2.0])
    values, ids = chunked_topk(scores, 10)
    assert ids[0, 0, :3].tolist() == [650, 699, 3]
    assert values[0, 0].tolist() == [3.0, 2.0, 1.0, *[-torch.inf] * 7]
    assert int(ids.max()) < 700


@pytest.mark.gpu
def test_beam_search_over_a_large_vocabulary_is_the_same_on_gpu_and_cpu() -> None:
    sequences, vocabulary = 5, 50_000
    config = GenerationConfig(max_new_tokens=4, num_beams=5, samples=5)
    assert sequences * config.num_beams * vocabulary >= CHUNKED_FROM
    row = torch.randn(vocabulary, generator=torch.Generator().manual_seed(3)) * 3

    def found(device: str) -> list[list[tuple[list[int], float]]]:
        scores, places = row.to(device), torch.arange(vocabulary, device=device)

        def step(ids: Tensor, parents: Tensor | None) -> Tensor:
            turned = scores[(places + ids[..., None] * 7919) % vocabulary]
            return turned * (1 + ids[..., None] % 101 / 300)  # so that no two texts are equally likely

        first = step(torch.arange(sequences, device=device), None)
        return best_hypotheses(first, step, config, limits(*[4] * sequences).to(device), NONE.to(device))

    for one, other in zip(found("cpu"), found("cuda"), strict=True):
        assert [text for text, _ in one] == [text for text, _ in other]
        assert [score for _, score in one] == pytest.approx([score for _, score in other], rel=1e-5)
