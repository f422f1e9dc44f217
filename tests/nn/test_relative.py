import pytest
import torch
from transformers.models.t5.modeling_t5 import T5Attention

from bertsmith.nn.relative import RelativePositionBias, relative_position_bucket


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (16, 64), (8, 20), (4, 3)])
def test_buckets_are_those_of_the_published_code(causal: bool, buckets: int, max_distance: int) -> None:
    ahead = torch.arange(-700, 700)
    options = {"bidirectional": not causal, "num_buckets": buckets, "max_distance": max_distance}
    theirs = T5Attention._relative_position_bucket(ahead, **options)
    assert torch.equal(relative_position_bucket(ahead, buckets, max_distance, causal=causal), theirs)


@pytest.mark.parametrize("causal", [False, True])
def test_the_bias_of_a_pair_is_that_of_its_distance(causal: bool) -> None:
    relative = RelativePositionBias(3, 8, 20, causal=causal)
    bias = relative.compute_bias(5, 7)
    for query in range(5):
        for key in range(7):
            assert torch.equal(bias[:, query, key], relative(torch.tensor(key - query)))


def test_a_causal_network_has_all_buckets_for_the_past() -> None:
    ahead = torch.arange(-200, 1)
    assert len(relative_position_bucket(ahead, 32, 128, causal=True).unique()) == 32
    assert len(relative_position_bucket(ahead, 32, 128, causal=False).unique()) == 16
