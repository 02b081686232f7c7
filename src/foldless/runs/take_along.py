"""What people take along into other programs: a workbook, ranked and plain lists of names, figures."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from foldless.estimators.classifier import SparseClassifier
from foldless.io import printable
from foldless.io.files import write_whole
from foldless.io.spreadsheet import can_write_workbooks
from foldless.io.table import BadTable, Table
from foldless.io.tsv import ENCODING, ERRORS
from foldless.runs.models import DEFAULT, model_named

if TYPE_CHECKING:
    from foldless.estimators._summary import Summary

WORKBOOK, LISTS, FIGURES = "results.xlsx", "lists", "figures"
LONGEST_LABEL = 40


@dataclass(frozen=True)
class TakeAlong:
    """What is asked for beside the results that every fit leaves."""

    workbook: bool = False
    lists: bool = False
    figures: float | None = None  # width in millimetres

    @property
    def names(self) -> tuple[str, ...]:
        """Of files and folders, in the folder of results."""
        asked = ((WORKBOOK, self.workbook), (f"{LISTS}/", self.lists), (f"{FIGURES}/", self.figures))
        return tuple(name for name, wanted in asked if wanted)

    def check(self, table: Table, model: str) -> None:
        """What cannot be had is an error before any work."""
        if self.workbook:
            can_write_workbooks()
        if self.lists and not isinstance(model_named(model), SparseClassifier):
            problem = f"--lists is given, and the model {model!r} does not test features by themselves."
            raise BadTable(table.path, problem, f"Use --model {DEFAULT}, or do without --lists.")


def write_lists(folder: Path, summary: Summary, names: list[str]) -> list[Path]:
    """Names of features for programs that look for what they have in common.

    `.rnk` has a name and a score in each line, the highest first: the t statistic of the feature by itself
    (beside covariates, if there are any), positive where it is higher in the second class; of more than two
    classes there is a file for each, against all others. `.txt` has a name in each line.
    """
    folder.mkdir(parents=True, exist_ok=True)
    return [_write(folder / name, lines) for name, lines in _lists(summary, names)]


def _lists(summary: Summary, names: list[str]) -> Iterator[tuple[str, list[str]]]:
    sums = summary.class_sums
    assert sums is not None
    shown = [printable(name, longest=4096) for name in names]
    free = np.setdiff1d(np.arange(len(names)), np.asarray(summary.kept, dtype=np.intp))
    labels = [_in_file_names(k, label) for k, label in enumerate(summary.classes)]
    two = len(labels) == 2
    for k, label in enumerate(labels):
        if two and k == 0:
            continue  # the same list, from its end
        score = sums.t[free, k]
        ranked = free[np.lexsort((free, -score))]
        lines = [f"{shown[j]}\t{sums.t[j, k]:.6g}" for j in ranked]
        yield ("ranked.rnk" if two else f"ranked_{label}.rnk"), lines
    selected, differing = summary.selected(), summary.differing()
    surest = summary.inclusion
    if surest is not None:
        selected = selected[np.argsort(-surest[selected], kind="stable")]
    yield "selected.txt", [shown[j] for j in selected]
    yield "differing.txt", [shown[j] for j in differing]
    highest = sums.means[differing].argmax(axis=1)
    for k, label in enumerate(labels):
        yield f"higher_in_{label}.txt", [shown[j] for j in differing[highest == k]]
    yield "all.txt", [shown[j] for j in free]


def _in_file_names(k: int, label: Any) -> str:
    """A class in names of files, on every system: its position, and what of its label is harmless."""
    harmless = re.sub(r"[^0-9A-Za-z.-]+", "_", str(label)).strip("._")[:LONGEST_LABEL]
    return f"{k + 1}_{harmless}" if harmless else f"{k + 1}"


def _write(path: Path, lines: list[str]) -> Path:
    write_whole(path, "".join(f"{line}\n" for line in lines).encode(ENCODING, ERRORS))
    return path
