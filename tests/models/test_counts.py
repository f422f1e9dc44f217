import subprocess
import sys
from dataclasses import replace

import pytest
import torch

from bertsmith.models.counts import Counted
from bertsmith.models.family import FAMILY
from bertsmith.models.layers import Layer
from bertsmith.models.networks import build_network, matrix_weights
from bertsmith.models.seq2seq import Seq2SeqConfig
from bertsmith.models.transformer_config import TransformerConfig

# FLOPs per token with lengths of 128.5 and 15 % of tokens predicted, as formulas written out by hand had them.
FLOPS = {
    "bert-base": 545_446_656.0,
    "albert-base": 527_953_305.6,
    "electra-small": 65_102_361.6,
    "gpt2": 552_037_248.0,
    "modernbert-base": 723_181_363.2,
    "smith-base": 545_446_656.0,
    "t5-small": 133_023_744.0,
    "transformer-base": 135_268_761.6,
    "lstm-large": 229_500_000.0,
    "gru-small": 4_680_000.0,
    "seq2seq": 10_144_972.8,
    "lstm-attention": 13_292_236.8,
    "elmo": 984_707_020.8,
}
SMALL = TransformerConfig(vocabulary=50, width=8, heads=2, layers=3, feed_forward=12, max_length=9)


@pytest.mark.parametrize("name", FLOPS)
def test_flops_of_members_stay_as_they_are(name: str) -> None:
    assert FAMILY[name].flops(128.5, 0.15) == pytest.approx(FLOPS[name], rel=1e-12)


@pytest.mark.parametrize(
    "config",
    [
        replace(SMALL, decoder_layers=2),  # with learned positions and segments in both halves
        replace(SMALL, decoder_layers=2, embedding_width=4),
        replace(SMALL, decoder_layers=2, share_layers=True),
        replace(SMALL, norm="rms", causal=True),
        replace(SMALL, cross_attention=True, causal=True),
        Seq2SeqConfig(vocabulary=20, width=4, hidden=6, attention="mlp"),
    ],
)
def test_every_parameter_of_a_network_is_counted(config: TransformerConfig | Seq2SeqConfig) -> None:
    assert config.parameter_count == sum(weight.numel() for weight in build_network(config).parameters())


def test_a_shared_layer_is_counted_for_each_pass() -> None:
    shared = replace(SMALL, share_layers=True)
    assert shared.parameter_count < SMALL.parameter_count
    assert shared.flops(7.0, 0.1) == SMALL.flops(7.0, 0.1)


def test_a_layer_has_the_products_of_its_matrices() -> None:
    layer = Layer(TransformerConfig(width=8, heads=2, feed_forward=12))
    assert matrix_weights(layer, layer) == 2 * (4 * 8 * 8 + 2 * 8 * 12)
    assert matrix_weights(torch.nn.Embedding(5, 8), torch.nn.LayerNorm(8)) == 0


def test_counting_draws_no_random_number() -> None:
    config, before = replace(SMALL, vocabulary=51), torch.get_rng_state()
    assert isinstance(config, Counted)
    assert config.parameter_count == SMALL.parameter_count + SMALL.width
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.slow("a new process imports torch")
def test_counting_the_family_imports_no_algebra_system() -> None:
    program = (
        "import sys; from bertsmith.models.family import FAMILY\n"
        "print(sum(shape.parameter_count > 0 for shape in FAMILY.values()), 'sympy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(FAMILY)), "False"]
