"""The patch embedding of a vision transformer, and its positions at any resolution.

    hidden = patch embedding of the pixels, or a special token, + position

The class token collects what the classifier reads, as [CLS] does in BERT (Dosovitskiy et al. 2020, section 3.1). The
distillation token beside it learns the predictions of a teacher (Touvron et al. 2020, section 4). Positions are
learned, or in a masked autoencoder fixed waves of the row and the column (He et al. 2021, appendix A.1).
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from bertsmith.models.patches import Grid, Patches
from bertsmith.models.vision_config import VisionConfig
from bertsmith.nn.dropout import Dropout
from bertsmith.nn.init import CustomInit
from bertsmith.nn.positions import sinusoids_2d


class PatchEmbedding(CustomInit):
    """A linear layer over the pixels of a patch, the special tokens before the patches, and positions.

    The linear layer is the convolution of other implementations, whose kernel is as large as its stride.
    """

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        self.grid, special = config.grid, config.special_tokens
        self.projection = nn.Linear(config.patch_values, config.width)
        self.special_tokens = nn.Parameter(torch.empty(special, config.width).normal_(std=0.02))
        self.positions = nn.Parameter(torch.empty(special + config.grid**2, config.width).normal_(std=0.02))
        if config.positions == "sinusoidal":
            fix_positions(self.positions, config.grid)
        self.dropout = Dropout(config.dropout)

    def forward(self, patches: Patches) -> Float[Tensor, "T D"]:
        embedded = self.projection(patches.pixels.to(self.projection.weight.dtype))  # bfloat16 where weights are cast
        starts = patches.bounds[:-1].long()
        # Every token is written once, so that the gradient is a plain gather: the same bits on every run.
        tokens = embedded.new_empty((len(patches.position_rows), embedded.shape[1]))
        tokens = tokens.index_copy(0, patches.slots, embedded)
        for number, special in enumerate(self.special_tokens.to(embedded.dtype)):
            tokens = tokens.index_copy(0, starts + number, special.expand(len(starts), -1))
        tokens = tokens + F.embedding(patches.position_rows, self.position_table(patches.grids))
        hidden: Tensor = self.dropout(tokens)
        return hidden

    def position_table(self, grids: tuple[Grid, ...]) -> Float[Tensor, "R D"]:
        """The positions of the special tokens, then those of every grid, row by row."""
        return positions_on(self.positions, self.grid, grids)

    def init_weights(self, generator: torch.Generator) -> None:
        """Fixed positions are waves, whatever was drawn for the other parameters."""
        if not self.positions.requires_grad:
            fix_positions(self.positions, self.grid)


@torch.no_grad()
def fix_positions(positions: nn.Parameter, grid: int) -> None:
    """Make a table of positions fixed waves, and 0 for special tokens. It is kept with the weights, but not trained."""
    waves = sinusoids_2d(grid, grid, positions.shape[1])
    positions.requires_grad_(False).zero_()[-(grid**2) :] = waves.to(positions.device)


def positions_on(positions: Float[Tensor, "R D"], grid: int, grids: tuple[Grid, ...]) -> Float[Tensor, "S D"]:
    """A table for special tokens and then a square grid, as one for them and then all `grids`, row by row."""
    if grids == ((grid, grid),):
        return positions
    special, known = positions.tensor_split((len(positions) - grid**2,))
    square = known.view(grid, grid, -1)
    return torch.cat([special, *(resized(square, other).flatten(0, 1) for other in grids)])


def resized(square: Float[Tensor, "G G D"], grid: Grid) -> Float[Tensor, "_ _ D"]:
    """Learned positions of a square grid for another grid, by bicubic interpolation. Touvron et al. 2019.

    Bicubic interpolation is linear in rows and in columns. As two matrix products its gradient is the same on every
    run, which that of torch's own operation on a GPU is not.
    """
    if grid == tuple(square.shape[:2]):
        return square
    dtype = torch.promote_types(square.dtype, torch.float32)  # half precision would round the weights
    rows, columns = (bicubic_weights(len(square), size, square.device, dtype) for size in grid)
    with torch.autocast(square.device.type, enabled=False):
        positions = torch.einsum("rg,ghd,ch->rcd", rows, square.to(dtype), columns)
    return positions.to(square.dtype)


def bicubic_weights(old: int, new: int, device: torch.device, dtype: torch.dtype) -> Float[Tensor, "N O"]:
    """What each of the `old` points contributes to each of the `new` ones: the interpolated identity matrix."""
    identity = torch.eye(old, device=device, dtype=dtype).view(1, old, old, 1)  # a channel for each old point
    return F.interpolate(identity, (new, 1), mode="bicubic", align_corners=False)[0, :, :, 0].T
