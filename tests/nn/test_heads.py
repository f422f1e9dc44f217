import torch

from bertsmith.nn.heads import ALIGNMENT, MaskedLMHead, Pooler, SentencePairHead, pad_vocabulary


def test_the_masked_lm_head_multiplies_with_the_embedding_table() -> None:
    head, table, hidden = MaskedLMHead(6, 11, "gelu", 1e-12), torch.randn(11, 6), torch.randn(4, 6)
    torch.nn.init.normal_(head.bias)
    transformed = torch.nn.functional.layer_norm(torch.nn.functional.gelu(head.dense(hidden)), [6], eps=1e-12)
    torch.testing.assert_close(head(hidden, table), transformed @ table.T + head.bias)


def test_padding_of_the_vocabulary_has_no_probability() -> None:
    table, bias, hidden = torch.randn(11, 6, requires_grad=True), torch.randn(11, requires_grad=True), torch.randn(4, 6)
    targets, losses = torch.tensor([0, 3, 10, 5]), []
    for words, wanted in ((table, bias), pad_vocabulary(table, bias)):
        logits = torch.nn.functional.linear(hidden, words, wanted)
        loss = torch.nn.functional.cross_entropy(logits, targets)
        losses.append((loss, *torch.autograd.grad(loss, [table, bias])))
    assert logits.shape == (4, ALIGNMENT)
    assert torch.equal(logits.argmax(1), logits[:, :11].argmax(1))
    torch.testing.assert_close(losses[0], losses[1])


def test_the_tied_table_has_gradients_from_input_and_output() -> None:
    table = torch.randn(11, 6, requires_grad=True)
    MaskedLMHead(6, 11, "gelu", 1e-12)(table[[2, 3]], table).square().sum().backward()
    assert table.grad is not None
    assert table.grad.abs().sum(1).min() > 0


def test_the_pooler_is_a_dense_layer_with_tanh() -> None:
    pooler, firsts = Pooler(6), torch.randn(2, 6)
    assert torch.equal(pooler(firsts), torch.tanh(firsts @ pooler.dense.weight.T + pooler.dense.bias))


def test_the_sentence_pair_head_gives_two_logits() -> None:
    assert SentencePairHead(6)(torch.randn(3, 6)).shape == (3, 2)
