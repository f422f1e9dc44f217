"""A transformer on padded rows: batches as other libraries and runtimes have them, for graphs that they run.

Our own batches are flat, and no kernel of ours reads padding. A graph for another runtime takes a rectangle of ids with
its attention mask, and is made of plain operations only; every weight and every layer is that of `Transformer`.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from bertsmith.data.batch import Tokens
from bertsmith.models.transformer import Transformer
from bertsmith.nn.padded import Rectangle
from bertsmith.nn.window import Window


class PaddedTransformer(torch.nn.Module):
    """An encoder that takes a rectangle of tokens and an attention mask."""

    bias: Float[Tensor, "H distances"] | None

    def __init__(self, trunk: Transformer) -> None:
        super().__init__()
        self.trunk = trunk
        self.register_buffer("bias", None)
        if trunk.relative is not None:  # looked up for all distances, since rounding must not move the edge of a bucket
            most = trunk.config.max_length
            with torch.no_grad():
                self.bias = trunk.relative(torch.arange(1 - most, most)).mT.contiguous()

    def forward(
        self,
        ids: Int[Tensor, "B L"],
        mask: Int[Tensor, "B L"],
        segments: Int[Tensor, "B L"] | None = None,
        *,
        first: bool = False,
    ) -> Float[Tensor, "N D"]:
        """The hidden vectors of all B x L tokens; with `first`, of the first token of each row only."""
        trunk, (rows, length) = self.trunk, ids.shape
        columns = torch.arange(length, device=ids.device)
        starts = torch.arange(rows, device=ids.device) * length
        tokens = Tokens(
            ids=ids.flatten(),
            bounds=starts.int(),
            positions=columns.repeat(rows),
            max_length=trunk.config.max_length,
            segments=None if segments is None else segments.flatten(),
        )
        whole = self._kernel(mask.bool(), trunk.window)
        local = self._kernel(mask.bool(), trunk.local_window) if trunk.config.window else whole
        inputs = trunk.with_rotations(tokens, trunk.by_layer(whole, local), [None] * trunk.config.layers)
        return trunk.run_layers(trunk.embed(tokens), inputs, starts if first else None)

    def _kernel(self, real: Tensor, window: Window) -> Rectangle:
        """Attention within each row of the rectangle."""
        return Rectangle(real, self._mask(real, window), window=window)

    def _mask(self, real: Tensor, window: Window) -> Tensor:
        """Added to the scores: 0 or the relative position bias, and the lowest number where nothing is attended to.

        The lowest number rather than minus infinity: a row of padding alone would be nan.
        """
        columns = torch.arange(real.shape[1], device=real.device)
        ahead = columns - columns[:, None]
        visible = real[:, None, None] if window.full else real[:, None, None] & window.visible(ahead)
        bias = torch.zeros((), device=real.device)
        if self.bias is not None:
            bias = self.bias[:, ahead + self.trunk.config.max_length - 1]
        return torch.where(visible, bias, torch.finfo(torch.float32).min)
