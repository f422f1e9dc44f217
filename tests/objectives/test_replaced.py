"""Replaced tokens: losses by the formula, draws by the softmax, and the laws of every objective."""

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from prose import MASK, PADDING, START, STOP, VOCABULARY, prose
from torch import Tensor

from bertsmith import config
from bertsmith.data.batch import Tokens
from bertsmith.data.packing.pack import Packer
from bertsmith.errors import RecipeError
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.objectives.masked import Collator as Hide
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.masking import MaskingVocabulary
from bertsmith.objectives.replaced import (
    BLOCK_WORDS,
    Collator,
    ReplacedBatch,
    ReplacedTokenDetection,
    block_count,
    gumbel_noise,
    sample_from_logits,
    sample_from_probabilities,
)
from bertsmith.recipe import Recipe
from bertsmith.train.evaluate import evaluate
from bertsmith.train.step import Step

pytestmark = pytest.mark.slow("draws many samples")

SHAPE = TransformerConfig(
    vocabulary=VOCABULARY,
    width=32,
    embedding_width=12,
    layers=2,
    heads=2,
    feed_forward=48,
    max_length=64,
    dropout=0.0,
    attention_dropout=0.0,
    pooler="gelu",
)
SPECIAL = np.arange(VOCABULARY) < 5
JUDGED = ("all", "masked", "none")


def objective(**changes: Any) -> ReplacedTokenDetection:
    made = ReplacedTokenDetection(
        Transformer(SHAPE), ReplacedTokenDetection.Config(**{"generator_size": 0.5, **changes})
    )
    initialise(made, 0, std=0.1)
    return made.eval()


def batch(index: int = 0, tokens: int = 1024, **changes: Any) -> ReplacedBatch:
    how = {"start_id": START, "stop_id": STOP, "padding_id": PADDING, "seed": 1}
    pack = Packer(prose(300), max_length=64, batch_tokens=tokens, pairs="none", **how)
    settings = ReplacedTokenDetection.Config(**changes)
    hide = Hide(MaskedLM.Config(pairs="none", **settings.masking), MaskingVocabulary.of(~SPECIAL, SPECIAL, MASK))
    return Collator(settings, hide)(pack(index))


def some(given: ReplacedBatch, keep: list[int]) -> ReplacedBatch:
    """A few sequences of a batch, as a batch of their own."""
    bounds, ids = given.tokens.bounds.tolist(), given.tokens.ids.tolist()
    rows = [(bounds[number], bounds[number + 1]) for number in keep]
    places = torch.tensor([place for begin, end in rows for place in range(begin, end)])
    new = {int(place): number for number, place in enumerate(places)}
    mine = [number for number, place in enumerate(given.target_positions.tolist()) if place in new]
    real = given.text_mask[places]
    judged = "replaced" if "replaced" in given.counts else "guessed"
    every = given.counts[judged] != len(given.target_positions)
    return ReplacedBatch(
        tokens=Tokens.from_rows([ids[begin:end] for begin, end in rows], [[0] * (end - begin) for begin, end in rows]),
        target_positions=torch.tensor(
            [new[place] for place in given.target_positions[mine].tolist()], dtype=torch.int64
        ),
        targets=given.targets[mine],
        random_bits=given.random_bits[mine],
        text_mask=real,
        counts={"masked": len(mine), judged: int(real.sum()) if every else len(mine)},
    )


def sequences(given: ReplacedBatch) -> list[int]:
    """Those that are not empty, filler included."""
    return [number for number, length in enumerate(given.tokens.bounds.diff().tolist()) if length]


def formula(made: ReplacedTokenDetection, given: ReplacedBatch) -> dict[str, Tensor]:
    """The losses, written out for one sequence at a time."""
    sums: dict[str, Tensor] = Counter()
    for number in sequences(given):
        one = some(given, [number])
        hidden = made.generator.trunk(one.tokens, "eager")
        logits = made.generator.logits(hidden[one.target_positions])
        words = sample_from_logits(logits, one.random_bits)
        sums["masked"] += sum(-logits[n].log_softmax(-1)[target] for n, target in enumerate(one.targets))
        ids = one.tokens.ids.clone()
        ids[one.target_positions] = one.targets.int()
        true = ids.clone()
        ids[one.target_positions] = words.int()
        vectors = made.trunk(replace(one.tokens, ids=ids), "eager")
        if made.config.discriminator_loss == "none":
            guessed = made.mlm_head(vectors[one.target_positions], made.trunk.embedding.weight).log_softmax(-1)
            sums["guessed"] += sum(-guessed[n, target] for n, target in enumerate(one.targets))
            continue
        asked = range(len(ids)) if made.config.discriminator_loss == "all" else one.target_positions.tolist()
        for place in asked:
            if one.text_mask[place]:
                chance = torch.sigmoid(made.discriminator(vectors[place : place + 1])[0])
                sums["replaced"] -= torch.log(chance if ids[place] != true[place] else 1 - chance)
    return sums


@pytest.mark.parametrize("judged", JUDGED)
def test_losses_are_those_of_the_formula(judged: str) -> None:
    made, given = objective(discriminator_loss=judged), batch(discriminator_loss=judged)
    with torch.no_grad():
        terms = made(given)
        expected = formula(made, given)
    assert terms.keys() == expected.keys()
    for name, total in expected.items():
        torch.testing.assert_close(terms[name].total, total, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("judged", JUDGED)
def test_training_has_the_losses_of_validation_and_the_gradients_of_the_plain_path(
    judged: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, given = objective(discriminator_loss=judged), batch(discriminator_loss=judged)

    def learnt() -> tuple[list[Tensor], list[Tensor]]:
        totals = [term.total for term in made(given).values()]
        return totals, list(torch.autograd.grad(sum(totals), made.parameters(), allow_unused=True))

    quick, quick_slopes = learnt()
    monkeypatch.setattr("bertsmith.nn.kernels.linear_cross_entropy_cpu.available", lambda *_: False)
    plain, plain_slopes = learnt()
    torch.testing.assert_close(quick, plain)
    for one, other in zip(quick_slopes, plain_slopes, strict=True):
        assert (one is None) == (other is None)
        if other is not None:
            assert (one - other).norm() <= 1e-4 * other.norm()


def test_samples_from_probabilities_equal_those_from_logits() -> None:
    dice = torch.Generator().manual_seed(2)
    logits = 3 * torch.randn(2_000, VOCABULARY, generator=dice)
    draws = torch.randint(-(1 << 31), 1 << 31, (2_000, 2), generator=dice).int()
    noise = gumbel_noise(draws, block_count(VOCABULARY) + BLOCK_WORDS)
    assert torch.equal(sample_from_probabilities(logits.softmax(1), noise), sample_from_logits(logits, draws))


def test_samples_follow_the_softmax() -> None:
    dice = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(1, VOCABULARY, generator=dice)
    logits[0, 300:] = -math.inf  # many that never come, and blocks of nothing else
    count = 200_000
    draws = torch.randint(-(1 << 31), 1 << 31, (count, 2), generator=dice).int()
    found = torch.cat([sample_from_logits(logits.expand(len(part), -1), part) for part in draws.split(20_000)])
    shares, wanted = torch.bincount(found, minlength=VOCABULARY)[:300] / count, logits.softmax(-1)[0, :300]
    assert found.max() < 300
    deviation = (shares - wanted) / (wanted * (1 - wanted) / count).sqrt()
    assert deviation.abs().max() < 4.5
    assert deviation.square().mean() == pytest.approx(1, abs=0.3)


def test_rare_words_are_sampled_as_absent_words() -> None:
    """A vocabulary that fills its last block, and one that does not."""
    dice = torch.Generator().manual_seed(1)
    logits = torch.randn(50, 2 * BLOCK_WORDS, generator=dice)
    logits[:, -6:] = -math.inf
    draws = torch.randint(-(1 << 31), 1 << 31, (50, 2), generator=dice).int()
    assert torch.equal(sample_from_logits(logits, draws), sample_from_logits(logits[:, :-6], draws))


def test_noise_is_gumbel_and_never_infinite_upwards() -> None:
    dice = torch.Generator().manual_seed(0)
    noise = gumbel_noise(torch.randint(-(1 << 31), 1 << 31, (2000, 2), generator=dice).int(), 1000)
    assert noise.mean() == pytest.approx(0.5772, abs=0.01)
    assert noise.std() == pytest.approx(math.pi / math.sqrt(6), abs=0.01)
    assert noise.max() < 23
    rows, columns = torch.corrcoef(noise[:200]), torch.corrcoef(noise[:, :200].T)
    for found, size in ((rows, 1000), (columns, 2000)):
        assert (found - torch.eye(200)).abs().max() < 6 / math.sqrt(size)


def test_a_sampled_token_that_equals_the_true_one_counts_as_original() -> None:
    """A generator that always puts in word 7: where 7 was hidden nothing was replaced."""
    made, given = objective(), batch()
    given = replace(given, targets=torch.where(torch.arange(len(given.targets)) % 3 == 0, 7, given.targets))
    with torch.no_grad():
        made.generator.mlm_head.bias[7] = 1000.0
        made.discriminator.output.weight.zero_()
        made.discriminator.output.bias.fill_(2.0)  # says of each that it was replaced
        term = made(given)["replaced"]
    put = int((given.targets != 7).sum())
    assert put < len(given.targets)
    assert term.ratios is not None
    assert [int(one) for one in term.ratios["found"]] == [put, put]
    assert term.correct == put
    chance = 1 / (1 + math.exp(-2.0))
    expected = -put * math.log(chance) - (given.counts["replaced"] - put) * math.log(1 - chance)
    assert float(term.total) == pytest.approx(expected, rel=1e-5)


def test_special_tokens_are_discriminated_and_padding_is_not() -> None:
    given = batch(tokens=4096)
    real = int(given.text_mask.sum())
    assert given.counts["replaced"] == real == given.counts["tokens"] < 4096
    assert (given.tokens.ids[~given.text_mask] == PADDING).all()
    assert given.text_mask[given.tokens.ids == START].all()
    made = objective()
    with torch.no_grad():
        before = made(given)
        ids = torch.where(given.text_mask, given.tokens.ids, 77)
        after = made(replace(given, tokens=replace(given.tokens, ids=ids)))
    torch.testing.assert_close(after["replaced"].total, before["replaced"].total)
    assert after["replaced"].correct == before["replaced"].correct


def test_every_chosen_token_is_masked() -> None:
    given = batch()
    assert (given.tokens.ids[given.target_positions] == MASK).all()
    assert len(given.target_positions) == round(0.15 * 1024)


def test_no_gradient_goes_through_the_sampling() -> None:
    """The generator's own weights learn from its guesses alone, the tables from both."""
    made, given = objective().train(), batch()
    own = {name: weight for name, weight in made.generator.named_parameters() if name.startswith(("trunk.layers", "h"))}
    terms = made(given)
    terms["replaced"].total.backward(retain_graph=True)
    assert all(weight.grad is None for weight in own.values())
    judged = made.trunk.embedding.weight.grad.clone()
    assert judged.abs().max() > 0
    terms["masked"].total.backward()
    assert all(weight.grad is not None for weight in own.values())
    assert not torch.equal(made.trunk.embedding.weight.grad, judged)


def test_both_networks_have_one_set_of_tables() -> None:
    made = objective()
    for name in ("embedding", "positions", "segments", "embedding_norm"):
        assert getattr(made.generator.trunk, name) is getattr(made.trunk, name)
    assert made.generator.trunk.embedding_projection is not made.trunk.embedding_projection
    assert made.generator.trunk.embedding_projection.weight.shape == (16, 12)
    assert made.hidden_matrices().keys() <= dict(made.named_parameters()).keys()
    assert sum(name.startswith("generator.trunk.layers") for name in made.hidden_matrices()) == 2 * 4


def test_the_weight_scales_the_gradient_and_not_the_reported_loss() -> None:
    found: dict[float, tuple[Tensor, Tensor, Mapping[str, float]]] = {}
    given = batch()
    for weight in (1.0, 50.0):
        made, step = objective(discriminator_weight=weight), object.__new__(Step)
        losses = step.backward(made(given), given.counts)
        with torch.no_grad():
            figures = evaluate(made, [given], 4.0)
        found[weight] = (losses, made.discriminator.output.weight.grad.clone(), figures)
    (losses, slope, figures), (again, steeper, weighted) = found[1.0], found[50.0]
    assert torch.equal(losses, again)
    torch.testing.assert_close(steeper, 50 * slope)
    for name in ("masked_loss", "replaced_loss", "replaced_accuracy", "replaced_found"):
        assert figures[name] == weighted[name]
    assert figures["loss"] == pytest.approx(figures["masked_loss"] + figures["replaced_loss"])
    assert weighted["loss"] == pytest.approx(figures["masked_loss"] + 50 * figures["replaced_loss"])


def test_in_training_only_losses_are_computed() -> None:
    terms = objective().train()(batch())
    assert [(term.correct, term.ratios) for term in terms.values()] == [(None, None)] * 2
    assert (terms["masked"].weight, terms["replaced"].weight) == (1.0, 50.0)


def test_only_masked_tokens_are_discriminated_if_configured() -> None:
    given = batch(discriminator_loss="masked")
    assert given.counts["replaced"] == len(given.target_positions)
    made, every = objective(discriminator_loss="masked"), objective()
    read: list[int] = []
    made.discriminator.register_forward_hook(lambda part, arguments, scores: read.append(len(scores)))
    with torch.no_grad():
        terms = made(given)
        _, there = every(batch())["replaced"].ratios["found"]
    assert read == [len(given.target_positions)]
    assert int(terms["replaced"].ratios["found"][1]) == int(there)  # the same tokens were replaced


def test_the_true_tokens_are_predicted_without_a_discriminator() -> None:
    made, given = objective(discriminator_loss="none"), batch(discriminator_loss="none")
    assert not hasattr(made, "discriminator")
    with torch.no_grad():
        terms = made(given)
    assert terms["guessed"].weight == 1.0
    assert given.counts["guessed"] == len(given.target_positions)
    # Never does the trunk see a token that says that something is hidden.
    seen: list[Tensor] = []
    made.trunk.embedding.register_forward_hook(lambda part, arguments, found: seen.append(arguments[0]))
    with torch.no_grad():
        made(given)
    generator, trunk = seen
    assert (generator[given.target_positions] == MASK).all()
    assert (trunk[given.target_positions] == MASK).float().mean() < 0.05


def test_validation_is_deterministic_and_leaves_the_random_state() -> None:
    made, batches = objective(), [batch(0), batch(1)]
    torch.manual_seed(3)
    before = torch.get_rng_state()
    with torch.no_grad():
        first, second = (evaluate(made, batches, 4.0) for _ in range(2))
    assert first == second
    assert torch.equal(torch.get_rng_state(), before)


def test_every_epoch_samples_anew() -> None:
    one, same, other = batch(0), batch(0), batch(1)
    assert torch.equal(one.random_bits, same.random_bits)
    assert len({tuple(bits) for bits in torch.cat([one.random_bits, other.random_bits]).tolist()}) == 2 * len(
        one.random_bits
    )


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ("generator_size=0", "generator_size is 0.0. Give a share of the network, above 0 and at most 1"),
        ("generator_size=1.5", "generator_size is 1.5. Give a share of the network, above 0 and at most 1"),
        ("discriminator_weight=-1", "discriminator_weight is -1.0. Give more than 0, usually 50"),
        ("discriminator_loss=some", "discriminator_loss"),
        ("pairs=next", "unknown key 'pairs'"),
    ],
)
def test_settings_that_make_no_sense_are_refused_in_one_line(change: str, line: str) -> None:
    path = Path(__file__).parents[2] / "src" / "bertsmith" / "recipes" / "electra-small.toml"
    with pytest.raises(RecipeError) as caught:
        config.read(path, Recipe, [f"objective.{change}"])
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_generator_that_cannot_be_is_refused_in_one_line() -> None:
    turned = replace(SHAPE, width=12, embedding_width=0, positions="rotary")
    with pytest.raises(RecipeError) as caught:
        ReplacedTokenDetection(Transformer(turned), ReplacedTokenDetection.Config())
    line = "objective.generator_size: heads of width 3 cannot be rotated in pairs. Take an even width."
    assert str(caught.value) == line
