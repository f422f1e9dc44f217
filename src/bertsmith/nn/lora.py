"""LoRA: a frozen pretrained matrix learns through the product of two thin ones that is added to it. Hu et al. 2021."""

import math
from collections.abc import Collection, Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn


class Target(NamedTuple):
    """A matrix of a layer that can be adapted: the Linear that holds it, and which part of its rows it is."""

    path: str
    part: int = 0
    parts: int = 1


TARGETS = {
    "query": Target("attention.qkv", 0, 3),
    "key": Target("attention.qkv", 1, 3),
    "value": Target("attention.qkv", 2, 3),
    "output": Target("attention.output"),
    "up": Target("feed_forward.up"),
    "down": Target("feed_forward.down"),
    "qkv": Target("attention.qkv"),  # query, key and value through the same pair
}


class Lora(nn.Module):
    """A Linear with frozen weights, and for each chosen part of its rows a trained update of low rank.

    Hu et al. 2021, section 4.1: W + (alpha / rank) B A, where A is `lora_a`, and B is `lora_b` and begins at zero. The
    frozen weight keeps its name. Departs from the paper: A begins uniform, as in the authors' code and in PEFT. Parts
    of one Linear see their input through the same dropout; in PEFT each draws its own.
    """

    def __init__(
        self,
        linear: nn.Linear,
        *,
        rank: int,
        alpha: float,
        dropout: float,
        generator: torch.Generator,
        chosen: tuple[int, ...] = (0,),
        parts: int = 1,
    ) -> None:
        super().__init__()
        if rank < 1:
            raise ValueError(f"a rank of {rank} learns nothing. Give at least 1")
        self.chosen, self.parts, self.rank, self.scale = chosen, parts, rank, alpha / rank
        self.weight, self.bias = linear.weight.requires_grad_(False), linear.bias
        if self.bias is not None:
            self.bias.requires_grad_(False)
        self.dropout = nn.Dropout(dropout)
        outputs, inputs = self.weight.shape
        bound = 1 / math.sqrt(inputs)  # kaiming_uniform_ with a = sqrt(5)
        lora_a = torch.empty(len(chosen), rank, inputs).uniform_(-bound, bound, generator=generator)
        self.lora_a = nn.Parameter(lora_a.to(self.weight))
        self.lora_b = nn.Parameter(self.weight.new_zeros(len(chosen), outputs // parts, rank))

    def forward(self, hidden: Float[Tensor, "T I"]) -> Float[Tensor, "T O"]:
        thin = F.linear(self.dropout(hidden), self.lora_a.flatten(0, 1)) * self.scale  # T, chosen x rank
        return F.linear(hidden, self.weight, self.bias) + F.linear(thin, self._block_diagonal())

    def merged(self) -> nn.Linear:
        """A plain Linear with the same output."""
        outputs, inputs = self.weight.shape
        linear = nn.Linear(inputs, outputs, bias=self.bias is not None, device="meta")
        with torch.no_grad():
            update = self._block_diagonal().float() @ self.lora_a.flatten(0, 1).float() * self.scale
            linear.weight = nn.Parameter((self.weight.float() + update).to(self.weight.dtype), requires_grad=False)
        linear.bias = self.bias
        return linear.train(self.training)

    def _block_diagonal(self) -> Float[Tensor, "O R"]:
        """B as a block-diagonal matrix: each part's block in its own rows and columns, 0 elsewhere.

        One product with many zeros is faster than a product for each part.
        """
        count, rows, rank = self.lora_b.shape
        blocks = {
            part: F.pad(block, (index * rank, (count - 1 - index) * rank))
            for index, (part, block) in enumerate(zip(self.chosen, self.lora_b.unbind(), strict=True))
        }
        empty = self.lora_b.new_zeros(rows, count * rank)
        return torch.cat([blocks.get(part, empty) for part in range(self.parts)])


class Pair(NamedTuple):
    """The two thin matrices of one target in one layer: views, so that a copy into them changes the network."""

    layer: int
    target: str
    lora_a: Float[Tensor, "R I"]
    lora_b: Float[Tensor, "O R"]


def adapt(
    trunk: nn.Module, *, rank: int, alpha: float, dropout: float, targets: Collection[str], seed: int | torch.Generator
) -> None:
    """Freeze a trunk, and add updates of low rank to the targets in each of its layers. Its output is unchanged at
    first; the same seed gives the same initial weights, on any device."""
    if any(isinstance(module, Lora) for module in trunk.modules()):
        raise ValueError("the network is adapted already. Merge it first")
    generator = torch.Generator().manual_seed(seed) if isinstance(seed, int) else seed
    by_path: dict[str, list[Target]] = {}
    for name, target in TARGETS.items():
        if name in targets:
            by_path.setdefault(target.path, []).append(target)
    if any(len({target.parts for target in group}) > 1 for group in by_path.values()):
        raise ValueError("'qkv' is query, key and value at once. Name the whole or its parts")
    trunk.requires_grad_(False)
    for layer in trunk.get_submodule("layers").children():
        for path, group in by_path.items():
            linear = layer.get_submodule(path)
            assert isinstance(linear, nn.Linear)
            adapted = Lora(
                linear,
                rank=rank,
                alpha=alpha,
                dropout=dropout,
                generator=generator,
                chosen=tuple(target.part for target in group),
                parts=group[0].parts,
            )
            layer.set_submodule(path, adapted.train(linear.training))


def merge(trunk: nn.Module) -> None:
    """Plain Linears again, with the updates added; every weight has its original name. It stays frozen."""
    for layer, path, lora in _adapted(trunk):
        layer.set_submodule(path, lora.merged())


def pairs(trunk: nn.Module) -> Iterator[Pair]:
    """The trained pairs, by layer and target."""
    names = {target: name for name, target in TARGETS.items()}
    numbers = {layer: number for number, layer in enumerate(trunk.get_submodule("layers").children())}
    for layer, path, lora in _adapted(trunk):
        for part, lora_a, lora_b in zip(lora.chosen, lora.lora_a.detach(), lora.lora_b.detach(), strict=True):
            yield Pair(numbers[layer], names[Target(path, part, lora.parts)], lora_a, lora_b)


def _adapted(trunk: nn.Module) -> list[tuple[nn.Module, str, Lora]]:
    found = []
    for layer in trunk.get_submodule("layers").children():
        found += [(layer, path, module) for path, module in layer.named_modules() if isinstance(module, Lora)]
    return found
