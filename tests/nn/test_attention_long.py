"""The kernels for sequences of any length against the formula. Where each test runs, `ragged.py` says."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nn.ragged import (
    INSIDE,
    OUTSIDE,
    REACHES,
    assert_near,
    bounds_of,
    everywhere,
    formula,
    masks_of,
    mixture,
    product,
    slope,
)
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed here")

from bertsmith.nn.kernels import attention_long as module
from bertsmith.nn.kernels.attention_long import (
    FORWARD,
    KEYS,
    QUERIES,
    LaunchConfig,
    fits,
    long_attention,
    qkv_attention,
)
from bertsmith.nn.window import Window

FEW = [5, 16, 0, 70, 0, 0]  # trailing empty sequences, as packing leaves them
EDGES = [63, 64, 65, 0, 1, 129]
LONG = [512, 300, 257, 0, 1, 64]


@everywhere
@pytest.mark.parametrize(
    ("lengths", "width"), [(FEW, 16), (EDGES, 32), ([257, 1], 64), ([128, 70, 0], 128), ([1], 64), ([64, 128], 64)]
)
def test_it_is_the_formula_with_its_gradients(device: str, lengths: list[int], width: int) -> None:
    whole = product(lengths, device, width=width)
    exact = whole.detach().double().requires_grad_()
    found = long_attention(*whole.unbind(1), bounds_of(lengths, device), max(lengths))
    true = formula(exact, lengths)
    assert found.dtype == whole.dtype
    assert found.is_contiguous()
    assert_near(found, true)
    assert_near(slope(found, whole), slope(true, exact))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("width", [16, 32, 64, 128])
@pytest.mark.parametrize("lengths", [LONG, EDGES])
def test_every_precision_and_width_is_the_formula(dtype: torch.dtype, width: int, lengths: list[int]) -> None:
    whole = product(lengths, "cuda", 3, width).detach().to(dtype).requires_grad_()
    exact = whole.detach().double().requires_grad_()
    found, true = qkv_attention(whole, bounds_of(lengths, "cuda"), max(lengths)), formula(exact, lengths)
    most = {torch.bfloat16: 2e-2, torch.float16: 5e-3, torch.float32: 1e-5}[dtype]
    assert (found.double() - true).norm() < most * true.norm()
    gradient, true_gradient = slope(found, whole).double(), slope(true, exact)
    for part in range(3):  # of queries, keys and values, each by itself
        off = gradient[:, part] - true_gradient[:, part]
        assert off.norm() < most * true_gradient[:, part].norm()
        assert off.abs().max() < 10 * most * true_gradient[:, part].abs().max()


@everywhere
@pytest.mark.parametrize("shape", [(16, 32, 1), (32, 16, 1), (128, 32, 4), (32, 128, 4)])
def test_blocks_of_any_size_give_the_same(
    device: str, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is forgotten too."""
    lengths, seed = [20, 0, 35] if device == "cpu" else [40, 0, 64, 35, 130], torch.tensor(2, device=device)
    whole, bounds = product(lengths, device), bounds_of(lengths, device)
    true = qkv_attention(whole, bounds, max(lengths), 0.3, seed)
    true_gradient = slope(true, whole)
    for table in (FORWARD, QUERIES, KEYS):
        monkeypatch.setitem(table, 32, LaunchConfig(*shape))
    found = qkv_attention(whole, bounds, max(lengths), 0.3, seed)
    assert_near(found, true)
    assert_near(slope(found, whole), true_gradient)


@INSIDE
@settings(deadline=None, max_examples=5, derandomize=True)
@given(st.lists(st.integers(0, 140), min_size=1, max_size=3).filter(any), st.sampled_from([16, 32]))
def test_any_lengths_are_the_formula(lengths: list[int], width: int) -> None:
    whole = product(lengths, "cpu", 1, width, seed=sum(lengths))
    exact = whole.detach().double().requires_grad_()
    found, true = qkv_attention(whole, bounds_of(lengths, "cpu"), max(lengths)), formula(exact, lengths)
    assert_near(found, true)
    assert_near(slope(found, whole), slope(true, exact))


@everywhere
def test_strides_are_read_and_not_assumed(device: str) -> None:
    whole = product(FEW, device).detach()
    bounds = bounds_of(FEW, device)
    true = long_attention(*(part.contiguous() for part in whole.unbind(1)), bounds, 70)
    turned = whole.transpose(0, 2).contiguous().transpose(0, 2)  # heads outside, tokens inside
    mixed = (whole[:, 0], turned[:, 1], whole.transpose(0, 3).contiguous().transpose(0, 3)[:, 2])
    assert len({part.stride() for part in mixed}) == 3
    assert torch.equal(long_attention(*mixed, bounds, 70), true)


@everywhere
def test_joined_is_the_same_and_the_three_gradients_are_one_tensor(device: str) -> None:
    whole = product(FEW, device)
    bounds = bounds_of(FEW, device)
    parts = tuple(part.detach().requires_grad_() for part in whole.unbind(1))
    apart, together = long_attention(*parts, bounds, 70), qkv_attention(whole, bounds, 70)
    assert torch.equal(apart, together)
    gradient = slope(together, whole)
    assert gradient.is_contiguous()
    gradients = torch.autograd.grad((apart * mixture(apart)).sum(), parts)
    assert torch.equal(torch.stack(gradients, 1), gradient)
    assert len({part.untyped_storage().data_ptr() for part in gradients}) == 1


@everywhere
def test_gradients_are_the_same_every_time(device: str) -> None:
    lengths = FEW if device == "cpu" else LONG
    whole, bounds = product(lengths, device), bounds_of(lengths, device)
    first, second = (slope(qkv_attention(whole, bounds, max(lengths)), whole) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # numpy's, about nan where nan belongs
@everywhere
@pytest.mark.parametrize("number", [torch.inf, torch.nan])
def test_wild_numbers_in_one_sequence_stay_there(device: str, number: float) -> None:
    lengths = [70, 9, 17]
    calm = product(lengths, device)
    wild = calm.detach().clone()
    wild[70:79] = number
    wild.requires_grad_()
    bounds = bounds_of(lengths, device)
    outside = torch.tensor([*range(70), *range(79, 96)], device=device)
    for whole in (calm, wild):
        found = qkv_attention(whole, bounds, 70)[outside]
        [gradient] = torch.autograd.grad((found * mixture(found)).sum(), whole)
        if whole is calm:
            true, true_gradient = found, gradient
    assert torch.equal(found, true)
    assert torch.equal(gradient[outside], true_gradient[outside])


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # numpy's, about rows that nobody writes
@everywhere
def test_scores_far_below_nought_have_gradients(device: str) -> None:
    """Their log-sum-exp is so low that two to the power of its opposite would be infinite."""
    whole = product([5], device)
    with torch.no_grad():
        whole[:, 0] = 8
        whole[:, 1] -= 20
    exact = whole.detach().double().requires_grad_()
    found, true = qkv_attention(whole, bounds_of([5], device), 5), formula(exact, [5])
    gradient, true_gradient = slope(found, whole), slope(true, exact)
    for one, other in ((found, true), (gradient, true_gradient)):
        assert (one - other).norm() < (1e-4 if device == "cpu" else 5e-2) * other.norm()


@everywhere
def test_a_batch_without_tokens_is_empty(device: str) -> None:
    whole = product([0, 0], device)
    found = qkv_attention(whole, bounds_of([0, 0], device), 0)
    assert found.shape == (0, 2, 32)
    assert slope(found, whole).shape == whole.shape


@everywhere
def test_neighbours_do_not_change_an_answer(device: str) -> None:
    """With dropout too, as long as a sequence begins where it did."""
    seed = torch.tensor(7, device=device)
    whole, others = product(FEW, device), product(FEW, device, seed=1)
    bounds = bounds_of(FEW, device)
    start, stop = 5, 21
    changed = torch.cat([others[:start], whole[start:stop], others[stop:]]).detach().requires_grad_()
    first, second = (qkv_attention(part, bounds, 70, 0.2, seed) for part in (whole, changed))
    assert torch.equal(first[start:stop], second[start:stop])
    assert not torch.equal(first[:start], second[:start])
    assert torch.equal(slope(first, whole)[start:stop], slope(second, changed)[start:stop])
    fewer = qkv_attention(whole[:stop], bounds[:3], 16, 0.2, seed)  # nobody behind
    assert torch.equal(fewer[start:stop], first[start:stop])


@everywhere
def test_a_seed_decides_what_is_forgotten(device: str) -> None:
    whole, bounds = product(FEW, device), bounds_of(FEW, device)
    draws = [
        qkv_attention(whole, bounds, 70, 0.3, torch.tensor(seed, device=device)) for seed in (5, 5, 6, 5 + (1 << 32))
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[3])  # all its bits count


@everywhere
@pytest.mark.parametrize("dropout", [0.1, 0.7])
def test_dropout_keeps_its_share_and_the_mean(device: str, dropout: float) -> None:
    length, heads = 256, 2
    masks = torch.stack(masks_of(long_attention, [length, length], heads, 128, dropout, torch.tensor(3, device=device)))
    assert set(masks.unique().tolist()) == {0.0, 1 / (1 - dropout)}
    deviation = (dropout / (1 - dropout) / masks.numel()) ** 0.5  # of the mean of what weights are multiplied by
    assert abs(masks.mean() - 1) < 4 * deviation
    for axis in (2, 3):  # no row and no column has more luck than chance gives, nor less
        means = masks.mean(axis)
        assert abs(means.std() / (deviation * (masks.numel() / length) ** 0.5) - 1) < 0.2
    kept = (masks > 0).double() - (masks > 0).double().mean()
    pairs = [
        (kept[0], kept[1]),  # sequences
        (kept[:, 0], kept[:, 1]),  # heads
        (kept, kept.transpose(-2, -1)),
    ]
    for one, other in pairs:
        share = (one * other).sum() / (one.norm() * other.norm())
        assert abs(share) < 4 / one.numel() ** 0.5 * (2**0.5)
    # Nor are any two rows or columns alike: the mask is a product underneath.
    for lines in (kept, kept.transpose(-2, -1)):
        lines = lines / lines.norm(dim=-1, keepdim=True)
        alike = (lines @ lines.transpose(-2, -1) * length**0.5).masked_fill(torch.eye(length, device=device) > 0, 0.0)
        assert abs(alike.square().mean() - 1) < 0.05
        assert alike.abs().max() < 9
    # Nor does the pattern come again anywhere in its sequence, however it is shifted.
    alike = torch.fft.ifft2(torch.fft.fft2(kept).abs().square()).real.mean((0, 1)).flatten()
    assert alike[1:].abs().max() < 6 * alike[0] / masks.numel() ** 0.5


@everywhere
@pytest.mark.parametrize("reach", REACHES)
def test_a_reach_leaves_out_the_rest(device: str, reach: Window) -> None:
    lengths = [67, 0, 70] if device == "cpu" else [512, 300, 0, 129, 1]
    whole, bounds = product(lengths, device), bounds_of(lengths, device)
    exact = whole.detach().double().requires_grad_()
    found = qkv_attention(whole, bounds, max(lengths), window=reach)
    true = formula(exact, lengths, reach=reach)
    assert_near(found, true)
    assert_near(slope(found, whole), slope(true, exact))


@pytest.mark.gpu
@pytest.mark.parametrize("width", [16, 32, 64, 128])
def test_a_query_may_see_nothing_of_the_first_block(width: int) -> None:
    """A GPU multiplies and adds at once: what is out of reach, less itself as it was rounded, need not be nought."""
    lengths, reach = [5, 70, 0, 133], Window(5, 3)
    whole = product(lengths, "cuda", width=width)
    exact = whole.detach().double().requires_grad_()
    found, true = (
        qkv_attention(whole, bounds_of(lengths, "cuda"), 133, window=reach),
        formula(exact, lengths, reach=reach),
    )
    assert_near(found, true)
    assert_near(slope(found, whole), slope(true, exact))


@everywhere
def test_dropout_has_the_gradient_of_the_formula_with_the_same_mask(device: str) -> None:
    lengths, seed = [20, 0, 70] if device == "cpu" else LONG, torch.tensor(11, device=device)
    whole = product(lengths, device, width=64)
    masks = masks_of(long_attention, lengths, 2, 64, 0.25, seed)
    assert 0 < float((masks[0] == 0).double().mean()) < 1
    exact = whole.detach().double().requires_grad_()
    found = long_attention(*whole.unbind(1), bounds_of(lengths, device), max(lengths), 0.25, seed)
    true = formula(exact, lengths, masks)
    assert_near(found, true)
    assert_near(slope(found, whole), slope(true, exact))


@INSIDE
def test_half_precision_is_near_the_formula() -> None:
    """Not bfloat16: the interpreter multiplies its bits as if they were whole numbers."""
    whole = product([67, 5], "cpu").detach().half().requires_grad_()
    exact = whole.detach().double().requires_grad_()
    found, true = qkv_attention(whole, bounds_of([67, 5], "cpu"), 67), formula(exact, [67, 5])
    for one, other in ((found, true), (slope(found, whole), slope(true, exact))):
        assert one.dtype == torch.float16
        assert (one.double() - other).norm() < 2e-3 * other.norm()


def test_what_does_not_fit_is_refused() -> None:
    assert fits(64)
    assert not fits(80)
    whole, bounds = torch.zeros(3, 3, 2, 32), torch.tensor([0, 3], dtype=torch.int32)
    with pytest.raises(ValueError, match=r"^long attention: heads of 80\. They can be 16, 32, 64, 128 wide\.$"):
        qkv_attention(torch.zeros(3, 3, 2, 80), bounds, 3)
    with pytest.raises(ValueError, match=r"^long attention: dropout of 1\.0\. It is a share"):
        qkv_attention(whole, bounds, 3, 1.0)
    with pytest.raises(ValueError, match=r"^long attention: dropout without a seed\. Draw one"):
        long_attention(*whole.unbind(1), bounds, 3, 0.1)


@OUTSIDE
@pytest.mark.parametrize("width", [16, 32, 64, 128])
def test_shapes_are_known_without_running_anything(width: int) -> None:
    """As torch.compile asks for them."""
    whole = torch.empty(700, 3, 12, width, device="meta", dtype=torch.bfloat16, requires_grad=True)
    bounds, seed = (torch.empty(9, device="meta", dtype=torch.int32), torch.empty((), device="meta", dtype=torch.int64))
    for found in (
        long_attention(*whole.unbind(1), bounds, 512, 0.1, seed),
        qkv_attention(whole, bounds, 512, 0.1, seed),
    ):
        assert found.shape == (700, 12, width)
        assert found.stride() == (12 * width, width, 1)
        [gradient] = torch.autograd.grad(found.sum(), whole)
        assert gradient.shape == whole.shape


@pytest.mark.slow
@OUTSIDE
@pytest.mark.parametrize("kernel", ["long_forward", "long_backward_queries", "long_backward_keys"])
def test_the_compiler_takes_the_kernels(kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It needs no GPU to compile for one, and is stricter about types than the interpreter."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from bertsmith.nn.kernels.shared import SHARED_MEMORY

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns that it will have another default
    function = getattr(module, kernel)
    pointers = dict.fromkeys(("query", "key", "value", "attended", "grad_output", "gradient"), "*bf16")
    pointers |= {"lse": "*fp32", "statistics": "*fp32", "bounds": "*i32", "seed": "*i64"}
    strides = {f"{part}_stride": 2304 for part in ("query", "key", "value")}
    fixed = strides | {f"{part}_head_stride": 64 for part in ("query", "key", "value")}
    fixed |= {"heads": 12, "width": 64, "query_block": 64, "key_block": 64, "dropout_threshold": 3 << 30}
    floats = dict.fromkeys(("scale", "keep_scale", "grad_scale"), "fp32")
    signature = pointers | floats | dict.fromkeys(fixed, "constexpr")
    signature = {name: signature.get(name, "i32") for name in function.arg_names}
    source = ASTSource(fn=function, signature=signature, constexprs=fixed)
    made = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 2})
    assert 0 < made.metadata.shared <= SHARED_MEMORY


@pytest.mark.gpu
def test_a_recording_follows_the_seed() -> None:
    """The seed is read on the device, so a CUDA graph played again with another one forgets other weights."""
    bounds, seed = bounds_of(LONG, "cuda"), torch.tensor(4, device="cuda")
    whole = product(LONG, "cuda").detach()
    play: Callable[[], Tensor] = lambda: qkv_attention(whole, bounds, 512, 0.2, seed)  # noqa: E731
    first = play()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = play()
    graph.replay()
    assert torch.equal(recorded, first)
    seed.fill_(5)
    graph.replay()
    assert not torch.equal(recorded, first)
    assert torch.equal(recorded, play())
