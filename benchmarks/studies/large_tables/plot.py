"""The table and the figure of the study of large tables, from its results.csv.

python -m benchmarks.studies.large_tables.plot
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.studies import _common as common
from benchmarks.studies.large_tables.data import TABLES

FOLDLESS = "foldless"


def report(folder: Path) -> str:
    """Every table and method; also written into the README."""
    results = in_order(pd.read_csv(folder / "results.csv"))
    rows = []
    for (table, method), group in results.groupby(["table", "method"], sort=False):
        done = group[group.error.notna()]
        size = f"{table}, {group.n_train.max():.0f} x {group.n_features.max():.0f}" if len(done) else table
        rows.append(
            [
                size,
                method,
                len(done),
                common.mean_and_error(done.error) or "; ".join(sorted(set(group.stopped.dropna()))),
                common.mean_and_error(done.log_loss),
                common.mean_only(done.loo_error, 3),
                common.mean_only(done.loo_log_loss, 3),
                common.mean_only(done.sparse_weight, 2),
                common.mean_only(done.cpu_seconds, 1),
            ]
        )
    header = [
        "table, training rows x columns",
        "method",
        "trials",
        "error (s.e.)",
        "log loss (s.e.)",
        "LOO error",
        "LOO log loss",
        "sparse model's weight",
        "CPU seconds",
    ]
    text = common.markdown(header, rows)
    common.refresh_readme(folder, text)
    return text


def in_order(results: pd.DataFrame, tables: Iterable[str] = TABLES) -> pd.DataFrame:
    """Table by table, whenever they were measured; foldless first."""
    order = {name: place for place, name in enumerate((*tables, FOLDLESS))}
    last = len(order)
    return results.sort_values(
        ["table", "method"], key=lambda names: names.map(lambda name: order.get(name, last)), kind="stable"
    )


def draw(folder: Path, order: Iterable[str] = TABLES) -> None:
    """figure.png: errors and log losses of all methods, and what leave-one-out promised."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = in_order(pd.read_csv(folder / "results.csv"), order)
    results = results[results.error.notna()]
    tables = list(dict.fromkeys(results.table))
    height = 1.4 + 0.4 * len(tables)
    figure, axes = plt.subplots(1, 2, figsize=(11, height), layout="constrained", sharey=True)
    for axis, column, promised in zip(
        axes, ("error", "log_loss"), ("loo_error", "loo_log_loss"), strict=True
    ):
        for method in dict.fromkeys(results.method):
            means = results[results.method == method].groupby("table")[[column, promised]].mean()
            places = [tables.index(table) for table in means.index]
            axis.plot(means[column], places, "s" if method == FOLDLESS else "o", label=method, alpha=0.8)
            if method == FOLDLESS:
                axis.plot(means[promised], places, "k|", markersize=14, label="leave-one-out")
        axis.set(xlabel=column.replace("_", " "), xlim=(0, None))
        axis.grid(axis="y", alpha=0.3)
    axes[0].set_yticks(np.arange(len(tables)), tables)
    axes[0].invert_yaxis()
    axes[1].legend(fontsize=8)
    figure.savefig(folder / "figure.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
