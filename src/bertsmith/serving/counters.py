"""Numbers that all processes of a server share: a table in a file, of which each process writes a row of its own.

Limits of the whole server are compared with sums over its fronts, and any front can answer for all. A process that is
started again goes on with its row, so that counters never fall.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

STATUSES = (200, 400, 401, 403, 404, 405, 408, 413, 415, 422, 429, 431, 500, 503)
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, np.inf)  # upper bounds of the histogram
MODEL_ROWS = 2  # two model processes overlap while models are reloaded
OTHER = "other"  # the route of requests that have none

GAUGES = ("connections", "pending_requests", "pending_tokens")
TOTALS = ("inputs", "tokens", "request_seconds", "batches", "batch_jobs", "batch_tokens", "batch_seconds", "faults")


class Counters:
    """The table, and the row of this process."""

    def __init__(self, table: NDArray[np.float64], columns: dict[str, int], row: int) -> None:
        self.table, self.columns = table, columns
        self.row = table[row]
        for name in GAUGES:  # of a process that has died
            self.set(name, 0)

    @classmethod
    def create(cls, path: Path, routes: list[str], fronts: int) -> None:
        """Write an empty table for fronts and model processes."""
        table = np.zeros((fronts + MODEL_ROWS, len(_columns(routes))))
        path.write_bytes(table.tobytes())

    @classmethod
    def open(cls, path: Path, routes: list[str], row: int) -> "Counters":
        """The table of a file; negative rows are those of model processes."""
        columns = _columns(routes)
        table = np.memmap(path, np.float64, "r+").reshape(-1, len(columns))
        return cls(table, columns, row)

    @classmethod
    def private(cls, routes: list[str]) -> "Counters":
        """A table of one process, in no file."""
        columns = _columns(routes)
        return cls(np.zeros((1, len(columns))), columns, 0)

    def add(self, name: str, value: float = 1) -> None:
        self.row[self.columns[name]] += value

    def set(self, name: str, value: float) -> None:
        self.row[self.columns[name]] = value

    def total(self, name: str) -> float:
        """The sum over all processes."""
        return float(self.table[:, self.columns[name]].sum())

    def count_request(self, route: str, status: int, seconds: float) -> None:
        """Count an answer by its route, status and time."""
        name = f"{route} {status}"
        self.add(name if name in self.columns else f"{OTHER} {status if status in STATUSES else 500}")
        self.add("request_seconds", seconds)
        self.add(f"seconds {np.searchsorted(SECONDS, seconds)}")


def _columns(routes: list[str]) -> dict[str, int]:
    names = [*GAUGES, *TOTALS, *(f"seconds {number}" for number in range(len(SECONDS)))]
    names += [f"{route} {status}" for route in [*routes, OTHER] for status in STATUSES]
    return {name: number for number, name in enumerate(names)}
