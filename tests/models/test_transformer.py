from dataclasses import replace

import pytest
import torch

from bertsmith.data.batch import Tokens
from bertsmith.errors import TextError
from bertsmith.models.recorded import record
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.nn.kernel_choice import KernelName
from bertsmith.nn.positions import sinusoids

SMALL = TransformerConfig(vocabulary=60, width=32, layers=3, heads=4, feed_forward=48, max_length=24)
ROWS = [[7, 8, 9], [1] * 24, [], list(range(20)), [5], [9, 8, 7, 6] * 5]


def network(config: TransformerConfig = SMALL) -> Transformer:
    module = Transformer(config)
    initialise(module, 0, std=0.2)
    return module.eval()


def pairs(rows: list[list[int]]) -> Tokens:
    return Tokens.from_rows(rows, [[int(place > 2) for place in range(len(row))] for row in rows])


def test_grouped_and_eager_give_the_same_vectors() -> None:
    module, tokens = network(), pairs(ROWS)
    torch.testing.assert_close(module(tokens, "grouped"), module(tokens, "eager"), rtol=0, atol=1e-5)


def test_equal_rows_take_the_dense_kernel_and_give_the_same_vectors() -> None:
    module, tokens = network(), pairs([list(range(9)), list(range(9, 18))])
    assert tokens.equal_lengths
    for kernel in (None, "grouped", "eager"):
        torch.testing.assert_close(module(tokens, kernel), module(tokens, "dense"), rtol=0, atol=1e-5)


def test_positions_and_segments_change_the_vectors() -> None:
    module = network()
    forwards, backwards = module(pairs([[1, 2, 3]])), module(pairs([[3, 2, 1]]))
    assert not torch.allclose(forwards, backwards.flip(0), atol=1e-3)
    first, second = (module(Tokens.from_rows([[1, 2, 3]], [[kind] * 3])) for kind in (0, 1))
    assert not torch.allclose(first, second, atol=1e-3)
    assert torch.equal(
        first, module(Tokens.from_rows([[1, 2, 3]]))
    )  # without segments all tokens belong to the first text


@pytest.mark.parametrize("kernel", ["grouped", "eager", None])
def test_selected_positions_have_the_vectors_of_the_whole(kernel: KernelName | None) -> None:
    module, tokens = network(), pairs(ROWS)
    selected = torch.tensor([0, 3, 30, 30, 2, len(tokens.ids) - 1])
    torch.testing.assert_close(
        module(tokens, kernel, selected=selected), module(tokens, kernel)[selected], rtol=0, atol=1e-6
    )
    assert module(tokens, kernel, selected=selected[:0]).shape == (0, SMALL.width)


def test_states_are_the_embedding_and_every_layer() -> None:
    module, tokens = network(), pairs(ROWS)
    states = module.hidden_states(tokens)
    assert len(states) == SMALL.layers + 1
    assert torch.equal(states[-1], module(tokens))


def test_a_recorded_pass_has_the_vectors_and_the_weights_of_every_head() -> None:
    module, tokens = network(), pairs(ROWS)
    recorded = record(module, tokens)
    for found, true in zip(recorded.hidden, module.hidden_states(tokens, "eager"), strict=True):
        assert torch.equal(found, true)
    assert len(recorded.attention) == SMALL.layers
    assert recorded.cross_attention == []
    for layer in module.attention_maps(tokens):
        assert [tuple(weights.shape) for weights in layer] == [(4, len(row), len(row)) for row in ROWS]
        assert all(torch.allclose(weights.sum(2), torch.tensor(1.0)) for weights in layer)


def test_sinusoidal_positions_need_no_parameters() -> None:
    module = network(replace(SMALL, positions="sinusoidal"))
    assert torch.equal(module.positions.weight, sinusoids(SMALL.max_length, SMALL.width))
    assert sum(part.numel() for part in module.parameters()) == SMALL.parameter_count - 24 * 32 - 33 * 32
    assert replace(SMALL, positions="sinusoidal").parameter_count == SMALL.parameter_count - 24 * 32


def test_the_embedding_is_dropped_out_in_training_only() -> None:
    module, tokens = network(replace(SMALL, dropout=0.5, attention_dropout=0.0)).train(), pairs(ROWS)
    torch.manual_seed(0)
    dropped = (module.hidden_states(tokens)[0] == 0).float().mean()
    assert abs(dropped - 0.5) < 0.05
    assert (module.eval().hidden_states(tokens)[0] == 0).sum() == 0


def test_the_kernel_is_chosen_by_the_precision_of_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def chosen(equal: bool, longest: int, device: torch.device, dtype: torch.dtype, head_width: int) -> str:
        seen.append((equal, longest, device.type, dtype, head_width))
        return "grouped"

    monkeypatch.setattr("bertsmith.models.transformer.best_kernel", chosen)
    module = network()
    module(pairs(ROWS))
    with torch.autocast("cpu", torch.bfloat16):
        module(pairs(ROWS))
    longest = max(map(len, ROWS))
    assert seen == [(False, longest, "cpu", torch.float32, 8), (False, longest, "cpu", torch.bfloat16, 8)]


def test_flops_follow_the_formula() -> None:
    # 6 L (4 D D + 2 D F) + 12 L D s + 6 m (V D + D D), BERT-base at 128, a share of 0.15 predicted.
    layers = 6 * 12 * (4 * 768 * 768 + 2 * 768 * 3072) + 12 * 12 * 768 * 128
    assert TransformerConfig().flops(128, 0.15) == pytest.approx(layers + 6 * 0.15 * (30_522 * 768 + 768 * 768))


def test_half_precision_stays_half() -> None:
    module = network()
    with torch.autocast("cpu", torch.bfloat16):
        cast = module(pairs(ROWS))
    torch.testing.assert_close(cast.float(), module(pairs(ROWS)), rtol=0, atol=0.1)
    assert module.bfloat16()(pairs(ROWS)).dtype == torch.bfloat16


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": 0}, "layers is 0. Give at least 1"),
        ({"heads": 5}, "a width of 32 cannot be shared by 5 heads. Take a multiple"),
        ({"decoder_layers": -1}, "decoder_layers is -1. Give at least 0"),
        (
            {"positions": "relative", "buckets": 2},
            "2 buckets for distances up to 128. Take at least 4, and fewer than twice that",
        ),
        (
            {"positions": "relative", "window": 4},
            "local layers have no relative positions. Take rotary or learned ones, or window = 0",
        ),
        ({"dropout": 1.0}, "dropout is 1.0. Give a share, at least 0 and below 1"),
    ],
)
def test_impossible_sizes_are_refused(change: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}$"):
        replace(SMALL, **change)


def test_a_text_with_too_many_tokens_is_refused() -> None:
    with pytest.raises(TextError) as caught:
        network()(Tokens.from_rows([[1] * 25]))
    assert str(caught.value) == (
        "tokens: sequences of 25 tokens do not fit into 24 positions. "
        "Cut the text shorter, or train a model with more positions."
    )


def test_matrices_are_named_with_the_number_of_stacked_ones() -> None:
    plain, gated = (network(replace(SMALL, gated=gated)) for gated in (False, True))
    named = plain.matrices()
    assert len(named) == 4 * SMALL.layers
    assert named["layers.2.attention.qkv.weight"] == 3
    assert set(named) <= dict(plain.named_parameters()).keys()
    assert {name for name in named if gated.matrices()[name] != named[name]} == {
        f"layers.{number}.feed_forward.up.weight" for number in range(SMALL.layers)
    }
