"""word2vec in Triton against its plain twin in float64; `ragged.py` says where each test runs."""

from dataclasses import replace

import pytest
import torch
from nn.ragged import everywhere
from objectives.stretch import KINDS, SMALL, Kind, exact, made
from torch import Tensor

pytest.importorskip("triton", reason="Triton is not installed here")

from bertsmith.models.word2vec import Word2Vec, Word2VecConfig
from bertsmith.nn.kernels import word2vec
from bertsmith.objectives.word2vec import MAX_UPDATE_NORM, sgd_step
from bertsmith.objectives.word2vec_blocks import Blocks, NegativeSamplingConfig

kinds = pytest.mark.parametrize("kind", KINDS)


def tables(width: int, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(width)
    first, second = (torch.randn(20, width, generator=generator) / 2 for _ in range(2))
    return first.to(device), second.to(device)


def update(ours: tuple[Tensor, Tensor], block: int, there: Blocks, kind: Kind, rate: float, most: float) -> None:
    given = (
        there.word_ids[block],
        there.is_neighbour[block],
        there.negative_ids[block],
        torch.tensor(rate, device=there.word_ids.device),
    )
    word2vec.update(*ours, *given, kind=kind, negatives=4, max_step=most)


def assert_the_same(kind: Kind, config: NegativeSamplingConfig, width: int, device: str) -> None:
    """Kernels and twin on the same blocks, one after the other."""
    found, ours = made([5, 1, 30, 12, 40, 1, 2], 20, config), tables(width, device)
    twin = Word2Vec(Word2VecConfig(kind=kind, width=width), *(part.double().cpu() for part in ours))
    before = twin.inputs.clone(), twin.outputs.clone()
    for number in range(len(found)):
        sgd_step(twin, exact(found[number]), 4, 0.05)
        update(ours, number, found.map_tensors(lambda part: part.to(device)), kind, 0.05, MAX_UPDATE_NORM)
    for one, other, first in zip(ours, (twin.inputs, twin.outputs), before, strict=True):
        assert (other - first).abs().max() > 0.01
        torch.testing.assert_close(one.double().cpu(), other, rtol=1e-5, atol=1e-5)


@everywhere
@kinds
@pytest.mark.parametrize(("window", "width"), [(3, 7), (5, 100), (20, 20)])
def test_a_block_updates_both_tables_as_torch_does(device: str, kind: Kind, window: int, width: int) -> None:
    """Words repeat, sentences of one word have no neighbours, and the last block is not full."""
    assert_the_same(kind, replace(SMALL, window=window), width, device)


@everywhere
@kinds
def test_wide_vectors_are_computed_in_chunks(device: str, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(word2vec.CHUNKS, kind, 16)
    assert_the_same(kind, SMALL, 50, device)


@everywhere
@kinds
def test_the_update_of_a_negative_sample_is_clipped(device: str, kind: Kind) -> None:
    """At a learning rate at which some updates would be more than twice as long."""
    found = made([5, 1, 30, 12, 40, 1, 2], 20)
    there, ours, free = found.map_tensors(lambda part: part.to(device)), tables(7, device), tables(7, device)
    twin = Word2Vec(Word2VecConfig(kind=kind, width=7), *(part.double().cpu() for part in ours))
    sgd_step(twin, exact(found[0]), 4, 2.0)
    update(ours, 0, there, kind, 2.0, MAX_UPDATE_NORM)
    update(free, 0, there, kind, 2.0, 1e9)
    assert (free[1] - ours[1]).norm(dim=1).max() > MAX_UPDATE_NORM
    torch.testing.assert_close(ours[1].double().cpu(), twin.outputs, rtol=1e-5, atol=1e-5)


def test_sizes_that_do_not_fit_are_known() -> None:
    assert word2vec.fits(32 + 2 * 5, 64)
    assert word2vec.fits(32 + 2 * 48, 128)
    assert not word2vec.fits(32 + 2 * 49, 64)
    assert not word2vec.fits(42, 129)
