from dataclasses import replace

import pytest
import torch
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.lora import TARGETS, Lora, adapt, merge, pairs

SMALL = TransformerConfig(vocabulary=50, width=16, layers=2, heads=2, feed_forward=24, max_length=16)
TOKENS = Tokens.from_rows([[1, 2, 3, 4, 5], [6, 7, 8]])
EVERY = tuple(name for name in TARGETS if name != "qkv")


SHAPES = {
    "bert": SMALL,
    "albert": replace(SMALL, share_layers=True, layers=3, embedding_width=8),
    "modern": replace(SMALL, norm_position="pre", gated=True, biases=False, positions="rotary", segments=0),
}


def trunk(shape: str = "bert") -> Transformer:
    torch.manual_seed(0)
    return Transformer(SHAPES[shape]).eval()


def adapted(*targets: str, dropout: float = 0.0, seed: int = 0, shape: str = "bert") -> Transformer:
    network = trunk(shape)
    adapt(network, rank=3, alpha=6.0, dropout=dropout, targets=targets, seed=seed)
    return network


def learn(network: Transformer) -> None:
    """Make the updates nonzero, as after training."""
    for pair in pairs(network):
        pair.lora_b.normal_(0, 0.3)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("targets", [EVERY, ("qkv", "down")])
def test_an_adapted_network_has_the_same_output_at_first(shape: str, targets: tuple[str, ...]) -> None:
    with torch.no_grad():
        torch.testing.assert_close(adapted(*targets, shape=shape)(TOKENS), trunk(shape)(TOKENS), rtol=0, atol=0)


def test_only_the_thin_matrices_have_gradients() -> None:
    network = adapted("query", "value", "down")
    network(TOKENS).square().sum().backward()
    learning = {name for name, parameter in network.named_parameters() if parameter.grad is not None}
    assert learning == {
        f"layers.{layer}.{path}.{end}"
        for layer in (0, 1)
        for path in ("attention.qkv", "feed_forward.down")
        for end in ("lora_a", "lora_b")
    }
    assert learning == {name for name, parameter in network.named_parameters() if parameter.requires_grad}


def test_frozen_weights_keep_their_names() -> None:
    assert trunk().state_dict().keys() < adapted(*EVERY).state_dict().keys()


def test_the_paper_counts_two_thin_matrices_for_each_target() -> None:
    """Hu et al. 2021, section 4.2: 2 x layers x width x rank for one square target."""
    for targets in (("query",), ("query", "value"), ("query", "key", "value", "output")):
        learning = sum(part.numel() for part in adapted(*targets).parameters() if part.requires_grad)
        assert learning == len(targets) * 2 * SMALL.layers * SMALL.width * 3


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "targets",
    [("query", "value"), ("key",), ("value", "query", "key"), ("down",), EVERY, ("qkv",), ("up", "qkv")],
)
def test_merged_plain_linears_have_the_same_output(shape: str, targets: tuple[str, ...]) -> None:
    network = adapted(*targets, shape=shape)
    learn(network)
    with torch.no_grad():
        before = network(TOKENS)
        assert (before - trunk(shape)(TOKENS)).abs().max() > 1e-2
        merge(network)
        torch.testing.assert_close(network(TOKENS), before, rtol=0, atol=2e-6)
    assert [name for name, _ in network.named_parameters()] == [name for name, _ in trunk(shape).named_parameters()]
    assert not any(isinstance(module, Lora) for module in network.modules())


def test_a_shared_layer_has_one_adapter_whose_gradient_is_the_sum_of_its_uses() -> None:
    shared, apart = (
        adapted("query", "down", shape="albert"),
        Transformer(replace(SHAPES["albert"], share_layers=False)),
    )
    assert [(pair.layer, pair.target) for pair in pairs(shared)] == [(0, "query"), (0, "down")]
    learn(shared)
    own = {name: weight for name, weight in shared.state_dict().items() if not name.endswith((".lora_a", ".lora_b"))}
    layers = {name.replace("layers.0", f"layers.{n}"): weight for name, weight in own.items() for n in range(3)}
    apart.load_state_dict(own | layers)
    adapt(apart.eval(), rank=3, alpha=6.0, dropout=0.0, targets=("query", "down"), seed=0)
    learnt = {pair.target: pair for pair in pairs(shared)}
    for pair in pairs(apart):
        pair.lora_a.copy_(learnt[pair.target].lora_a)
        pair.lora_b.copy_(learnt[pair.target].lora_b)
    for network in (shared, apart):
        network(TOKENS).square().sum().backward()
    for path in ("attention.qkv", "feed_forward.down"):
        for end in ("lora_a", "lora_b"):
            name = f"{path}.{end}"
            parts = [layer.get_parameter(name).grad for layer in apart.layers]
            total = shared.layers[0].get_parameter(name).grad
            assert total is not None
            torch.testing.assert_close(sum(part for part in parts if part is not None), total)


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_changes_its_own_rows_and_no_others(target: str) -> None:
    network, plain = adapted(target), trunk()
    learn(network)
    changes = {
        (pair.layer, pair.target): 2 * pair.lora_b @ pair.lora_a  # alpha / rank
        for pair in pairs(network)
    }
    assert changes.keys() == {(0, target), (1, target)}
    merge(network)
    path, part, parts = TARGETS[target]
    for (name, weight), before in zip(network.state_dict().items(), plain.state_dict().values(), strict=True):
        layer = next((layer for layer in (0, 1) if name == f"layers.{layer}.{path}.weight"), None)
        if layer is None:
            assert torch.equal(weight, before), name
            continue
        for number, (rows, old) in enumerate(zip(weight.chunk(parts), before.chunk(parts), strict=True)):
            if number == part:
                torch.testing.assert_close(rows - old, changes[layer, target], rtol=0, atol=1e-6)
            else:
                assert torch.equal(rows, old)


def test_the_gradient_is_that_of_the_merged_weight() -> None:
    """dL/dB = scale dL/dW A' and dL/dA = scale B' dL/dW, for the rows of each part."""
    linear = torch.nn.Linear(6, 12)
    module = Lora(
        linear, rank=2, alpha=3.0, dropout=0.0, generator=torch.Generator().manual_seed(0), chosen=(0, 2), parts=3
    )
    with torch.no_grad():
        module.lora_b.normal_()
    plain, hidden = module.merged().requires_grad_(True), torch.randn(5, 6)
    weights = torch.randn(5, 12)
    for one in (module, plain):
        (one(hidden).tanh() * weights).sum().backward()
    assert plain.weight.grad is not None
    whole = plain.weight.grad.chunk(3)
    for index, part in enumerate((0, 2)):
        up, down = module.lora_b.detach()[index], module.lora_a.detach()[index]
        assert module.lora_b.grad is not None
        assert module.lora_a.grad is not None
        torch.testing.assert_close(module.lora_b.grad[index], 1.5 * whole[part] @ down.T)
        torch.testing.assert_close(module.lora_a.grad[index], 1.5 * up.T @ whole[part])


def test_the_seed_alone_determines_the_initial_weights() -> None:
    def downs(network: Transformer) -> Tensor:
        return torch.cat([pair.lora_a.flatten() for pair in pairs(network)])

    first = downs(adapted("query", "value"))
    torch.manual_seed(9)
    assert torch.equal(first, downs(adapted("value", "query")))
    assert not torch.equal(first, downs(adapted("query", "value", seed=1)))
    assert first.abs().max() <= 1 / SMALL.width**0.5  # as PEFT draws them
    assert first.abs().max() > 0.9 / SMALL.width**0.5
    assert not any(pair.lora_b.any() for pair in pairs(adapted("query")))


def test_dropout_is_on_the_input_of_the_update_and_in_training_only() -> None:
    linear = torch.nn.Linear(6, 6)
    module = Lora(linear, rank=2, alpha=2.0, dropout=0.5, generator=torch.Generator().manual_seed(0))
    hidden = torch.randn(4, 6)
    assert torch.equal(module(hidden), linear(hidden))  # the frozen product sees no dropout
    torch.nn.init.normal_(module.lora_b)
    assert not torch.equal(module(hidden), module(hidden))
    module.eval()
    torch.testing.assert_close(module(hidden), linear(hidden) + hidden @ (module.lora_b[0] @ module.lora_a[0]).T)


def test_a_linear_without_bias_can_be_adapted() -> None:
    linear = torch.nn.Linear(6, 6, bias=False)
    module = Lora(linear, rank=2, alpha=2.0, dropout=0.0, generator=torch.Generator().manual_seed(0))
    assert torch.equal(module(torch.eye(6)), linear(torch.eye(6)))
    assert module.merged().bias is None


def test_half_precision_stays_half_precision() -> None:
    network = trunk().bfloat16()
    adapt(network, rank=3, alpha=6.0, dropout=0.0, targets=("query",), seed=0)
    merge(network)
    assert {parameter.dtype for parameter in network.parameters()} == {torch.bfloat16}


def test_networks_that_cannot_be_adapted_are_refused() -> None:
    network = adapted("query")
    with pytest.raises(ValueError, match=r"^the network is adapted already\. Merge it first$"):
        adapt(network, rank=3, alpha=6.0, dropout=0.0, targets=("query",), seed=0)
    with pytest.raises(ValueError, match=r"^'qkv' is query, key and value at once\. Name the whole or its parts$"):
        adapt(trunk(), rank=3, alpha=6.0, dropout=0.0, targets=("key", "qkv"), seed=0)
    with pytest.raises(ValueError, match=r"^a rank of 0 learns nothing\. Give at least 1$"):
        adapt(trunk(), rank=0, alpha=6.0, dropout=0.0, targets=("query",), seed=0)
