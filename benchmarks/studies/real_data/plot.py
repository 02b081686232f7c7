"""The tables and the figure of the study of real data, from its results.csv.

python -m benchmarks.studies.real_data.plot
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.studies import _common as common
from benchmarks.studies.real_data.data import PAIRS, TABLES

METHODS = ("foldless", "L1", "ridge", "SVM", "centroids")
# Those that choose features; the others keep every one.
SELECTORS = ("foldless", "L1", "centroids")
ORDER = (*TABLES, *("/".join(pair) for pair in PAIRS), "rcv1_small")
# The bars: errors of 360, per cent, errors of 34, per cent of each pair (those of a linear SVM).
MOST_ERRORS_SMLR, MARGIN_TO_BEST_RIVAL = 52, 3
MOST_PER_CENT_SBC = 15.5
MOST_ERRORS_LEUKEMIA = 1
MOST_PER_CENT_HAXBY = {"face/house": 2.8, "face/cat": 18.1, "cat/scissors": 22.2}
# Where there are more features than this, one fit may take this share of the time of cross-validated L1.
WIDE, MOST_TIME_SHARE = 1000, 0.2
# The study itself is a load of 1; with more, other programs took part of the time.
QUIET_LOAD = 1.5


def report(folder: Path) -> str:
    """All tables; also written into the README."""
    results = counted(read(folder))
    parts = [
        f"Against the bars:\n\n{bars(results)}",
        f"Every data set (haxby pairs from protocol d):\n\n{benchmark(results)}",
    ]
    if (folder / "leukemia.csv").exists():
        parts.append(leukemia(pd.read_csv(folder / "leukemia.csv", dtype=str, keep_default_na=False)))
    if note := clock_note(results):
        parts.append(note)
    text = "\n\n".join(parts)
    common.refresh_readme(folder, text)
    return text


def read(folder: Path) -> pd.DataFrame:
    # Indices of features are words: one alone must not become a number.
    return pd.read_csv(folder / "results.csv", dtype={"selected": str})


def counted(results: pd.DataFrame) -> pd.DataFrame:
    """Only the rows that count: of several scalings each rival gets the one that served it best."""
    # A method without probabilities is judged by its error.
    results = results.assign(judged_by=results.log_loss.fillna(results.error))
    means = results.groupby(["protocol", "data", "method", "scaling"]).judged_by.mean()
    best = set(means.groupby(level=[0, 1, 2]).idxmin())
    keys = zip(results.protocol, results.data, results.method, results.scaling, strict=True)
    return results[[key in best for key in keys]].drop(columns="judged_by")


def bars(results: pd.DataFrame) -> str:
    """What was asked for beside what was measured, rivals too."""
    rows = []
    for protocol in "ac":
        group = results[results.protocol == protocol]
        if group.empty:
            continue
        errors = group.groupby("method").errors.sum()
        # Rows of one method tell how many predictions there were.
        asked = int(group[group.method == group.method.iloc[0]].n_test.sum())
        bar, name = MOST_ERRORS_LEUKEMIA, "leukemia 38/34"
        if protocol == "a":
            of_rivals = errors.drop("foldless", errors="ignore")
            bar, name = min([MOST_ERRORS_SMLR, *(of_rivals + MARGIN_TO_BEST_RIVAL)]), "colon 50/12"
        rows.append(_bar(f"{name}: errors of {asked}", errors, bar, 0))
    for data, bar in {"colon": MOST_PER_CENT_SBC, **MOST_PER_CENT_HAXBY}.items():
        group = results[results.protocol.eq("b" if data == "colon" else "d") & results.data.eq(data)]
        if not group.empty:
            per_cent = 100 * group.groupby("method").error.mean()
            name = "colon 42/20" if data == "colon" else f"haxby {data}"
            rows.append(_bar(f"{name}: error, %", per_cent, bar, 1))
    rows += _overall(benchmark_rows(results))
    return common.markdown(["", "bar", *METHODS, "met"], rows)


def _overall(results: pd.DataFrame) -> list[list[str]]:
    """The bars over all data sets; a method that was not run on every set has no mean."""
    if results.empty:
        return []
    rows = []
    by_set = results.groupby(["data", "method"])
    n_sets = results.data.nunique()
    for name, column in (("error", "error"), ("log loss", "log_loss")):
        table = by_set[column].mean().unstack()
        means = table.mean().where(table.notna().all()).dropna()
        rows.append(_bar(f"mean {name} of {n_sets} sets", means, means.get("ridge"), 3))
    stable = stability(results).unstack()
    stable = stable[stable.notna().any(axis=1)]
    means = stable.mean().where(stable.notna().all()).dropna() if len(stable) else pd.Series(dtype=float)
    rows.append(_bar("stability of the selection", means, means.get("L1"), 2, larger=True))
    seconds = by_set.seconds.mean().unstack()
    for data in seconds.index[results.groupby("data").n_features.max().reindex(seconds.index) > WIDE]:
        if "L1" in seconds and np.isfinite(seconds.loc[data].get("L1", np.nan)):
            shares = (seconds.loc[data] / seconds.loc[data, "L1"]).dropna()
            rows.append(_bar(f"{data}: time, L1 = 1", shares, MOST_TIME_SHARE, 2))
    return rows


def _bar(name: str, values: pd.Series, bar: float | None, digits: int, *, larger: bool = False) -> list[str]:
    ours, met = values.get("foldless"), ""
    if ours is not None and bar is not None:
        met = "yes" if (ours > bar if larger else ours <= bar + 1e-9) else "no"
    sign = ">" if larger else "≤"
    shown = [f"{values[m]:.{digits}f}" if m in values else "" for m in METHODS]
    return [name, "" if bar is None else f"{sign} {bar:.{digits}f}", *shown, met]


def benchmark_rows(results: pd.DataFrame) -> pd.DataFrame:
    return results[results.protocol.isin(["d", "e"])]


def benchmark(results: pd.DataFrame) -> str:
    results = benchmark_rows(results)
    overlap = stability(results)
    rows = []
    groups = dict(list(results.groupby(["data", "method"])))
    for data, method in itertools.product(ORDER, METHODS):
        if (data, method) not in groups:
            continue
        group = groups[data, method]
        first = group.iloc[0]
        shape = f"{data}, {first.n_train} x {first.n_features}"
        name = f"{method} ({first.scaling})" if first.scaling == "max-abs" else method
        agreed = overlap.get((data, method), np.nan)
        rows.append(
            [
                shape,
                name,
                common.mean_and_error(group.error),
                common.mean_and_error(group.log_loss),
                common.mean_only(group.seconds, 2),
                common.mean_only(group.kept, 0),
                "" if np.isnan(agreed) else f"{agreed:.2f}",
            ]
        )
    header = [
        "data, training rows x columns",
        "method",
        "error (s.e.)",
        "log loss (s.e.)",
        "seconds",
        "kept",
        "stability",
    ]
    return common.markdown(header, rows)


def stability(results: pd.DataFrame) -> pd.Series:
    """Mean pairwise Jaccard index of the features selected on different splits, by data set and method."""
    return results[results.method.isin(SELECTORS)].groupby(["data", "method"]).selected.agg(mean_jaccard)


def mean_jaccard(selections: Sequence[object]) -> float:
    """Two selections agree by the share of their union that both have; NaN for a single split.

    Two empty ones agree on nothing, 0: a method that never selects must not pass for the most reliable.
    An empty cell is an empty selection.
    """
    sets = [set() if pd.isna(selection) else set(str(selection).split()) for selection in selections]
    overlaps = [len(a & b) / len(a | b) if a | b else 0.0 for a, b in itertools.combinations(sets, 2)]
    return float(np.mean(overlaps)) if overlaps else np.nan


def leukemia(features: pd.DataFrame) -> str:
    """The genes by name: those selected, and the clusters of genes that stand for one another."""
    alone = features[features.cluster == ""]
    n_clusters = features.cluster.nunique() - (len(alone) > 0)
    parts = [f"Leukemia, the {len(alone)} features selected at a false discovery rate of 0.1:"]
    if len(alone):
        rows = [[r["name"], r.description, r.inclusion, r.weight] for _, r in alone.iterrows()]
        parts.append(common.markdown(["feature", "", "inclusion probability", "weight"], rows))
    if n_clusters:
        parts.append(f"Leukemia, {n_clusters} clusters of which at least one feature is in:")
        clusters = features[features.cluster != ""].groupby("cluster", sort=False)
        rows = [
            [
                g.cluster_probability.iloc[0],
                len(g),
                "; ".join(f"{n} ({d})" for n, d in zip(g["name"], g.description, strict=True)),
            ]
            for _, g in clusters
        ]
        parts.append(common.markdown(["probability", "size", "features"], rows))
    return "\n\n".join(parts)


def clock_note(results: pd.DataFrame) -> str:
    """Says whose seconds do not count."""
    busy = results[results.load > QUIET_LOAD].groupby("method").load.mean()
    if busy.empty:
        return ""
    loads = ", ".join(f"{method} {load:.1f}" for method, load in busy.items())
    return f"Seconds are not comparable: other programs were running (load average beside {loads})."


def draw(folder: Path) -> None:
    """figure.png: error, log loss and seconds, a line per data set and a colour per method."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = benchmark_rows(counted(read(folder)))
    if results.empty:
        return
    names = [name for name in ORDER if name in set(results.data)]
    figure, panels = plt.subplots(
        1, 3, figsize=(13, 1.5 + 0.4 * len(names)), sharey=True, layout="constrained"
    )
    columns = {"error": "test error", "log_loss": "test log loss", "seconds": "seconds, tuning included"}
    for axes, (column, label) in zip(panels, columns.items(), strict=True):
        for number, method in enumerate(METHODS):
            by_set = results[results.method == method].groupby("data")[column]
            means, noise = by_set.mean().reindex(names), by_set.sem().reindex(names).fillna(0.0)
            # Methods side by side, ours on top.
            height = np.arange(len(names)) + 0.12 * (number - (len(METHODS) - 1) / 2)
            marker = "o" if method == "foldless" else "s"
            axes.errorbar(means, height, xerr=noise, fmt=marker, markersize=5, capsize=2, label=method)
        axes.set(xlabel=label)
        axes.grid(axis="y", linewidth=0.3)
    # Some rivals are sure and wrong; their log loss would squeeze all others to one side.
    panels[1].set(xscale="log")
    panels[2].set(xscale="log")
    panels[0].set_yticks(np.arange(len(names)), names)
    panels[0].invert_yaxis()
    panels[2].legend(fontsize=8)
    figure.savefig(folder / "figure.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
