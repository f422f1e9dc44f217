import pytest
import torch
from torch import Tensor

from bertsmith.nn.attention import Eager, Kernel, Sequences
from bertsmith.nn.grouping import MAX_GROUPS, group_by_length
from bertsmith.nn.kernel_choice import KernelName, best_kernel, self_attention
from bertsmith.nn.kernels.availability import kernels_unavailable
from bertsmith.nn.tiling import Tiled
from bertsmith.nn.varlen import Varlen
from bertsmith.nn.window import FULL, Window

windows = pytest.mark.parametrize(
    "window", [Window(right=0), Window(3, 2), Window(2, 0), Window(left=4), Window(20, 20)]
)

RAGGED = [5, 17, 1, 64, 0, 16, 40, 64, 3, 63, 2, 0, 0]


def bounds_of(lengths: list[int]) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(torch.int32)


def kernel_of(name: KernelName, lengths: list[int], window: Window = FULL) -> Kernel:
    return self_attention(name, Sequences(bounds_of(lengths), max(lengths), sum(lengths)), window)


def inputs(lengths: list[int], heads: int = 3, width: int = 8, seed: int = 0) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(seed)
    shape = (sum(lengths), heads, width)
    return tuple(torch.randn(shape, generator=generator).requires_grad_() for _ in range(3))


def run(parts: tuple[Tensor, ...], lengths: list[int], kernel: KernelName, window: Window = FULL) -> tuple[Tensor, ...]:
    """The output, and the gradients of a fixed weighted sum of it."""
    attended = kernel_of(kernel, lengths, window).attend(*parts)
    mixture = torch.randn(attended.shape, generator=torch.Generator().manual_seed(1))
    return attended, *torch.autograd.grad((attended * mixture).sum(), parts)


def assert_alike(first: tuple[Tensor, ...], second: tuple[Tensor, ...], most: float = 1e-5) -> None:
    for one, other in zip(first, second, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=most)


def test_grouped_equals_eager_with_gradients() -> None:
    parts = inputs(RAGGED)
    assert_alike(run(parts, RAGGED, "grouped"), run(parts, RAGGED, "eager"))


def test_dense_equals_eager_and_grouped_with_gradients() -> None:
    lengths = [12] * 7
    parts = inputs(lengths)
    eager = run(parts, lengths, "eager")
    assert_alike(run(parts, lengths, "dense"), eager)
    assert_alike(run(parts, lengths, "grouped"), eager)


def test_grouped_in_bfloat16_is_near_eager_with_gradients() -> None:
    exact = inputs(RAGGED)
    half = tuple(part.detach().bfloat16().requires_grad_() for part in exact)
    for found, true in zip(run(half, RAGGED, "grouped"), run(exact, RAGGED, "eager"), strict=True):
        assert found.dtype == torch.bfloat16
        assert (found.float() - true).norm() < 0.02 * true.norm()


def test_eager_is_the_formula() -> None:
    query, key, value = (part.detach() for part in inputs([2], heads=1, width=2))
    eager = Eager([2], [2])
    scores = torch.tensor([[float(q @ k) for k in key[:, 0]] for q in query[:, 0]]) / 2**0.5
    weights = scores.exp() / scores.exp().sum(1, keepdim=True)
    torch.testing.assert_close(eager.weights(query, key)[0][0], weights)
    torch.testing.assert_close(eager.attend(query, key, value)[:, 0], weights @ value[:, 0])


def test_eager_has_weights_that_sum_to_one_in_each_sequence() -> None:
    query, key, _ = inputs(RAGGED)
    weights = Eager(RAGGED, RAGGED).weights(query, key)
    assert [tuple(one.shape) for one in weights] == [(3, length, length) for length in RAGGED]
    for one in weights:
        torch.testing.assert_close(one.sum(2), torch.ones(one.shape[:2]))


@pytest.mark.parametrize("kernel", ["grouped", "eager"])
def test_other_sequences_do_not_change_an_output(kernel: KernelName) -> None:
    parts = inputs(RAGGED)
    together = run(parts, RAGGED, kernel)[0]
    for start, length in zip(bounds_of(RAGGED)[:-1].tolist(), RAGGED, strict=True):
        if length:
            alone = tuple(part[start : start + length] for part in parts)
            answer = kernel_of(kernel, [length]).attend(*alone)
            torch.testing.assert_close(together[start : start + length], answer, rtol=0, atol=1e-6)


@pytest.mark.parametrize("kernel", ["grouped", "eager"])
def test_no_gradient_crosses_a_bound(kernel: KernelName) -> None:
    lengths = [9, 10, 4]
    parts = inputs(lengths)
    attended = kernel_of(kernel, lengths).attend(*parts)
    for gradient in torch.autograd.grad(attended[9:19].square().sum(), parts):
        assert gradient[9:19].abs().min() > 0
        assert gradient[:9].count_nonzero() == gradient[19:].count_nonzero() == 0


def test_inf_in_one_sequence_stays_there() -> None:
    lengths = [6, 5]  # one group, and so one rectangle
    parts = tuple(part.detach().clone() for part in inputs(lengths))
    for part in parts:
        part[6:] = torch.inf
    attended = kernel_of("grouped", lengths).attend(*parts)
    assert attended[:6].isfinite().all()


def test_groups_are_few_with_little_padding() -> None:
    lengths = torch.randint(1, 129, (400,), generator=torch.Generator().manual_seed(0)).tolist()
    grouping = group_by_length(bounds_of(lengths))
    assert len(grouping.groups) <= MAX_GROUPS
    assert len(grouping.tokens) <= 1.15 * sum(lengths)
    assert sum(group.rows for group in grouping.groups) == 400


def test_groups_of_equal_lengths_need_no_mask() -> None:
    grouping = group_by_length(bounds_of([256, 128, 256, 256, 0, 128]))
    assert [(group.rows, group.length, group.mask) for group in grouping.groups] == [
        (3, 256, None),
        (2, 128, None),
    ]


def test_short_sequences_share_a_group_of_few_shapes() -> None:
    for lengths in ([9, 3, 10, 9, 0, 3], [11, 3, 9, 9, 5, 4]):
        grouping = group_by_length(bounds_of(lengths))
        assert [group.length for group in grouping.groups] == [12]


def test_a_batch_of_empty_sequences_is_empty() -> None:
    names: list[KernelName] = ["grouped", "eager"]
    for name in names:
        assert kernel_of(name, [0, 0]).attend(*inputs([0, 0])).shape == (0, 3, 8)


@pytest.mark.parametrize("kernel", ["dense", "grouped", "eager"])
def test_dropout_drops_its_share_of_the_weights(kernel: KernelName) -> None:
    lengths = [64] * 8
    query, key, _ = (torch.zeros(512, 4, 8) for _ in range(3))  # uniform weights of 1/64
    torch.manual_seed(0)
    attended = kernel_of(kernel, lengths).attend(query, key, torch.ones(512, 4, 8), dropout=0.25)
    kept = attended[:, :, 0] * 64 * 0.75  # of the 64 weights
    torch.testing.assert_close(kept, kept.round(), rtol=0, atol=1e-3)
    assert abs(kept.mean() / 64 - 0.75) < 0.01


def test_varlen_fits_the_installed_torch() -> None:
    """Without a GPU only shapes can be checked: on the meta device, forward and backward."""
    query, key, value = (torch.empty(20, 3, 8, device="meta", dtype=torch.bfloat16, requires_grad=True) for _ in "qkv")
    sequences = Sequences(torch.empty(5, device="meta", dtype=torch.int32), 9, 20)
    attended = Varlen(sequences, sequences).attend(query, key, value, 0.1)
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


def test_our_triton_kernels_are_chosen_in_compiled_steps_where_they_can_run(monkeypatch: pytest.MonkeyPatch) -> None:
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
    assert best_kernel(False, 128, cuda, half, 40) == "varlen"  # a head width that our kernels lack
    assert best_kernel(False, 128, cuda, torch.float32, 64) == "grouped"
    assert best_kernel(True, 128, cuda, half, 64) == "dense"
    Card.major = 7
    assert kernels_unavailable(cuda) == "the GPU is older than an A100, or smaller"
    assert best_kernel(False, 128, cuda, half, 64) == "grouped"
    monkeypatch.setattr("bertsmith.nn.kernels.availability.find_spec", lambda name: None)
    assert kernels_unavailable(cuda) == "Triton is not installed"
    Card.major = 9
    assert best_kernel(False, 128, cuda, half, 64) == "varlen"


@windows
def test_a_window_is_the_formula_over_its_keys(window: Window) -> None:
    query, key, value = (part.detach() for part in inputs([9], heads=1))
    attended = kernel_of("eager", [9], window).attend(query, key, value)
    left, right = (9 if number is None else number for number in (window.left, window.right))
    for position in range(9):
        visible = slice(max(0, position - left), position + right + 1)
        weights = (key[visible, 0] @ query[position, 0] / 8**0.5).softmax(0)
        torch.testing.assert_close(attended[position, 0], weights @ value[visible, 0])


@windows
def test_every_kernel_has_the_same_window_with_gradients(window: Window) -> None:
    parts = inputs(RAGGED)
    eager = run(parts, RAGGED, "eager", window)
    assert_alike(run(parts, RAGGED, "grouped", window), eager)
    with torch.no_grad():
        tiled = kernel_of("tiled", RAGGED, window)
        assert isinstance(tiled, Tiled)
        torch.testing.assert_close(tiled.attend(*parts), eager[0], rtol=0, atol=1e-5)
    lengths = [12] * 5
    parts = inputs(lengths)
    assert_alike(run(parts, lengths, "dense", window), run(parts, lengths, "eager", window))


@windows
def test_dropout_stays_within_the_window(window: Window) -> None:
    """In training with dropout a CPU uses plain products with an explicit mask."""
    parts = inputs([12] * 5)
    torch.manual_seed(0)
    attended = kernel_of("grouped", [12] * 5, window).attend(*parts, 0.5)
    [gradient] = torch.autograd.grad(attended[4].sum(), [parts[2]])
    left, right = (12 if number is None else number for number in (window.left, window.right))
    outside = [number for number in range(60) if number >= 12 or not 4 - left <= number <= 4 + right]
    assert gradient[outside].count_nonzero() == 0
    assert gradient.count_nonzero() > 0
