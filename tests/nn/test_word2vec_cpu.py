"""word2vec in Numba against its plain twin in float64."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch
from objectives.stretch import KINDS, SMALL, Kind, exact, made

pytest.importorskip("numba", reason="Numba is not installed here")

from bertsmith.models.word2vec import Word2Vec, Word2VecConfig
from bertsmith.nn.kernels import word2vec_cpu
from bertsmith.objectives.word2vec import MAX_UPDATE_NORM, sgd_step
from bertsmith.objectives.word2vec_blocks import Blocks, NegativeSamplingConfig

pytestmark = pytest.mark.slow("Numba compiles")

kinds = pytest.mark.parametrize("kind", KINDS)
LENGTHS = [5, 1, 30, 12, 40, 1, 2]


def test_threads_of_numba_leave_those_of_torch_alone() -> None:
    """With another number torch's sums have other last bits. In a new process, since threads start once."""
    script = (
        "import torch; torch.set_num_threads(1); torch.get_num_threads()\n"
        "from bertsmith.nn.kernels import word2vec_cpu\n"
        "import numpy as np\n"
        "assert torch.get_num_threads() == 1\n"
        "tables = [np.zeros((9, 8), np.float32) for _ in range(2)]\n"
        "words, window = np.ones((1, 2, 6), np.int64), np.ones((1, 2, 4, 6), np.bool_)\n"
        "counts, negatives = np.ones((1, 8, 1), np.float32), np.array([[2, 3, 4, 5]])\n"
        "word2vec_cpu.update(*tables, words, window, counts, negatives, learning_rate=0.1, kind='skip-gram',\n"
        "    negatives=2, max_step=1.0, threads=2)\n"
        "assert torch.get_num_threads() == 1"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def tables(width: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(width)
    first, second = (generator.normal(0, 0.5, (20, width)).astype(np.float32) for _ in range(2))
    return first, second


def update(ours: tuple[np.ndarray, np.ndarray], found: Blocks, kind: Kind, rate: float, **settings: float) -> None:
    given = [part.numpy() for part in found.tensors]
    word2vec_cpu.update(
        *ours,
        *given,
        learning_rate=rate,
        kind=kind,
        negatives=4,
        **{"max_step": MAX_UPDATE_NORM, "threads": 2, **settings},
    )


def twin_of(ours: tuple[np.ndarray, np.ndarray], kind: Kind) -> Word2Vec:
    config = Word2VecConfig(kind=kind, width=ours[0].shape[1])
    return Word2Vec(config, *(torch.from_numpy(part.astype(np.float64)) for part in ours))


@pytest.mark.exhaustive(suite=2)
@kinds
@pytest.mark.parametrize(("window", "width"), [(1, 1), (3, 7), (5, 100), (20, 20)])
def test_blocks_update_both_tables_as_torch_does(kind: Kind, window: int, width: int) -> None:
    """Words repeat, sentences of one word have no neighbours, six samples need padding, the last block is not full."""
    found, ours = made(LENGTHS, 20, replace(SMALL, window=window)), tables(width)
    assert len(found) == 2
    twin = twin_of(ours, kind)
    before = [twin.inputs.clone(), twin.outputs.clone()]
    for number in range(len(found)):
        sgd_step(twin, exact(found[number]), 4, 0.05)
    update(ours, found, kind, 0.05)
    for one, other, first in zip(ours, (twin.inputs, twin.outputs), before, strict=True):
        assert (other - first).abs().max() > 0.01
        assert np.allclose(one, other.numpy(), rtol=1e-5, atol=1e-5)


@kinds
def test_the_update_of_a_negative_sample_is_clipped(kind: Kind) -> None:
    found, ours, free = made([60], 20), tables(7), tables(7)
    twin = twin_of(ours, kind)
    sgd_step(twin, exact(found[0]), 4, 2.0)
    update(ours, found, kind, 2.0)
    update(free, found, kind, 2.0, max_step=1e9)
    assert np.linalg.norm(free[1] - ours[1], axis=1).max() > 1
    assert np.allclose(ours[1], twin.outputs.numpy(), rtol=1e-5, atol=1e-5)


@kinds
def test_the_number_of_threads_changes_nothing(kind: Kind) -> None:
    found = made([30] * 40, 20, NegativeSamplingConfig(window=5, block=512, shared_negatives=6))
    one, two = tables(100), tables(100)
    update(one, found, kind, 0.05, threads=1)
    update(two, found, kind, 0.05, threads=2)
    assert np.array_equal(one[0], two[0])
    assert np.array_equal(one[1], two[1])
    assert not np.array_equal(one[0], tables(100)[0])
