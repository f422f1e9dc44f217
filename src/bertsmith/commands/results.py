"""Results of the Python API: a run, which loads its model, and an evaluation."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from bertsmith.commands.export import ExportedForm
from bertsmith.inference.load import load
from bertsmith.inference.model import Model


@dataclass(frozen=True, repr=False)
class Run:
    """A finished run: its folder, its scores, its report, and its model, which is loaded on first use.

    >>> run = bertsmith.finetune("runs/mine", "reviews.csv", out="runs/tuned", steps=2)
    >>> sorted(run.scores)
    ['accuracy', ...]
    """

    folder: Path
    scores: dict[str, float]  # of pretraining, on held-out text; of fine-tuning, on the dev set
    result: dict[str, Any] = field(default_factory=dict)  # the content of result.json

    @cached_property
    def model(self) -> Model:
        """The trained model, on the fastest device of this machine.

        >>> bertsmith.Run(Path("runs/mine"), {}).model.task
        ''
        """
        return load(self.folder / "model")

    @property
    def report(self) -> Path:
        """The path of the report, an HTML page.

        >>> bertsmith.Run(Path("runs/mine"), {}).report.name
        'report.html'
        """
        return self.folder / "report.html"

    def __repr__(self) -> str:
        return f"Run('{self.folder}', {_format_scores(self.scores)})"


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The scores of a fine-tuned model on a labelled file.

    >>> evaluation = bertsmith.evaluate("runs/reviews", "reviews.csv")
    >>> 0 <= evaluation.scores["accuracy"] <= 1
    True
    """

    scores: dict[str, float]
    result: dict[str, Any]  # scores by class, calibration and mistakes: the content of result.json
    folder: Path | None = None  # the folder of result.json and the page, if one was named

    def __repr__(self) -> str:
        return f"Evaluation({_format_scores(self.scores)})"


@dataclass(frozen=True, repr=False)
class Export:
    """An exported folder, and its forms side by side: weights, graph, and graph in int8.

    >>> exported = bertsmith.export("runs/reviews", "runs/exported")
    >>> [form.name for form in exported.forms]
    ['weights (torch)', 'onnx']
    """

    folder: Path
    forms: list[ExportedForm]  # each with its size, speed, difference from the weights, and score

    @cached_property
    def model(self) -> Model:
        """The exported model in float32, computed by ONNX Runtime.

        >>> bertsmith.export("runs/reviews", "runs/exported").model.task
        'classify'
        """
        return load(self.folder, backend="onnx")

    def __repr__(self) -> str:
        return f"Export('{self.folder}', {', '.join(form.name for form in self.forms[1:])})"


def _format_scores(scores: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={value:.4g}" for name, value in scores.items())
