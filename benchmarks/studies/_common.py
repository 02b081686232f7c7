"""What all studies share: options, timing, a CSV that survives interruption, the machine, tables."""

from __future__ import annotations

import argparse
import csv
import datetime
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import pandas as pd
from threadpoolctl import threadpool_info

PACKAGES = ("foldless", "numpy", "scipy", "scikit-learn", "celer", "adelie")
ROOT = Path(__file__).parents[2]
# The last columns of every results.csv: the revision of the package that measured a row, and the day.
PROVENANCE = ("commit", "date")
# A study's README holds its table between these marks, so that it cannot drift from the CSV.
TABLE_BEGINS, TABLE_ENDS = "<!-- table from results.csv -->", "<!-- end of table -->"


def options(description: str, trials: int) -> argparse.ArgumentParser:
    """The options that every study has."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--trials", type=int, default=trials, help=f"repetitions (default {trials})")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that everything runs")
    parser.add_argument("--out", type=Path, help="folder for results; the study's own, if not quick")
    return parser


def output_folder(given: Path | None, study: Path, quick: bool) -> Path:
    """Where to write: a quick run never overwrites the committed results."""
    folder = given or (Path(tempfile.mkdtemp(prefix=f"{study.name}_")) if quick else study)
    folder.mkdir(parents=True, exist_ok=True)
    return folder


class Timed(NamedTuple):
    """A result, the wall-clock seconds it took, and what was warned of meanwhile."""

    result: Any
    seconds: float
    warned: str


def timed(call: Callable[[], Any]) -> Timed:
    """Call, with a clock. Warnings are collected: a study records them, it does not scroll them by."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        start = time.perf_counter()
        result = call()
        seconds = time.perf_counter() - start
    kinds = sorted({w.category.__name__ for w in caught})
    return Timed(result, seconds, " ".join(kinds))


class Results:
    """results.csv, a row at a time: what was measured before an interruption is kept."""

    def __init__(self, folder: Path, columns: Sequence[str], name: str = "results.csv") -> None:
        self.path = folder / name
        self._columns = [*columns, *PROVENANCE]
        self._here = {"commit": commit(), "date": _now().strftime("%Y-%m-%d")}

    def __enter__(self) -> Self:
        self._file = self.path.open("w", newline="")
        self._writer = csv.DictWriter(self._file, self._columns, restval="")
        self._writer.writeheader()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, **row: Any) -> None:
        """A row that was measured now, or with its own `commit` and `date` (`read_rows`) one that stays."""
        self._writer.writerow({name: rounded(value) for name, value in (self._here | row).items()})
        self._file.flush()


def rounded(value: Any) -> Any:
    """As results.csv has it."""
    return f"{value:.6g}" if isinstance(value, float) else value


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows of an earlier run, each with the commit and the day that made it; none if there is no file.

    Rows older than these columns have those of the commit that put them into the repository.
    """
    if not path.exists():
        return []
    with path.open(newline="") as file:
        lines = [(n, line) for n, line in enumerate(file, start=1) if not line.startswith("#")]
    rows = list(csv.DictReader(line for _, line in lines))
    missing = [row.get("commit") in (None, "", "unknown") for row in rows]
    blamed = _blamed(path) if any(missing) else {}
    for (number, _), row, lacks in zip(lines[1:], rows, missing, strict=True):
        if lacks:
            row.update(zip(PROVENANCE, blamed.get(number, ("", "")), strict=True))
    return rows


def _blamed(path: Path) -> dict[int, tuple[str, str]]:
    """Commit and day of each line; nothing of lines that are not committed."""
    found, number, sha = {}, 0, ""
    for line in git("blame", "--line-porcelain", "--", str(path)).splitlines():
        words = line.split(" ")
        if len(words) > 2 and len(words[0]) == 40 and not line.startswith("\t"):
            sha, number = words[0], int(words[2])
        elif words[0] == "committer-time" and sha.strip("0"):
            day = datetime.datetime.fromtimestamp(int(words[1]), datetime.UTC)
            found[number] = (sha[:7], day.strftime("%Y-%m-%d"))
    return found


def commit() -> str:
    """The last commit of the package itself, with + if it has been changed since."""
    changed = git("status", "--porcelain", "--", "src/foldless")
    # Seven digits, however many git would take in a repository of this size.
    return (git("log", "-1", "--format=%H", "--", "src/foldless")[:7] or "unknown") + ("+" if changed else "")


def git(*words: str) -> str:
    """What it answers; nothing where there is no repository."""
    try:
        return subprocess.run(
            ["git", *words], cwd=ROOT, capture_output=True, text=True, check=False
        ).stdout.strip()
    except OSError:
        return ""


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


def write_machine(folder: Path, **settings: Any) -> None:
    """machine.json beside the results: whose seconds these are."""
    about = {
        "date": _now().strftime("%Y-%m-%d %H:%M UTC"),
        "commit": commit(),
        "command": " ".join(["python", "-m", _module_name(), *map(_anywhere, sys.argv[1:])]),
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        # Seconds of a busy machine are not comparable; the load before the start shows whether it was.
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "threads": {Path(pool["filepath"]).name: pool["num_threads"] for pool in threadpool_info()},
        "system": platform.platform(),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "settings": settings,
    }
    (folder / "machine.json").write_text(json.dumps(about, indent=2) + "\n")


def _anywhere(argument: str) -> str:
    """Folders of one machine mean nothing on another."""
    return "DIR" if os.sep in argument else argument


def _module_name() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec.name if spec else sys.argv[0]


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def mean_and_error(values: pd.Series, digits: int = 3) -> str:
    """'0.053 (0.001)': the mean and its standard error; '' if nothing was measured."""
    values = values.dropna()
    if values.empty:
        return ""
    mean = f"{values.mean():.{digits}f}"
    return mean if len(values) == 1 else f"{mean} ({values.sem():.{digits}f})"


def mean_only(values: pd.Series, digits: int = 1) -> str:
    values = values.dropna()
    return "" if values.empty else f"{values.mean():.{digits}f}"


def markdown(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """A Markdown table whose columns also line up in a terminal."""
    cells = [[str(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    cells.insert(1, ["-" * width for width in widths])
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    return "\n".join(f"| {' | '.join(row)} |" for row in padded)


def redraw(study: Path, report: Callable[[Path], str], draw: Callable[[Path], None]) -> None:
    """Tables and figures again, of the study's own results.csv or of that in the folder named."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else study
    print(report(folder))
    draw(folder)


def refresh_readme(folder: Path, table: str, source: str = "results.csv") -> None:
    """Put the table between the marks of the README, if the results are the study's own."""
    readme = folder / "README.md"
    if not readme.exists():
        return
    text = readme.read_text()
    begins = TABLE_BEGINS.replace("results.csv", source)
    before, _, rest = text.partition(begins)
    _, _, after = rest.partition(TABLE_ENDS)
    readme.write_text(f"{before}{begins}\n{table}\n{TABLE_ENDS}{after}")
