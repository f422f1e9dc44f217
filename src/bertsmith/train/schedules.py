"""The learning rate schedule: warmup, then linear, cosine, trapezoid or inverse square root, by progress alone."""

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """Linear warmup from zero, then decay. Devlin et al. 2018, appendix A.2, decay linearly to zero.

    A trapezoid (warmup-stable-decay, WSD) is constant in between, so that the length of the run need not be known until
    the decay, which is 1 - sqrt: Hägele et al. 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed Training
    Durations".

    An inverse square root does not reach zero: at four times the warmup, the learning rate is half of the peak. Vaswani
    et al. 2017, section 5.3.
    """

    warmup: float = 0.01  # share of the run with a linear warmup; BERT: 10,000 of 1,000,000 steps
    kind: Literal["linear", "trapezoid", "cosine", "inverse_root"] = "linear"  # decay after the warmup
    cooldown: float = 0.2  # share of the run over which a trapezoid decays

    def __post_init__(self) -> None:
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup is a share of the run, from 0 to 1, and not {self.warmup}")
        if not 0 < self.cooldown <= 1:
            raise ValueError(f"cooldown is a share of the run, more than 0 and at most 1, and not {self.cooldown}")
        if self.kind == "inverse_root" and not self.warmup:
            raise ValueError("inverse_root decays from the end of the warmup. Give warmup more than 0")
        if self.kind == "trapezoid" and self.warmup + self.cooldown > 1:
            raise ValueError(f"warmup {self.warmup} and cooldown {self.cooldown} are more than the run. Lower one")


def learning_rate_factor(progress: float, config: ScheduleConfig) -> float:
    """The factor of the peak learning rate at this fraction of the run."""
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
