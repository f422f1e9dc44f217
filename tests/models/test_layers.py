from dataclasses import replace

import pytest
import scripts
import torch
from torch import Tensor

from bertsmith.models.layers import AttentionInputs, FeedForward, Layer
from bertsmith.models.recorded import self_weights
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.attention import Eager

CONFIG = TransformerConfig(width=12, heads=3, feed_forward=24, dropout=0.0, attention_dropout=0.0)
INPUTS = AttentionInputs(Eager([4, 5], [4, 5]))


def layer(dropout: float = 0.0, attention_dropout: float = 0.0) -> Layer:
    torch.manual_seed(0)
    return Layer(replace(CONFIG, dropout=dropout, attention_dropout=attention_dropout))


def test_a_layer_ends_in_a_norm() -> None:
    out = layer()(torch.randn(9, 12), INPUTS)
    torch.testing.assert_close(out.mean(1), torch.zeros(9), rtol=0, atol=1e-5)
    torch.testing.assert_close(out.std(1, correction=0), torch.ones(9), rtol=0, atol=1e-4)


def test_sublayers_have_residual_connections() -> None:
    """With sublayers of 0 only the two norms remain, and a norm applied twice is the norm applied once."""
    module = layer()
    for last in (module.attention.output, module.feed_forward.down):
        torch.nn.init.zeros_(last.weight)
        torch.nn.init.zeros_(last.bias)
    hidden = torch.randn(9, 12)
    torch.testing.assert_close(module(hidden, INPUTS), torch.nn.functional.layer_norm(hidden, [12]), rtol=0, atol=1e-4)


def test_the_qkv_projection_is_ordered_query_key_value() -> None:
    whole, hidden = layer(), torch.randn(9, 12)
    module = whole.attention
    query, key, _ = (hidden @ part.T for part in module.qkv.weight.split(12))
    query, key = query + module.qkv.bias[:12], key + module.qkv.bias[12:24]
    scores = query[:4, 4:8] @ key[:4, 4:8].T / 2  # the second head of the first sequence
    torch.testing.assert_close(self_weights(whole, hidden, INPUTS)[0][1], scores.softmax(1))


@pytest.mark.parametrize(("dropout", "attention_dropout"), [(0.5, 0.0), (0.0, 0.5)])
def test_dropout_is_for_training_only(dropout: float, attention_dropout: float) -> None:
    module, hidden = layer(dropout, attention_dropout), torch.randn(9, 12)

    def twice() -> tuple[Tensor, Tensor]:
        return module(hidden, INPUTS), module(hidden, INPUTS)

    assert not torch.equal(*twice())
    module.eval()
    assert torch.equal(*twice())


def test_the_feed_forward_network_treats_each_token_alone() -> None:
    module, hidden = FeedForward(replace(CONFIG, activation="gelu_tanh")), torch.randn(9, 12)
    torch.testing.assert_close(module(hidden)[4:5], module(hidden[4:5]))


@pytest.mark.gpu
def test_a_compiled_layer_has_the_gradients_of_a_plain_one() -> None:
    scripts.run(__file__, "layer_graphs.py", "on_a_device")


@pytest.mark.gpu
def test_a_compiled_layer_has_the_same_dropout_mask_with_our_kernel() -> None:
    scripts.run(__file__, "layer_graphs.py", "dropout_on_a_device")
