"""The tables and the figure of the study of the pruned classifier, from its results.csv.

python -m benchmarks.studies.pruned_classifier.plot
"""

from __future__ import annotations

import sys
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import t

from benchmarks.studies import _common as common

STUDY = Path(__file__).parent
REAL_DATA = STUDY.parent / "real_data" / "results.csv"
OURS = "pruned"
BARS = {"pruned": 20.0, "pruned, κ = 0.4": 21.0, "PrunedBayesClassifier()": 16.5}
PUBLISHED = {
    "pruned": 23.5,
    "pruned, κ = 0.4": 21.0,
    "pruned, whitened with test samples, κ = 0.4": 16.3,
    "logarithms, whitened with test samples, κ = 0.4": 16.3,
    "RVM": 24.3,
    "LDA": 39.6,
}
COLOURS = {0.1: "tab:blue", 0.2: "tab:orange", 0.3: "tab:green", 0.4: "tab:green"}
# One-sided 5 %, as in the paper.
SIGNIFICANT = 1.64


def report(folder: Path) -> str:
    """A table per part; also written into the README."""
    results = pd.read_csv(folder / "results.csv")
    tables = {
        "density": ("Figure 1, theory: where each error is least (α = 1, κ = 0.05):", _density),
        "dynamics": ("Figure 3, error after an iteration, mean over runs and 95 % interval:", _dynamics),
        "loo": ("Figure 4, generalisation and leave-one-out error, mean over runs and 95 % interval:", _loo),
        "forms": ("Messages on nodes less messages on edges (C = C_t = 0.2):", _forms),
        "colon": ("Colon, 42 to train and 20 to test:", _colon),
    }
    texts = [
        f"{title}\n\n{table(results[results.part == part])}"
        for part, (title, table) in tables.items()
        if (results.part == part).any()
    ]
    text = "\n\n".join(texts)
    common.refresh_readme(folder, text)
    return text


def interval(values: pd.Series) -> tuple[float, float]:
    """Mean and half the width of its 95 % interval."""
    n = len(values)
    return float(values.mean()), float(
        values.std(ddof=1) / sqrt(n) * t.ppf(0.975, n - 1)
    ) if n > 1 else np.nan


def _shown(values: pd.Series) -> str:
    mean, half = interval(values)
    return f"{mean:.4f} ± {half:.4f}"


def _density(results: pd.DataFrame) -> str:
    rows = []
    for true_density, group in results.groupby("true_density"):
        bayes, gibbs = group.loc[group.theory.idxmin()], group.loc[group.gibbs.idxmin()]
        unstable = group[group.stability > 1].density.max()
        rows.append(
            [
                true_density,
                f"{bayes.theory:.4f} at C = {bayes.density:.3g}",
                f"{gibbs.gibbs:.4f} at C = {gibbs.density:.3g}",
                "" if np.isnan(unstable) else f"C ≤ {unstable:.3g}",
            ]
        )
    return common.markdown(["C_t", "least Bayes error", "least Gibbs error", "replica symmetry broken"], rows)


def _dynamics(results: pd.DataFrame) -> str:
    sizes = sorted(results.n.unique())
    rows: list[list[Any]] = []
    for (density, iteration), group in results.groupby(["density", "iteration"]):
        theory = group.theory.iloc[0]
        row: list[Any] = [density, int(iteration), f"{theory:.4f}"]
        for n in sizes:
            error = group[group.n == n].error
            mean, half = interval(error)
            row += [_shown(error), "yes" if abs(mean - theory) <= half else f"no, {mean - theory:+.4f}"]
        rows.append(row)
    header = ["C", "iteration", "theory"]
    for n in sizes:
        header += [f"N = {int(n)}, {results[results.n == n].run.nunique()} runs", "within"]
    return common.markdown(header, rows)


def _loo(results: pd.DataFrame) -> str:
    rows = []
    for density, group in results.groupby("density"):
        theory = group.theory.iloc[0]
        cells: list[Any] = [density, f"{theory:.4f}"]
        for name in ("error", "loo_error"):
            mean, half = interval(group[name])
            within = "yes" if abs(mean - theory) <= half else f"no, {mean - theory:+.4f}"
            cells += [_shown(group[name]), within]
        settled = int(group.outcome.str.startswith(("converged", "diverged and")).sum())
        rows.append([*cells, f"{group.stability.iloc[0]:.2f}", f"{settled} of {len(group)}"])
    header = ["C", "theory", "error", "within", "leave-one-out", "within", "stability", "settled"]
    return common.markdown(header, rows)


def _forms(results: pd.DataFrame) -> str:
    rows = []
    for (features, n), group in results.groupby(["features", "n"], sort=False):
        cells: list[Any] = [features, int(n), len(group)]
        for name in ("error", "overlap", "power"):
            difference = group[name] - group[f"edge_{name}"]
            cells.append(f"{difference.mean():+.5f} (largest {difference.abs().max():.5f})")
        rows.append(cells)
    return common.markdown(["features", "N = M", "runs", "error", "overlap R", "power Q"], rows)


def _colon(results: pd.DataFrame) -> str:
    errors = {
        method: group.set_index("split").errors for method, group in results.groupby("method", sort=False)
    }
    n_test = int(results.n_test.iloc[0])
    errors |= _sparse_classifier(len(next(iter(errors.values()))), n_test)
    rows = []
    for method, wrong in errors.items():
        share = 100.0 * wrong / n_test
        group = results[results.method == method]
        bar = (
            f"≤ {BARS[method]:g}: {'met' if share.mean() <= BARS[method] else 'missed'}"
            if method in BARS
            else ""
        )
        settled = group.outcome.str.startswith(("converged", "diverged and")).mean() if len(group) else np.nan
        rows.append(
            [
                method,
                len(wrong),
                f"{share.mean():.1f} ({share.std(ddof=1):.1f})",
                PUBLISHED.get(method, ""),
                bar,
                f"{100 * group.loo_error.mean():.1f}" if group.loo_error.notna().any() else "",
                f"{100 * settled:.0f} %" if method.startswith(OURS) else "",
                _binomial(errors[OURS], wrong) if method != OURS and OURS in errors else "",
            ]
        )
    header = [
        "method",
        "splits",
        "error, % (sd)",
        "paper",
        "bar",
        "leave-one-out, %",
        "settled",
        "pruned wins : ties : losses, z",
    ]
    return common.markdown(header, rows)


def _sparse_classifier(n_splits: int, n_test: int) -> dict[str, pd.Series]:
    """SparseClassifier on the same splits, as the study of real data measured it."""
    known = pd.read_csv(REAL_DATA)
    known = known[(known.protocol == "b") & (known.method == "foldless")].set_index("split")
    if n_splits > len(known) or known.n_test.iloc[0] != n_test:
        return {}  # a quick run, on stand-ins
    return {"SparseClassifier": known.errors.loc[: n_splits - 1]}


def _binomial(ours: pd.Series, theirs: pd.Series) -> str:
    """The paper's one-sided binomial test in its normal approximation, ties left out."""
    both = pd.concat([ours, theirs], axis=1, keys=["ours", "theirs"]).dropna()
    wins, losses = int((both.ours < both.theirs).sum()), int((both.ours > both.theirs).sum())
    decided = wins + losses
    z = (wins - decided / 2) / sqrt(decided / 4) if decided else 0.0
    verdict = "better" if z > SIGNIFICANT else "worse" if z < -SIGNIFICANT else "open"
    return f"{wins} : {len(both) - decided} : {losses}, {z:+.1f} ({verdict})"


def draw_selected(folder: Path) -> None:
    """selected.png, figures 5 and 6: how often each density and noise was chosen on colon."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = pd.read_csv(folder / "results.csv", low_memory=False)
    shown = [m for m in (OURS, "PrunedBayesClassifier()") if (results.method == m).any()]
    if not shown:
        return
    figure, panels = plt.subplots(1, 2, figsize=(8, 2.8), layout="constrained")
    for axes, column, name in zip(
        panels, ("density", "noise"), ("C (figure 5)", "κ (figure 6)"), strict=True
    ):
        counts = pd.DataFrame(
            {m: results[results.method == m][column].value_counts(normalize=True) for m in shown}
        )
        counts.sort_index().plot.bar(ax=axes, rot=45, fontsize=8, legend=column == "noise")
        axes.set(xlabel=f"selected {name}", ylabel="share of splits")
    figure.savefig(folder / "selected.png", dpi=110)
    plt.close(figure)


def draw(folder: Path) -> None:
    """figure.png: the paper's figures 1, 3 and 4, and the test errors on colon."""
    if (pd.read_csv(folder / "results.csv", usecols=["part"]).part == "colon").any():
        draw_selected(folder)
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = pd.read_csv(folder / "results.csv")
    figure, axes = plt.subplots(2, 3, figsize=(15, 8.5), layout="constrained")
    if (results.part == "density").any():
        _draw_curves(axes[0, 0], axes[0, 1], results[results.part == "density"])
    dynamics = results[results.part == "dynamics"]
    sizes = sorted(dynamics.n.dropna().unique())
    for axis, n in zip((axes[0, 2], axes[1, 0]), sizes, strict=False):
        _draw_dynamics(axis, dynamics[dynamics.n == n])
    if len(sizes) < 2:
        axes[1, 0].set_axis_off()
    _draw_loo(axes[1, 1], results[results.part == "loo"])
    _draw_colon(axes[1, 2], results[results.part == "colon"])
    figure.savefig(folder / "figure.png", dpi=130)
    plt.close(figure)


def _draw_curves(bayes: Any, gibbs: Any, results: pd.DataFrame) -> None:
    for axis, name, title in (
        (bayes, "theory", "Figure 1 (a): Bayes"),
        (gibbs, "gibbs", "Figure 1 (b): Gibbs"),
    ):
        for true_density, group in results.groupby("true_density"):
            stable = group.stability <= 1
            colour = COLOURS.get(true_density)
            axis.plot(group.density, group[name], ":", color=colour)
            axis.plot(
                group.density[stable], group[name][stable], color=colour, label=f"C_t = {true_density:g}"
            )
            axis.axvline(true_density, color=colour, linewidth=0.5)
        axis.set(
            xscale="log", xlabel="C", ylabel="generalisation error", title=f"{title} (dotted: not stable)"
        )
        axis.legend()


def _draw_dynamics(axis: Any, results: pd.DataFrame) -> None:
    for shift, (density, group) in enumerate(results.groupby("density")):
        colour = COLOURS.get(density)
        theory = group.groupby("iteration").theory.first()
        axis.plot(theory.index, theory, color=colour, label=f"C = {density:g}")
        means, halves = zip(*(interval(g.error) for _, g in group.groupby("iteration")), strict=True)
        axis.errorbar(
            theory.index + 0.08 * (shift - 1), means, halves, fmt="o", color=colour, markersize=3, capsize=2
        )
    n, runs = int(results.n.iloc[0]), results.run.nunique()
    axis.set(
        xlabel="iteration", ylabel="generalisation error", title=f"Figure 3: N = M = {n}, {runs} runs, 95 %"
    )
    axis.legend()


def _draw_loo(axis: Any, results: pd.DataFrame) -> None:
    if results.empty:
        return
    groups = results.groupby("density")
    axis.plot(groups.theory.first().index, groups.theory.first(), "k-", label="replica theory")
    for name, marker, label in (("error", "o", "generalisation"), ("loo_error", "+", "leave-one-out")):
        means, halves = zip(*(interval(g[name]) for _, g in groups), strict=True)
        axis.errorbar(list(groups.groups), means, halves, fmt=marker, capsize=2, label=label)
    n, runs = int(results.n.iloc[0]), results.run.nunique()
    axis.set(xlabel="C", ylabel="error", title=f"Figure 4: N = M = {n}, C_t = 0.1, {runs} runs, 95 %")
    axis.legend()


def _draw_colon(axis: Any, results: pd.DataFrame) -> None:
    if results.empty:
        return
    groups = list(results.groupby("method", sort=False))
    axis.barh([name for name, _ in groups], [100 * g.error.mean() for _, g in groups], color="tab:gray")
    for place, (name, _) in enumerate(groups):
        if name in PUBLISHED:
            axis.plot(PUBLISHED[name], place, "k|", markersize=14)
    axis.invert_yaxis()
    axis.set(xlabel="test error, % (mark: published)", title="Colon, 42 to train and 20 to test")


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else STUDY
    print(report(folder))
    draw(folder)
