"""Next tokens: what is guessed, from what, and that nothing else has a say in it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from prose import PADDING, START, STOP, VOCABULARY, prose

from bertsmith.data.batch import Tokens
from bertsmith.data.packing.pack import PackedBatch, Packer
from bertsmith.errors import RecipeError
from bertsmith.models.family import GPT, GPT2
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.heads import pad_vocabulary
from bertsmith.nn.init import initialise
from bertsmith.objectives.base import Pretraining
from bertsmith.objectives.causal import CausalLM, collate, next_token_targets, tied_logits
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.replaced import ReplacedTokenDetection
from bertsmith.train.evaluate import evaluate

SIZES = {"vocabulary": VOCABULARY, "width": 32, "layers": 2, "heads": 2, "feed_forward": 128, "max_length": 64}
SHAPE = replace(GPT2, **SIZES)
BOTH = pytest.mark.parametrize("shape", [SHAPE, replace(GPT, **SIZES)], ids=["gpt2", "gpt"])


def objective(shape: TransformerConfig = SHAPE) -> CausalLM:
    made = CausalLM(Transformer(shape), CausalLM.Config())
    initialise(made, 0, std=0.1)
    with torch.no_grad():  # norms before make layers begin as if they were not there
        for layer in made.trunk.layers:
            layer.attention.output.weight.normal_(0, 0.1)
            layer.feed_forward.down.weight.normal_(0, 0.1)
    return made.eval()


def packed(position: int = 0, *, across: bool = True, length: int = 64, tokens: int = 1024) -> PackedBatch:
    how = {"start_id": START, "stop_id": STOP, "padding_id": PADDING, "seed": 1}
    return Packer(prose(300), max_length=length, batch_tokens=tokens, pairs="none", cross_documents=across, **how)(
        position
    )


def sequences(given: PackedBatch) -> list[np.ndarray]:
    return [given.ids[a:b] for a, b in zip(given.bounds, given.bounds[1 : given.real_sequences + 1], strict=False)]


def loss(made: CausalLM, row: list[int]) -> torch.Tensor:
    """Of each token of a sequence but its first, one after the other, by the formula."""
    with torch.no_grad():
        logits = made.logits(made.trunk(Tokens.from_rows([row[:-1]]), "eager"))
    return F.cross_entropy(logits, torch.tensor(row[1:]), reduction="none")


@pytest.mark.slow
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize(("length", "tokens"), [(64, 1024), (16, 512), (48, 500)])
def test_every_token_except_the_first_and_the_end_of_its_sequence_is_a_target(
    across: bool, length: int, tokens: int
) -> None:
    sizes = set()
    for position in range(4):
        given = packed(position, across=across, length=length, tokens=tokens)
        chosen, targets = next_token_targets(given)
        sizes.add(chosen.shape)
        wanted = np.concatenate([row[1:-1] for row in sequences(given)])
        assert np.array_equal(targets[targets != -100], wanted)
        real = chosen[targets != -100]
        assert np.array_equal(given.ids[real + 1], wanted)
        assert len(np.unique(real)) == len(real)
        assert (given.positions[real + 1] == given.positions[real] + 1).all()
        assert (wanted == STOP).any() == (across and any((row[:-1] == STOP).any() for row in sequences(given)))
        batch = collate(given)
        assert batch.counts["next_token"] == len(wanted) == given.real_tokens - 2 * given.real_sequences
        assert batch.counts["tokens"] == given.real_tokens
    assert len(sizes) == 1  # a compiled step knows one shape
    assert tokens * 0.8 < next(iter(sizes))[0] < tokens


@BOTH
def test_the_loss_is_the_sum_over_all_sequences_each_alone(shape: TransformerConfig) -> None:
    made, given = objective(shape), packed(across=True)
    with torch.no_grad():
        term = made(collate(given))["next_token"]
    alone = torch.cat([loss(made, row[:-1].tolist()) for row in sequences(given)])
    assert float(term.total) == pytest.approx(float(alone.sum()), rel=1e-5)
    assert term.correct is not None
    assert made.train()(collate(given))["next_token"].correct is None


def test_the_objective_adds_no_weights() -> None:
    made = objective()
    assert made.state_dict().keys() == {f"trunk.{name}" for name in made.trunk.state_dict()}
    assert (made.pairs, made.exports) == ("none", {"model": made})
    table = torch.randn(VOCABULARY, 32)
    hidden = torch.randn(5, 32)
    wide = F.linear(hidden, *pad_vocabulary(table, torch.zeros(VOCABULARY)))
    targets = torch.arange(5)
    assert wide.shape[1] % 64 == 0
    torch.testing.assert_close(F.cross_entropy(wide, targets), F.cross_entropy(tied_logits(hidden, table), targets))


def test_a_token_costs_its_share_of_the_layers_and_the_whole_vocabulary() -> None:
    layers = 2 * (6 * 12 * 32 * 32) + 12 * 32 * 2 * (40 + 1) / 2
    assert objective().flops(40.0) == layers + 6 * VOCABULARY * 32


def test_validation_reports_bits_per_byte() -> None:
    with torch.no_grad():
        figures = evaluate(objective(), [collate(packed())], 4.0)
    assert figures["bits_per_byte"] == pytest.approx(figures["next_token_loss"] / np.log(2) / 4)
    assert 0 <= figures["next_token_accuracy"] <= 1


def test_a_network_that_is_not_causal_is_refused() -> None:
    with pytest.raises(RecipeError) as caught:
        CausalLM(Transformer(replace(SHAPE, causal=False)), CausalLM.Config())
    fact = "the network is not causal, and would see the tokens that it has to predict"
    assert str(caught.value) == f"objective.kind: {fact}. Use 'masked_lm', or a member such as gpt2."


@pytest.mark.parametrize("kind", [MaskedLM, ReplacedTokenDetection])
def test_a_causal_network_does_not_learn_masked_lm(kind: type[Pretraining]) -> None:
    with pytest.raises(RecipeError) as caught:
        kind(Transformer(SHAPE), kind.Config())
    fact = "the network is causal, and masked tokens are predicted from both sides"
    assert str(caught.value) == f"objective.kind: {fact}. Use 'causal_lm', or a member such as bert-base."
