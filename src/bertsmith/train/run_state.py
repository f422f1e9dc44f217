"""The state of a run besides its tensors: what `state.json` of a checkpoint keeps, and a resumed run goes on from."""

from dataclasses import asdict, dataclass, field
from typing import Any

from bertsmith.train.checkpoint import Checkpoint

OTHER_DATA = "was begun with other data", "Choose another folder, or give it the same data"


@dataclass(kw_only=True)
class RunState:
    """How far a run is, and what its validations have found."""

    step: int = 0  # updates so far
    position: int  # of the next batch in the data
    tokens: int = 0  # that were trained on
    skipped_in_a_row: int = 0  # updates whose gradient was not finite, up to the newest
    skipped: int = 0  # all of them
    metrics: dict[str, float] = field(default_factory=dict)  # of the last validation, with its step
    best_metrics: dict[str, float] = field(default_factory=dict)  # of the best one
    evaluations_since_best: int = 0
    evaluation_due: bool = False  # the evaluation at this step is still to be done, by the run that resumes
    data_fingerprint: str  # a run is resumed only with the same data

    # The clock, the average and the validation count these; they stand here when a checkpoint is written or read.
    training_seconds: float = 0.0
    averaged_updates: int = 0
    validation_batches: int | None = None  # in an evaluation, if it chooses their number
    wall_budget: dict[str, Any] | None = None  # the time budget of a whole command, and what of it is used

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> "RunState":
        return cls(step=checkpoint.step, **checkpoint.state)

    def to_json(self) -> dict[str, Any]:
        """The state of a checkpoint, which has the step in its name."""
        return {name: value for name, value in asdict(self).items() if name != "step" and value is not None}
