"""The Triton kernels for sequences of any length against the formula; `ragged.py` says where each test runs."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nn.ragged import (
    HEADS,
    INTERPRETER_ONLY,
    NOT_INTERPRETED,
    WINDOWS,
    assert_near,
    bounds_of,
    everywhere,
    formula,
    gradient_of,
    make_qkv,
    masks_of,
    random_weights,
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
def test_output_and_gradients_are_those_of_the_formula(device: str, lengths: list[int], width: int) -> None:
    qkv = make_qkv(lengths, device, width=width)
    exact = qkv.detach().double().requires_grad_()
    found = long_attention(*qkv.unbind(1), bounds_of(lengths, device), max(lengths))
    true = formula(exact, lengths)
    assert found.dtype == qkv.dtype
    assert found.is_contiguous()
    assert_near(found, true)
    assert_near(gradient_of(found, qkv), gradient_of(true, exact))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("width", [16, 32, 64, 128])
@pytest.mark.parametrize("lengths", [LONG, EDGES])
def test_every_precision_and_width_gives_the_formula(dtype: torch.dtype, width: int, lengths: list[int]) -> None:
    qkv = make_qkv(lengths, "cuda", 3, width).detach().to(dtype).requires_grad_()
    exact = qkv.detach().double().requires_grad_()
    found, true = qkv_attention(qkv, bounds_of(lengths, "cuda"), max(lengths)), formula(exact, lengths)
    most = {torch.bfloat16: 2e-2, torch.float16: 5e-3, torch.float32: 1e-5}[dtype]
    assert (found.double() - true).norm() < most * true.norm()
    gradient, expected_gradient = gradient_of(found, qkv).double(), gradient_of(true, exact)
    for part in range(3):  # queries, keys and values
        off = gradient[:, part] - expected_gradient[:, part]
        assert off.norm() < most * expected_gradient[:, part].norm()
        assert off.abs().max() < 10 * most * expected_gradient[:, part].abs().max()


@everywhere
@pytest.mark.parametrize("shape", [(16, 32, 1), (32, 16, 1), (128, 32, 4), (32, 128, 4)])
def test_blocks_of_any_size_give_the_same(
    device: str, shape: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same dropout mask."""
    lengths, seed = [20, 0, 35] if device == "cpu" else [40, 0, 64, 35, 130], torch.tensor(2, device=device)
    qkv, bounds = make_qkv(lengths, device, HEADS[device]), bounds_of(lengths, device)
    true = qkv_attention(qkv, bounds, max(lengths), 0.3, seed)
    expected_gradient = gradient_of(true, qkv)
    for table in (FORWARD, QUERIES, KEYS):
        monkeypatch.setitem(table, 32, LaunchConfig(*shape))
    found = qkv_attention(qkv, bounds, max(lengths), 0.3, seed)
    assert_near(found, true)
    assert_near(gradient_of(found, qkv), expected_gradient)


@INTERPRETER_ONLY
@settings(deadline=None, max_examples=5, derandomize=True)
@given(st.lists(st.integers(0, 140), min_size=1, max_size=3).filter(any), st.sampled_from([16, 32]))
def test_any_lengths_give_the_formula(lengths: list[int], width: int) -> None:
    qkv = make_qkv(lengths, "cpu", 1, width, seed=sum(lengths))
    exact = qkv.detach().double().requires_grad_()
    found, true = qkv_attention(qkv, bounds_of(lengths, "cpu"), max(lengths)), formula(exact, lengths)
    assert_near(found, true)
    assert_near(gradient_of(found, qkv), gradient_of(true, exact))


@everywhere
def test_any_strides_of_tokens_and_heads_are_accepted(device: str) -> None:
    qkv = make_qkv(FEW, device).detach()
    bounds = bounds_of(FEW, device)
    true = long_attention(*(part.contiguous() for part in qkv.unbind(1)), bounds, 70)
    turned = qkv.transpose(0, 2).contiguous().transpose(0, 2)  # heads outside, tokens inside
    mixed = (qkv[:, 0], turned[:, 1], qkv.transpose(0, 3).contiguous().transpose(0, 3)[:, 2])
    assert len({part.stride() for part in mixed}) == 3
    assert torch.equal(long_attention(*mixed, bounds, 70), true)


@everywhere
def test_qkv_in_one_tensor_gives_the_same_and_the_gradients_are_one_tensor(device: str) -> None:
    qkv = make_qkv(FEW, device)
    bounds = bounds_of(FEW, device)
    parts = tuple(part.detach().requires_grad_() for part in qkv.unbind(1))
    apart, together = long_attention(*parts, bounds, 70), qkv_attention(qkv, bounds, 70)
    assert torch.equal(apart, together)
    gradient = gradient_of(together, qkv)
    assert gradient.is_contiguous()
    gradients = torch.autograd.grad((apart * random_weights(apart)).sum(), parts)
    assert torch.equal(torch.stack(gradients, 1), gradient)
    assert len({part.untyped_storage().data_ptr() for part in gradients}) == 1


@everywhere
def test_gradients_are_deterministic(device: str) -> None:
    lengths = FEW if device == "cpu" else LONG
    qkv, bounds = make_qkv(lengths, device, HEADS[device]), bounds_of(lengths, device)
    first, second = (gradient_of(qkv_attention(qkv, bounds, max(lengths)), qkv) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # numpy's, about nan where it is expected
@everywhere
@pytest.mark.parametrize("number", [torch.inf, torch.nan])
def test_inf_or_nan_in_one_sequence_stays_there(device: str, number: float) -> None:
    lengths = [70, 9, 17]
    calm = make_qkv(lengths, device, HEADS[device])
    wild = calm.detach().clone()
    wild[70:79] = number
    wild.requires_grad_()
    bounds = bounds_of(lengths, device)
    outside = torch.tensor([*range(70), *range(79, 96)], device=device)
    for qkv in (calm, wild):
        found = qkv_attention(qkv, bounds, 70)[outside]
        [gradient] = torch.autograd.grad((found * random_weights(found)).sum(), qkv)
        if qkv is calm:
            true, expected_gradient = found, gradient
    assert torch.equal(found, true)
    assert torch.equal(gradient[outside], expected_gradient[outside])


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # numpy's, about rows that are not stored
@everywhere
def test_very_negative_scores_have_gradients(device: str) -> None:
    """Their log-sum-exp is so low that two to the power of its opposite would be infinite."""
    qkv = make_qkv([5], device)
    with torch.no_grad():
        qkv[:, 0] = 8
        qkv[:, 1] -= 20
    exact = qkv.detach().double().requires_grad_()
    found, true = qkv_attention(qkv, bounds_of([5], device), 5), formula(exact, [5])
    gradient, expected_gradient = gradient_of(found, qkv), gradient_of(true, exact)
    for one, other in ((found, true), (gradient, expected_gradient)):
        assert (one - other).norm() < (1e-4 if device == "cpu" else 5e-2) * other.norm()


@everywhere
def test_a_batch_without_tokens_gives_an_empty_output(device: str) -> None:
    qkv = make_qkv([0, 0], device)
    found = qkv_attention(qkv, bounds_of([0, 0], device), 0)
    assert found.shape == (0, 2, 32)
    assert gradient_of(found, qkv).shape == qkv.shape


@everywhere
def test_other_sequences_do_not_change_an_output(device: str) -> None:
    """With dropout, too, as long as the sequence starts at the same token."""
    seed = torch.tensor(7, device=device)
    qkv, others = (make_qkv(FEW, device, HEADS[device], seed=seed) for seed in (0, 1))
    bounds = bounds_of(FEW, device)
    start, stop = 5, 21
    changed = torch.cat([others[:start], qkv[start:stop], others[stop:]]).detach().requires_grad_()
    first, second = (qkv_attention(part, bounds, 70, 0.2, seed) for part in (qkv, changed))
    assert torch.equal(first[start:stop], second[start:stop])
    assert not torch.equal(first[:start], second[:start])
    assert torch.equal(gradient_of(first, qkv)[start:stop], gradient_of(second, changed)[start:stop])
    fewer = qkv_attention(qkv[:stop], bounds[:3], 16, 0.2, seed)  # no sequence after it
    assert torch.equal(fewer[start:stop], first[start:stop])


@everywhere
def test_the_seed_determines_the_dropout_mask(device: str) -> None:
    qkv, bounds = make_qkv(FEW, device), bounds_of(FEW, device)
    draws = [
        qkv_attention(qkv, bounds, 70, 0.3, torch.tensor(seed, device=device)) for seed in (5, 5, 6, 5 + (1 << 32))
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[3])  # all its bits count


@everywhere
@pytest.mark.parametrize("dropout", [0.1, 0.7])
def test_dropout_keeps_its_share_and_the_mean_without_patterns(device: str, dropout: float) -> None:
    length, heads = 256, 2
    masks = torch.stack(masks_of(long_attention, [length, length], heads, 128, dropout, torch.tensor(3, device=device)))
    assert set(masks.unique().tolist()) == {0.0, 1 / (1 - dropout)}
    deviation = (dropout / (1 - dropout) / masks.numel()) ** 0.5  # of the mean of the mask
    assert abs(masks.mean() - 1) < 4 * deviation
    for axis in (2, 3):  # rows and columns vary as independent draws do
        means = masks.mean(axis)
        assert abs(means.std() / (deviation * (masks.numel() / length) ** 0.5) - 1) < 0.2
    centred = (masks > 0).double() - (masks > 0).double().mean()
    pairs = [
        (centred[0], centred[1]),  # sequences
        (centred[:, 0], centred[:, 1]),  # heads
        (centred, centred.transpose(-2, -1)),
    ]
    for one, other in pairs:
        cosine = (one * other).sum() / (one.norm() * other.norm())
        assert abs(cosine) < 4 / one.numel() ** 0.5 * (2**0.5)
    # Nor are any two rows or columns correlated: the mask comes from a product of row and column bits.
    for lines in (centred, centred.transpose(-2, -1)):
        lines = lines / lines.norm(dim=-1, keepdim=True)
        alike = (lines @ lines.transpose(-2, -1) * length**0.5).masked_fill(torch.eye(length, device=device) > 0, 0.0)
        assert abs(alike.square().mean() - 1) < 0.05
        assert alike.abs().max() < 9
    # Nor does the pattern repeat at any shift within its sequence.
    correlation = torch.fft.ifft2(torch.fft.fft2(centred).abs().square()).real.mean((0, 1)).flatten()
    assert correlation[1:].abs().max() < 6 * correlation[0] / masks.numel() ** 0.5


@everywhere
@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_masks_all_other_keys(device: str, window: Window) -> None:
    lengths = [67, 0, 70] if device == "cpu" else [512, 300, 0, 129, 1]
    qkv, bounds = make_qkv(lengths, device), bounds_of(lengths, device)
    exact = qkv.detach().double().requires_grad_()
    found = qkv_attention(qkv, bounds, max(lengths), window=window)
    true = formula(exact, lengths, window=window)
    assert_near(found, true)
    assert_near(gradient_of(found, qkv), gradient_of(true, exact))


@pytest.mark.gpu
@pytest.mark.parametrize("width", [16, 32, 64, 128])
def test_a_query_whose_window_misses_the_first_block(width: int) -> None:
    """With fused multiply-add, a masked score less its own rounded maximum need not be 0."""
    lengths, window = [5, 70, 0, 133], Window(5, 3)
    qkv = make_qkv(lengths, "cuda", width=width)
    exact = qkv.detach().double().requires_grad_()
    found, true = (
        qkv_attention(qkv, bounds_of(lengths, "cuda"), 133, window=window),
        formula(exact, lengths, window=window),
    )
    assert_near(found, true)
    assert_near(gradient_of(found, qkv), gradient_of(true, exact))


@everywhere
def test_dropout_has_the_gradient_of_the_formula_with_the_same_mask(device: str) -> None:
    lengths, seed = [20, 0, 70] if device == "cpu" else LONG, torch.tensor(11, device=device)
    qkv = make_qkv(lengths, device, width=64)
    masks = masks_of(long_attention, lengths, 2, 64, 0.25, seed)
    assert 0 < float((masks[0] == 0).double().mean()) < 1
    exact = qkv.detach().double().requires_grad_()
    found = long_attention(*qkv.unbind(1), bounds_of(lengths, device), max(lengths), 0.25, seed)
    true = formula(exact, lengths, masks)
    assert_near(found, true)
    assert_near(gradient_of(found, qkv), gradient_of(true, exact))


@INTERPRETER_ONLY
def test_float16_is_near_the_formula() -> None:
    """Not bfloat16: the interpreter multiplies its bits as integers."""
    qkv = make_qkv([67, 5], "cpu").detach().half().requires_grad_()
    exact = qkv.detach().double().requires_grad_()
    found, true = qkv_attention(qkv, bounds_of([67, 5], "cpu"), 67), formula(exact, [67, 5])
    for one, other in ((found, true), (gradient_of(found, qkv), gradient_of(true, exact))):
        assert one.dtype == torch.float16
        assert (one.double() - other).norm() < 2e-3 * other.norm()


def test_unsupported_sizes_and_dropout_are_refused() -> None:
    assert fits(64)
    assert not fits(80)
    qkv, bounds = torch.zeros(3, 3, 2, 32), torch.tensor([0, 3], dtype=torch.int32)
    with pytest.raises(ValueError, match=r"^long attention: heads of 80\. They can be 16, 32, 64, 128 wide\.$"):
        qkv_attention(torch.zeros(3, 3, 2, 80), bounds, 3)
    with pytest.raises(ValueError, match=r"^long attention: dropout of 1\.0\. It is a share"):
        qkv_attention(qkv, bounds, 3, 1.0)
    with pytest.raises(ValueError, match=r"^long attention: dropout without a seed\. Draw one"):
        long_attention(*qkv.unbind(1), bounds, 3, 0.1)


@NOT_INTERPRETED
@pytest.mark.parametrize("width", [16, 32, 64, 128])
def test_shapes_are_known_on_the_meta_device(width: int) -> None:
    """As torch.compile needs them."""
    qkv = torch.empty(700, 3, 12, width, device="meta", dtype=torch.bfloat16, requires_grad=True)
    bounds, seed = (torch.empty(9, device="meta", dtype=torch.int32), torch.empty((), device="meta", dtype=torch.int64))
    for found in (
        long_attention(*qkv.unbind(1), bounds, 512, 0.1, seed),
        qkv_attention(qkv, bounds, 512, 0.1, seed),
    ):
        assert found.shape == (700, 12, width)
        assert found.stride() == (12 * width, width, 1)
        [gradient] = torch.autograd.grad(found.sum(), qkv)
        assert gradient.shape == qkv.shape


@pytest.mark.exhaustive(suite=1)
@pytest.mark.slow
@NOT_INTERPRETED
@pytest.mark.parametrize("kernel", ["long_forward", "long_backward_queries", "long_backward_keys"])
def test_the_kernels_compile_for_hopper(kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling needs no GPU, and is stricter about types than the interpreter."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from bertsmith.nn.kernels.shared import SHARED_MEMORY

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns that the default will change
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
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 4, "num_stages": 2})
    assert 0 < compiled.metadata.shared <= SHARED_MEMORY


@pytest.mark.gpu
def test_a_cuda_graph_follows_the_seed() -> None:
    """The seed is read on the device, so a replayed CUDA graph draws a new mask for a new seed."""
    bounds, seed = bounds_of(LONG, "cuda"), torch.tensor(4, device="cuda")
    qkv = make_qkv(LONG, "cuda").detach()
    play: Callable[[], Tensor] = lambda: qkv_attention(qkv, bounds, 512, 0.2, seed)  # noqa: E731
    first = play()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = play()
    graph.replay()
    assert torch.equal(captured, first)
    seed.fill_(5)
    graph.replay()
    assert not torch.equal(captured, first)
    assert torch.equal(captured, play())
