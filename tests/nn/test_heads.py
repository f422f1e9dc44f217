import torch

from bertsmith.nn.heads import ALIGNMENT, MaskedLMHead, Pooler, SentencePairHead, pad_vocabulary


def test_the_masked_head_reads_the_embedding_backwards() -> None:
    head, table, hidden = MaskedLMHead(6, 11, "gelu", 1e-12), torch.randn(11, 6), torch.randn(4, 6)
    torch.nn.init.normal_(head.bias)
    turned = torch.nn.functional.layer_norm(torch.nn.functional.gelu(head.dense(hidden)), [6], eps=1e-12)
    torch.testing.assert_close(head(hidden, table), turned @ table.T + head.bias)


def test_words_that_fill_up_a_table_are_never_likely() -> None:
    table, bias, hidden = torch.randn(11, 6, requires_grad=True), torch.randn(11, requires_grad=True), torch.randn(4, 6)
    targets, losses = torch.tensor([0, 3, 10, 5]), []
    for words, wanted in ((table, bias), pad_vocabulary(table, bias)):
        scores = torch.nn.functional.linear(hidden, words, wanted)
        loss = torch.nn.functional.cross_entropy(scores, targets)
        losses.append((loss, *torch.autograd.grad(loss, [table, bias])))
    assert scores.shape == (4, ALIGNMENT)
    assert torch.equal(scores.argmax(1), scores[:, :11].argmax(1))
    torch.testing.assert_close(losses[0], losses[1])


def test_the_table_learns_from_both_ends() -> None:
    table = torch.randn(11, 6, requires_grad=True)
    MaskedLMHead(6, 11, "gelu", 1e-12)(table[[2, 3]], table).square().sum().backward()
    assert table.grad is not None
    assert table.grad.abs().sum(1).min() > 0


def test_the_pooler_is_one_layer_bent_by_the_hyperbolic_tangent() -> None:
    pooler, firsts = Pooler(6), torch.randn(2, 6)
    assert torch.equal(pooler(firsts), torch.tanh(firsts @ pooler.dense.weight.T + pooler.dense.bias))


def test_the_next_head_gives_two_scores() -> None:
    assert SentencePairHead(6)(torch.randn(3, 6)).shape == (3, 2)
