"""The time of an optimizer step: AdamW alone, and Muon for the hidden matrices by our kernels and by torch's own.

    python bench/muon.py [--model smith-base] [--out bench/results/muon.json]

Each step is captured as a CUDA graph, as in training, and replayed; the gradients are random.
"""

import argparse
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import torch
from record import record

from bertsmith.models.family import FAMILY
from bertsmith.models.transformer import Transformer
from bertsmith.models.transformer_config import TransformerConfig
from bertsmith.nn.init import initialise
from bertsmith.objectives.masked import MaskedLM
from bertsmith.train import hardware, muon
from bertsmith.train.optimizers import Optimizer, OptimizerConfig

REPLAYS = 50
MUON = OptimizerConfig(hidden_optimizer="muon", newton_schulz="polar_express")
CONFIGS = {
    "AdamW alone": (OptimizerConfig(), True),
    "Muon, kernels": (MUON, True),
    "Muon, torch": (MUON, False),
    "NorMuon, kernels": (replace(MUON, normuon_beta=0.95), True),
    "NorMuon, torch": (replace(MUON, normuon_beta=0.95), False),
}


def milliseconds(step: Callable[[], object]) -> float:
    """The time of a step, replayed from a CUDA graph."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):  # libraries allocate their workspaces, which must not happen during capture
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    graph.replay()
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(REPLAYS):
        graph.replay()
    torch.cuda.synchronize()
    return (time.perf_counter() - began) / REPLAYS * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smith-base")
    parser.add_argument("--out", type=Path, default=Path("bench/results/muon.json"))
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("bench/muon.py: there is no CUDA device here. Its kernels run on a GPU only.")
    shape, device = FAMILY[options.model], hardware.select_device("cuda")
    assert isinstance(shape, TransformerConfig)
    objective = MaskedLM(Transformer(shape), MaskedLM.Config())
    initialise(objective, 0)
    objective.to(device)
    gradients = {name: 1e-3 * torch.randn_like(weight) for name, weight in objective.named_parameters()}
    with_kernels, found = muon._has_kernels, {}
    for name, (config, kernels) in CONFIGS.items():
        muon._has_kernels = with_kernels if kernels else lambda tensor: False
        optimizer = Optimizer(objective, config, hidden_matrices=objective.hidden_matrices(), capturable=True)

        def step(optimizer: Optimizer = optimizer) -> None:
            for parameter, weight in objective.named_parameters():
                weight.grad = gradients[parameter]
            optimizer.step()

        found[name] = round(milliseconds(step), 3)
        print(f"{name:20s} {found[name]:.2f} ms", flush=True)
    record(options.out, {"model": options.model, "milliseconds": found}, hardware.describe(device))


if __name__ == "__main__":
    main()
