"""The table of results.csv: our seconds, the rivals', their ratio, and whether it is within its bar.

python -m benchmarks.peers.cross_validation.report [REVISION]
"""

from __future__ import annotations

import sys
from pathlib import Path

import pandas as pd

from benchmarks.peers.cross_validation.tables import TABLES
from benchmarks.studies import _common as common

FOLDLESS = "foldless"
RIVALS = ("L1, liblinear", "ridge, lbfgs", "ridge, liblinear", "ridge, newton-cholesky")


def report(folder: Path, revision: str | None = None) -> str:
    """One row a table, of the revision named or of that measured last; also written into the README."""
    results = pd.read_csv(folder / "results.csv", keep_default_na=False)
    ours = results[results.method == FOLDLESS]
    revision = revision or (ours.revision.iloc[-1] if len(ours) else "")
    # At equal pace: rows of a busy hour beside rows of a quiet one.
    usual = results.pace.median()
    results["paced"] = results.cpu_seconds * usual / results.pace
    rows = []
    for name, group in results.groupby("table", sort=False):
        bar = TABLES[name].bar
        lasso = group[group.method.str.startswith("L1")]
        ridge = group[group.method.str.startswith("ridge")].sort_values("paced")[:1]
        fit = group[(group.method == FOLDLESS) & (group.revision == revision)]
        rival = min([*lasso.paced, *ridge.paced], default=float("nan"))
        our = fit.paced.min()
        about = group.iloc[0]
        rows.append(
            [
                name,
                f"{about.samples} x {about.features}, {about.classes}",
                _seconds(our),
                _seconds(lasso.paced.min()),
                _seconds(ridge.paced.min()),
                "".join(method.removeprefix("ridge, ") for method in ridge.method),
                f"{our / rival:.2f}" if our == our and rival == rival else "",
                str(bar),
                ("yes" if bar.met(our, rival) else "no") if our == our and rival == rival else "",
                "".join(fit.outcome),
            ]
        )
    header = [
        "table",
        "size, classes",
        f"foldless ({revision})",
        "L1-CV",
        "ridge-CV",
        "its solver",
        "ratio",
        "bar",
        "met",
        "outcome",
    ]
    met = [row[8] for row in rows if row[8]]
    text = f"{common.markdown(header, rows)}\n\n{met.count('yes')} of {len(met)} within their bars."
    common.refresh_readme(folder, text)
    return text


def _seconds(value: float) -> str:
    return f"{value:.3g}" if value == value else ""


if __name__ == "__main__":
    print(report(Path(__file__).parent, *sys.argv[1:2]))
