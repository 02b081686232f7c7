"""The tables and the figure of the study of real data of many classes, from its results.csv.

python -m benchmarks.studies.many_classes.plot
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.studies import _common as common

FOLDLESS, RIDGE = "foldless", "ridge"
METHODS = (FOLDLESS, RIDGE, "L1")


def report(folder: Path) -> str:
    """Every data set, then the means of all; also written into the README."""
    results = pd.read_csv(folder / "results.csv")
    text = f"Every data set:\n\n{_each(results)}\n\n{_overall(results)}"
    common.refresh_readme(folder, text)
    return text


def _each(results: pd.DataFrame) -> str:
    rows = []
    for data in dict.fromkeys(results.data):
        for method in METHODS:
            group = results[(results.data == data) & (results.method == method)]
            if group.empty:
                continue
            first = group.iloc[0]
            rows.append(
                [
                    f"{data}, {first.n_classes} classes, {first.n_train} x {first.n_features}",
                    method,
                    len(group),
                    common.mean_and_error(group.error),
                    common.mean_and_error(group.log_loss),
                    common.mean_only(group.kept),
                    common.mean_only(group.cpu_seconds, 2),
                    common.mean_only(group.loo_error, 3),
                ]
            )
    header = [
        "data, training rows x columns",
        "method",
        "splits",
        "error (s.e.)",
        "log loss (s.e.)",
        "kept",
        "CPU seconds",
        "LOO error",
    ]
    return common.markdown(header, rows)


def _overall(results: pd.DataFrame) -> str:
    """Means over data sets of the means over splits, beside each rival on the splits that both saw."""
    rows = []
    for rival in METHODS[1:]:
        both = paired(results, rival)
        if both.empty:
            continue
        means = both.groupby("data").mean().mean()
        rows.append(
            [
                rival,
                both.index.get_level_values("data").nunique(),
                len(both),
                f"{means.error_ours:.4f}",
                f"{means.error_rival:.4f}",
                f"{means.log_loss_ours:.4f}",
                f"{means.log_loss_rival:.4f}",
                f"{both.cpu_seconds_rival.sum() / both.cpu_seconds_ours.sum():.2f}",
            ]
        )
    if not rows:
        return "No split was seen by foldless and a rival."
    header = ["rival", "data sets", "splits", "error, foldless", "error, rival"]
    header += ["log loss, foldless", "log loss, rival", "time ratio"]
    table = common.markdown(header, rows)
    return (
        "Means over data sets, on the splits that both saw; the time ratio is the rival's CPU seconds over "
        f"those of foldless:\n\n{table}"
    )


def paired(results: pd.DataFrame, rival: str) -> pd.DataFrame:
    """A row for every split that foldless and the rival saw."""
    by_split = results.set_index(["data", "split"])
    columns = ["error", "log_loss", "cpu_seconds"]
    ours, others = (by_split.loc[by_split.method == name, columns] for name in (FOLDLESS, rival))
    return ours.join(others, how="inner", lsuffix="_ours", rsuffix="_rival")


def draw(folder: Path) -> None:
    """figure.png: error and log loss of every data set."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = pd.read_csv(folder / "results.csv")
    names = list(dict.fromkeys(results.data))
    figure, panels = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
    for axes, column, title in zip(panels, ("error", "log_loss"), ("Test error", "Log loss"), strict=True):
        for shift, method in zip((-0.25, 0.0, 0.25), METHODS, strict=True):
            groups = results[results.method == method].groupby("data")[column]
            mean, error = groups.mean().reindex(names), groups.sem().reindex(names).fillna(0)
            where = [index + shift for index in range(len(names))]
            axes.bar(where, mean, width=0.24, yerr=error, capsize=2, label=method)
        axes.set_xticks(range(len(names)), names, rotation=30)
        axes.set_title(title)
    panels[0].legend(fontsize=8)
    figure.savefig(folder / "figure.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
