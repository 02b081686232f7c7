"""The tables of README.md, and the picture of growth, from the csv files beside it.

python -m benchmarks.scale.report
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.scale.growth import LARGE
from benchmarks.studies import _common as common

HERE = Path(__file__).parent


def main() -> None:
    text = (HERE / "README.md").read_text()
    for name, table in TABLES.items():
        if not (HERE / f"{name}.csv").exists():
            continue
        begins, ends = f"<!-- table of {name}.csv -->", f"<!-- end of {name}.csv -->"
        before, _, rest = text.partition(begins)
        after = rest.partition(ends)[2]
        rows = pd.read_csv(HERE / f"{name}.csv")
        text = f"{before}{begins}\n{table(rows)}\n{ends}{after}"
    (HERE / "README.md").write_text(text)
    if (HERE / "growth.csv").exists():
        draw_growth(pd.read_csv(HERE / "growth.csv"), HERE / "growth.png")


def dense(rows: pd.DataFrame) -> str:
    header = (
        *("table", "X", "one pass, ms", "iteration, ms", "with 2 threads", "EM, ms"),
        *("iteration / pass", "2 threads", "with EM", "memory of a fit / X"),
    )
    return common.markdown(
        header,
        [
            (
                f"{row.samples} x {row.features}",
                f"{row.dtype}, {row.order}",
                f"{row.pass_ms:.1f}",
                f"{row.step_ms:.1f}",
                f"{row.step_2_threads_ms:.1f}",
                f"{row.tune_ms:.1f}",
                f"{row.step_ratio:.2f}",
                f"{row.step_ratio_2_threads:.2f}",
                f"{row.ratio:.2f}",
                f"{row.extra:.2f}",
            )
            for row in rows.itertuples()
        ],
    )


def growth(rows: pd.DataFrame) -> str:
    return common.markdown(
        ("what grows", "from", "to", "slope", f"slope from {LARGE:.0e} entries"),
        [
            (
                grows,
                f"{group.samples.iloc[0]} x {group.features.iloc[0]}, {group.iteration_ms.iloc[0]:.1f} ms",
                f"{group.samples.iloc[-1]} x {group.features.iloc[-1]}, {group.iteration_ms.iloc[-1]:.0f} ms",
                f"{slope(group):.2f}",
                f"{slope(group[group.entries >= LARGE]):.2f}",
            )
            for grows, group in rows.groupby("grows")
        ],
    )


def slope(group: pd.DataFrame) -> float:
    return float(np.polyfit(np.log(group.entries), np.log(group.iteration_ms), 1)[0])


def wide(rows: pd.DataFrame) -> str:
    return common.markdown(
        (
            *("", "seconds", "CPU seconds", "iterations", "over all features"),
            *("memory beyond its X / 4-byte X", "of 10 found", "kept", "leave-one-out loss"),
        ),
        [
            (
                row.what,
                f"{row.seconds:.1f}",
                f"{row.cpu_seconds:.1f}",
                *("" if np.isnan(n) else f"{n:.0f}" for n in (row.n_iter, row.n_whole)),
                f"{row.extra:.2f}",
                f"{row.found:.0f}",
                f"{row.kept:.0f}",
                "" if np.isnan(row.loo_log_loss) else f"{row.loo_log_loss:.4f}",
            )
            for row in rows.itertuples()
            if np.isfinite(row.seconds)
        ],
    )


def cold_start(rows: pd.DataFrame) -> str:
    return common.markdown(("", "seconds"), [(row.what, f"{row.seconds:.3f}") for row in rows.itertuples()])


TABLES: dict[str, Callable[[pd.DataFrame], str]] = {
    "dense": dense,
    "growth": growth,
    "wide": wide,
    "cold_start": cold_start,
}


def draw_growth(rows: pd.DataFrame, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 3.6), layout="constrained")
    for grows, group in rows.groupby("grows"):
        axes.loglog(group.entries, group.iteration_ms, "o-", label=f"more {grows}")
    largest = rows.loc[rows.entries.idxmax()]
    entries = np.array([1e6, 1e9])
    axes.loglog(entries, largest.iteration_ms * entries / largest.entries, "k:", label="in proportion")
    axes.set(xlabel="entries of X", ylabel="an iteration, ms")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main()
