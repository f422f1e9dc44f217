"""Steps that are captured into a CUDA graph generate the same texts as plain ones, with every kind of cache."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from models.cuda_graph import Graph, graphs
from nn.causal import NETWORKS, prompts, trunk_of
from tasks.small import stirred

from bertsmith.models.encoder_decoder import EncoderDecoder
from bertsmith.models.family import T5, TRANSFORMER_TINY
from bertsmith.models.generation.engine import GenerationEngine, generate
from bertsmith.models.generation.search import GenerationConfig
from bertsmith.models.networks import Network
from bertsmith.models.recurrent import Recurrent, RecurrentConfig
from bertsmith.models.seq2seq import Seq2Seq, Seq2SeqConfig

__all__ = ["graphs"]

SIZES: dict[str, Any] = {"width": 32, "heads": 4, "feed_forward": 48, "vocabulary": 50, "max_length": 40}
HALVES: dict[str, Any] = SIZES | {"layers": 2, "decoder_layers": 3}
LSTM: dict[str, Any] = {"vocabulary": 50, "width": 16, "hidden": 24, "max_length": 40, "dropout": 0.0}
OTHERS: dict[str, Any] = {
    "t5": lambda: EncoderDecoder(replace(T5, **HALVES, buckets=8, max_distance=20)),
    "marian": lambda: EncoderDecoder(replace(TRANSFORMER_TINY, **HALVES)),
    "rnn": lambda: Recurrent(RecurrentConfig(vocabulary=50, width=16, hidden=24, layers=3, cell="rnn")),
    "lstm": lambda: Recurrent(RecurrentConfig(vocabulary=50, width=16, layers=2)),
    "attention": lambda: Seq2Seq(Seq2SeqConfig(**LSTM, layers=2, decoder_layers=2)),
    "mlp": lambda: Seq2Seq(Seq2SeqConfig(**LSTM, attention="mlp", direction="right_to_left")),
    "without attention": lambda: Seq2Seq(Seq2SeqConfig(**LSTM, attention="none", decoder_layers=2)),
}
SEARCHES = {
    "greedy": GenerationConfig(max_new_tokens=12, temperature=0),
    "samples": GenerationConfig(max_new_tokens=12, samples=3, temperature=1.2),
    "beams": GenerationConfig(max_new_tokens=12, num_beams=4, samples=2, length_penalty=2.0),
}


def network(name: str) -> Network:
    if name in NETWORKS:
        return trunk_of(NETWORKS[name])
    made: Network = stirred(OTHERS[name]()).eval()
    with torch.no_grad():
        for weight in made.parameters():  # large enough for texts to differ
            weight.mul_(2 if weight.ndim > 1 else 1)
    return made


@pytest.mark.slow("generates in many ways")
@pytest.mark.exhaustive(suite=12)
@pytest.mark.parametrize("config", SEARCHES.values(), ids=SEARCHES)
@pytest.mark.parametrize("name", ["gpt2", "local", "offset", *OTHERS])
def test_a_captured_step_generates_what_a_plain_one_does(
    name: str, config: GenerationConfig, graphs: list[Graph]
) -> None:
    plain, captured = (GenerationEngine(network(name), prepack_weights=False) for _ in range(2))
    captured.cuda_graph = True
    rows = prompts([7, 3, 12, 1])
    true = generate(plain, rows, config, [3, 11])
    assert not graphs
    assert generate(captured, rows, config, [3, 11]) == true
    assert len(graphs) == 1
    assert graphs[0].replays > 2
    assert len({tuple(text) for texts in true for text in texts}) > 1  # not always the same


def test_a_number_of_python_is_that_of_the_capture_and_a_capture_runs_nothing(graphs: list[Graph]) -> None:
    counts, total = iter([1, 7, 9]), torch.zeros(2)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        doubled = total.add_(next(counts)) * 2
    assert total.tolist() == [0, 0]
    for _ in range(2):
        graph.replay()
    assert total.tolist() == [2, 2]
    assert doubled.tolist() == [4, 4]
    assert graphs[0].replays == 2


def test_a_captured_step_must_not_wait(graphs: list[Graph]) -> None:
    with pytest.raises(AssertionError, match="waits for the GPU"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        int(torch.ones(3).max())
