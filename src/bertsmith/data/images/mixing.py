"""Boxes and mixtures: random erasing, mixup and CutMix.

The partner of an image comes from a permutation of the whole dataset and not from its batch, so that a mixture, too,
is a function of the seed, the epoch and the index alone.
"""

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int64, Shaped, UInt8
from torch import Tensor

from bertsmith.data.batch import on_device
from bertsmith.data.images.draws import Draws, Purpose, column
from bertsmith.errors import RecipeError

Images = UInt8[Tensor, "B C H W"]
MIN_ALPHA, MAX_ALPHA = 0.05, 1.0  # between which Jöhnk's method neither underflows nor rejects most draws
ERASED_AREA, ERASED_ASPECT = (0.02, 0.33), (0.3, 1 / 0.3)


def erase(images: Images, draws: Draws, *, probability: float = 0.25) -> Images:
    """Random erasing: a box of a random size, shape and place is one random colour; Zhong et al. 2017."""
    height, width = images.shape[2:]
    low, high = ERASED_AREA
    area = (low + (high - low) * draws.uniform(Purpose.ERASE_AREA)) * height * width
    start, end = np.log(ERASED_ASPECT)
    aspect = np.exp(start + (end - start) * draws.uniform(Purpose.ERASE_ASPECT))
    heights = np.clip(np.rint(np.sqrt(area * aspect)), 1, height).astype(np.int64)
    widths = np.clip(np.rint(np.sqrt(area / aspect)), 1, width).astype(np.int64)
    heights[draws.uniform(Purpose.ERASE) >= probability] = 0
    tops = draws.below(height - heights + 1, Purpose.ERASE_ROW)
    lefts = draws.below(width - widths + 1, Purpose.ERASE_COLUMN)
    boxes = _boxes(images, tops, lefts, heights, widths)
    channels = images.shape[1]
    colours = np.stack([draws.below(256, Purpose.ERASE_COLOUR, channel) for channel in range(channels)], 1)
    fill = on_device(colours, images.device, torch.uint8)[:, :, None, None]
    return torch.where(boxes, fill, images)


def mix_images(
    images: Float[Tensor, "B C H W"],
    partners: Float[Tensor, "B C H W"],
    draws: Draws,
    *,
    mixup: float = 0.0,
    cutmix: float = 0.0,
) -> tuple[Float[Tensor, "B C H W"], Float64[np.ndarray, "B"]]:
    """Each image mixed with its partner, and the share of the label that is left to it.

    mixup adds them in random shares (Zhang et al. 2017); CutMix puts a box of the partner into the image (Yun et al.
    2019). Both numbers are the alpha of the distribution of shares, Beta(alpha, alpha), and 0 is without; with both,
    each image is mixed in one of the two ways.
    """
    ways = [alpha for alpha in (mixup, cutmix) if alpha]
    if not ways:
        return images, np.ones(len(draws))
    if not all(MIN_ALPHA <= alpha <= MAX_ALPHA for alpha in ways):
        raise RecipeError("mixup, cutmix", f"alpha is not between {MIN_ALPHA} and {MAX_ALPHA}", "Use 0 for without")
    cut = draws.uniform(Purpose.MIX_KIND) < 0.5 if mixup and cutmix else np.full(len(draws), bool(cutmix))
    shares = np.where(cut, _beta(cutmix or 1.0, draws), _beta(mixup or 1.0, draws))
    height, width = images.shape[2:]
    heights, widths = (np.rint(side * np.sqrt(1 - shares)).astype(np.int64) * cut for side in (height, width))
    tops = draws.below(height - heights + 1, Purpose.MIX_ROW)
    lefts = draws.below(width - widths + 1, Purpose.MIX_COLUMN)
    boxes = _boxes(images, tops, lefts, heights, widths)
    shares = np.where(cut, 1 - heights * widths / (height * width), shares)
    left = column(np.where(cut, 1.0, shares), images.device, images.dtype)
    return torch.where(boxes, partners, left * images + (1 - left) * partners), shares


def soft_targets(
    labels: Int64[Tensor, "B"],
    partner_labels: Int64[Tensor, "B"],
    shares: Float64[np.ndarray, "B"],
    classes: int,
    *,
    smoothing: float = 0.0,
) -> Float[Tensor, "B classes"]:
    """The probabilities of all classes for mixed images, with label smoothing."""
    share = on_device(shares, labels.device, torch.float32)[:, None]
    own, other = (torch.nn.functional.one_hot(each, classes).float() for each in (labels, partner_labels))
    return (1 - smoothing) * (share * own + (1 - share) * other) + smoothing / classes


def _boxes(
    images: Shaped[Tensor, "B C H W"], tops: np.ndarray, lefts: np.ndarray, heights: np.ndarray, widths: np.ndarray
) -> Bool[Tensor, "B 1 H W"]:
    """Where a pixel lies in the box of its image."""
    device = images.device
    rows = torch.arange(images.shape[2], device=device)[None, None, :, None]
    columns = torch.arange(images.shape[3], device=device)[None, None, None, :]
    edges = (tops, lefts, tops + heights, lefts + widths)
    top, left, below, right = (column(each, device, torch.int64) for each in edges)
    return (rows >= top) & (rows < below) & (columns >= left) & (columns < right)


def _beta(alpha: float, draws: Draws) -> Float64[np.ndarray, "B"]:
    """Numbers of the distribution Beta(alpha, alpha), by rejection: Jöhnk 1964."""
    shares, open_rows, turn = np.empty(len(draws)), np.arange(len(draws)), 0
    while len(open_rows):
        rest = draws[open_rows]
        one, other = ((1 - rest.uniform(Purpose.MIX_SHARE, turn + side)) ** (1 / alpha) for side in range(2))
        good = one + other <= 1
        shares[open_rows[good]] = one[good] / (one + other)[good]
        open_rows, turn = open_rows[~good], turn + 2
    return shares
