"""Learning without labels. One file per objective: what it is, its Config, heads and loss, how it corrupts."""

from bertsmith.objectives.base import Unlabelled
from bertsmith.objectives.both_ways import BothWays
from bertsmith.objectives.causal import NextToken
from bertsmith.objectives.masked import MaskedLM
from bertsmith.objectives.mixed import Mixed
from bertsmith.objectives.onward import Onward
from bertsmith.objectives.replaced import ReplacedTokens
from bertsmith.objectives.spans import SpanCorruption

OBJECTIVES: dict[str, type[Unlabelled]] = {
    "masked": MaskedLM,
    "replaced": ReplacedTokens,
    "onward": Onward,
    "next_token": NextToken,
    "spans": SpanCorruption,
    "mixed": Mixed,
    "both_ways": BothWays,
}
