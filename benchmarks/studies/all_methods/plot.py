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
# Fewer splits than this are called few.
FEW = 5


def results_of(folder: Path) -> pd.DataFrame:
    results = pd.read_csv(folder / "results.csv", dtype={"stopped": str})
    results["stopped"] = results.stopped.fillna("")
    return results


def errors(results: pd.DataFrame) -> pd.DataFrame:
    """Means over splits; methods in their order, tables in theirs.

    A method with fewer splits than ridge has ridge's mean plus the mean difference on the splits of both,
    and no less than nothing.
    """
    table = _ordered(_cells(results, "error").groupby("data").mean().T, results)
    if REFERENCE not in table.index:
        return table
    return (beyond(results) + table.loc[REFERENCE]).clip(lower=0.0).combine_first(table).reindex(table.index)


def beyond(results: pd.DataFrame, column: str = "error") -> pd.DataFrame:
    """Mean differences from ridge on the splits that both have."""
    cells = _cells(results, column)
    reference = cells.get(REFERENCE, np.nan)
    return _ordered(cells.sub(reference, axis=0).groupby("data").mean().T, results)


def counts(results: pd.DataFrame) -> pd.DataFrame:
    """How many splits each has."""
    done = results[results.stopped == ""]
    return _ordered(done.groupby(["method", "data"]).split.nunique().unstack("data"), results)


def settled(results: pd.DataFrame) -> pd.DataFrame:
    """Errors of methods that have at least half as many splits as the middle method of their table.

    The least of a table is looked for among these: one split can be lucky where most methods have 20. Half of
    the most would leave out all that are slower than the one or two with many splits.
    """
    n_splits = counts(results)
    return errors(results).where(n_splits >= n_splits.median() / 2)


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
    by_error = beyond(results)
    loss_beyond = beyond(results, "log_loss").reindex(table.index).mean(axis=1)
    summary = pd.DataFrame(
        {
            "paper": [METHODS[m].paper for m in table.index],
            "tables": table.notna().sum(axis=1),
            "beyond": by_error.mean(axis=1),
            "beyond_error": by_error.sem(axis=1),
            "loss_beyond": loss_beyond,
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
    """Three paragraphs, made from the numbers; one before them while splits are missing."""
    summary = standing(results)
    paragraphs = [_missing(results)]
    whole = summary[summary.tables == summary.tables.max()]
    ours = whole[whole.paper != "rival"]
    if len(ours):
        first = ours.iloc[0]
        alike = [m for m in ours.index[1:] if ours.beyond[m] - first.beyond <= ALIKE]
        where, from_ridge = f"on all {first.tables} tables", f"{100 * first.beyond:+.1f} points from ridge"
        text = "**If one method must do for all**: "
        if len(ours) == 1:
            text += f"the only one that finishes {where} is {first.name}, {from_ridge} in the mean."
        else:
            text += (
                f"of those that finish {where}, {first.name} errs least, {from_ridge} in the mean; "
                f"{_listed(alike) or 'no other is'} within half a point of it."
            )
        rivals = whole[(whole.paper == "rival") & (whole.index != REFERENCE)]
        if len(rivals):
            text += (
                " Rivals, likewise: "
                + _listed([f"{m} {100 * b:+.1f}" for m, b in rivals.beyond.items()])
                + "."
            )
        paragraphs.append(text)
    paragraphs.append("**By the shape of a table.** " + " ".join(_of_shape(beyond(results))))
    table = settled(results)
    best = table.idxmin(axis=0)
    own = [m for m in best if METHODS[m].paper != "rival"]
    most_often = pd.Series(best).value_counts()
    by_paper = pd.Series([METHODS[m].paper for m in best]).value_counts()
    paragraphs.append(
        f"**Table by table**, a method of the papers or of foldless has the least mean error on "
        f"{len(own)} of {len(best)} (ties go to the first in the list), by origin: "
        + _listed([f"{paper} {n}" for paper, n in by_paper.items()])
        + f". The most often best is {most_often.index[0]} ({most_often.iloc[0]}). "
        + _where(table)
    )
    quick = summary[(summary.beyond <= ALIKE) & (summary.paper != "rival")].sort_values("seconds")
    sparse = summary[(summary.beyond <= 4 * ALIKE) & (summary.kept <= 0.2) & (summary.paper != "rival")]
    text = "**Time and features.** "
    if len(quick):
        text += (
            "Of methods no more than half a point worse than ridge on their tables the quickest are "
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
    return "\n\n".join(filter(None, paragraphs))


def _missing(results: pd.DataFrame) -> str:
    """How uneven the numbers of splits are, and what that means for what follows."""
    tables = results.data.unique()
    n_splits = counts(results).stack().dropna()
    if len(tables) == len(NAMES) and n_splits.min() >= SPLITS:
        return ""
    whole, few = int((n_splits >= SPLITS).sum()), int((n_splits < FEW).sum())
    return (
        f"**Splits**: {len(tables)} of {len(NAMES)} tables; of {len(n_splits)} pairs of a method and a table "
        f"with a figure {whole} have {SPLITS} splits or more, {len(n_splits) - whole - few} have {FEW} to "
        f"{SPLITS - 1}, and {few} have fewer, the slow ones. A method is compared with ridge on the splits "
        "that both have, and the least of a table is looked for among methods with at least half as many "
        "splits as the middle one has there. Figures of few splits can be read within the standard errors "
        "beside them."
    )


def _of_shape(table: pd.DataFrame) -> Iterator[str]:
    """The best of those that finish on all tables of a shape, and of those that do on half, beyond ridge."""
    for what, wanted in (("No more features than samples", False), ("More features than samples", True)):
        part = 100 * table[[name for name in table if (name in WIDE) == wanted]]
        known = part.notna().sum(axis=1)
        if not known.any():
            continue
        whole = part[known == known.max()].drop(index=REFERENCE).mean(axis=1).sort_values()
        if whole.empty:
            continue
        other = part[(known < known.max()) & (known >= known.max() / 2)].mean(axis=1).sort_values()
        text = f"{what} ({part.shape[1]} tables): " + _listed([f"{m} {b:+.1f}" for m, b in whole[:4].items()])
        text += f" points from ridge, the most {whole.index[-1]} {whole.iloc[-1]:+.1f}"
        if len(other):
            own = [f"{m} {b:+.1f} on {known[m]}" for m, b in other[:2].items()]
            text += f"; of those that have at least half of these tables, {_listed(own)}"
        yield text + "."


def _where(table: pd.DataFrame) -> str:
    """Tables on which one origin's best leads ridge by the most."""
    if REFERENCE not in table.index:
        return ""
    lead = (table.loc[REFERENCE] - table.min(axis=0)).sort_values(ascending=False)
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
    about = "Rows of " + _listed([f"`{c}` ({n})" for c, n in results.commit.value_counts().items()])
    return f"{about}.\n\n{common.markdown(header, rows)}"


def _errors(results: pd.DataFrame) -> str:
    table, noise = 100 * errors(results), 100 * standard_errors(results)
    low, n_splits = 100 * settled(results).min(axis=0), counts(results)
    most, middle = n_splits.max(), n_splits.median()

    def cell(method: str, name: str) -> str:
        value, error = table.at[method, name], noise.at[method, name]
        if np.isnan(value):
            return ""
        shown = f"{value:.1f}" + (f" ± {error:.1f}" if np.isfinite(error) else "")
        n = n_splits.at[method, name]
        if n < most[name]:
            shown += f" ({n:.0f})"
        enough = n >= middle[name] / 2
        return f"**{shown}**" if enough and value <= low[name] + 1e-9 else shown

    rows = [[m, *(cell(m, name) for name in table)] for m in table.index]
    splits = ["splits", *(f"{most[name]:.0f}" for name in table)]
    return (
        "Mean error, %, ± its standard error over its splits where there are several; in brackets the number "
        "of splits where others have more. The least of each table is in bold, among methods with at least "
        "half as many splits as the middle one has there. A method with fewer splits than ridge has ridge's "
        "mean plus the mean difference on splits of both:\n\n"
        + common.markdown(["method", *table], [splits, *rows])
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
    above = table - 100 * settled(results).min(axis=0)
    size = (6.0 + 0.55 * above.shape[1], 1.8 + 0.28 * above.shape[0])
    figure, (axes, means) = plt.subplots(
        1, 2, figsize=size, layout="constrained", width_ratios=(above.shape[1], 6), sharey=True
    )
    shown = axes.imshow(np.clip(above, 0.0, 15.0), cmap="viridis_r", aspect="auto")
    figure.colorbar(
        shown,
        ax=axes,
        label="error beyond the least of the table, points (15 and more alike)",
        shrink=0.7,
        location="left",
    )
    axes.set_xticks(range(above.shape[1]), above.columns, rotation=60, ha="right", fontsize=8)
    axes.set_yticks(range(above.shape[0]), above.index, fontsize=8)
    for i, j in np.argwhere(above.notna().to_numpy()):
        value = above.iat[i, j]
        axes.text(j, i, f"{value:.0f}", ha="center", va="center", fontsize=6, color="w" if value > 6 else "k")
    axes.set_title(
        "white: no figure (over time, refused, two classes only); below 0: of few splits", fontsize=8
    )
    mean = standing(results)
    means.errorbar(100 * mean.beyond, range(len(mean)), xerr=100 * mean.beyond_error, fmt="o", markersize=3)
    means.axvline(0.0, color="grey", linestyle=":")
    means.set_title("beyond ridge, points\nmean of its tables, s.e.", fontsize=8)
    means.tick_params(labelsize=7)
    figure.savefig(folder / "figure.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
