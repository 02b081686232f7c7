"""What `make studies-check` reruns of this study: plans, and simulated studies beside them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.check import Check
from benchmarks.studies.plan_check.run import Task, predicted, simulated, tasks


def chosen(minute: bool) -> list[Task]:
    every = tasks(quick=False)
    return every[1:2] if minute else [every[1], every[11], every[-12], every[-9]]


def plans(_: Path, minute: bool) -> Iterator[dict[str, Any]]:
    for task in chosen(minute):
        yield {"part": task.part, "setting": str(task.setting)} | predicted(task)


def fits(_: Path, minute: bool) -> Iterator[dict[str, Any]]:
    for task in chosen(minute):
        for trial in range(3 if minute else 8):
            yield {"part": task.part, "setting": str(task.setting), "trial": trial} | simulated(task, trial)


FLOORS = {"error": 0.005, "power": 0.02, "n_false": 0.3}
CELL = ("part", "setting")
CHECKS = (
    Check(CELL, CELL, FLOORS, plans, results="predictions.csv"),
    Check((*CELL, "trial"), CELL, FLOORS, fits),
)
