"""The processes of a run (data parallelism): one for each GPU, as torchrun starts them; or a single one.

An update has a number of micro-batches, which the processes divide among themselves, so that what is learnt does not
depend on how many they are. Small facts, such as the progress or a signal, are agreed on through the host by gloo.
"""

import os
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from bertsmith.errors import BertsmithError, RunError
from bertsmith.train.lock import Lock
from bertsmith.train.train_config import TrainConfig

T = TypeVar("T")

RENDEZVOUS = ("RANK", "MASTER_ADDR", "MASTER_PORT")  # what torchrun sets, besides WORLD_SIZE, for processes to connect
BY_TORCHRUN = "Start several processes by torchrun; for one alone, unset WORLD_SIZE"
SILENCE = timedelta(hours=1)  # how long a process waits for another, as during an evaluation


@dataclass(frozen=True)
class Processes:
    """This process among those of the run. The first one, the main process, writes all files."""

    rank: int = 0
    size: int = 1
    pairs: tuple[Any, ...] = field(default=(), repr=False)  # groups of two, in which sums have a fixed order
    group: Any = field(default=None, repr=False)  # in which messages are exchanged; None: that of training
    background_group: Any = field(default=None, repr=False)

    @property
    def main(self) -> bool:
        """Whether this is the first process, which logs, evaluates and writes."""
        return self.rank == 0

    def in_background(self) -> "Processes":
        """The same processes for a thread of each, whose messages do not meet those of training."""
        return replace(self, group=self.background_group)

    def part(self, micro_batches: int) -> range:
        """The micro-batches of an update that this process computes: neighbours, as many as every other if possible."""
        first, last = (micro_batches * rank // self.size for rank in (self.rank, self.rank + 1))
        return range(first, last)

    def sum_numbers(self, numbers: Mapping[str, float]) -> dict[str, float]:
        """The sum over all processes of numbers that each of them has under the same names."""
        if self.size == 1:
            return dict(numbers)
        names = sorted(numbers)
        total = torch.tensor([numbers[name] for name in names], dtype=torch.float64)
        with self._explained():
            dist.all_reduce(total)
        return dict(zip(names, total.tolist(), strict=True))

    def sum_tensors(self, tensors: Sequence[Tensor]) -> None:
        """Add up tensors over all processes (all-reduce), in place: those of one type as one."""
        if self.size == 1:
            return
        with self._explained():
            for together in _alike(tensors):
                flat = _flat(together)
                dist.all_reduce(flat)
                _unflatten(flat, together)

    def divide(self, weights: Sequence[float]) -> list[int]:
        """The process for each of some things in a row: neighbours, of about as much weight as every other has."""
        total, begin, owners = sum(weights), 0.0, list[int]()
        for weight in weights:
            owners.append(min(self.size - 1, int((begin + weight / 2) * self.size / total)) if total else 0)
            begin += weight
        return owners

    def start_sum(self, tensor: Tensor, owner: int | None = None) -> "Pending":
        """Begin to add up a tensor over all processes in place, while this process goes on computing.

        With an owner, only that process has the sum (reduce), else all (all-reduce).
        """
        with self._explained():
            if owner is None:
                return Pending(self, tensor, dist.all_reduce(tensor, async_op=True))
            return Pending(self, tensor, dist.reduce(tensor, dst=owner, async_op=True))

    def start_broadcast(self, tensor: Tensor, owner: int) -> "Pending":
        """Begin to give all processes the owner's tensor, in place."""
        with self._explained():
            return Pending(self, tensor, dist.broadcast(tensor, src=owner, async_op=True))

    def sum_tensors_in_order(self, tensors: Sequence[Tensor]) -> None:
        """The same, in the order of a binary tree: the same bits as where one process adds up in that order.

        Processes add in pairs, then pairs of pairs: a sum of two numbers does not depend on who begins.
        """
        with self._explained():
            for group in self.pairs:
                for together in _alike(tensors):
                    flat = _flat(together)
                    dist.all_reduce(flat, group=group)
                    _unflatten(flat, together)

    def from_main(self, value: Any) -> Any:
        """The main process's value, which is made of plain numbers and strings."""
        if self.size == 1:
            return value
        values = [value]
        with self._explained():
            dist.broadcast_object_list(values, src=0, device=torch.device("cpu"))
        return values[0]

    def together(self, work: Callable[[], T]) -> list[T]:
        """What `work` returns in each process. If it fails in one of them, it fails in all, with the same line."""
        if self.size == 1:
            return [work()]
        outcomes: list[Any] = [None] * self.size
        own: Exception | None = None
        result: T | None = None
        try:
            result = work()
        except Exception as error:
            own = error
        with self._explained():
            dist.all_gather_object(outcomes, (result, self._in_one_line(own)), group=self.group)
        if own is not None:
            raise own
        for _, line in outcomes:
            if line is not None:
                raise line
        return [outcome for outcome, _ in outcomes]

    def share(self, tensors: Sequence[Tensor]) -> None:
        """Give all processes the main one's tensors."""
        if self.size == 1:
            return
        with self._explained():
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def wait(self) -> None:
        """Return when all processes are here."""
        self.from_main(None)

    def _in_one_line(self, error: Exception | None) -> BertsmithError | None:
        """An error as other processes report it."""
        if error is None or isinstance(error, BertsmithError):
            return error
        return RunError(self.name, f"failed ({type(error).__name__}: {error})", "The same command resumes the run")

    @property
    def name(self) -> str:
        """This process, as messages call it."""
        return f"process {self.rank} of {self.size} on {socket.gethostname()}"

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """One line for a process that cannot reach another one, which has ended."""
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, torch.cuda.OutOfMemoryError):
                raise
            fact = "lost another process of the run, which ended or cannot be reached"
            raise RunError(self.name, fact, "Its own message says why; the same command resumes the run") from error


@dataclass(frozen=True)
class Pending:
    """A tensor that is on its way between processes."""

    processes: Processes
    tensor: Tensor
    work: Any

    def wait(self) -> Tensor:
        """The tensor as it arrives: on a GPU kernels that read it wait, and the host does not."""
        with self.processes._explained():
            self.work.wait()
        return self.tensor


ALONE = Processes()


@contextmanager
def joined(device: torch.device, folder: Path, config: TrainConfig) -> Iterator[Processes]:
    """The processes of a run, connected with each other. The main one holds the run's folder."""
    single = config.deterministic and device.type == "cpu"
    with _one_thread() if single else nullcontext(), _connected(device) as processes:
        if processes.main:
            with Lock(folder):
                yield processes
        else:
            yield processes


@contextmanager
def _one_thread() -> Iterator[None]:
    """Compute on one thread: sums that several share have other last bits on another number of cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _connected(device: torch.device) -> Iterator[Processes]:
    """The processes that torchrun has started; a single one without it."""
    if (size_given := os.environ.get("WORLD_SIZE", "1")) == "1":
        yield ALONE
        return
    if missing := [name for name in RENDEZVOUS if name not in os.environ]:  # a script may set the size alone
        fact = f"is set, but {' and '.join(missing)} {'is' if len(missing) == 1 else 'are'} not"
        raise RunError(f"WORLD_SIZE={size_given}", fact, BY_TORCHRUN)
    backend = "gloo"
    if device.type == "cuda":
        local, gpus = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
        torch.cuda.set_device(local % gpus)
        if int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= gpus:  # NCCL wants a GPU for each process
            backend = "cpu:gloo,cuda:nccl"
    try:
        dist.init_process_group(backend, timeout=SILENCE)
    except (ValueError, RuntimeError) as error:
        line = next(iter(str(error).splitlines()), "")
        raise RunError(f"WORLD_SIZE={size_given}", f"the processes cannot connect ({line})", BY_TORCHRUN) from error
    try:
        rank, size = dist.get_rank(), dist.get_world_size()
        background = dist.new_group(backend="gloo", timeout=SILENCE)
        yield Processes(rank, size, tuple(_pairs(rank, size)), background_group=background)
    finally:
        dist.destroy_process_group()


def _pairs(rank: int, size: int) -> Iterator[Any]:
    """For each level of a binary tree over the processes, the group of this one with its partner."""
    if size & (size - 1):
        return
    distance = 1
    while distance < size:
        for first in range(size):
            if not first & distance:
                group = dist.new_group([first, first | distance])  # every process takes part in making every group
                if rank in (first, first | distance):
                    yield group
        distance *= 2


def _alike(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Tensors of the same type together."""
    kinds: dict[torch.dtype, list[Tensor]] = {}
    for tensor in tensors:
        kinds.setdefault(tensor.dtype, []).append(tensor)
    return list(kinds.values())


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])


def _unflatten(flat: Tensor, tensors: Sequence[Tensor]) -> None:
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    torch._foreach_copy_(list(tensors), [part.view_as(tensor) for part, tensor in zip(parts, tensors, strict=True)])
