import pytest
import torch
from transformers.models.t5.modeling_t5 import T5Attention

from bertsmith.nn.relative import RelativePositionBias, relative_position_bucket


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "farthest"), [(32, 128), (16, 64), (8, 20), (4, 3)])
def test_buckets_are_those_of_the_published_code(causal: bool, buckets: int, farthest: int) -> None:
    ahead = torch.arange(-700, 700)
    how = {"bidirectional": not causal, "num_buckets": buckets, "max_distance": farthest}
    theirs = T5Attention._relative_position_bucket(ahead, **how)
    assert torch.equal(relative_position_bucket(ahead, buckets, farthest, causal=causal), theirs)


@pytest.mark.parametrize("causal", [False, True])
def test_a_square_has_the_number_of_each_distance(causal: bool) -> None:
    relative = RelativePositionBias(3, 8, 20, causal=causal)
    square = relative.compute_bias(5, 7)
    for query in range(5):
        for key in range(7):
            assert torch.equal(square[:, query, key], relative(torch.tensor(key - query)))


def test_whoever_looks_only_back_spends_no_bucket_on_what_is_to_come() -> None:
    ahead = torch.arange(-200, 1)
    assert len(relative_position_bucket(ahead, 32, 128, causal=True).unique()) == 32
    assert len(relative_position_bucket(ahead, 32, 128, causal=False).unique()) == 16
