"""The KV cache: keys and values of all tokens so far, so that only the newest is computed. Shazeer 2019, section 2.4.

A sequence may be gone on with in several ways at once, as a beam search does. Its ways share one row of slots, which
are filled in the order in which tokens come, and `seen` says which of them lie on a way. When a way is given up for a
branch of another, nothing moves but a few bits; a copy of the keys for each way would be moved at every token.

Of a sequence with one way, several tokens may be read at once, one behind another, as guesses of what comes are; those
that turn out wrong are taken back.
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from bertsmith.nn.relative import RelativePositionBias
from bertsmith.nn.window import Window


@dataclass(frozen=True)
class LayerCache:
    """Where one layer puts the keys and values of the tokens it reads, and finds those that came before."""

    keys: Float[Tensor, "B H M K"]
    values: Float[Tensor, "B H M K"]
    slots: Int[Tensor, "_"]  # where the new ones go: of prompts a slot for each token, of a step for each way
    sequence_ids: Int[Tensor, "T"] | None = None  # of prompts: the sequence that each token belongs to
    mask: Float[Tensor, "B _ _ M"] | None = None  # of a step: nought for what a way has seen, else minus infinity

    def repeat_interleave(self, repeats: int) -> "LayerCache":
        """The same for every sequence so many times."""
        keys, values = (part.repeat_interleave(repeats, 0) for part in (self.keys, self.values))
        mask = None if self.mask is None else self.mask.repeat_interleave(repeats, 0)
        return replace(self, keys=keys, values=values, mask=mask)

    def update(self, key: Float[Tensor, "T H K"], value: Float[Tensor, "T H K"]) -> None:
        for kept, new in ((self.keys, key), (self.values, value)):
            if self.sequence_ids is not None:
                kept.transpose(1, 2).index_put_((self.sequence_ids, self.slots), new)
            else:
                kept.index_copy_(2, self.slots, torch.unflatten(new, 0, (len(kept), -1)).transpose(1, 2))


class KVCache:
    """Keys and values of every layer for some sequences, each gone on with in as many ways.

    All that changes from one step to the next changes in place and on the device, so that a step can be recorded.
    """

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
        """`room` is how many tokens a row takes: those of the longest prompt, then one a step for every way."""
        shape = (layers, sequences, heads, capacity, head_width)
        # Noughts, since a weight of nought makes nought of every number but inf and nan.
        self.keys, self.values = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
        self.positions = torch.zeros(
            sequences, capacity, dtype=torch.int32, device=device
        )  # of each token in its sequence
        self.visible: Bool[Tensor, "B W M"] = torch.zeros(sequences, beams, capacity, dtype=torch.bool, device=device)
        self.lengths: Int[Tensor, B] = torch.zeros(sequences, dtype=torch.int32, device=device)
        self.beams = beams
        self.slots: Int[Tensor, W] = torch.arange(beams, device=device)  # that the next step fills, or begins with
        self.extent = 0  # slots that are looked at, those that have been filled: known without asking the device
        self.fixed = False  # or all of them at every step, so that a step can be recorded
        self._sequence_ids: Tensor | None = None  # while prompts are read: of each token its sequence, and its slot
        self._new_slots, self._new_positions = (
            self.slots,
            self.lengths[:, None],
        )  # slots and places of tokens about to be read
        self._masks: dict[Window, Tensor] = {}
        self.cross_layers: list[LayerCache] = []  # of each layer what it looks at in another text, which never changes

    def prefill(self, bounds: Int[Tensor, "ends"], positions: Int[Tensor, "T"], longest: int) -> None:
        """Prompts are about to be read, laid end to end."""
        self.lengths.copy_(bounds.diff())
        self._sequence_ids = torch.repeat_interleave(
            torch.arange(len(self.lengths), device=bounds.device), bounds.diff()
        )
        self._new_slots = positions.long()
        self.positions[self._sequence_ids, self._new_slots] = positions
        self.visible.transpose(1, 2)[self._sequence_ids, self._new_slots] = True
        self.slots += longest
        self.extent = longest

    def reserve(self, parents: Int[Tensor, "B W"] | None = None, tokens: int = 1) -> Int[Tensor, "B _"]:
        """One more token on every way is about to be read, or on the only way a row of them: their places.

        `came` is the way that each goes on with.
        """
        self._sequence_ids = None
        if parents is not None:
            self.visible.copy_(self.visible.gather(1, parents[..., None].expand_as(self.visible)))
        if tokens == 1:  # and all ways are as long
            self._new_slots, self._new_positions = self.slots, self.lengths[:, None]
            self.visible.scatter_(2, self.slots[:, None].expand(len(self.visible), -1, 1), True)
        else:
            assert self.beams == 1
            behind = torch.arange(tokens, device=self.slots.device)
            self._new_slots, self._new_positions = self.slots + behind, self.lengths[:, None] + behind.int()
            self.visible.index_fill_(2, self._new_slots, True)
        places = self._new_positions.expand(-1, len(self._new_slots))
        self.positions.index_copy_(1, self._new_slots, places)
        self.extent = self.visible.shape[2] if self.fixed else self.extent + len(self._new_slots)
        self._masks = {}
        return places

    def commit(self) -> None:
        """They have been read."""
        self.lengths += self._new_positions.shape[1]
        self.slots += len(self._new_slots)

    def rollback(self, count: int) -> None:
        """The last so many tokens of the only way were not those that come."""
        self.extent -= count
        self.lengths -= count
        self.slots -= count
        self.visible[:, :, self.extent :] = False

    def layer_cache(self, layer: int, window: Window, relative: RelativePositionBias | None = None) -> LayerCache:
        """A layer's part of the cache, for the tokens that are about to be read."""
        keys, values = self.keys[layer], self.values[layer]
        if self._sequence_ids is not None:
            return LayerCache(keys, values, self._new_slots, self._sequence_ids)
        if window not in self._masks:
            self._masks[window] = self._mask(window, relative)
        seen = keys[:, :, : self.extent], values[:, :, : self.extent]
        return LayerCache(*seen, self._new_slots, mask=self._masks[window])

    def repeat_interleave(self, repeats: int) -> None:
        """Every sequence so many times, one behind the other, to be gone on with independently."""
        self.keys, self.values = (part.repeat_interleave(repeats, 1) for part in (self.keys, self.values))
        self.positions, self.visible, self.lengths = (
            part.repeat_interleave(repeats, 0) for part in (self.positions, self.visible, self.lengths)
        )
        self.cross_layers = [store.repeat_interleave(repeats) for store in self.cross_layers]

    def prune(self) -> None:
        """Free the slots that lie on no way any more, once beams have come to share most of their past."""
        live = self.visible[:, :, : self.extent].any(1)  # B M
        count = int(live.sum(1).max())
        order = torch.argsort(~live, dim=1, stable=True)[:, :count]  # what lies on a way first
        wide = order[:, None, :, None].expand(-1, self.keys.shape[2], -1, self.keys.shape[4])
        for part in (*self.keys, *self.values):
            part[:, :, :count] = part.gather(2, wide)
        self.positions[:, :count] = self.positions.gather(1, order)
        seen = self.visible.gather(2, order[:, None].expand(-1, self.beams, -1))
        self.visible.zero_()
        self.visible[:, :, :count] = seen
        self.slots += count - self.extent
        self.extent = count

    def _mask(self, window: Window, relative: RelativePositionBias | None) -> Float[Tensor, "B _ _ M"]:
        seen, ahead = (
            self.visible[:, :, : self.extent],
            self.positions[:, None, : self.extent] - self._new_positions[..., None],
        )
        if self._new_positions.shape[1] > 1:  # of a row, each has seen those before it
            seen = seen & (ahead <= 0)
        if window.left is not None:
            seen = seen & (-ahead <= window.left)
        mask = torch.zeros(seen.shape, dtype=self.keys.dtype, device=seen.device)
        mask = mask.masked_fill_(~seen, -torch.inf)[:, None]
        if relative is None:
            return mask
        added: Tensor = relative(ahead).permute(0, 3, 1, 2)
        return mask + added.to(mask.dtype)  # B H W M
