"""The table and the figure of the study of packaged tables, from its results.csv.

python -m benchmarks.studies.packaged_tables.plot
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pandas as pd

from benchmarks.studies import _common as common
from benchmarks.studies.large_tables import plot as large_tables
from benchmarks.studies.large_tables.plot import FOLDLESS, in_order
from benchmarks.studies.packaged_tables.data import TABLES

HEADER = [
    *("table, training rows x columns", "classes", "method", "splits", "error (s.e.)", "log loss (s.e.)"),
    *("LOO error", "LOO log loss", "differ at q = 0.1", "selected", "groups", "CPU seconds"),
]
MEANS = "mean of tables"

draw = partial(large_tables.draw, order=TABLES)


def report(folder: Path, order: Sequence[str] = TABLES) -> str:
    """Every table and method, then means over tables that all of two methods have; also in the README."""
    results = in_order(pd.read_csv(folder / "results.csv"), order)
    rows = []
    for (table, method), group in results.groupby(["table", "method"], sort=False):
        done = group[group.error.notna()]
        size = f"{table}, {group.n_train.max():.0f} x {group.n_features.max():.0f}" if len(done) else table
        rows.append(
            [
                size,
                common.mean_only(done.n_classes, 0),
                method,
                len(done),
                common.mean_and_error(done.error) or "; ".join(sorted(set(group.stopped.dropna()))),
                common.mean_and_error(done.log_loss),
                common.mean_only(done.loo_error, 3),
                common.mean_only(done.loo_log_loss, 3),
                *(common.mean_only(done[name], 1) for name in ("differ", "selected", "groups")),
                common.mean_only(done.cpu_seconds, 2),
            ]
        )
    text = common.markdown(HEADER, rows + _means(results))
    common.refresh_readme(folder, text)
    return text


def _means(results: pd.DataFrame) -> list[list[str]]:
    """foldless beside each rival, over the tables that it was run on."""
    of_tables = results.groupby(["method", "table"])[
        ["error", "log_loss", "loo_error", "loo_log_loss"]
    ].mean()
    rows = []
    for rival in results.method.unique():
        if rival == FOLDLESS or FOLDLESS not in of_tables.index:
            continue
        shared = of_tables.loc[rival].index.intersection(of_tables.loc[FOLDLESS].index)
        for method in (FOLDLESS, rival):
            mean = of_tables.loc[method].loc[shared].mean()
            figures = [f"{mean.error:.3f}", f"{mean.log_loss:.3f}"]
            promised = (
                [f"{mean.loo_error:.3f}", f"{mean.loo_log_loss:.3f}"] if method == FOLDLESS else ["", ""]
            )
            rows.append([f"{MEANS}, {len(shared)}", "", method, "", *figures, *promised, "", "", "", ""])
    return rows


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
