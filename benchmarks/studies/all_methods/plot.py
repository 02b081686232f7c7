"""Table, heat map and plain reading of the study of all methods, from its results.csv.

python -m benchmarks.studies.all_methods.plot
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.studies import _common as common
from benchmarks.studies.all_methods.data import NAMES, SPLITS, WIDE
from benchmarks.studies.all_methods.methods import METHODS

REFERENCE = "ridge"
# What counts as alike in the mean over tables: half a point of error.
ALIKE = 0.005


def results_of(folder: Path) -> pd.DataFrame:
    results = pd.read_csv(folder / "results.csv", dtype={"stopped": str})
    results["stopped"] = results.stopped.fillna("")
    return results


def errors(results: pd.DataFrame, column: str = "error") -> pd.DataFrame:
    """Means over splits; methods in their order, tables in theirs.

    A method with fewer splits than ridge has ridge's mean plus the mean difference on the splits of both.
    """
    cells = _cells(results, column)
    table = cells.groupby("data").mean()
    if REFERENCE in cells:
        beyond = cells.sub(cells[REFERENCE], axis=0).groupby("data").mean()
        table = beyond.add(table[REFERENCE], axis=0).combine_first(table)
    return _ordered(table.T, results)


def standard_errors(results: pd.DataFrame) -> pd.DataFrame:
    """Of the mean errors over splits; nothing of a single split."""
    return _ordered(_cells(results, "error").groupby("data").sem().T, results)


def _cells(results: pd.DataFrame, column: str) -> pd.DataFrame:
    done = results[results.stopped == ""]
    return done.pivot_table(index=["data", "split"], columns="method", values=column)


def _ordered(table: pd.DataFrame, results: pd.DataFrame) -> pd.DataFrame:
    names = [name for name in NAMES if name in table.columns]
    return table.reindex(index=[m for m in METHODS if m in table.index], columns=names)


def standing(results: pd.DataFrame) -> pd.DataFrame:
    """By method, over the tables that it has: errors beyond ridge's, mean rank, features kept, time."""
    table = errors(results)
    # Table by table, whatever the number of splits.
    done = results[results.stopped == ""].assign(kept=results.kept / results.features)
    by_table = done.groupby(["method", "data"])[["cpu_seconds", "kept"]].mean()
    medians = by_table.groupby("method").median().reindex(table.index)
    beyond = table.sub(table.loc["ridge"], axis=1) if "ridge" in table.index else table * np.nan
    loss = errors(results, "log_loss")
    loss_beyond = loss.sub(loss.loc["ridge"], axis=1) if "ridge" in loss.index else loss * np.nan
    summary = pd.DataFrame(
        {
            "paper": [METHODS[m].paper for m in table.index],
            "tables": table.notna().sum(axis=1),
            "beyond": beyond.mean(axis=1),
            "beyond_error": beyond.sem(axis=1),
            "loss_beyond": loss_beyond.reindex(table.index).mean(axis=1),
            "rank": table.rank(axis=0).mean(axis=1),
            "seconds": medians.cpu_seconds,
            "kept": medians.kept,
        }
    )
    return summary.sort_values("beyond")


def report(folder: Path) -> str:
    results = results_of(folder)
    text = "\n\n".join([reading(results), _summary(results), _errors(results), _stopped(results)])
    common.refresh_readme(folder, text)
    return text


def reading(results: pd.DataFrame) -> str:
    """Three paragraphs, made from the numbers."""
    summary, table = standing(results), errors(results)
    n_splits = results.groupby("data").split.nunique().min()
    paragraphs = []
    if table.shape[1] < len(NAMES) or n_splits < SPLITS:
        paragraphs.append(
            f"**Few splits**: {table.shape[1]} of {len(NAMES)} tables, from {n_splits} of {SPLITS} splits "
            "on. Means over tables can be read within the standard errors beside them; figures of single "
            "tables hardly."
        )
    whole = summary[summary.tables == summary.tables.max()]
    ours = whole[whole.paper != "rival"]
    if len(ours):
        first = ours.iloc[0]
        alike = [m for m in ours.index[1:] if ours.beyond[m] - first.beyond <= ALIKE]
        text = (
            f"**If one method must do for all**: of those that finish on all {first.tables:.0f} tables, "
            f"{ours.index[0]} errs least, {100 * first.beyond:+.1f} points from ridge in the mean"
        )
        text += (
            f"; {_listed(alike)} within half a point of it."
            if alike
            else "; no other is within half a point."
        )
        rivals = whole[(whole.paper == "rival") & (whole.index != "ridge")]
        if len(rivals):
            text += (
                " Rivals, likewise: "
                + _listed([f"{m} {100 * b:+.1f}" for m, b in rivals.beyond.items()])
                + "."
            )
        paragraphs.append(text)
    paragraphs.append("**By the shape of a table.** " + " ".join(_of_shape(table)))
    best = table.idxmin(axis=0)
    own = [m for m in best if METHODS[m].paper != "rival"]
    counts = pd.Series(best).value_counts()
    by_paper = pd.Series([METHODS[m].paper for m in best]).value_counts()
    paragraphs.append(
        f"**Table by table**, a method of the papers or of foldless has the least mean error on "
        f"{len(own)} of {len(best)} (ties go to the first in the list), by origin: "
        + _listed([f"{paper} {n}" for paper, n in by_paper.items()])
        + f". The most often best is {counts.index[0]} ({counts.iloc[0]}). "
        + _where(table)
    )
    quick = summary[(summary.beyond <= ALIKE) & (summary.paper != "rival")].sort_values("seconds")
    sparse = summary[(summary.beyond <= 4 * ALIKE) & (summary.kept <= 0.2) & (summary.paper != "rival")]
    text = "**Time and features.** "
    if len(quick):
        text += (
            "Of methods no more than half a point worse than ridge the quickest are "
            + _listed([f"{m} ({s:.2g} s)" for m, s in quick.seconds.head(3).items()])
            + ". "
        )
    if len(sparse):
        text += (
            "With at most a fifth of the features, within two points of ridge: "
            + _listed([f"{m} ({100 * k:.0f} %)" for m, k in sparse.kept.items()])
            + "."
        )
    paragraphs.append(text.strip())
    return "\n\n".join(paragraphs)


def _of_shape(table: pd.DataFrame) -> Iterator[str]:
    """The best of those that finish on all tables of a shape, and of those that have at least half."""
    for what, wanted in (("No more features than samples", False), ("More features than samples", True)):
        part = table[[name for name in table if (name in WIDE) == wanted]]
        if part.empty or "ridge" not in part.index:
            continue
        beyond = 100 * part.sub(part.loc["ridge"], axis=1)
        known = beyond.notna().sum(axis=1)
        whole = beyond[known == known.max()].drop(index="ridge").mean(axis=1).sort_values()
        if whole.empty:
            continue
        other = beyond[(known < known.max()) & (known >= known.max() / 2)].mean(axis=1).sort_values()
        text = f"{what} ({part.shape[1]} tables): " + _listed([f"{m} {b:+.1f}" for m, b in whole[:4].items()])
        text += f" points from ridge, the most {whole.index[-1]} {whole.iloc[-1]:+.1f}"
        if len(other):
            own = [f"{m} {b:+.1f} on {known[m]}" for m, b in other[:2].items()]
            text += f"; of those that have at least half of these tables, {_listed(own)}"
        yield text + "."


def _where(table: pd.DataFrame) -> str:
    """Tables on which one origin's best leads ridge by the most."""
    if "ridge" not in table.index:
        return ""
    lead = (table.loc["ridge"] - table.min(axis=0)).sort_values(ascending=False)
    shown = [
        f"{name} ({100 * gain:.1f} points, {table[name].idxmin()})" for name, gain in lead.head(3).items()
    ]
    return f"Most is gained over ridge on {_listed(shown)}; least on {lead.index[-1]}."


def _listed(items: list[str]) -> str:
    return (
        ", ".join(map(str, items[:-1])) + (" and " if len(items) > 1 else "") + str(items[-1])
        if items
        else ""
    )


def _summary(results: pd.DataFrame) -> str:
    rows = [
        [
            method,
            one.paper,
            f"{one.tables:.0f}",
            f"{100 * one.beyond:+.1f} ± {100 * one.beyond_error:.1f}",
            f"{one.loss_beyond:+.3f}" if np.isfinite(one.loss_beyond) else "",
            f"{one['rank']:.1f}",
            f"{100 * one.kept:.0f} %" if np.isfinite(one.kept) else "",
            f"{one.seconds:.2g}",
        ]
        for method, one in standing(results).iterrows()
    ]
    header = [
        "method",
        "of",
        "tables",
        "error beyond ridge's, points",
        "log loss beyond",
        "mean rank",
        "kept, median",
        "CPU seconds, median",
    ]
    n_splits = results[results.stopped == ""].groupby("data").split.nunique()
    about = f"Splits: {n_splits.min()} to {n_splits.max()} a table; rows of " + _listed(
        [f"`{c}` ({n})" for c, n in results.commit.value_counts().items()]
    )
    return f"{about}.\n\n{common.markdown(header, rows)}"


def _errors(results: pd.DataFrame) -> str:
    table, noise = 100 * errors(results), 100 * standard_errors(results)
    low = table.min(axis=0)

    def cell(method: str, name: str) -> str:
        value, error = table.at[method, name], noise.at[method, name]
        if np.isnan(value):
            return ""
        shown = f"{value:.1f}" + (f" ± {error:.1f}" if np.isfinite(error) else "")
        return f"**{shown}**" if value <= low[name] + 1e-9 else shown

    counts = results[results.stopped == ""].groupby(["method", "data"]).split.nunique()
    least, most = counts.groupby("data").min(), counts.groupby("data").max()
    splits = [f"{a}" if a == b else f"{a} to {b}" for a, b in ((least[n], most[n]) for n in table)]
    rows = [[m, *(cell(m, name) for name in table)] for m in table.index]
    return (
        "Mean error, %, ± its standard error over splits where there are several; the least of each table in "
        "bold. A method with fewer splits than ridge has ridge's mean plus the mean difference on splits of "
        "both:\n\n" + common.markdown(["method", *table], [["splits", *splits], *rows])
    )


def _stopped(results: pd.DataFrame) -> str:
    """What was given up or refused, and why."""
    stopped = results[(results.stopped != "") & (results.stopped != "two classes only")]
    if stopped.empty:
        return "Every fit ended in time."
    rows = [
        [why[:90], _listed([f"{m} on {d}" for m, d in sorted(set(zip(g.method, g.data, strict=True)))])]
        for why, g in stopped.groupby("stopped")
    ]
    return "No figure, and why (methods of two classes only have none on others):\n\n" + common.markdown(
        ["why", "which"], rows
    )


def draw(folder: Path) -> None:
    """figure.png: a heat map of errors beyond the least of each table."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = results_of(folder)
    table = 100 * errors(results).reindex(standing(results).index)
    beyond = table - table.min(axis=0)
    size = (6.0 + 0.55 * beyond.shape[1], 1.8 + 0.28 * beyond.shape[0])
    figure, (axes, means) = plt.subplots(
        1, 2, figsize=size, layout="constrained", width_ratios=(beyond.shape[1], 6), sharey=True
    )
    shown = axes.imshow(np.minimum(beyond, 15.0), cmap="viridis_r", aspect="auto")
    figure.colorbar(
        shown,
        ax=axes,
        label="error beyond the least of the table, points (15 and more alike)",
        shrink=0.7,
        location="left",
    )
    axes.set_xticks(range(beyond.shape[1]), beyond.columns, rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(beyond.shape[0]), beyond.index, fontsize=8)
    for i, j in np.argwhere(beyond.notna().to_numpy()):
        value = beyond.iat[i, j]
        axes.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=6, color="w" if value > 6 else "k")
    axes.set_title("white: no figure (over time, refused, or two classes only)", fontsize=8)
    mean = standing(results)
    means.errorbar(100 * mean.beyond, range(len(mean)), xerr=100 * mean.beyond_error, fmt="o", markersize=3)
    means.axvline(0.0, color="grey", linestyle=":")
    means.set_title("beyond ridge, points\nmean of its tables, s.e.", fontsize=8)
    means.tick_params(labelsize=7)
    figure.savefig(folder / "figure.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
