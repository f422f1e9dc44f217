"""The result of fine-tuning over several seeds: metrics with confidence intervals, details and protocol."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from bertsmith import config
from bertsmith.metrics.intervals import confidence_interval
from bertsmith.recipe import FineTune
from bertsmith.runs import task_data
from bertsmith.runs.task_data import EncodedData, TaskData
from bertsmith.tasks.findings import warnings
from bertsmith.train import hardware

RESULT = "result.json"


def build_result(
    recipe: FineTune, data: TaskData, encoded: EncodedData, runs: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The content of result.json: metrics of all seeds with mean, deviation and interval, and the protocol."""
    protocol = {
        "selection": "the best of the evaluations on the dev set" if recipe.keep == "best" else "the last step",
        "measured_on": str(recipe.data.dev or recipe.data.train),
        "data": task_data.summary_lines(data),
        "examples": {"train": len(data.train.examples), "dev": len(data.dev.examples)},
        "items": {"train": len(encoded.train), "dev": len(encoded.dev)},
        "truncated": sum(encoded.truncated),
        "data_sha256": data.fingerprint,
        "recipe": config.dump(recipe),
        "machine": hardware.describe(hardware.select_device(recipe.train.device)),
    }
    return result_of(runs, protocol)


def result_of(runs: Sequence[Mapping[str, Any]], protocol: Mapping[str, Any]) -> dict[str, Any]:
    """The same of any runs, with the protocol of their measurement."""
    headline = runs[0]["headline"]
    others = runs[0]["metrics"].keys() - {headline, "step", "seconds"}
    names = [headline, *sorted(others)]
    summary = {}
    for name in names:
        interval = confidence_interval([run["metrics"][name] for run in runs])
        bounds = {"low": interval.low, "high": interval.high}
        summary[name] = {"mean": interval.mean, "deviation": interval.deviation, **bounds}
    best = runs[best_run(runs)]
    details, untrained, score = best.get("details") or {}, best.get("untrained"), best["metrics"][headline]
    return {
        "headline": headline,
        "summary": summary,
        "runs": [{name: part for name, part in run.items() if name not in ("data", "details")} for run in runs],
        "details": details,
        "untrained": untrained,
        "warnings": warnings(details, headline, score, untrained and untrained.get(headline)) if details else [],
        "protocol": protocol,
    }


def best_run(runs: Sequence[Mapping[str, Any]]) -> int:
    """The index of the run with the highest headline metric, whose model is kept; NaN counts as the lowest."""
    scores = [run["metrics"][run["headline"]] for run in runs]
    return max(range(len(runs)), key=lambda index: -math.inf if math.isnan(scores[index]) else scores[index])


def is_better(score: float, other: float) -> bool:
    """Whether a score beats another one; any score beats NaN."""
    return math.isnan(other) or score > other
