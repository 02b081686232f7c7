"""Tables VIII to X of the GAMP paper from results.csv, ours beside the published ones.

python -m benchmarks.studies.gamp_tables.plot
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.studies import _common as common

L1 = "L1 by liblinear, by folds"
# Published: error in % and density in %; of table X means over the pairs, of L1 those of TFOCS.
PUBLISHED: dict[str, dict[str, tuple[float, float]]] = {
    "VIII": {
        "sum-product, spike and slab, probit": (2.6, 8.6),
        "sum-product, spike and slab, hinge": (2.7, 8.9),
        "max-sum, L1, learnt": (2.4, 9.8),
        "max-sum, L1, by folds": (2.4, 19.6),
        L1: (2.3, 10.9),
        "one-bit, by folds": (9.9, 1.3),
    },
    "IX": {
        "sum-product, spike and slab, probit": (4.5, 7.4),
        "sum-product, spike and slab, hinge": (4.9, 3.1),
        "max-sum, L1, learnt": (4.4, 1.8),
        "max-sum, L1, by folds": (4.5, 4.6),
        L1: (4.5, 5.0),
        "one-bit, by folds": (10.3, 0.8),
    },
    "X": {
        "sum-product, spike and slab, logistic": (11.4, 0.01),
        "max-sum, L1, learnt": (10.4, 0.06),
        L1: (10.1, 0.11),
        "one-bit, by folds": (10.9, 0.12),
    },
}
CONSISTENCY = {
    "sum-product, spike and slab, logistic": 62,
    "max-sum, L1, learnt": 53,
    L1: 37,
    "one-bit, by folds": 60,
}


def results_of(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "results.csv")


def by_table(results: pd.DataFrame, table: str) -> pd.DataFrame:
    """A row for each method: percents, pairs of objects averaged, seconds added up."""
    groups = results[results.table == table].groupby("method", sort=False)
    means = 100.0 * groups[["error", "density", "consistency"]].mean()
    return means.assign(seconds=groups.cpu_seconds.sum(), tested=groups.tested.sum())


def beyond_l1(own: pd.DataFrame) -> pd.DataFrame:
    """Points of error beyond L1's, with the standard error of a difference between as many independent tests.

    Tests are shared, so this is an upper bound.
    """
    share = own.error / 100.0
    var = share * (1.0 - share) / own.tested
    return pd.DataFrame(
        {"points": own.error - own.error[L1], "error": 100.0 * np.sqrt(var + var[L1])}, index=own.index
    )


def report(folder: Path) -> str:
    results = results_of(folder)
    parts = [_text(results, table) for table in ("VIII", "IX")]
    parts += [_pairs(results), _mean_of_pairs(results)]
    text = "\n\n".join(parts)
    common.refresh_readme(folder, text)
    return text


def _text(results: pd.DataFrame, table: str) -> str:
    own = by_table(results, table)
    task = results.task[results.table == table].iloc[0]
    rows = [
        [
            method,
            *_pair(PUBLISHED[table].get(str(method))),
            f"{one.error:.1f}",
            f"{one.density:.2f}",
            f"{one.seconds:.1f}",
        ]
        for method, one in own.iterrows()
    ]
    header = ["method", "published, error %", "density %", "ours, error %", "density %", "CPU seconds"]
    return f"Table {table}, {task} ({own.tested.iloc[0]} predicted):\n\n{common.markdown(header, rows)}"


def _pair(published: tuple[float, float] | None) -> list[str]:
    return ["", ""] if published is None else [f"{published[0]:.1f}", f"{published[1]:g}"]


def _pairs(results: pd.DataFrame) -> str:
    errors = 100.0 * results[results.table == "X"].pivot_table(
        index="task", columns="method", values="error", sort=False
    )
    rows = [[task, *(f"{value:.1f}" for value in one)] for task, one in errors.iterrows()]
    return f"Table X, error % by pair:\n\n{common.markdown(['pair', *errors.columns], rows)}"


def _mean_of_pairs(results: pd.DataFrame) -> str:
    rows = []
    for method, one in by_table(results, "X").iterrows():
        consistency = CONSISTENCY.get(str(method))
        rows.append(
            [
                method,
                *_pair(PUBLISHED["X"].get(str(method))),
                "" if consistency is None else str(consistency),
                f"{one.error:.1f}",
                f"{one.density:.1f}",
                f"{one.consistency:.0f}",
                f"{one.seconds:.0f}",
            ]
        )
    header = ["method", "published, error %", "density %", "consistency %"]
    header += ["ours, error %", "density %", "consistency %", "CPU seconds"]
    return f"Table X, means of the pairs, seconds of all fits:\n\n{common.markdown(header, rows)}"


if __name__ == "__main__":
    report(Path(__file__).parent)
