import torch

from bertsmith.nn.heads import MaskedHead, NextHead, Pooler


def test_the_masked_head_reads_the_embedding_backwards() -> None:
    head, table, hidden = MaskedHead(6, 11, "gelu", 1e-12), torch.randn(11, 6), torch.randn(4, 6)
    torch.nn.init.normal_(head.bias)
    turned = torch.nn.functional.layer_norm(torch.nn.functional.gelu(head.dense(hidden)), [6], eps=1e-12)
    torch.testing.assert_close(head(hidden, table), turned @ table.T + head.bias)


def test_the_table_learns_from_both_ends() -> None:
    table = torch.randn(11, 6, requires_grad=True)
    MaskedHead(6, 11, "gelu", 1e-12)(table[[2, 3]], table).square().sum().backward()
    assert table.grad is not None
    assert table.grad.abs().sum(1).min() > 0


def test_the_pooler_is_one_layer_bent_by_the_hyperbolic_tangent() -> None:
    pooler, firsts = Pooler(6), torch.randn(2, 6)
    assert torch.equal(pooler(firsts), torch.tanh(firsts @ pooler.dense.weight.T + pooler.dense.bias))


def test_the_next_head_gives_two_scores() -> None:
    assert NextHead(6)(torch.randn(3, 6)).shape == (3, 2)
