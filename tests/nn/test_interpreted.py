"""The tests of our Triton kernels on a CPU, under Triton's interpreter; see `ragged.py`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from nn.ragged import NOT_INTERPRETED

pytest.importorskip("triton", reason="Triton is not installed here")

HERE = Path(__file__).resolve().parent
KERNELS = (
    "bias_gelu",
    "residual_layer_norm",
    "linear_cross_entropy",
    "muon",
    "attention_short",
    "attention_bias",
    "attention_long",
    "word2vec",
)


@pytest.mark.exhaustive
@pytest.mark.slow
@NOT_INTERPRETED
def test_every_kernel_under_the_interpreter() -> None:
    files = [str(HERE / f"test_{name}.py") for name in KERNELS]  # in one process, since starting one takes long
    words = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-m", "not gpu", *files]
    environment = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    found = subprocess.run(words, env=environment, cwd=HERE.parents[1], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout[-20_000:] + found.stderr
    passed = set(re.findall(r"test_(\w+)\.py::\S+ PASSED", found.stdout))
    assert passed == set(KERNELS)
