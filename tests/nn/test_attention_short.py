"""The Triton kernels for short sequences against the formula; `ragged.py` says where each test runs."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from nn.ragged import (
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

from bertsmith.nn.attention import Sequences
from bertsmith.nn.kernel_choice import self_attention
from bertsmith.nn.kernels.attention_short import BACKWARD, BLOCKS, FORWARD, _sizes, fits, qkv_attention, short_attention
from bertsmith.nn.kernels.shared import SHARED_MEMORY, available
from bertsmith.nn.window import Window

SMALL = [1, 15, 16, 17, 0, 3, 31, 0, 0]  # trailing empty sequences, as packing leaves them
FEW = [5, 16, 0, 9, 0]
MIDDLE = [127, 128, 64, 0, 65, 1]


@everywhere
@pytest.mark.parametrize(
    ("lengths", "width"), [(SMALL, 64), (MIDDLE, 32), ([33, 64, 0, 1], 128), ([256, 129, 3], 32), ([16, 5], 16)]
)
def test_output_and_gradients_are_those_of_the_formula(device: str, lengths: list[int], width: int) -> None:
    qkv = make_qkv(lengths, device, width=width)
    exact = qkv.detach().double().requires_grad_()
    found = short_attention(*qkv.unbind(1), bounds_of(lengths, device), max(lengths))
    true = formula(exact, lengths)
    assert found.dtype == qkv.dtype
    assert found.is_contiguous()
    assert_near(found, true)
    assert_near(gradient_of(found, qkv), gradient_of(true, exact))


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize(("lengths", "width"), [(MIDDLE, 64), ([256, 129, 3], 64), ([128, 77], 128)])
def test_other_precisions_give_the_formula(dtype: torch.dtype, lengths: list[int], width: int) -> None:
    qkv = make_qkv(lengths, "cuda", width=width).detach().to(dtype).requires_grad_()
    exact = qkv.detach().double().requires_grad_()
    found, true = short_attention(*qkv.unbind(1), bounds_of(lengths, "cuda"), max(lengths)), formula(exact, lengths)
    for one, other in ((found, true), (gradient_of(found, qkv), gradient_of(true, exact))):
        assert (one.double() - other).norm() < (5e-3 if dtype == torch.float16 else 1e-5) * other.norm()


@INTERPRETER_ONLY
@settings(deadline=None, max_examples=8, derandomize=True)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=4).filter(any), st.sampled_from([16, 32]), st.integers(1, 2))
def test_any_lengths_give_the_formula(lengths: list[int], width: int, heads: int) -> None:
    qkv = make_qkv(lengths, "cpu", heads, width, seed=sum(lengths))
    exact = qkv.detach().double().requires_grad_()
    found, true = qkv_attention(qkv, bounds_of(lengths, "cpu"), max(lengths)), formula(exact, lengths)
    assert_near(found, true)
    assert_near(gradient_of(found, qkv), gradient_of(true, exact))


@everywhere
def test_any_strides_of_tokens_and_heads_are_accepted(device: str) -> None:
    qkv = make_qkv(FEW, device).detach()
    bounds = bounds_of(FEW, device)
    true = short_attention(*(part.contiguous() for part in qkv.unbind(1)), bounds, 31)
    turned = qkv.transpose(0, 2).contiguous().transpose(0, 2)  # heads outside, tokens inside
    mixed = (qkv[:, 0], turned[:, 1], qkv.transpose(0, 3).contiguous().transpose(0, 3)[:, 2])
    assert len({part.stride() for part in mixed}) == 3
    assert torch.equal(short_attention(*mixed, bounds, 31), true)


@everywhere
def test_qkv_in_one_tensor_gives_the_same_and_the_gradients_are_one_tensor(device: str) -> None:
    qkv = make_qkv(FEW, device)
    bounds = bounds_of(FEW, device)
    parts = tuple(part.detach().requires_grad_() for part in qkv.unbind(1))
    apart, together = short_attention(*parts, bounds, 31), qkv_attention(qkv, bounds, 31)
    assert torch.equal(apart, together)
    gradient = gradient_of(together, qkv)
    assert gradient.is_contiguous()
    gradients = torch.autograd.grad((apart * random_weights(apart)).sum(), parts)
    assert torch.equal(torch.stack(gradients, 1), gradient)
    assert len({part.untyped_storage().data_ptr() for part in gradients}) == 1


@everywhere
def test_gradients_are_deterministic(device: str) -> None:
    qkv, bounds = make_qkv(FEW, device), bounds_of(FEW, device)
    first, second = (gradient_of(qkv_attention(qkv, bounds, 31), qkv) for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")  # numpy's, about nan where it is expected
@everywhere
def test_inf_or_nan_in_one_sequence_stays_there(device: str) -> None:
    lengths = [6, 9, 17]
    calm = make_qkv(lengths, device)
    wild = calm.detach().clone()
    wild[6:15] = torch.inf
    wild.requires_grad_()
    bounds = bounds_of(lengths, device)
    outside = torch.tensor([*range(6), *range(15, 32)], device=device)
    for qkv in (calm, wild):
        found = qkv_attention(qkv, bounds, 17)[outside]
        [gradient] = torch.autograd.grad((found * random_weights(found)).sum(), qkv)
        if qkv is calm:
            true, expected_gradient = found, gradient
    assert torch.equal(found, true)
    assert torch.equal(gradient[outside], expected_gradient[outside])


@everywhere
def test_very_negative_scores_have_gradients(device: str) -> None:
    """Their log-sum-exp is so low that two to the power of its opposite would be infinite."""
    qkv = make_qkv([5], device)
    with torch.no_grad():
        qkv[:, 0] = 8
        qkv[:, 1] -= 20
    found = qkv_attention(qkv, bounds_of([5], device), 5)
    assert found.isfinite().all()
    assert gradient_of(found, qkv).isfinite().all()


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
    qkv, others = make_qkv(FEW, device), make_qkv(FEW, device, seed=1)
    bounds = bounds_of(FEW, device)
    start, stop = 5, 21
    changed = torch.cat([others[:start], qkv[start:stop], others[stop:]]).detach().requires_grad_()
    first, second = (qkv_attention(part, bounds, 31, 0.2, seed) for part in (qkv, changed))
    assert torch.equal(first[start:stop], second[start:stop])
    assert not torch.equal(first[:start], second[:start])
    assert torch.equal(gradient_of(first, qkv)[start:stop], gradient_of(second, changed)[start:stop])
    fewer = qkv_attention(qkv[:stop], bounds[:3], 31, 0.2, seed)  # the same block, no sequence after it
    assert torch.equal(fewer[start:stop], first[start:stop])


@everywhere
def test_the_seed_determines_the_dropout_mask(device: str) -> None:
    qkv, bounds = make_qkv(FEW, device), bounds_of(FEW, device)
    draws = [
        qkv_attention(qkv, bounds, 31, 0.3, torch.tensor(seed, device=device)) for seed in (5, 5, 6, 5 + (1 << 32))
    ]
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert not torch.equal(draws[0], draws[3])  # all its bits count


@everywhere
@pytest.mark.parametrize("dropout", [0.1, 0.7])
def test_dropout_keeps_its_share_and_the_mean_without_patterns(device: str, dropout: float) -> None:
    lengths, heads = [128, 128], 2
    masks = torch.stack(masks_of(short_attention, lengths, heads, 64, dropout, torch.tensor(3, device=device)))
    assert set(masks.unique().tolist()) == {0.0, 1 / (1 - dropout)}
    deviation = (dropout / (1 - dropout) / masks.numel()) ** 0.5  # of the mean of the mask
    assert abs(masks.mean() - 1) < 4 * deviation
    for axis in (2, 3):  # rows and columns vary as independent draws do
        means = masks.mean(axis)
        assert abs(means.std() / (deviation * (masks.numel() / 128) ** 0.5) - 1) < 0.2
    centred = (masks > 0).double() - (masks > 0).double().mean()
    pairs = [
        (centred[0], centred[1]),  # sequences
        (centred[:, 0], centred[:, 1]),  # heads
        (centred, centred.transpose(-2, -1)),
    ]
    for one, other in pairs:
        cosine = (one * other).sum() / (one.norm() * other.norm())
        assert abs(cosine) < 4 / one.numel() ** 0.5 * (2**0.5)
    # Nor does the pattern repeat at any shift within its sequence.
    correlation = torch.fft.ifft2(torch.fft.fft2(centred).abs().square()).real.mean((0, 1)).flatten()
    assert correlation[1:].abs().max() < 6 * correlation[0] / masks.numel() ** 0.5


@everywhere
@pytest.mark.parametrize("window", WINDOWS)
def test_a_window_masks_all_other_keys(device: str, window: Window) -> None:
    lengths = [67, 0, 70] if device == "cpu" else [200, 0, 256, 17]
    qkv, bounds = make_qkv(lengths, device), bounds_of(lengths, device)
    exact = qkv.detach().double().requires_grad_()
    found = qkv_attention(qkv, bounds, max(lengths), window=window)
    true = formula(exact, lengths, window=window)
    assert_near(found, true)
    assert_near(gradient_of(found, qkv), gradient_of(true, exact))


@everywhere
def test_dropout_has_the_gradient_of_the_formula_with_the_same_mask(device: str) -> None:
    lengths, seed = [40, 0, 64, 20], torch.tensor(11, device=device)
    qkv = make_qkv(lengths, device)
    masks = masks_of(short_attention, lengths, 2, 32, 0.25, seed)
    assert 0 < float((masks[0] == 0).double().mean()) < 1
    exact = qkv.detach().double().requires_grad_()
    found = short_attention(*qkv.unbind(1), bounds_of(lengths, device), 64, 0.25, seed)
    true = formula(exact, lengths, masks)
    assert_near(found, true)
    assert_near(gradient_of(found, qkv), gradient_of(true, exact))


@everywhere
def test_the_block_does_not_change_the_dropout_mask(device: str) -> None:
    qkv, bounds, seed = make_qkv([16, 9], device), bounds_of([16, 9], device), torch.tensor(1, device=device)
    first, *others = (qkv_attention(qkv, bounds, longest, 0.5, seed) for longest in (16, 32, 64))
    for other in others:
        assert_near(other, first)


@INTERPRETER_ONLY
def test_float16_is_near_the_formula() -> None:
    """Not bfloat16: the interpreter multiplies its bits as integers."""
    qkv = make_qkv([17, 5], "cpu").detach().half().requires_grad_()
    exact = qkv.detach().double().requires_grad_()
    found, true = qkv_attention(qkv, bounds_of([17, 5], "cpu"), 17), formula(exact, [17, 5])
    for one, other in ((found, true), (gradient_of(found, qkv), gradient_of(true, exact))):
        assert one.dtype == torch.float16
        assert (one.double() - other).norm() < 2e-3 * other.norm()


def test_unsupported_sizes_and_dropout_are_refused() -> None:
    assert fits(256, 64)
    assert fits(128, 128)
    assert fits(0, 16)
    assert not fits(257, 32)
    assert not fits(129, 128)
    assert not fits(64, 80)
    qkv, bounds = torch.zeros(3, 3, 2, 32), torch.tensor([0, 3], dtype=torch.int32)
    with pytest.raises(
        ValueError, match=r"^short attention: sequences of 257 tokens with heads of 32 do not fit.*\. At"
    ):
        qkv_attention(qkv, bounds, 257)
    with pytest.raises(ValueError, match=r"^short attention: dropout of 1\.0\. It is a share"):
        qkv_attention(qkv, bounds, 3, 1.0)
    with pytest.raises(ValueError, match=r"^short attention: dropout without a seed\. Draw one"):
        short_attention(*qkv.unbind(1), bounds, 3, 0.1)
    assert not available(torch.device("cpu"))


def test_a_gpu_needs_ampere_and_enough_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    class Card:
        major, shared_memory_per_block_optin = 9, 232_448

    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: Card)
    assert available(torch.device("cuda"))
    Card.major = 7
    assert not available(torch.device("cuda"))
    Card.major, Card.shared_memory_per_block_optin = 8, 101_376
    assert not available(torch.device("cuda"))


@NOT_INTERPRETED
@pytest.mark.parametrize("longest", BLOCKS)
def test_shapes_are_known_on_the_meta_device(longest: int) -> None:
    """As torch.compile needs them."""
    width = 64
    qkv = torch.empty(100, 3, 12, width, device="meta", dtype=torch.bfloat16, requires_grad=True)
    bounds, seed = (torch.empty(9, device="meta", dtype=torch.int32), torch.empty((), device="meta", dtype=torch.int64))
    for found in (
        short_attention(*qkv.unbind(1), bounds, longest, 0.1, seed),
        qkv_attention(qkv, bounds, longest, 0.1, seed),
    ):
        assert found.shape == (100, 12, width)
        assert found.stride() == (12 * width, width, 1)
        [gradient] = torch.autograd.grad(found.sum(), qkv)
        assert gradient.shape == qkv.shape


@pytest.mark.exhaustive
@pytest.mark.slow
@NOT_INTERPRETED
@pytest.mark.parametrize("kernel", ["short_forward", "short_backward"])
def test_the_kernels_compile_for_hopper(kernel: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling needs no GPU, and is stricter about types than the interpreter."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from bertsmith.nn.kernels import attention_short as module

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TRITON_DEFAULT_FP_FUSION", "1")  # Triton 3.9 warns that the default will change
    function = getattr(module, kernel)
    pointers = dict.fromkeys(("query", "key", "value", "attended", "grad_output", "gradient"), "*bf16")
    pointers |= {"bias": "*i32", "lse": "*fp32", "bounds": "*i32", "seed": "*i64"}
    fixed = {"heads": 12, "width": 64, "block": 32, "query_block": 32, "min_length": 0, "half_block": 16}
    fixed |= {"dropout_threshold": 3 << 30, "bias_stride": 0}
    floats = dict.fromkeys(("scale", "keep_scale", "grad_scale"), "fp32")
    signature = pointers | floats | dict.fromkeys(fixed, "constexpr")
    signature = {name: signature.get(name, "i32") for name in function.arg_names}
    source = ASTSource(fn=function, signature=signature, constexprs=fixed)
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": 2})
    assert 0 < compiled.metadata.shared <= SHARED_MEMORY


@pytest.mark.slow
@NOT_INTERPRETED
def test_bertsmith_does_not_import_triton() -> None:
    code = "import sys, bertsmith, bertsmith.nn.attention; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.gpu
def test_a_cuda_graph_follows_the_seed() -> None:
    """The seed is read on the device, so a replayed CUDA graph draws a new mask for a new seed."""
    bounds, seed = bounds_of(MIDDLE, "cuda"), torch.tensor(4, device="cuda")
    qkv = make_qkv(MIDDLE, "cuda").detach()
    play: Callable[[], Tensor] = lambda: qkv_attention(qkv, bounds, 128, 0.2, seed)  # noqa: E731
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


@everywhere
def test_the_kernel_is_made_by_its_name(device: str) -> None:
    qkv, bounds = make_qkv(SMALL, device), bounds_of(SMALL, device)
    kernel = self_attention("short", Sequences(bounds, max(SMALL), sum(SMALL)))
    exact = formula(qkv.detach(), SMALL)
    assert_near(kernel.attend(*qkv.unbind(1)), exact)
    assert_near(kernel.attend_qkv(qkv), exact)
    torch.manual_seed(3)
    first = kernel.attend_qkv(qkv, 0.5)
    torch.manual_seed(3)
    assert torch.equal(kernel.attend(*qkv.unbind(1), 0.5), first)
    assert not torch.equal(kernel.attend_qkv(qkv, 0.5), first)


@everywhere
@pytest.mark.parametrize(("halves", "branch"), [(0, False), (1, False), (2, False), (1, True)])
def test_separate_launches_by_size_give_the_same(
    device: str, halves: int, branch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same dropout mask, for sequences of every size."""
    lengths, seed = [17, 64, 0, 33, 8, 32, 16, 0], torch.tensor(5, device=device)
    qkv, bounds = make_qkv(lengths, device, heads=1), bounds_of(lengths, device)
    found = []
    for changes in (None, (halves, branch)):
        if changes is not None:
            for table in (FORWARD, BACKWARD):
                monkeypatch.setitem(table, 64, replace(table[64], halves=changes[0], branch=changes[1]))
        outputs = qkv_attention(qkv, bounds, 64, 0.2, seed)
        found.append((outputs, gradient_of(outputs, qkv)))
    for one, other in zip(*found, strict=True):
        assert_near(one, other)
        if device == "cpu" and (halves, branch) == (1, False):  # the same blocks, in separate launches
            assert torch.equal(one, other)


@pytest.mark.parametrize("halves", [0, 1, 3])
@pytest.mark.parametrize("block", [128, 256])
def test_every_length_has_one_launch_and_every_launch_its_own_config(halves: int, block: int) -> None:
    empty, table = torch.empty(0, 1, 64, dtype=torch.bfloat16), BACKWARD.copy()
    table[block] = replace(table[block], halves=halves, branch=False)
    sizes = list(_sizes(empty, table, block))
    assert [size["block"] for size in sizes] == [block >> turn for turn in range(halves + 1)]
    for length in range(1, block + 1):
        assert sum(size["min_length"] < length <= size["block"] for size in sizes) == 1
    for size in sizes:
        launch = table[size["block"]]
        assert (size["num_warps"], size["num_stages"]) == (launch.warps, launch.stages)
        assert size["query_block"] == launch.queries
