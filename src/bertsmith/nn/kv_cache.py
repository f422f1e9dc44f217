"""The KV cache: keys and values of all tokens so far, so that only the newest is computed. Shazeer 2019, section 2.4.

The beams of a sequence share one row of slots, which are filled in the order in which tokens come; `visible` says
which slots belong to which beam. When beam search drops a beam for a branch of another, only a few bits change; a copy
of the keys for each beam would be moved at every token.

With one beam, several tokens can be computed at once, as speculative decoding does with a draft; rejected ones are
rolled back.
"""

from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bertsmith.nn.attention import Kernel
from bertsmith.nn.cache import Cache
from bertsmith.nn.relative import RelativePositionBias
from bertsmith.nn.window import Window

PRUNE_EVERY = 32  # steps of beam search, after which the slots of abandoned beams are freed


@dataclass(frozen=True)
class LayerCache:
    """One layer's part of the cache: its keys and values, and the slots of the new ones."""

    keys: Float[Tensor, "B H M K"]
    values: Float[Tensor, "B H M K"]
    slots: Int[Tensor, "_"]  # of the new tokens: one for each token of a prompt, or for each beam of a step
    sequence_ids: Int[Tensor, "T"] | None = None  # of prompts: the sequence of each token
    mask: Float[Tensor, "B _ _ M"] | None = None  # of a step: 0 for slots of the beam, else minus infinity

    def repeat_interleave(self, repeats: int) -> "LayerCache":
        """Every sequence `repeats` times."""
        keys, values = (part.repeat_interleave(repeats, 0) for part in (self.keys, self.values))
        mask = None if self.mask is None else self.mask.repeat_interleave(repeats, 0)
        return replace(self, keys=keys, values=values, mask=mask)

    def update(self, key: Float[Tensor, "T H K"], value: Float[Tensor, "T H K"]) -> None:
        """Store the keys and values of the new tokens."""
        for stored, new in ((self.keys, key), (self.values, value)):
            if self.sequence_ids is not None:
                stored.transpose(1, 2).index_put_((self.sequence_ids, self.slots), new)
            else:
                stored.index_copy_(2, self.slots, torch.unflatten(new, 0, (len(stored), -1)).transpose(1, 2))

    def attend(self, query: Float[Tensor, "T H K"]) -> Float[Tensor, "T H K"]:
        """Attention to what is stored, to which nothing is added."""
        query = torch.unflatten(query, 0, (len(self.keys), -1)).transpose(1, 2)  # B H W K
        attended = F.scaled_dot_product_attention(query, self.keys, self.values, self.mask)
        return attended.transpose(1, 2).flatten(0, 1)


@dataclass(eq=False)
class Filling(Kernel):
    """Attention of prompts by another kernel; their keys and values are stored for the steps that follow."""

    kernel: Kernel
    cache: LayerCache

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
        self.cache.update(key, value)
        return self.kernel.attend(query, key, value, dropout)


@dataclass(eq=False)
class Cached(Kernel):
    """Attention of new tokens to themselves and to all that are stored."""

    cache: LayerCache

    def attend(self, query: Tensor, key: Tensor, value: Tensor, dropout: float = 0.0) -> Tensor:
        self.cache.update(key, value)
        return self.cache.attend(query)


class KVCache(Cache):
    """Keys and values of every layer, for sequences with the same number of beams each."""

    def __init__(
        self,
        layers: int,
        sequences: int,
        heads: int,
        head_width: int,
        capacity: int,
        beams: int = 1,
        dtype: torch.dtype = torch.float32,
        device: torch.device | str = "cpu",
    ) -> None:
        """`capacity` is the slots of a row: the tokens of the longest prompt, then one a step for every beam."""
        shape = (layers, sequences, heads, capacity, head_width)
        # Zeros: a weight of 0 removes any finite number, but not the inf or nan of uninitialised memory.
        self.keys, self.values = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        self.positions = torch.zeros(sequences, capacity, dtype=torch.int32, device=device)  # in the sequence
        self.visible: Bool[Tensor, "B W M"] = torch.zeros(sequences, beams, capacity, dtype=torch.bool, device=device)
        self.lengths: Int[Tensor, B] = torch.zeros(sequences, dtype=torch.int32, device=device)
        self.beams = beams
        self.slots: Int[Tensor, W] = torch.arange(beams, device=device)  # the next step's, or the first of them
        self._steps = 0
        self.extent = 0  # slots in use, all that are attended to; known without waiting for the device
        self._sequence_ids: Tensor | None = None  # during prefill: the sequence of each token
        self._new_slots, self._new_positions = self.slots, self.lengths[:, None]  # of the next tokens
        self._masks: dict[Window, Tensor] = {}
        self.cross_layers: list[LayerCache] = []  # of the memory, for cross-attention: they never change

    def prefill(self, bounds: Int[Tensor, "ends"], positions: Int[Tensor, "T"], longest: int) -> None:
        """Prepare for prompts, which the next pass reads end to end."""
        self.lengths.copy_(bounds.diff())
        self._sequence_ids = torch.repeat_interleave(
            torch.arange(len(self.lengths), device=bounds.device), bounds.diff()
        )
        self._new_slots = positions.long()
        self.positions[self._sequence_ids, self._new_slots] = positions
        self.visible.transpose(1, 2)[self._sequence_ids, self._new_slots] = True
        self.slots += longest
        self.extent = longest

    def reorder(self, parents: Int[Tensor, "B W"]) -> None:
        self.visible.copy_(self.visible.gather(1, parents[..., None].expand_as(self.visible)))

    def reserve(self, tokens: int = 1) -> Int[Tensor, "B _"]:
        """Prepare for one more token on every beam, or for several on the only beam; returns their positions."""
        self._sequence_ids = None
        if tokens == 1:  # and all beams are as long
            self._new_slots, self._new_positions = self.slots, self.lengths[:, None]
            self.visible.scatter_(2, self.slots[:, None].expand(len(self.visible), -1, 1), True)
        else:
            assert self.beams == 1
            offsets = torch.arange(tokens, device=self.slots.device)
            self._new_slots, self._new_positions = self.slots + offsets, self.lengths[:, None] + offsets.int()
            self.visible.index_fill_(2, self._new_slots, True)
        positions = self._new_positions.expand(-1, len(self._new_slots))
        self.positions.index_copy_(1, self._new_slots, positions)
        self.extent = self.visible.shape[2] if self.fixed else self.extent + len(self._new_slots)
        self._masks = {}
        return positions

    def commit(self) -> None:
        """The reserved tokens are in the cache."""
        self.lengths += self._new_positions.shape[1]
        self.slots += len(self._new_slots)
        self._steps += 1
        if self.beams > 1 and not self.fixed and self._steps % PRUNE_EVERY == 0:
            self.prune()

    def rollback(self, count: int) -> None:
        """Remove the last `count` tokens of the only beam."""
        self.extent -= count
        self.lengths -= count
        self.slots -= count
        self.visible[:, :, self.extent :] = False

    def layer_cache(self, layer: int, window: Window, relative: RelativePositionBias | None = None) -> LayerCache:
        """A layer's part of the cache, for the tokens of the next pass."""
        keys, values = self.keys[layer], self.values[layer]
        if self._sequence_ids is not None:
            return LayerCache(keys, values, self._new_slots, self._sequence_ids)
        if window not in self._masks:
            self._masks[window] = self._mask(window, relative)
        used = keys[:, :, : self.extent], values[:, :, : self.extent]
        return LayerCache(*used, self._new_slots, mask=self._masks[window])

    def repeat_interleave(self, repeats: int) -> None:
        self.keys, self.values = (part.repeat_interleave(repeats, 1) for part in (self.keys, self.values))
        self.positions, self.visible, self.lengths = (
            part.repeat_interleave(repeats, 0) for part in (self.positions, self.visible, self.lengths)
        )
        self.cross_layers = [store.repeat_interleave(repeats) for store in self.cross_layers]

    def prune(self) -> None:
        """Free the slots that belong to no beam, once beams have come to share most of their past."""
        live = self.visible[:, :, : self.extent].any(1)  # B M
        count = int(live.sum(1).max())
        order = torch.argsort(~live, dim=1, stable=True)[:, :count]  # slots in use first
        index = order[:, None, :, None].expand(-1, self.keys.shape[2], -1, self.keys.shape[4])
        for part in (*self.keys, *self.values):
            part[:, :, :count] = part.gather(2, index)
        self.positions[:, :count] = self.positions.gather(1, order)
        visible = self.visible.gather(2, order[:, None].expand(-1, self.beams, -1))
        self.visible.zero_()
        self.visible[:, :, :count] = visible
        self.slots += count - self.extent
        self.extent = count

    def _mask(self, window: Window, relative: RelativePositionBias | None) -> Float[Tensor, "B _ _ M"]:
        seen = self.visible[:, :, : self.extent]
        ahead = self.positions[:, None, : self.extent] - self._new_positions[..., None]  # of each query's position
        if self._new_positions.shape[1] > 1:  # several new tokens: each attends to those before it
            seen = seen & (ahead <= 0)
        if window.left is not None:
            seen = seen & (-ahead <= window.left)
        mask = torch.zeros(seen.shape, dtype=self.keys.dtype, device=seen.device)
        mask = mask.masked_fill_(~seen, -torch.inf)[:, None]
        if relative is None:
            return mask
        bias: Tensor = relative(ahead).permute(0, 3, 1, 2)
        return mask + bias.to(mask.dtype)  # B H W M
