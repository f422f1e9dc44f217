import torch

from bertsmith.nn.pooling import first, last, maximum, mean

BOUNDS = torch.tensor([0, 3, 4, 9, 9, 9], dtype=torch.int32)


def test_first_takes_each_sequences_first_token() -> None:
    hidden = torch.randn(9, 4)
    assert torch.equal(first(hidden, BOUNDS)[:3], hidden[[0, 3, 4]])
    assert first(hidden, BOUNDS).shape == (5, 4)  # empty sequences do not break it


def test_last_takes_each_sequences_last_token() -> None:
    hidden = torch.randn(9, 4)
    assert torch.equal(last(hidden, BOUNDS)[:3], hidden[[2, 3, 8]])
    assert last(hidden, BOUNDS).shape == (5, 4)
    assert last(hidden, torch.tensor([0, 0, 9], dtype=torch.int32)).shape == (2, 4)  # nor does one at the beginning


def test_mean_is_over_each_sequence_and_zero_for_an_empty_one() -> None:
    hidden = torch.randn(9, 4, requires_grad=True)
    pooled = mean(hidden, BOUNDS)
    true = [hidden[:3].mean(0), hidden[3], hidden[4:].mean(0), torch.zeros(4), torch.zeros(4)]
    torch.testing.assert_close(pooled, torch.stack(true))
    pooled[2].sum().backward()
    assert hidden.grad is not None
    torch.testing.assert_close(hidden.grad[4:], torch.full((5, 4), 0.2))
    assert hidden.grad[:4].count_nonzero() == 0


def test_mean_sums_in_float32() -> None:
    hidden = torch.full((4096, 2), 1.0, dtype=torch.bfloat16)  # a sum in bfloat16 would stop at 256
    assert mean(hidden, torch.tensor([0, 4096], dtype=torch.int32)).tolist() == [[1.0, 1.0]]


def test_maximum_is_elementwise_over_each_sequence_and_zero_for_an_empty_one() -> None:
    hidden = torch.randn(9, 4) - 5.0  # all negative
    hidden.requires_grad_()
    pooled = maximum(hidden, BOUNDS)
    true = [hidden[:3].amax(0), hidden[3], hidden[4:].amax(0), torch.zeros(4), torch.zeros(4)]
    torch.testing.assert_close(pooled, torch.stack(true))
    pooled[2].sum().backward()
    assert hidden.grad is not None
    assert hidden.grad.sum(1).nonzero()[:, 0].tolist() == sorted(set((hidden[4:].argmax(0) + 4).tolist()))
