"""The table and the figure of the study of small real data, from its results.csv.

python -m benchmarks.studies.small_real.plot
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.studies import _common as common


def report(folder: Path) -> str:
    """One table per data set; also written into the README."""
    results = pd.read_csv(folder / "results.csv")
    parts = []
    for data, group in results.groupby("data", sort=False):
        n_splits = group.split.nunique()
        parts.append(f"{data}, {n_splits} split{'s' if n_splits > 1 else ''}:\n\n{_table(group)}")
    text = "\n\n".join(parts)
    common.refresh_readme(folder, text)
    return text


def _table(results: pd.DataFrame) -> str:
    rows = [
        [
            method,
            common.mean_and_error(group.error),
            common.mean_and_error(group.log_loss),
            common.mean_only(group.seconds, 2),
            common.mean_only(group.kept),
            common.mean_only(group.kept_fdr),
            common.mean_only(group.generative_weight, 2),
            common.mean_only(group.loo_error, 3),
            common.mean_only(group.loo_log_loss, 3),
        ]
        for method, group in results.groupby("method", sort=False)
    ]
    header = [
        "method",
        "error (s.e.)",
        "log loss (s.e.)",
        "seconds",
        "kept",
        "at FDR 0.1",
        "gen. weight",
        "LOO error",
        "LOO log loss",
    ]
    return common.markdown(header, rows)


def draw(folder: Path) -> None:
    """figure.png: error against seconds, one panel per data set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = pd.read_csv(folder / "results.csv")
    names = list(dict.fromkeys(results.data))
    figure, panels = plt.subplots(1, len(names), figsize=(11, 4), layout="constrained", squeeze=False)
    for axes, data in zip(panels[0], names, strict=True):
        for method, group in results[results.data == data].groupby("method", sort=False):
            marker = "s" if method.startswith("liblinear") else "o"
            bar = 0.0 if len(group) == 1 else group.error.sem()
            seconds, error = group.seconds.mean(), group.error.mean()
            axes.errorbar(seconds, error, bar, marker=marker, capsize=2, label=method)
        axes.set(title=data, xlabel="seconds, tuning included", ylabel="test error", xscale="log")
        axes.legend(fontsize=7)
    figure.savefig(folder / "figure.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
