"""Pretraining objectives. One file each: what it is, its Config, its heads and loss, and the function that corrupts."""

from bertsmith.objectives.base import Pretraining
from bertsmith.objectives.bilm import BidirectionalLM
from bertsmith.objectives.causal import CausalLM
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.masked_patches import MaskedPatches
from bertsmith.objectives.mixed import MixedLM
from bertsmith.objectives.recurrent_lm import RecurrentLM
from bertsmith.objectives.replaced import ReplacedTokenDetection
from bertsmith.objectives.spans import SpanCorruption

OBJECTIVES: dict[str, type[Pretraining]] = {
    "masked_lm": MaskedLM,
    "replaced_tokens": ReplacedTokenDetection,
    "recurrent_lm": RecurrentLM,
    "causal_lm": CausalLM,
    "span_corruption": SpanCorruption,
    "mixed": MixedLM,
    "bilm": BidirectionalLM,
}
IMAGE_OBJECTIVES: dict[str, type[MaskedPatches]] = {"masked_patches": MaskedPatches}  # on images without labels
