"""Do committed results still hold? Every study reruns a few cells of its grid, on the data it had then.

python -m benchmarks.check [--data DIR] [--only STUDY ...] [--minute]

A cell is what a page averages: the trials of a setting and a method. A check reruns some of its trials with
their own random numbers, so that most of the chance in them cancels. What is compared is the mean change of
these trials with the error of the committed mean: twice its standard error over all trials of the cell, or
a floor, where the cell has one trial or varies less than what a page shows. Beyond that a figure is missed.
The same code gives the same rows: a figure that moved and still holds was made before some change of code.
It is told, and fails with --strict. Seconds are never compared.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from benchmarks.studies import _common as common
from benchmarks.studies._real_data import add_data_option

STUDIES = Path(__file__).parent / "studies"
STANDARD_ERRORS = 2.0
# Of a floor. Other processors round otherwise.
MOVED = 0.1


class Check(NamedTuple):
    """What a study reruns, and what of it is compared with the committed rows.

    `rerun(data, minute)` yields rows as the study writes them, in a minute form only the quickest; it is not
    called if one of `files` is not in the folder of data. Of committed rows with one key, the last counts.
    """

    key: tuple[str, ...]  # the columns that name a row
    cell: tuple[str, ...]  # those of them that name what is averaged
    floors: dict[str, float]  # compared columns, and the differences that count for nothing
    rerun: Callable[[Path, bool], Iterator[dict[str, Any]]]
    files: tuple[str, ...] = ()
    results: str = "results.csv"


class Finding(NamedTuple):
    study: str
    cell: str
    column: str
    committed: float  # mean of the rows that were rerun, as committed
    now: float
    allowed: float
    floor: float

    @property
    def holds(self) -> bool:
        return abs(self.now - self.committed) <= self.allowed  # not if only one of them is a number

    @property
    def moved(self) -> bool:
        """Holds, but by more than what rounding does to the same fit of the same data."""
        return self.holds and abs(self.now - self.committed) > MOVED * self.floor

    @property
    def verdict(self) -> str:
        return "moved" if self.moved else "holds" if self.holds else "MISSED"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    add_data_option(parser, ["the files that studies name"])
    parser.add_argument("--only", nargs="+", choices=studies(), default=studies(), metavar="STUDY")
    parser.add_argument("--minute", action="store_true", help="the quickest cells, without data of others")
    parser.add_argument("--strict", action="store_true", help="fail also if a figure moved within its error")
    args = parser.parse_args(argv)
    findings: list[Finding] = []
    skipped = []
    for study in args.only:
        start = time.process_time()
        for check in checks(study):
            if check.files and (args.minute or not args.data or _lacks(Path(args.data), check.files)):
                skipped.append(f"{study} (needs {', '.join(check.files)})")
                continue
            findings += compared(study, check, Path(args.data or "."), args.minute)
        print(f"{study}: {time.process_time() - start:.1f} CPU s", file=sys.stderr, flush=True)
    print(table(findings))
    if skipped:
        print(f"\nNot checked: {'; '.join(skipped)}.")
    missed, moved = ([f for f in findings if f.verdict == verdict] for verdict in ("MISSED", "moved"))
    print(f"\n{len(findings)} figures; no longer hold: {_of(missed)}; moved: {_of(moved)}.")
    return 1 if missed or (args.strict and moved) else 0


def _of(findings: Sequence[Finding]) -> str:
    return (
        f"{len(findings)} ({', '.join(sorted({finding.study for finding in findings}))})" if findings else "0"
    )


def studies() -> list[str]:
    return sorted(path.parent.name for path in STUDIES.glob("*/results.csv"))


def checks(study: str) -> tuple[Check, ...]:
    return importlib.import_module(f"benchmarks.studies.{study}.check").CHECKS  # type: ignore[no-any-return]


def _lacks(folder: Path, files: Sequence[str]) -> bool:
    return not all((folder / name).exists() for name in files)


def compared(study: str, check: Check, data: Path, minute: bool) -> list[Finding]:
    committed = pd.read_csv(
        STUDIES / study / check.results,
        comment="#",
        dtype=dict.fromkeys(check.key, str),
        keep_default_na=True,
    ).drop_duplicates(list(check.key), keep="last")
    rows = [
        {name: str(common.rounded(value)) if name in check.key else value for name, value in row.items()}
        for row in check.rerun(data, minute)
    ]
    if not rows:
        return []
    both = pd.DataFrame(rows).merge(committed, on=list(check.key), suffixes=("_now", ""), validate="1:1")
    if len(both) < len(rows):
        raise ValueError(f"{study}: {len(rows) - len(both)} of {len(rows)} rerun rows were never committed")
    findings = []
    for names, rerun in both.groupby(list(check.cell), sort=False):
        cell = committed[(committed[list(check.cell)] == list(names)).all(axis=1)]
        for column, floor in check.floors.items():
            if f"{column}_now" not in rerun or rerun[[column, f"{column}_now"]].isna().all(axis=None):
                continue
            error = cell[column].sem() if len(cell) > 1 else 0.0
            means = (pd.to_numeric(rerun[name]).mean() for name in (column, f"{column}_now"))
            allowed = max(floor, STANDARD_ERRORS * error)
            findings.append(Finding(study, ", ".join(map(str, names)), column, *means, allowed, floor))
    return findings


def table(findings: Sequence[Finding]) -> str:
    rows = [
        [*finding[:3], *(f"{value:.4g}" for value in finding[3:6]), finding.verdict] for finding in findings
    ]
    return common.markdown(["study", "cell", "figure", "committed", "now", "allowed", "verdict"], rows)


if __name__ == "__main__":
    sys.exit(main())
