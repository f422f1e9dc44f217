"""Learning without labels. One file per objective: what it is, its Config, heads and loss, how it corrupts."""

from bertsmith.objectives.base import Unlabelled
from bertsmith.objectives.both import BothWays
from bertsmith.objectives.causal import NextToken
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.replaced import ReplacedTokens
from bertsmith.objectives.spans import SpanCorruption

OBJECTIVES: dict[str, type[Unlabelled]] = {
    "masked": MaskedLM,
    "replaced": ReplacedTokens,
    "next_token": NextToken,
    "spans": SpanCorruption,
    "both": BothWays,
}
