"""Learning rates over a run: pure functions of the share that lies behind."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ScheduleConfig:
    """A rise from nothing, then a straight fall to nothing. Devlin et al. 2018, appendix A.2."""

    warmup: float = 0.01  # share of the run; BERT: 10,000 of 1,000,000 steps

    def __post_init__(self) -> None:
        if not 0 <= self.warmup < 1:
            raise ValueError(f"warmup is a share of the run, from 0 to 1, and not {self.warmup}")


def factor(share: float, config: ScheduleConfig) -> float:
    """What the peak rate is multiplied by at this share of the run."""
    if share < config.warmup:
        return share / config.warmup
    return (1 - share) / (1 - config.warmup)
