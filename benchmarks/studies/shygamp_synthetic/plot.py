"""The tables and the figure of the study of many classes, from its results.csv.

python -m benchmarks.studies.shygamp_synthetic.plot
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks.studies import _common as common
from benchmarks.studies.shygamp_synthetic.data import BAYES_ERROR

FOLDLESS = "foldless"
VARIED = {"M": "n_samples", "N": "n_features", "K": "n_active"}
# In this order in every table.
COLOURS = {
    FOLDLESS: "tab:blue",
    "adelie": "tab:red",
    "adelie, 10 penalties": "tab:orange",
    "saga L1": "tab:green",
    "MAP-SHyGAMP": "tab:purple",
    "MMSE-SHyGAMP": "tab:brown",
    "SBMLR": "tab:pink",
    "one-bit, one against the rest": "tab:grey",
    "genie, MMSE, single weights": "tab:olive",
    "genie, MMSE, rows": "tab:cyan",
}
# Small sizes are all fixed cost: growth shows in the largest ones.
LARGEST = 3


def report(folder: Path) -> str:
    """A table per sweep, and how time grows; also written into the README."""
    results = pd.read_csv(folder / "results.csv", keep_default_na=True)
    texts = [
        f"{title(group)}\n\n{_sweep(group, VARIED[str(sweep)])}"
        for sweep, group in results.groupby("sweep", sort=False)
    ]
    texts.append(f"Slopes of log time against log size, CPU seconds:\n\n{_slopes(results)}")
    text = "\n\n".join(texts)
    common.refresh_readme(folder, text)
    return text


def title(group: pd.DataFrame) -> str:
    sweep = str(group.sweep.iloc[0])
    fixed = [
        f"{letter} = {group[column].iloc[0]}"
        for letter, column in VARIED.items()
        if letter != sweep and group[column].nunique() == 1
    ]
    return f"Against {sweep} ({', '.join(fixed)}):"


def _sweep(group: pd.DataFrame, varied: str) -> str:
    rows = []
    for value in sorted(group[varied].unique()):
        for method in COLOURS:
            here = group[(group[varied] == value) & (group.method == method)]
            if here.empty:
                continue
            done = here[here.error.notna()]
            stopped = "; ".join(sorted(set(here.stopped.dropna())))
            error_ratio, time_ratio = _beside_foldless(group[group[varied] == value], method)
            rows.append(
                [
                    value,
                    method,
                    len(done),
                    common.mean_and_error(done.error) or stopped,
                    error_ratio,
                    common.mean_only(done.cpu_seconds, 2),
                    time_ratio,
                    common.mean_only(done.seconds, 2),
                    f"{common.mean_only(done.kept)} ({common.mean_only(done.kept_false)})"
                    if len(done)
                    else "",
                    _row_counts(done),
                ]
            )
    header = [
        next(letter for letter, column in VARIED.items() if column == varied),
        "method",
        "trials",
        "error (s.e.)",
        "error / ours",
        "CPU seconds",
        "time / ours",
        "wall seconds",
        "kept (false)",
        "K̂99 (K̂l0)",
    ]
    return common.markdown(header, rows)


def _row_counts(done: pd.DataFrame) -> str:
    """The thesis's counts of rows; earlier rows of foldless and its rivals have none."""
    counted = done[done.k99.notna()] if "k99" in done else done[:0]
    return f"{common.mean_only(counted.k99)} ({common.mean_only(counted.k_l0)})" if len(counted) else ""


def _beside_foldless(here: pd.DataFrame, method: str) -> tuple[str, str]:
    """Error and CPU time of a rival over those of foldless, in the trials that both finished."""
    if method == FOLDLESS:
        return "", ""
    both = _paired(here, method)
    if both.empty:
        return "", ""
    sums = both.sum()
    return (
        f"{sums.error_rival / sums.error_ours:.2f}",
        f"{sums.cpu_seconds_rival / sums.cpu_seconds_ours:.1f}",
    )


def _paired(here: pd.DataFrame, method: str) -> pd.DataFrame:
    columns = ["error", "cpu_seconds"]
    by_trial = here[here.error.notna()].set_index("trial")
    ours = by_trial.loc[by_trial.method == FOLDLESS, columns]
    rival = by_trial.loc[by_trial.method == method, columns]
    return rival.join(ours, how="inner", lsuffix="_rival", rsuffix="_ours")


def _slopes(results: pd.DataFrame) -> str:
    rows = []
    for method in COLOURS:
        done = results[(results.method == method) & results.error.notna()]
        slopes = [
            slope(done[done.sweep == sweep], VARIED[sweep], largest)
            for sweep in ("M", "N")
            for largest in (None, LARGEST)
        ]
        rows.append([method, *(f"{value:.2f}" if np.isfinite(value) else "" for value in slopes)])
    header = [f"in {sweep}, {which}" for sweep in "MN" for which in ("all sizes", f"the {LARGEST} largest")]
    return common.markdown(["method", *header], rows)


def slope(group: pd.DataFrame, varied: str, largest: int | None = None) -> float:
    """Least squares through mean times of the largest sizes on logarithmic axes; 1 is linear growth."""
    mean = group.groupby(varied).cpu_seconds.mean()
    if len(mean) < (largest or 2):
        return float("nan")
    mean = mean.iloc[-largest:] if largest else mean
    return float(np.polyfit(np.log(mean.index.to_numpy(float)), np.log(mean.to_numpy()), 1)[0])


def draw(folder: Path) -> None:
    """figure.png: error above and time below, against M, N and K."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = pd.read_csv(folder / "results.csv")
    sweeps = [sweep for sweep in VARIED if (results.sweep == sweep).any()]
    figure, panels = plt.subplots(
        2, len(sweeps), figsize=(4 * len(sweeps), 6.5), layout="constrained", squeeze=False
    )
    for (error_axes, time_axes), sweep in zip(panels.T, sweeps, strict=True):
        group = results[(results.sweep == sweep) & results.error.notna()]
        for method, color, mean, error in _curves(group, VARIED[sweep], "error"):
            error_axes.errorbar(mean.index, mean, error, marker="o", capsize=2, color=color, label=method)
        for method, color, mean, error in _curves(group, VARIED[sweep], "cpu_seconds"):
            time_axes.errorbar(mean.index, mean, error, marker="o", capsize=2, color=color, label=method)
        error_axes.axhline(BAYES_ERROR, color="grey", linestyle=":", label="Bayes")
        error_axes.set(ylabel="test error", title=title(group).rstrip(":"))
        time_axes.set(ylabel="CPU seconds, tuning included", yscale="log", xlabel=sweep)
        for axes in (error_axes, time_axes):
            axes.set_xscale("linear" if sweep == "K" else "log")
    # A rival may be missing from a panel, so the legend is gathered from all.
    lines = {
        name: line for axes in panels[0] for line, name in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    panels[0, 0].legend(lines.values(), lines.keys(), fontsize=8)
    figure.savefig(folder / "figure.png", dpi=130)
    plt.close(figure)


def _curves(group: pd.DataFrame, varied: str, column: str) -> Iterator[tuple[str, str, Any, Any]]:
    """Means and standard errors of every method, in the same colour in every panel."""
    for method, colour in COLOURS.items():
        values = group[group.method == method].groupby(varied)[column]
        if len(values):
            yield method, colour, values.mean(), values.sem().fillna(0)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
