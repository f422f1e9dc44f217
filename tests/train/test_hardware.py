"""What a run asks of its machine."""

import subprocess
import sys

import pytest

AGAIN = """
import resource
import torch
from bertsmith.train.hardware import keep_freed_memory

def faults(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    torch.ones(count)  # freed at once
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

keep_freed_memory()
print(faults(1 << 24), faults((1 << 24) - 1024))  # 64 MiB, and what fits there wherever it has to begin
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only glibc has mallopt")
def test_memory_that_was_freed_is_used_again_without_asking_the_system() -> None:
    done = subprocess.run([sys.executable, "-c", AGAIN], capture_output=True, text=True, check=True, timeout=60)
    first, again = map(int, done.stdout.split())
    assert again < 32 <= first
