"""Scripts that compile for a GPU that is not there; test_compiles.py runs them in processes that are told of one."""

import sys

import torch
from bench.script import script

compiles = script("compiles")


def dropout() -> None:
    """Rows of narrow vectors are added up in parts, and what is drawn for a row is then found from two numbers."""
    from bertsmith.nn.dropout import forgetful

    with compiles.FakeTensorMode():
        numbers = compiles.thought(16384, 128, dtype=torch.bfloat16)
        keys = compiles.thought(2, dtype=torch.int32)
        compiles.compiled(lambda numbers, keys: forgetful(numbers, 0.1, keys).sum(0), numbers, keys)
    assert len(compiles.made) == 2, compiles.made  # the parts, and their sum


if __name__ == "__main__":
    compiles.pretend()
    globals()[sys.argv[1]]()
