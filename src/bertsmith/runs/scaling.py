"""What training on many GPUs would take: a stated model of compute and network, from what one GPU was measured at.

    an update = the compute of its micro-batches, divided among the GPUs
                + the sum of all gradients over them, less what of it the last backward pass hides
                + the optimizer's step, which is divided among them, too

One H200 trains BERT-base on ragged rows at 871,000 tokens/s, 470 TFLOP/s by the usual count (`bench/pretrain.py`).
Nothing here has been measured on more than one GPU.
"""

import math
from dataclasses import dataclass

from bertsmith.errors import RecipeError, suggest

GPUS_PER_NODE = 8
# Bytes per second that each GPU sends while gradients are added up: by NVLink within a node, and by a network card of
# 400 Gbit/s for each GPU between nodes. Both are about four fifths of what the makers state.
WITHIN_NODE, BETWEEN_NODES = 3.6e11, 4.0e10
LATENCY = 2e-5  # seconds of one message
GRADIENT_BYTES = 4  # of a weight: gradients are added up in float32
BUCKET_BYTES = 1 << 26  # gradients that are sent at a time, as in train/gradient_buckets.py
MIN_BUCKETS = 8  # of a network, as there
# Seconds of the optimizer's step for a weight, by AdamW and by Muon: 1.3 and 5.7 ms for smith-base on an H200, of
# which Muon updates the layers (`bench/results/muon-h200.json`).
ADAMW, MUON = 1.2e-11, 6.4e-11
BACKWARD = 2 / 3  # of the compute of a micro-batch
MAX_NETWORK_SHARE = 0.1  # of an update; more means that the network is too slow for so many GPUs


@dataclass(frozen=True)
class Gpu:
    """A kind of GPU: what it reaches in training, and its memory."""

    flops: float  # per second, in training
    memory: float  # bytes
    measured: bool = False  # else in proportion to its maker's figure for matrix products


GPUS = {
    "h200": Gpu(4.7e14, 141e9, measured=True),
    "h100": Gpu(4.7e14, 80e9),
    "a100": Gpu(1.48e14, 80e9),
}


@dataclass(frozen=True)
class Plan:
    """An update on many GPUs."""

    gpus: int
    compute_seconds: float
    network_seconds: float
    tokens: float  # of an update
    hidden_seconds: float = 0.0  # of the network, while the backward pass goes on
    optimizer_seconds: float = 0.0

    @property
    def seconds(self) -> float:
        """Of an update."""
        return self.compute_seconds + self.network_seconds - self.hidden_seconds + self.optimizer_seconds

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    @property
    def efficiency(self) -> float:
        """The share of the time in which GPUs compute, and do not wait for the network."""
        return 1 - (self.network_seconds - self.hidden_seconds) / self.seconds

    def network_needed(self, parameters: int) -> float:
        """Bytes per second and GPU with which gradients would take the share of the time that they may take."""
        sent = 2 * (self.gpus - 1) / self.gpus * GRADIENT_BYTES * parameters
        computing = self.compute_seconds + self.optimizer_seconds
        return sent / (MAX_NETWORK_SHARE / (1 - MAX_NETWORK_SHARE) * computing)


def gpu_named(name: str) -> Gpu:
    """A kind of GPU by its name."""
    if name.lower() not in GPUS:
        raise RecipeError("gpu", f"unknown kind '{name}'", suggest(name.lower(), GPUS))
    return GPUS[name.lower()]


def plan(
    gpus: int,
    gpu: Gpu,
    *,
    tokens: float,
    flops_per_token: float,
    parameters: int,
    micro_batches: int = 1,
    overlapped: bool = False,
    muon_parameters: int = 0,
    sharded: bool = True,
) -> Plan:
    """An update of so many tokens on so many GPUs, of which each computes this number of micro-batches.

    `overlapped` gradients are sent in buckets during the last backward pass, all but the last bucket. Where the
    optimizer is `sharded`, those are the first half of what is sent; the new weights are the second.
    """
    compute = tokens * flops_per_token / gpus / gpu.flops
    size = GRADIENT_BYTES * parameters
    network = sum_seconds(size, gpus)
    last = sum_seconds(min(size / MIN_BUCKETS, BUCKET_BYTES), gpus)
    gradients = (network - last) * (0.5 if sharded else 1.0)
    hidden = min(gradients, BACKWARD * compute / micro_batches) if overlapped else 0.0
    step = ADAMW * (parameters - muon_parameters) + MUON * muon_parameters
    return Plan(gpus, compute, network, tokens, hidden, step / gpus if sharded else step)


def sum_seconds(size: float, gpus: int) -> float:
    """Seconds in which GPUs add up as many bytes each: in a ring within each node, then each its part between nodes."""
    within = min(gpus, GPUS_PER_NODE)
    nodes = math.ceil(gpus / GPUS_PER_NODE)
    messages = 2 * math.ceil(math.log2(gpus)) * math.ceil(size / BUCKET_BYTES) if gpus > 1 else 0
    return (
        2 * (within - 1) / within * size / WITHIN_NODE
        + 2 * (nodes - 1) / nodes * size / within / BETWEEN_NODES
        + messages * LATENCY
    )
