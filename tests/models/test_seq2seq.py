"""Sequence-to-sequence LSTMs: what the decoder may see, and that a cache does not change its output."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tasks.small import stirred
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.models.generation.engine import GenerationEngine, generate
from bertsmith.models.generation.search import GenerationConfig
from bertsmith.models.networks import build_network
from bertsmith.models.seq2seq import Attention, Seq2Seq, Seq2SeqConfig
from bertsmith.nn.init import initialise

pytestmark = pytest.mark.slow("trains until no mistake is left")

SIZES: dict[str, Any] = {"vocabulary": 40, "width": 12, "hidden": 16, "max_length": 20, "dropout": 0.3}
WAYS: tuple[Attention, ...] = ("none", "dot", "bilinear", "mlp")
SHAPES = {
    **{way: Seq2SeqConfig(**SIZES, attention=way) for way in WAYS},
    "deep": Seq2SeqConfig(**SIZES, layers=2, decoder_layers=3, attention="mlp", tie_embeddings=False),
    "unfed": Seq2SeqConfig(**SIZES, layers=2, decoder_layers=2, input_feeding=False),
    "2014": Seq2SeqConfig(**SIZES, layers=2, decoder_layers=2, attention="none", direction="right_to_left"),
    "left_to_right": Seq2SeqConfig(**SIZES, attention="dot", direction="left_to_right"),
}
EVERY = pytest.mark.parametrize("config", SHAPES.values(), ids=SHAPES)
READ, WRITTEN = [[3, 4, 5, 6], [7, 8]], [[0, 9, 10], [0, 11, 12, 13, 14]]


def made(config: Seq2SeqConfig) -> Seq2Seq:
    built: Seq2Seq = stirred(Seq2Seq(config))
    with torch.no_grad():
        for parameter in built.parameters():
            parameter *= 3  # so that the output clearly depends on the source
    return built


@torch.no_grad()
def vectors(model: Seq2Seq, read: list[list[int]], written: list[list[int]]) -> list[Tensor]:
    return list(model(Tokens.from_rows(read), Tokens.from_rows(written)).split([len(row) for row in written]))


@EVERY
def test_the_parameter_count_is_that_of_the_network_and_folders_have_a_name_for_it(config: Seq2SeqConfig) -> None:
    with torch.device("meta"):
        built = build_network(config)
    assert isinstance(built, Seq2Seq)
    assert sum(part.numel() for part in built.parameters()) == config.parameter_count
    assert config.architecture == "seq2seq"
    names = built.matrices()
    assert names.keys() <= dict(built.named_parameters()).keys()
    assert len(names) == 2 * config.directions * config.layers + 2 * config.decoder_layers


@EVERY
def test_empty_texts_and_a_max_length_that_is_an_upper_bound_change_nothing(config: Seq2SeqConfig) -> None:
    model = made(config)
    read, written = Tokens.from_rows(READ), Tokens.from_rows(WRITTEN)
    more = [
        replace(part, bounds=torch.cat([part.bounds, part.bounds[-1:].expand(2)]), max_length=19, equal_lengths=False)
        for part in (read, written)
    ]
    with torch.no_grad():
        torch.testing.assert_close(model(*more), model(read, written), rtol=0, atol=1e-6)


# --------------------------------------------------------------------------------------------- token by token


@EVERY
@torch.no_grad()
def test_cached_steps_give_the_same_as_the_whole_sequence(config: Seq2SeqConfig) -> None:
    model, written = made(config), [[0, 9, 10, 11], [0, 12, 13, 14]]
    whole = torch.stack(vectors(model, READ, written))
    cache = model.cache(2, 0)
    outputs = [model.prefill(Tokens.from_rows(READ), cache, Tokens.from_rows([row[:2] for row in written]))]
    outputs += [model.step(torch.tensor([[row[position]] for row in written]), cache)[:, 0] for position in (2, 3)]
    torch.testing.assert_close(torch.stack(outputs, 1), whole[:, 1:], rtol=0, atol=1e-6)


@EVERY
@torch.no_grad()
def test_a_beam_continues_the_state_of_its_parent(config: Seq2SeqConfig) -> None:
    model = made(config)
    cache = model.cache(2, 0, beams=3)
    model.prefill(Tokens.from_rows(READ), cache, Tokens.from_rows([[0], [0]]))
    model.step(torch.tensor([[9, 10, 11], [12, 13, 14]]), cache)
    cache.reorder(torch.tensor([[2, 0, 2], [1, 1, 0]]))
    found = model.step(torch.tensor([[5, 6, 7], [8, 9, 10]]), cache)
    for text, ways in ((0, [[0, 11, 5], [0, 9, 6], [0, 11, 7]]), (1, [[0, 13, 8], [0, 13, 9], [0, 12, 10]])):
        true = torch.stack([vectors(model, [READ[text]], [way])[0][-1] for way in ways])
        torch.testing.assert_close(found[text], true, rtol=0, atol=1e-6)


@EVERY
@torch.no_grad()
def test_samples_of_a_prompt_are_independent(config: Seq2SeqConfig) -> None:
    model = made(config)
    cache = model.cache(2, 0)
    model.prefill(Tokens.from_rows(READ), cache, Tokens.from_rows([[0], [0]]))
    cache.repeat_interleave(2)
    found = model.step(torch.tensor([[9], [10], [11], [12]]), cache)[:, 0]
    true = [vectors(model, [READ[number // 2]], [[0, 9 + number]])[0][-1] for number in range(4)]
    torch.testing.assert_close(found, torch.stack(true), rtol=0, atol=1e-6)


@pytest.mark.parametrize("way", WAYS)
@torch.no_grad()
def test_a_beam_wide_enough_finds_the_likeliest_text_of_all(way: Attention) -> None:
    model = made(replace(SHAPES[way], vocabulary=5))
    stop, most = 1, 3
    words = [word for word in range(5) if word != stop]
    texts = [(*text, stop) for length in range(most) for text in product(words, repeat=length)]
    texts += list(product(words, repeat=most))

    sources = [[2, 3, 4], [4], [3, 2]]
    config = GenerationConfig(max_new_tokens=most, num_beams=80, temperature=0)
    found = generate(GenerationEngine(model), sources, config, [stop])
    for read, (best,) in zip(sources, found, strict=True):
        hidden = model(Tokens.from_rows([read] * len(texts)), Tokens.from_rows([[0, *text[:-1]] for text in texts]))
        shares = model.logits(hidden).log_softmax(-1).split([len(text) for text in texts])
        means = [float(F.nll_loss(one, torch.tensor(text))) for one, text in zip(shares, texts, strict=True)]
        likeliest = texts[means.index(min(means))]
        assert best == [token for token in likeliest if token != stop]


def test_greedy_decoding_takes_the_likeliest_token_and_half_precision_is_close() -> None:
    model = made(SHAPES["bilinear"])
    config = GenerationConfig(max_new_tokens=6, temperature=0)
    found = generate(GenerationEngine(model), READ, config)
    for read, (text,) in zip(READ, found, strict=True):
        for position, token in enumerate(text):
            [hidden] = vectors(model, [read], [[0, *text[:position]]])
            assert int(model.logits(hidden[-1:]).argmax()) == token
    half = GenerationEngine(model, torch.bfloat16)
    scores, step = half.prefill(READ, config)
    assert scores.dtype == step(torch.tensor([[3], [4]]), None).dtype == torch.bfloat16


# -------------------------------------------------------------------------------------------------- alignment


@EVERY
def test_attention_weights_of_a_target_token_sum_to_one_over_the_source(config: Seq2SeqConfig) -> None:
    weights = made(config).alignment(Tokens.from_rows(READ), Tokens.from_rows(WRITTEN))
    if config.attention == "none":
        assert weights is None
        return
    assert weights is not None
    assert [tuple(one.shape) for one in weights] == [(3, 4), (5, 2)]
    for one in weights:
        torch.testing.assert_close(one.sum(-1), torch.ones(len(one)))
        assert one.min() >= 0


# --------------------------------------------------------------------------------------------------- learning

STOP, LETTERS, MOST = 1, range(4, 8), 3


def copy_task(seed: int, count: int = 64) -> tuple[Tokens, Tokens, Tensor]:
    """A copy task: after a 2 the letters in their order, after a 3 reversed."""
    dice = torch.Generator().manual_seed(seed)
    read, written = [], []
    for _ in range(count):
        size, back = int(torch.randint(1, MOST + 1, (), generator=dice)), int(torch.randint(2, (), generator=dice))
        row = torch.randint(LETTERS[0], LETTERS[-1] + 1, (size,), generator=dice).tolist()
        read.append([2 + back, *row, STOP])
        written.append([0, *(row[::-1] if back else row), STOP])
    given, wanted = Tokens.from_rows([row[:-1] for row in written]), Tokens.from_rows([row[1:] for row in written])
    return Tokens.from_rows(read), given, wanted.ids.long()


@pytest.mark.exhaustive(suite=1)
@pytest.mark.parametrize(("way", "steps"), [("dot", 120), ("mlp", 120), ("none", 200)])
def test_copying_and_reversing_are_learnt_without_a_mistake(way: Attention, steps: int) -> None:
    """The tiny recipe in tests/golden learns it with the bilinear score."""
    model = Seq2Seq(Seq2SeqConfig(vocabulary=8, width=32, hidden=64, attention=way, dropout=0.0, max_length=8))
    initialise(model, 0)
    optimizer = torch.optim.Adam(model.parameters(), 0.0, betas=(0.9, 0.98))
    for step in range(steps):
        optimizer.param_groups[0]["lr"] = 0.012 * min(1, (step + 1) / 10, 2 * (1 - step / steps))
        read, given, wanted = copy_task(step)
        loss = F.cross_entropy(model.logits(model(read, given)), wanted)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    read, given, wanted = copy_task(10_000, 100)
    rows = [row.tolist() for row in read.ids.split(read.bounds.diff().tolist())]
    generated = generate(
        GenerationEngine(model.eval()), rows, GenerationConfig(max_new_tokens=MOST + 2, temperature=0), [STOP]
    )
    true = [row[row != STOP].tolist() for row in wanted.split(given.bounds.diff().tolist())]
    assert [text for (text,) in generated] == true


def test_forget_gates_begin_open_and_weights_depend_on_the_seed_only() -> None:
    one, other = Seq2Seq(SHAPES["deep"]), Seq2Seq(SHAPES["deep"])
    initialise(one, 3)
    torch.manual_seed(9)
    initialise(other, 3)
    states = one.state_dict(), other.state_dict()
    assert all(torch.equal(states[1][name], weight) for name, weight in states[0].items())
    bias = states[0]["decoder.layers.1.bias_ih_l0"]
    assert bias.view(4, -1).sum(1).tolist() == [0, SIZES["hidden"], 0, 0]
    assert not states[0]["decoder.layers.1.bias_hh_l0"].any()
    assert 0 < states[0]["attentional.weight"].abs().max() <= (2 * SIZES["hidden"]) ** -0.5


def test_larger_networks_have_more_flops() -> None:
    plain, attention = SHAPES["none"].flops(12, 0.0), SHAPES["bilinear"].flops(12, 0.0)
    assert 0 < plain < attention < SHAPES["mlp"].flops(12, 0.0)
    assert attention < SHAPES["bilinear"].flops(20, 0.0)
    assert SHAPES["none"].flops(12, 0.5) - plain == pytest.approx(3 * 40 * 12)


@pytest.mark.parametrize(
    ("wrong", "line"),
    [
        ({"vocabulary": 0}, "vocabulary is 0. Give at least 1"),
        ({"decoder_layers": 0}, "decoder_layers is 0. Give at least 1"),
        ({"hidden": 7}, "hidden is 7, half of it for each direction. Give an even number"),
        ({"dropout": 1.0}, "dropout is 1.0. Give a share, at least 0 and below 1"),
    ],
)
def test_impossible_settings_are_refused(wrong: dict[str, Any], line: str) -> None:
    with pytest.raises(ValueError, match="Give") as caught:
        Seq2SeqConfig(**wrong)
    assert str(caught.value) == line


def test_one_direction_may_have_an_odd_width() -> None:
    assert Seq2SeqConfig(hidden=7, direction="left_to_right").parameter_count > 0


# ------------------------------------------------------------------------------------------------------ a GPU


@pytest.mark.gpu
@EVERY
def test_a_gpu_gives_the_same_as_a_cpu_and_half_precision_is_close(config: Seq2SeqConfig) -> None:
    model = stirred(Seq2Seq(replace(config, dropout=0.0)))
    true = torch.cat(vectors(model, READ, WRITTEN))
    moved, read, written = model.cuda(), Tokens.from_rows(READ).to("cuda"), Tokens.from_rows(WRITTEN).to("cuda")
    with torch.no_grad():
        torch.testing.assert_close(moved(read, written).cpu(), true, rtol=1e-4, atol=1e-4)
    moved.train()  # otherwise cuDNN keeps nothing for the backward pass
    with torch.autocast("cuda", torch.bfloat16):
        half = moved(read, written)
        moved.logits(half).float().sum().backward()
    torch.testing.assert_close(half.float().cpu(), true, rtol=5e-2, atol=5e-2)
    assert all(parameter.grad is not None for parameter in moved.parameters())


@pytest.mark.gpu
@EVERY
def test_a_step_is_captured_and_beam_search_is_the_same_on_gpu_and_cpu(config: Seq2SeqConfig) -> None:
    model = stirred(Seq2Seq(replace(config, dropout=0.0)))
    searches = [GenerationConfig(max_new_tokens=8, temperature=0, num_beams=beams) for beams in (1, 3)]
    true = [generate(GenerationEngine(model), READ, search, [1]) for search in searches]
    moved, read, written = model.cuda(), Tokens.from_rows(READ).to("cuda"), Tokens.from_rows(WRITTEN).to("cuda")
    assert [generate(GenerationEngine(moved), READ, search, [1]) for search in searches] == true
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    moved.train()

    def step() -> Tensor:
        moved.zero_grad(set_to_none=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss: Tensor = moved.logits(moved(read, written)).float().square().mean()
        loss.backward()
        return loss.detach()

    with torch.cuda.stream(stream):
        for _ in range(2):
            plain = step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        loss = step()
    graph.replay()
    torch.testing.assert_close(loss, plain)
