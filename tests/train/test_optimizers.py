"""AdamW against PyTorch's own on the same gradients, LAMB in its place, Muon beside it, and what the house adds."""

import pytest
import torch
from torch import Tensor, nn

from bertsmith import config
from bertsmith.errors import RecipeError
from bertsmith.train import muon
from bertsmith.train.optimizers import Optimizer, OptimizerConfig

CONFIG = OptimizerConfig(learning_rate=0.01, weight_decay=0.1)
MUON = OptimizerConfig(learning_rate=0.01, weight_decay=0.1, hidden_optimizer="muon", muon_learning_rate=0.05)
LAMB = OptimizerConfig(kind="lamb", learning_rate=0.01, weight_decay=0.1)
BOTH = OptimizerConfig(
    kind="lamb", learning_rate=0.01, weight_decay=0.1, hidden_optimizer="muon", muon_learning_rate=0.05
)
NORMUON = OptimizerConfig(
    learning_rate=0.01,
    weight_decay=0.1,
    hidden_optimizer="muon",
    muon_learning_rate=0.05,
    newton_schulz="polar_express",
    normuon_beta=0.9,
)
ALL = pytest.mark.parametrize(
    "settings", [CONFIG, MUON, NORMUON, LAMB, BOTH], ids=["adamw", "muon", "normuon", "lamb", "lamb-muon"]
)
HIDDEN = {"0.weight": 2, "3.weight": 1}  # of shapes 8 x 4 and 3 x 8


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 3))


def backward(module: nn.Module, step: int) -> None:
    dice = torch.Generator().manual_seed(step)
    device = next(module.parameters()).device
    module(torch.randn(5, 4, generator=dice).to(device)).square().sum().backward()


def walk(module: nn.Module, optimizer: Optimizer, steps: range) -> dict[str, Tensor]:
    for step in steps:
        backward(module, step)
        optimizer.step_at(1 / (step + 1))
    return {name: weight.clone() for name, weight in module.state_dict().items()}


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, second[name]), name


def test_without_rates_it_is_adamw_with_decay_on_matrices_alone() -> None:
    module = network()
    matrices = [parameter for parameter in module.parameters() if parameter.ndim > 1]
    others = [parameter for parameter in module.parameters() if parameter.ndim <= 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    plain = torch.optim.AdamW(groups, lr=0.01, betas=(0.9, 0.999), eps=1e-6, fused=True)
    for step in range(4):
        backward(module, step)
        nn.utils.clip_grad_norm_(list(module.parameters()), 1.0)
        for group in plain.param_groups:
            group["lr"] = 0.01 * (1 / (step + 1))
        plain.step()
        plain.zero_grad()
    other = network()
    assert_same(walk(other, Optimizer(other, CONFIG), range(4)), dict(module.state_dict()))


def test_a_learning_rate_scale_of_one_changes_no_bit() -> None:
    first, second = network(), network()
    shares = {name: 1.0 for name, _ in second.named_parameters()}
    assert_same(
        walk(first, Optimizer(first, CONFIG), range(4)), walk(second, Optimizer(second, CONFIG, shares), range(4))
    )


def test_a_parameter_has_its_own_learning_rate_scale() -> None:
    """A half everywhere is a half of the rate; and where only some have it, the others move as without."""
    first, second, third = network(), network(), network()
    some = {"0.weight": 0.5, "2.bias": 0.5}
    halved = walk(first, Optimizer(first, OptimizerConfig(learning_rate=0.005, weight_decay=0.1)), range(1))
    whole = walk(second, Optimizer(second, CONFIG), range(1))
    mixed = walk(third, Optimizer(third, CONFIG, some), range(1))
    for name, weight in mixed.items():
        torch.testing.assert_close(weight, (halved if name in some else whole)[name], rtol=0, atol=1e-8)
        assert not torch.equal(halved[name], whole[name])


def test_parameters_with_the_same_decay_and_scale_are_one_group() -> None:
    module = network()
    optimizer = Optimizer(module, CONFIG, {"0.weight": 0.5, "0.bias": 0.5, "2.bias": 0.5})
    named = {parameter: name for name, parameter in module.named_parameters()}
    groups = [
        (group["weight_decay"], group["learning_rate_scale"], [named[parameter] for parameter in group["params"]])
        for group in optimizer.base.param_groups
    ]
    assert groups == [
        (0.1, 0.5, ["0.weight"]),
        (0.1, 1.0, ["3.weight"]),
        (0.0, 0.5, ["0.bias", "2.bias"]),
        (0.0, 1.0, ["2.weight", "3.bias"]),
    ]


def test_parameters_without_requires_grad_take_no_part() -> None:
    module = network()
    module[0].requires_grad_(False)  # type: ignore[index]
    before = module.state_dict()["0.weight"].clone()
    optimizer = Optimizer(module, CONFIG)
    after = walk(module, optimizer, range(2))
    assert torch.equal(after["0.weight"], before)
    names = {name.split(".", 1)[1] for name in optimizer.state_dict()}
    assert names == {"2.weight", "2.bias", "3.weight", "3.bias"}


@pytest.mark.slow
@ALL
@pytest.mark.parametrize("capturable", [False, True])
@pytest.mark.parametrize("shares", [None, {"0.weight": 0.25, "3.bias": 0.5}])
def test_a_loaded_state_continues_bit_for_bit(
    capturable: bool, shares: dict[str, float] | None, settings: OptimizerConfig
) -> None:
    module = network()
    module[2].requires_grad_(False)  # type: ignore[index]
    optimizer = Optimizer(module, settings, shares, capturable=capturable, hidden_matrices=HIDDEN)
    half = walk(module, optimizer, range(3))
    state = {name: tensor.clone() for name, tensor in optimizer.state_dict().items()}
    assert all(isinstance(tensor, Tensor) for tensor in state.values())
    whole = walk(module, optimizer, range(3, 6))

    again = network()
    again[2].requires_grad_(False)  # type: ignore[index]
    other = Optimizer(again, settings, shares, capturable=capturable, hidden_matrices=HIDDEN)
    again.load_state_dict(half)
    other.load_state_dict(state)
    assert_same(walk(again, other, range(3, 6)), whole)
    assert_same(other.state_dict(), optimizer.state_dict())


@ALL
@pytest.mark.parametrize("capturable", [False, True])
@pytest.mark.parametrize("place", ["0.weight", "2.bias"])  # of Muon, and of the rest: all stand still
@pytest.mark.parametrize("broken", [torch.nan, torch.inf])
def test_a_non_finite_gradient_changes_nothing(
    broken: float, place: str, capturable: bool, settings: OptimizerConfig
) -> None:
    module = network()
    optimizer = Optimizer(module, settings, capturable=capturable, hidden_matrices=HIDDEN)
    before = walk(module, optimizer, range(2))
    state = {name: tensor.clone() for name, tensor in optimizer.state_dict().items()}
    backward(module, 2)
    module.get_parameter(place).grad.fill_(broken)  # type: ignore[union-attr]
    norm, bad = optimizer.step_at(1.0)
    assert bool(bad)
    assert not torch.isfinite(norm)
    assert_same(dict(module.state_dict()), before)
    assert_same(optimizer.state_dict(), state)
    assert all(parameter.grad is None for parameter in module.parameters())
    backward(module, 3)
    assert not bool(optimizer.step_at(1.0)[1])


def test_clipping_bounds_the_gradient_and_zero_is_no_limit() -> None:
    lengths = []
    for clip in (1e-3, 0.0):
        module = network()
        backward(module, 0)
        gradient = torch.cat([parameter.grad.flatten() for parameter in module.parameters()])  # type: ignore[union-attr]
        optimizer = Optimizer(module, OptimizerConfig(max_grad_norm=clip))
        norm, _ = optimizer.step_at(1.0)
        torch.testing.assert_close(norm, gradient.norm())
        moments = torch.cat([tensor.flatten() for name, tensor in optimizer.state_dict().items() if "exp_avg." in name])
        lengths.append(float(moments.norm()) / 0.1)  # the first moment is a tenth of the first gradient
    assert lengths[0] == pytest.approx(1e-3, rel=1e-3)
    assert lengths[1] == pytest.approx(float(gradient.norm()), rel=1e-5)


@ALL
def test_a_capturable_optimizer_keeps_learning_rates_in_tensors_and_steps_the_same(settings: OptimizerConfig) -> None:
    first, second = network(), network()
    shares = {"0.weight": 0.25, "3.bias": 0.5}
    optimizer = Optimizer(second, settings, shares, capturable=True, hidden_matrices=HIDDEN)
    places = [group["lr"].data_ptr() for group in optimizer.base.param_groups]
    for group in optimizer.base.param_groups:
        assert (group["lr"].shape, group["lr"].dtype) == (torch.Size([]), torch.float32)
    expected = walk(first, Optimizer(first, settings, shares, hidden_matrices=HIDDEN), range(4))
    for name, weight in walk(second, optimizer, range(4)).items():
        torch.testing.assert_close(weight, expected[name], rtol=1e-6, atol=1e-7)
    assert [group["lr"].data_ptr() for group in optimizer.base.param_groups] == places
    optimizer.set_learning_rate(0.5)
    rates = [float(group["lr"]) for group in optimizer.base.param_groups]
    assert rates == pytest.approx([0.005 * group["learning_rate_scale"] for group in optimizer.base.param_groups])


@pytest.mark.parametrize(
    ("settings", "tensors"),
    [(CONFIG, 6 * 3), (MUON, 4 * 3 + 2), (NORMUON, 4 * 3 + 4), (LAMB, 6 * 3), (BOTH, 4 * 3 + 2)],
    ids=["adamw", "muon", "normuon", "lamb", "lamb-muon"],
)
def test_a_capturable_optimizer_has_its_state_before_the_first_step(settings: OptimizerConfig, tensors: int) -> None:
    module = network()
    optimizer = Optimizer(module, settings, capturable=True, hidden_matrices=HIDDEN)
    state = optimizer.state_dict()
    assert len(state) == tensors
    walk(module, optimizer, range(1))
    for name, tensor in optimizer.state_dict().items():
        assert tensor.data_ptr() == state[name].data_ptr()


def test_muon_updates_hidden_matrices_and_adamw_the_rest() -> None:
    """One step, clipped: the hidden matrices as `muon.step` moves them, part by part; all else to AdamW's bit."""
    module, other = network(), network()
    backward(module, 0)
    first = {name: weight.detach().clone() for name, weight in module.named_parameters()}
    gradients = {name: weight.grad.clone() for name, weight in module.named_parameters()}  # type: ignore[union-attr]
    length = torch.cat([gradient.flatten() for gradient in gradients.values()]).norm()
    assert float(length) > 2  # so that it is clipped
    norm, bad = Optimizer(module, MUON, hidden_matrices=HIDDEN).step_at(0.5)
    torch.testing.assert_close(norm, length)
    assert not bool(bad)
    alone = walk(other, Optimizer(other, OptimizerConfig(learning_rate=0.005, weight_decay=0.1)), range(1))
    for name, weight in module.named_parameters():
        if name not in HIDDEN:
            assert torch.equal(weight, alone[name]), name
            continue
        for moved, before, gradient in zip(
            *(tensor.chunk(HIDDEN[name]) for tensor in (weight.detach(), first[name], gradients[name])), strict=True
        ):
            direction = muon.orthogonalise(gradient[None] / length)[0]
            expected = before * (1 - 0.025 * 0.1) - 0.025 * muon.update_scale(*gradient.shape) * direction
            torch.testing.assert_close(moved, expected, rtol=0, atol=1e-5)


def test_muon_has_one_momentum_per_matrix_and_adamw_no_state_of_it() -> None:
    module = network()
    optimizer = Optimizer(module, MUON, hidden_matrices=HIDDEN)
    walk(module, optimizer, range(2))
    state = optimizer.state_dict()
    assert {name for name in state if "0.weight" in name or "3.weight" in name} == {
        "momentum.0.weight",
        "momentum.3.weight",
    }
    assert len(state) == 2 + 3 * 4
    assert set(optimizer.parameters) == {name for name, _ in module.named_parameters()}
    assert all(float(state[f"momentum.{name}"].norm()) > 0 for name in HIDDEN)


def test_hidden_matrices_are_not_asked_for_by_adamw() -> None:
    first, second = network(), network()
    named = Optimizer(second, CONFIG, hidden_matrices=HIDDEN)
    assert_same(walk(first, Optimizer(first, CONFIG), range(4)), walk(second, named, range(4)))


def test_stacked_matrices_are_updated_as_if_alone() -> None:
    """Stacked with others or alone, split by rates or not: a matrix's movement is its own."""
    torch.manual_seed(1)
    gradients = {name: torch.randn(6, 6) for name in ("0.weight", "1.weight", "2.weight")}
    moved = []
    for rates in ({}, {"1.weight": 0.5}):
        torch.manual_seed(0)
        module = nn.Sequential(*(nn.Linear(6, 6) for _ in range(3)))
        before = {name: module.get_parameter(name).detach().clone() for name in gradients}
        optimizer = Optimizer(
            module,
            OptimizerConfig(hidden_optimizer="muon", weight_decay=0.0, max_grad_norm=0.0),
            rates,
            hidden_matrices=dict.fromkeys(gradients, 1),
        )
        for name, gradient in gradients.items():
            module.get_parameter(name).grad = gradient.clone()
        optimizer.step_at(1.0)
        moved.append({name: module.get_parameter(name).detach() - before[name] for name in gradients})
    torch.testing.assert_close(moved[1]["1.weight"], moved[0]["1.weight"] / 2, rtol=0, atol=1e-6)
    for name in ("0.weight", "2.weight"):
        torch.testing.assert_close(moved[1][name], moved[0][name], rtol=0, atol=1e-6)


def test_a_hidden_matrix_without_a_gradient_is_not_updated() -> None:
    module = network()
    before = module.state_dict()["3.weight"].clone()
    optimizer = Optimizer(module, MUON, hidden_matrices=HIDDEN)
    backward(module, 0)
    module.get_parameter("3.weight").grad = None
    optimizer.step_at(1.0)
    assert torch.equal(module.state_dict()["3.weight"], before)
    assert float(optimizer.state_dict()["momentum.3.weight"].norm()) == 0
    assert float(optimizer.state_dict()["momentum.0.weight"].norm()) > 0


def test_zero_grad_works_without_a_step() -> None:
    module = network()
    optimizer = Optimizer(module, MUON, hidden_matrices=HIDDEN)
    backward(module, 0)
    optimizer.zero_grad()
    assert all(parameter.grad is None for parameter in module.parameters())


def test_muon_learns() -> None:
    module = network()
    optimizer = Optimizer(module, MUON, hidden_matrices=HIDDEN)
    inputs = torch.randn(64, 4, generator=torch.Generator().manual_seed(5))
    targets = inputs[:, :3].sin()
    losses = []
    for _ in range(100):
        loss = (module(inputs) - targets).square().mean()
        loss.backward()
        losses.append(float(loss.detach()))
        optimizer.step_at(1.0)
    assert losses[-1] < losses[0] / 10


@pytest.mark.parametrize("hidden", [None, {}])
def test_muon_without_a_hidden_matrix_is_refused(hidden: dict[str, int] | None) -> None:
    with pytest.raises(
        RecipeError, match=r"^optimizer.hidden_optimizer: no hidden matrix is trained here .* Use 'adamw'.$"
    ):
        Optimizer(network(), MUON, hidden_matrices=hidden)


def test_a_frozen_hidden_matrix_is_left_out_and_muon_needs_one() -> None:
    module = network()
    module[0].requires_grad_(False)  # type: ignore[index]
    assert set(Optimizer(module, MUON, hidden_matrices=HIDDEN).state_dict()) == {"momentum.3.weight"}
    module[3].requires_grad_(False)  # type: ignore[index]
    with pytest.raises(RecipeError, match="no hidden matrix is trained here"):
        Optimizer(module, MUON, hidden_matrices=HIDDEN)


def test_a_convolution_is_a_matrix_with_a_row_for_each_output() -> None:
    convolution, linear = nn.Conv2d(4, 6, 3), nn.Linear(36, 6)
    linear.weight.data.copy_(convolution.weight.detach().flatten(1))
    before = convolution.weight.detach().clone()
    optimizers = [Optimizer(module, MUON, hidden_matrices={"weight": 1}) for module in (convolution, linear)]
    for turn in range(3):
        gradient = torch.randn(6, 36, generator=torch.Generator().manual_seed(turn))
        convolution.weight.grad, linear.weight.grad = gradient.view(6, 4, 3, 3).clone(), gradient.clone()
        for optimizer in optimizers:
            optimizer.step_at(0.5)
    assert not torch.equal(convolution.weight, before)
    assert torch.equal(convolution.weight.flatten(1), linear.weight)


@pytest.mark.parametrize(
    ("hidden", "message"),
    [
        ({"4.weight": 1}, "hidden: there is no parameter '4.weight'"),
        ({"0.weight": 3}, r"hidden: '0.weight' of shape \(8, 4\) is not 3 matrices stacked by rows"),
        ({"0.bias": 1}, r"hidden: '0.bias' of shape \(8,\) is not 1 matrices stacked by rows"),
    ],
)
def test_a_parameter_that_is_no_stack_of_matrices_is_refused(hidden: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Optimizer(network(), MUON, hidden_matrices=hidden)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_optimizer": "sgd"}, "sgd"),
        ({"kind": "lam"}, "lam"),
        (
            {"muon_learning_rate": 0.0},
            "muon_learning_rate is 0.0. Give more than 0, as in optimizer.muon_learning_rate=0.02.",
        ),
        (
            {"muon_learning_rate": float("inf")},
            "muon_learning_rate is inf. Give more than 0, as in optimizer.muon_learning_rate=0.02.",
        ),
        ({"learning_rate": float("nan")}, "learning_rate is nan. Give at least 0"),
        ({"kind": "lamb", "learning_rate": -1e-2}, "learning_rate is -0.01. Give at least 0"),
        ({"betas": [0.9, 1.0]}, "betas is [0.9, 1.0]. Give two shares, at least 0 and below 1"),
        ({"epsilon": -1.0}, "epsilon is -1.0. Give more than 0, usually 1e-6"),
        ({"weight_decay": -1.0}, "weight_decay is -1.0. Give at least 0, usually 0.01"),
        ({"max_grad_norm": -1.0}, "max_grad_norm is -1.0. Give more than 0, usually 1; or 0 for no limit"),
        ({"momentum": 1.0}, "momentum is 1.0. Give a share, at least 0 and below 1."),
        ({"momentum": -0.1}, "momentum is -0.1. Give a share, at least 0 and below 1."),
        ({"normuon_beta": 1.0}, "normuon_beta is 1.0. Give a share, at least 0 and below 1."),
    ],
)
def test_settings_that_cannot_be_are_refused_in_one_line(values: dict[str, object], message: str) -> None:
    with pytest.raises(RecipeError) as caught:
        config.build(values, OptimizerConfig, "recipe.toml [optimizer]")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.gpu
@ALL
def test_a_captured_step_follows_the_schedule_skips_bad_gradients_and_mixes_with_eager_steps(
    settings: OptimizerConfig,
) -> None:
    device = torch.device("cuda")
    shares = {"0.weight": 0.25, "3.bias": 0.5}
    first, second = network().to(device), network().to(device)
    gradients = [torch.randn(parameter.shape, device=device) for parameter in first.parameters()]
    plain = Optimizer(first, settings, shares, hidden_matrices=HIDDEN)
    optimizer = Optimizer(second, settings, shares, capturable=True, hidden_matrices=HIDDEN)
    places = [torch.zeros_like(gradient) for gradient in gradients]

    def moved() -> tuple[Tensor, Tensor]:
        for parameter, place in zip(second.parameters(), places, strict=True):
            parameter.grad = place * 1
        return optimizer.step()

    muon.orthogonalise(torch.ones(1, 2, 2, device=device))  # libraries set themselves up outside a recording
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        norm, bad = moved()
    for step in range(5):
        broken = torch.nan if step == 2 else 1.0
        for parameter, place, gradient in zip(first.parameters(), places, gradients, strict=True):
            parameter.grad = gradient * broken
            place.copy_(gradient * broken)
        expected = plain.step_at(1 / (step + 1))
        optimizer.set_learning_rate(1 / (step + 1))
        if step == 0:
            moved()  # outside the graph, without a warning
            continue
        graph.replay()
        assert bool(bad) == bool(expected[1]) == (step == 2)
        torch.testing.assert_close(norm, expected[0], equal_nan=True)
    for one, other in zip(first.parameters(), second.parameters(), strict=True):
        torch.testing.assert_close(other, one, rtol=1e-6, atol=1e-7)
    assert float(next(iter(optimizer.state_dict().values()))) == 4  # steps, the bad one left out
