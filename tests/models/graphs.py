"""Scripts that compile the network; test_graphs.py runs them where no shapes are checked at run time."""

import sys
from dataclasses import replace

import torch

from bertsmith.data.batch import Tokens
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise

CONFIG = TransformerConfig(vocabulary=60, width=64, layers=1, heads=4, feed_forward=96, max_length=24)
RAGGED = [[7, 8, 9], [1] * 24, list(range(20)), [5], [9, 8, 7, 6] * 5, [], []]
OTHER = [[5], list(range(24)), [3] * 20, [7, 8, 9], [1] * 20, [], []]  # as many tokens, other bounds


def network(config: TransformerConfig = CONFIG) -> Transformer:
    module = Transformer(config)
    initialise(module, 0, std=0.1)
    return module.eval()


def without_a_device() -> None:
    """Equal rows for real; ragged rows on the meta device, which tries the graph and its shapes."""
    tokens = Tokens.from_rows([list(range(9)), list(range(9, 18))])
    for config in (CONFIG, replace(CONFIG, layers=2, window=2, positions="rotary")):
        module = network(config)
        compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
        torch.testing.assert_close(compiled(tokens), module(tokens))
        compiled(tokens).sum().backward()
        with torch.device("meta"):
            hollow = Transformer(config).bfloat16()
        compiled = torch.compile(hollow, fullgraph=True, backend="aot_eager")
        answer = compiled(Tokens.from_rows(RAGGED).to("meta"), "varlen")
        assert answer.shape == (68, 64)
        answer.sum().backward()


def ragged_rows_by_autocast() -> None:
    module = network().cuda()
    ragged, other = (Tokens.from_rows(rows).to("cuda") for rows in (RAGGED, OTHER))
    exact = module(other, "eager")
    compiled = torch.compile(module, fullgraph=True, dynamic=False)
    with torch.autocast("cuda", torch.bfloat16):
        compiled(ragged).float().square().sum().backward()
        torch.cuda.set_sync_debug_mode("error")  # the second batch must not synchronise with the device
        answer = compiled(other)
        answer.float().square().sum().backward()
        torch.cuda.set_sync_debug_mode("default")
    torch.testing.assert_close(answer.float(), exact, rtol=0, atol=0.1)


def ragged_rows_in_training() -> None:
    module = network().cuda().bfloat16().train()
    tokens = Tokens.from_rows(RAGGED).to("cuda")
    compiled = torch.compile(module, fullgraph=True, dynamic=False)
    answers = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        answers.append(compiled(tokens))
    assert torch.equal(answers[0], answers[1])
    assert not torch.equal(answers[0], answers[2])
    answers[2].float().square().sum().backward()
    assert all(part.grad is not None and part.grad.isfinite().all() for part in module.parameters())


if __name__ == "__main__":
    globals()[sys.argv[1]]()
