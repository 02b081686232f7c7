"""The table and the figure of the Bayes point study, from its results.csv.

python -m benchmarks.studies.bayes_point_table1.plot
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import ttest_rel, wilcoxon

from benchmarks.studies import _common as common

METHODS = ["SVM", "EP", "knapsack", "knapsack, β = ∞"]
# The former default, the inner loop alone and at most 20 sweeps; its rows stay for comparison.
FORMER = ["knapsack, inner loop", "knapsack, inner loop, β = ∞"]
# Error in per cent, as printed in table 1 of the paper.
SETS = ["liver", "sonar", "heart", "contraceptive", "pima", "australian", "breast"]
PAPER = {
    "SVM": [31.93, 24.18, 16.05, 32.10, 23.02, 13.56, 3.26],
    "EP": [32.60, 23.21, 16.25, 32.49, 23.15, 13.32, 3.24],
    "knapsack": [30.52, 21.74, 15.60, 31.66, 23.74, 13.00, 3.11],
    "knapsack, β = ∞": [32.88, 24.39, 15.84, 32.08, 23.93, 15.06, 4.35],
}


def errors(folder: Path, methods: Sequence[str] = (*METHODS, *FORMER)) -> pd.DataFrame:
    """Per cent; a row per (data, split), a column per method; of splits that all sets and methods have."""
    results = pd.read_csv(folder / "results.csv")
    results = results[results.method.isin(methods)]
    table = results.pivot_table(index=["data", "split"], columns="method", values="error") * 100
    table = table.dropna()
    sets_of_split = table.groupby("split").size()
    whole = sets_of_split.index[sets_of_split == results.data.nunique()]
    table = table[table.index.get_level_values("split").isin(whole)]
    return table[[m for m in methods if m in table]]


def report(folder: Path) -> str:
    """Errors with standard errors, the paper's below; then paired tests of the knapsack."""
    table = errors(folder)
    text, names = _means(table), _names(table)
    text += "\n\n" + common.markdown(["paired", *names, "all sets"], _tests(table, names))
    longer = errors(folder, ["SVM", "EP", *FORMER])
    if len(longer) > len(table) and set(FORMER) & set(longer):
        text += f"\n\nThe former default on all splits that it has:\n\n{_means(longer)}"
    common.refresh_readme(folder, text)
    return text


def _names(table: pd.DataFrame) -> list[str]:
    return [name for name in SETS if name in table.index.get_level_values("data")]


def _means(table: pd.DataFrame) -> str:
    names, rows = _names(table), []
    for method in table:
        own = [table.loc[name, method] for name in names]
        rows.append(
            [method, *(common.mean_and_error(e, 2) for e in own), f"{np.mean([e.mean() for e in own]):.2f}"]
        )
        if method in PAPER:
            paper = [PAPER[str(method)][SETS.index(name)] for name in names]
            rows.append(["paper", *(f"{e:.2f}" for e in paper), f"{np.mean(paper):.2f}"])
    rows.append(["splits", *(str(len(table.loc[name])) for name in names), ""])
    return common.markdown(["error % (s.e.)", *names, "mean"], rows)


def _tests(table: pd.DataFrame, names: list[str]) -> list[list[str]]:
    """Mean difference to the knapsack, its standard error, and p of Student's and Wilcoxon's paired tests."""
    rows = []
    for method in [m for m in table if m != "knapsack"]:
        difference = table[method] - table["knapsack"]
        cells = [_tested(difference.loc[name]) for name in names]
        # Sets are averaged split by split, so that the seven count alike.
        by_split = difference.unstack("data")[names].dropna().mean(axis=1)
        rows.append([f"{method} − knapsack", *cells, _tested(by_split)])
    return rows


def _tested(difference: pd.Series) -> str:
    text = f"{difference.mean():+.2f} ({difference.sem():.2f})"
    if len(difference) < 5 or not np.any(difference):
        return text
    t, w = ttest_rel(difference, 0 * difference).pvalue, wilcoxon(difference).pvalue
    return f"{text} p = {t:.2g}, {w:.2g}"


def draw(folder: Path) -> None:
    """figure.png: ours against the paper's, a point per method and set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    table = errors(folder, METHODS)
    names = _names(table)
    figure, panels = plt.subplots(1, len(names), figsize=(2 * len(names) + 1, 3.4), layout="constrained")
    for axes, name in zip(np.atleast_1d(panels), names, strict=True):
        own = table.loc[name]
        place = np.arange(len(table.columns))
        axes.errorbar(place, own.mean(), own.sem().fillna(0.0), fmt="o", color="C0", label="foldless")
        paper = [PAPER[str(m)][SETS.index(name)] for m in table]
        axes.plot(place, paper, "x", color="C1", label="paper")
        axes.set_xticks(place, [str(m).replace("knapsack", "knap.") for m in table], rotation=60, fontsize=7)
        axes.set_title(name, fontsize=9)
        axes.margins(0.15)
    first = np.atleast_1d(panels)[0]
    first.set_ylabel("error, %")
    first.legend(fontsize=7)
    figure.savefig(folder / "figure.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
