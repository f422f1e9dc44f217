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


class PatchEmbedding(CustomInit):
    """A linear layer over the pixels of a patch, the special tokens before the patches, and positions.

    The linear layer is the convolution of other implementations, whose kernel is as large as its stride.

    Departs from the paper: positions are learned, but begin as sines and cosines of the row and the column, and the
    vectors of patches with a variance of one, so that neighbours are known as such from the first step. A short
    training on few images needs that: Beyer et al. 2022, "Better plain ViT baselines for ImageNet-1k".
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

    def init_weights(self, generator: torch.Generator) -> None:
        """The first vectors of patches, special tokens and positions."""
        with torch.no_grad():
            self.projection.weight.normal_(0.0, self.projection.in_features**-0.5, generator=generator)
            special = len(self.special_tokens)
            self.positions[special:] = sinusoids_2d(self.grid, self.positions.shape[1])
        if not self.positions.requires_grad:
            fix_positions(self.positions, self.grid)

    def forward(self, patches: Patches) -> Float[Tensor, "T D"]:
        embedded = self.projection(patches.pixels.to(self.projection.weight.dtype))  # bfloat16 where weights are cast
        special, positions = self.special_tokens.to(embedded.dtype), self.position_table(patches.grids)
        if patches.one_grid:  # images are rows of one tensor, and gradients of positions are sums over them
            images = embedded.view(len(patches.bounds) - 1, -1, embedded.shape[1])
            whole = torch.cat([special.expand(len(images), -1, -1), images], 1)
            tokens = (whole + positions).flatten(0, 1)
        else:
            starts = patches.bounds[:-1].long()
            tokens = embedded.new_empty((len(patches.position_rows), embedded.shape[1]))
            tokens = tokens.index_copy(0, patches.slots, embedded)
            for number, one in enumerate(special):
                tokens = tokens.index_copy(0, starts + number, one.expand(len(starts), -1))
            tokens = tokens + F.embedding(patches.position_rows, positions)
        hidden: Tensor = self.dropout(tokens)
        return hidden

    def position_table(self, grids: tuple[Grid, ...]) -> Float[Tensor, "R D"]:
        """The positions of the special tokens, then those of every grid, row by row."""
        return positions_on(self.positions, self.grid, grids)


@torch.no_grad()
def fix_positions(positions: nn.Parameter, grid: int) -> None:
    """Make a table of positions fixed sines and cosines, and 0 for special tokens: kept with the weights, not trained.

    Those of the column come first, as in the authors' code and in all published weights.
    """
    waves = sinusoids_2d(grid, positions.shape[1]).roll(positions.shape[1] // 2, 1)
    positions.requires_grad_(False).zero_()[-(grid**2) :] = waves.to(positions.device)


def positions_on(positions: Float[Tensor, "R D"], grid: int, grids: tuple[Grid, ...]) -> Float[Tensor, "S D"]:
    """A table for special tokens and then a square grid, as one for them and then all `grids`, row by row."""
    if grids == ((grid, grid),):
        return positions
    special, known = positions.tensor_split((len(positions) - grid**2,))
    square = known.view(grid, grid, -1)
    return torch.cat([special, *(resized(square, other).flatten(0, 1) for other in grids)])


def sinusoids_2d(grid: int, width: int) -> Float[Tensor, "_ D"]:
    """Positions of a square grid, row by row: a quarter of the width each for sines and cosines of row and column.

    Chen et al. 2021, "An Empirical Study of Training Self-Supervised Vision Transformers". A rest of the width is 0.
    """
    quarter = width // 4
    with torch.device("cpu"):  # numbers, even where a network is built without memory
        rates = 10_000.0 ** -(torch.arange(quarter) / max(1, quarter))
        angles = torch.arange(grid)[:, None] * rates  # G Q
    waves = torch.cat([angles.sin(), angles.cos()], 1)  # of a row or a column
    rows, columns = waves[:, None].expand(-1, grid, -1), waves[None].expand(grid, -1, -1)
    return F.pad(torch.cat([rows, columns], 2).flatten(0, 1), (0, width - 4 * quarter))


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
