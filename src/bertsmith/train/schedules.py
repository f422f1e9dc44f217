"""The learning rate schedule: warmup, then linear, cosine, trapezoid or inverse square root, by progress alone."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """A rise from nothing, then a fall to nothing. Devlin et al. 2018, appendix A.2, fall in a straight line.

    A trapezoid stays at the top in between, and so need not know how long the run will be until it falls; by a root,
    steep at first. Hägele et al. 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed Training Durations".

    An inverse root never comes to nothing: four times as far along as the rise was long, the rate is half of the
    highest. Vaswani et al. 2017, section 5.3.
    """

    warmup: float = 0.01  # share of the run; BERT: 10,000 of 1,000,000 steps
    kind: Literal["linear", "trapezoid", "cosine", "inverse_root"] = "linear"  # how it goes on after the rise
    cooldown: float = 0.2  # share of the run over which a trapezoid falls

    def __post_init__(self) -> None:
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup is a share of the run, from 0 to 1, and not {self.warmup}")
        if not 0 < self.cooldown <= 1:
            raise ValueError(f"cooldown is a share of the run, more than 0 and at most 1, and not {self.cooldown}")
        if self.kind == "inverse_root" and not self.warmup:
            raise ValueError("an inverse root falls from the end of a rise. Give warmup more than 0")
        if self.kind == "trapezoid" and self.warmup + self.cooldown > 1:
            raise ValueError(f"warmup {self.warmup} and cooldown {self.cooldown} are more than the run. Lower one")


def learning_rate_factor(progress: float, config: ScheduleConfig) -> float:
    """What the peak rate is multiplied by at this share of the run."""
    if progress < config.warmup:
        return progress / config.warmup
    match config.kind:
        case "linear":
            return (1 - progress) / (1 - config.warmup)
        case "trapezoid":
            return 1 - math.sqrt(1 - min(1.0, (1 - progress) / config.cooldown))
        case "cosine":
            return 0.5 + 0.5 * math.cos(math.pi * (progress - config.warmup) / (1 - config.warmup))
        case "inverse_root":
            return math.sqrt(config.warmup / progress)
