"""Learning without labels. One file per objective: what it is, its Config, heads and loss, how it corrupts."""

from bertsmith.objectives.base import Objective
from bertsmith.objectives.masked import MaskedLM

OBJECTIVES: dict[str, type[Objective]] = {"masked": MaskedLM}
