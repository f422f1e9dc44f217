import pytest
import torch
from torch import Tensor

from bertsmith.nn.attention import attend
from bertsmith.nn.grouping import MAX_GROUPS
from bertsmith.nn.layout import Kernel, Layout, best_kernel, kernels_unavailable
from bertsmith.nn.window import FULL, Window

reaches = pytest.mark.parametrize(
    "reach", [Window(right=0), Window(3, 2), Window(2, 0), Window(left=4), Window(20, 20)]
)

RAGGED = [5, 17, 1, 64, 0, 16, 40, 64, 3, 63, 2, 0, 0]


def bounds_of(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def inputs(lengths: list[int], heads: int = 3, width: int = 8, seed: int = 0) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    shape = (sum(lengths), heads, width)
    return tuple(torch.randn(shape, generator=generator).requires_grad_() for _ in range(3))


def run(parts: tuple[Tensor, ...], lengths: list[int], kernel: Kernel, reach: Window = FULL) -> tuple[Tensor, ...]:
    """What comes out, and the gradient of a fixed mixture of it."""
    layout = Layout.of(bounds_of(lengths), max(lengths), kernel, reach)
    attended = attend(*parts, layout)
    mixture = torch.randn(attended.shape, generator=torch.Generator().manual_seed(1))
    return attended, *torch.autograd.grad((attended * mixture).sum(), parts)


def assert_alike(first: tuple[Tensor, ...], second: tuple[Tensor, ...], most: float = 1e-5) -> None:
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=most)


def test_grouped_equals_recorded_with_its_gradients() -> None:
    parts = inputs(RAGGED)
    assert_alike(run(parts, RAGGED, "grouped"), run(parts, RAGGED, "eager"))


def test_dense_equals_recorded_and_grouped_with_its_gradients() -> None:
    lengths = [12] * 7
    parts = inputs(lengths)
    recorded = run(parts, lengths, "eager")
    assert_alike(run(parts, lengths, "dense"), recorded)
    assert_alike(run(parts, lengths, "grouped"), recorded)


def test_grouped_in_half_precision_is_near_recorded_with_its_gradients() -> None:
    exact = inputs(RAGGED)
    half = tuple(part.detach().bfloat16().requires_grad_() for part in exact)
    for found, true in zip(run(half, RAGGED, "grouped"), run(exact, RAGGED, "eager"), strict=True):
        assert found.dtype == torch.bfloat16
        assert (found.float() - true).norm() < 0.02 * true.norm()


def test_recorded_is_the_formula() -> None:
    query, key, value = (part.detach() for part in inputs([2], heads=1, width=2))
    layout = Layout.of(bounds_of([2]), 2, "eager")
    attended = attend(query, key, value, layout)
    scores = torch.tensor([[float(q @ k) for k in key[:, 0]] for q in query[:, 0]]) / 2**0.5
    weights = scores.exp() / scores.exp().sum(1, keepdim=True)
    torch.testing.assert_close(layout.attention_weights[0][0][0], weights)
    torch.testing.assert_close(attended[:, 0], weights @ value[:, 0])


def test_recorded_weights_are_shares_of_each_sequence() -> None:
    layout = Layout.of(bounds_of(RAGGED), 64, "eager")
    attend(*inputs(RAGGED), layout)
    [weights] = layout.attention_weights
    assert [tuple(one.shape) for one in weights] == [(3, length, length) for length in RAGGED]
    for one in weights:
        torch.testing.assert_close(one.sum(2), torch.ones(one.shape[:2]))


@pytest.mark.parametrize("kernel", ["grouped", "eager"])
def test_neighbours_do_not_change_an_answer(kernel: Kernel) -> None:
    parts = inputs(RAGGED)
    together = run(parts, RAGGED, kernel)[0]
    for start, length in zip(bounds_of(RAGGED)[:-1].tolist(), RAGGED, strict=True):
        if length:
            alone = tuple(part[start : start + length] for part in parts)
            answer = attend(*alone, Layout.of(bounds_of([length]), length, kernel))
            torch.testing.assert_close(together[start : start + length], answer, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kernel", ["grouped", "eager"])
def test_no_gradient_crosses_a_bound(kernel: Kernel) -> None:
    lengths = [9, 10, 4]
    parts = inputs(lengths)
    attended = attend(*parts, Layout.of(bounds_of(lengths), 10, kernel))
    for gradient in torch.autograd.grad(attended[9:19].square().sum(), parts):
        assert gradient[9:19].abs().min() > 0
        assert gradient[:9].count_nonzero() == gradient[19:].count_nonzero() == 0


def test_wild_numbers_in_one_sequence_stay_there() -> None:
    lengths = [6, 5]  # one group, so that the two lie in one rectangle
    parts = tuple(part.detach().clone() for part in inputs(lengths))
    for part in parts:
        part[6:] = torch.inf
    attended = attend(*parts, Layout.of(bounds_of(lengths), 6, "grouped"))
    assert attended[:6].isfinite().all()


def test_groups_are_few_and_waste_little() -> None:
    lengths = torch.randint(1, 129, (400,), generator=torch.Generator().manual_seed(0)).tolist()
    grouping = Layout.of(bounds_of(lengths), 128, "grouped").grouping
    assert grouping is not None
    assert len(grouping.groups) <= MAX_GROUPS
    assert len(grouping.tokens) <= 1.15 * sum(lengths)
    assert sum(group.rows for group in grouping.groups) == 400


def test_groups_of_equal_lengths_need_no_mask() -> None:
    grouping = Layout.of(bounds_of([256, 128, 256, 256, 0, 128]), 256, "grouped").grouping
    assert grouping is not None
    assert [(group.rows, group.length, group.mask) for group in grouping.groups] == [
        (3, 256, None),
        (2, 128, None),
    ]


def test_short_sequences_share_a_group_of_few_shapes() -> None:
    for lengths in ([9, 3, 10, 9, 0, 3], [11, 3, 9, 9, 5, 4]):
        grouping = Layout.of(bounds_of(lengths), 11, "grouped").grouping
        assert grouping is not None
        assert [group.length for group in grouping.groups] == [12]


def test_a_batch_of_empty_sequences_is_empty() -> None:
    for kernel in ("grouped", "eager"):
        assert attend(*inputs([0, 0]), Layout.of(bounds_of([0, 0]), 0, kernel)).shape == (0, 3, 8)


@pytest.mark.parametrize("kernel", ["dense", "grouped", "eager"])
def test_dropout_forgets_its_share_of_the_weights(kernel: Kernel) -> None:
    lengths = [64] * 8
    query, key, _ = (torch.zeros(512, 4, 8) for _ in range(3))  # every token takes 1/64 of each
    torch.manual_seed(0)
    attended = attend(query, key, torch.ones(512, 4, 8), Layout.of(bounds_of(lengths), 64, kernel), dropout=0.25)
    kept = attended[:, :, 0] * 64 * 0.75  # how many of the 64 were kept
    torch.testing.assert_close(kept, kept.round(), rtol=0, atol=1e-3)
    assert abs(kept.mean() / 64 - 0.75) < 0.01


def test_varlen_fits_the_installed_torch() -> None:
    """Without a GPU only shapes can be tried: on the meta device, forwards and backwards."""
    query, key, value = (torch.empty(20, 3, 8, device="meta", dtype=torch.bfloat16, requires_grad=True) for _ in "qkv")
    layout = Layout.of(torch.empty(5, device="meta", dtype=torch.int32), 9, "varlen")
    attended = attend(query, key, value, layout, 0.1)
    assert attended.shape == (20, 3, 8)
    attended.sum().backward()
    assert query.grad is not None
    assert query.grad.shape == query.shape


def test_the_best_kernel_follows_shape_device_and_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    class Card:
        major = 9

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Card)
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    assert best_kernel(True, 128, cuda, torch.bfloat16, 64) == "dense"
    assert best_kernel(True, 128, cpu, torch.float32, 64) == "dense"
    assert best_kernel(False, 128, cuda, torch.bfloat16, 64) == "varlen"
    assert best_kernel(False, 128, cuda, torch.float16, 32) == "varlen"
    assert best_kernel(False, 128, cuda, torch.float32, 64) == "grouped"
    assert best_kernel(False, 128, cuda, torch.bfloat16, 20) == "grouped"
    assert best_kernel(False, 128, cpu, torch.bfloat16, 64) == "grouped"
    Card.major = 7
    assert best_kernel(False, 128, cuda, torch.float16, 64) == "grouped"


def test_our_own_kernel_is_chosen_in_a_compiled_step_where_it_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton is not installed here")

    class Card:
        major, shared_memory_per_block_optin = 9, 232_448

    cuda, half = torch.device("cuda"), torch.bfloat16
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Card)
    assert best_kernel(False, 128, cuda, half, 64) == "varlen"
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert kernels_unavailable(cuda) is None
    assert best_kernel(False, 128, cuda, half, 64) == "short"
    assert best_kernel(False, 512, cuda, half, 64) == "long"
    assert best_kernel(False, 128, cuda, half, 40) == "varlen"  # heads of a width that no program has
    assert best_kernel(False, 128, cuda, torch.float32, 64) == "grouped"
    assert best_kernel(True, 128, cuda, half, 64) == "dense"
    Card.major = 7
    assert kernels_unavailable(cuda) == "the GPU is older than an A100, or smaller"
    assert best_kernel(False, 128, cuda, half, 64) == "grouped"
    monkeypatch.setattr("bertsmith.nn.layout.find_spec", lambda name: None)
    assert kernels_unavailable(cuda) == "Triton is not installed"
    Card.major = 9
    assert best_kernel(False, 128, cuda, half, 64) == "varlen"


@reaches
def test_a_reach_is_the_formula_with_the_rest_left_out(reach: Window) -> None:
    query, key, value = (part.detach() for part in inputs([9], heads=1))
    layout = Layout.of(bounds_of([9]), 9, "eager", reach)
    attended = attend(query, key, value, layout)
    before, behind = (9 if number is None else number for number in (reach.left, reach.right))
    for place in range(9):
        seen = slice(max(0, place - before), place + behind + 1)
        weights = (key[seen, 0] @ query[place, 0] / 8**0.5).softmax(0)
        torch.testing.assert_close(attended[place, 0], weights @ value[seen, 0])


@reaches
def test_every_kernel_has_the_same_reach_with_its_gradients(reach: Window) -> None:
    parts = inputs(RAGGED)
    recorded = run(parts, RAGGED, "eager", reach)
    assert_alike(run(parts, RAGGED, "grouped", reach), recorded)
    with torch.no_grad():
        layout = Layout.of(bounds_of(RAGGED), 64, "tiled", reach)
        torch.testing.assert_close(attend(*parts, layout), recorded[0], rtol=0, atol=1e-5)
    lengths = [12] * 5
    parts = inputs(lengths)
    assert_alike(run(parts, lengths, "dense", reach), run(parts, lengths, "eager", reach))


@reaches
def test_dropout_keeps_within_reach(reach: Window) -> None:
    """In training a CPU takes plain products, and has to mask them itself."""
    parts = inputs([12] * 5)
    layout = Layout.of(bounds_of([12] * 5), 12, "grouped", reach)
    torch.manual_seed(0)
    attended = attend(*parts, layout, 0.5)
    [gradient] = torch.autograd.grad(attended[4].sum(), [parts[2]])
    before, behind = (12 if number is None else number for number in (reach.left, reach.right))
    outside = [place for place in range(60) if place >= 12 or not 4 - before <= place <= 4 + behind]
    assert gradient[outside].count_nonzero() == 0
    assert gradient.count_nonzero() > 0
