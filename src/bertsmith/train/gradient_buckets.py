"""Gradients in buckets, which are sent (all-reduce) while the backward pass computes the next ones.

As in PyTorch's DistributedDataParallel (Li et al. 2020, section 3.2): a bucket holds neighbouring parameters, in the
reverse of their order in the network, which is about the order in which a backward pass finds their gradients. It is
sent as soon as it is complete, so that only the last one is waited for in full.

A compiled step sends after its backward pass: the compiler makes that one function, which returns all gradients at its
end. CUDA graphs are captured only where one process trains, so that none of them meets these hooks.
"""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from bertsmith.train.processes import Pending, Processes

MAX_BUCKET_BYTES = 1 << 26  # gradients that are sent at a time
MIN_BUCKETS = 8  # a small network has smaller buckets, so that most of them are sent during its backward pass


def divide(
    tensors: Sequence[Tensor], max_bytes: int = MAX_BUCKET_BYTES, owners: Sequence[int | None] = ()
) -> list[list[Tensor]]:
    """Tensors in buckets of neighbours of one type and owner and of limited size."""
    buckets: list[list[Tensor]] = []
    size, before = 0, None
    for number, tensor in enumerate(tensors):
        kind = tensor.dtype, owners[number] if owners else None
        if kind != before or size + tensor.nbytes > max_bytes:
            buckets.append([])
            size, before = 0, kind
        buckets[-1].append(tensor)
        size += tensor.nbytes
    return buckets


def flatten(tensors: Sequence[Tensor]) -> Tensor:
    """Tensors of one type as one."""
    return torch.cat([tensor.detach().reshape(-1) for tensor in tensors])


class GradientBuckets:
    """The gradients of parameters, added up over processes in buckets: during a backward pass, or after it.

    All processes send the same buckets in the same order: one that is complete waits for those before it. A parameter
    without a gradient in one process may have one in another, and counts as zero there. With `owners`, each process
    has the sums of its own parameters only, and no gradients of others.
    """

    def __init__(
        self, parameters: Mapping[str, nn.Parameter], processes: Processes, owners: Mapping[str, int] | None = None
    ) -> None:
        self._parameters, self._processes = dict(parameters), processes
        backwards = list(parameters)[::-1]
        total = sum(parameter.nbytes for parameter in parameters.values())
        self._owner_of: dict[Tensor, int | None] = {
            parameters[name]: owners[name] if owners else None for name in backwards
        }
        self._buckets = divide(
            list(self._owner_of), min(MAX_BUCKET_BYTES, total // MIN_BUCKETS), list(self._owner_of.values())
        )
        self._bucket_of = {one: number for number, bucket in enumerate(self._buckets) for one in bucket}
        self._waits_for = [0] * len(self._buckets)  # gradients that each bucket lacks
        self._sending = False
        self._sent: list[Pending] = []
        self._found: dict[Tensor, bool] = {}  # whether this process had a gradient
        for parameter in parameters.values():
            parameter.register_post_accumulate_grad_hook(self._gradient_arrived)  # type: ignore[no-untyped-call]

    def send_when_complete(self) -> None:
        """The next backward pass is the last one of an update: send each bucket when all its gradients are there."""
        self._sending, self._waits_for = True, [len(bucket) for bucket in self._buckets]

    def finish(self) -> None:
        """Send the buckets that are left, wait for all, and set the gradients to the sums."""
        self._sending = False
        while len(self._sent) < len(self._buckets):
            self._send_next()
        own = {name: float(self._found[parameter]) for name, parameter in self._parameters.items()}
        found = self._processes.sum_numbers(own)
        for bucket, sent in zip(self._buckets, self._sent, strict=True):
            parts = torch.split(sent.wait(), [parameter.numel() for parameter in bucket])
            kept = self._owner_of[bucket[0]] in (None, self._processes.rank)
            for parameter, part in zip(bucket, parts, strict=True):
                parameter.grad = part.view_as(parameter) if kept else None
        for name, processes in found.items():
            if not processes:
                self._parameters[name].grad = None
        self._sent = []

    def _gradient_arrived(self, parameter: Tensor) -> None:
        if self._sending:
            self._waits_for[self._bucket_of[parameter]] -= 1
            while len(self._sent) < len(self._buckets) and not self._waits_for[len(self._sent)]:
                self._send_next()

    def _send_next(self) -> None:
        bucket = self._buckets[len(self._sent)]
        self._found |= {one: one.grad is not None for one in bucket}
        flat = flatten([torch.zeros_like(one) if one.grad is None else one.grad for one in bucket])
        for one in bucket:
            one.grad = None  # so that no second copy of all gradients is kept
        self._sent.append(self._processes.start_sum(flat, self._owner_of[bucket[0]]))
