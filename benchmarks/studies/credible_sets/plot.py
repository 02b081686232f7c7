"""The tables and the figure of the study of credible sets, from its CSV files.

python -m benchmarks.studies.credible_sets.plot
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.studies import _common as common

# Inclusion probabilities are few in the middle: narrow bins where the features are.
BIN_EDGES = np.array([0.0, 0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.95, 1.0])
# What the study must show of credible sets, and of single features on AR(0.5).
REQUIRED_RIGHT, REQUIRED_FDP, REQUIRED_POWER = 0.90, 0.10, 0.75
OVER_BACKGROUND = "EP, background"


def report(folder: Path) -> str:
    """The tables as text; also written into the README."""
    results = pd.read_csv(folder / "results.csv")
    text = "\n\n".join(
        [
            "Single features at FDR 0.1, mean (s.e.) over trials, by refined inclusion probabilities:",
            _single_features(results),
            "Credible sets of coverage 0.95, over all trials:",
            _sets(results),
            "Inclusion probabilities of 80 columns in blocks of 8 against Gibbs sampling:",
            _gibbs(pd.read_csv(folder / "gibbs.csv")),
            _verdict(results),
        ]
    )
    common.refresh_readme(folder, text)
    return text


def _single_features(results: pd.DataFrame) -> str:
    rows = []
    for (design, method), group in results.groupby(["design", "method"], sort=False):
        settled = group.outcome.isin(["converged", "diverged and rescued"])
        rows.append(
            [
                design,
                method,
                f"{settled.sum()} of {len(group)}",
                common.mean_only(group.seconds, 1),
                common.mean_only(group.n_iter, 0),
                common.mean_only(group.inclusion, 3),
                f"{group.slab_variance.median():.2f}",
                common.mean_only(group.selected),
                common.mean_and_error(group.fdp),
                common.mean_and_error(group.power),
            ]
        )
    header = [
        "columns",
        "method",
        "settled",
        "seconds",
        "iterations",
        "rate",
        "slab variance (median)",
        "selected",
        "false share",
        "power",
    ]
    return common.markdown(header, rows)


def _sets(results: pd.DataFrame) -> str:
    rows = []
    for (design, method), group in results.groupby(["design", "method"], sort=False):
        n_sets = int(group.sets.sum())
        if n_sets == 0:
            rows.append([design, method, 0, *[""] * 5])
            continue
        by_set = group.sets / n_sets
        rows.append(
            [
                design,
                method,
                f"{n_sets / len(group):.1f}",
                f"{group.sets_right.sum() / n_sets:.3f}",
                f"{(by_set * group.sets_promised).sum():.3f}",
                f"{(by_set * group.set_size).sum():.1f}",
                f"{(by_set * group.set_purity).sum():.2f}",
                common.mean_and_error(group.sets_power),
            ]
        )
    header = ["columns", "method", "sets", "with a true feature", "promised", "size", "purity", "power"]
    return common.markdown(header, rows)


def _gibbs(table: pd.DataFrame) -> str:
    rows = []
    blocks = table.groupby("block")
    for name in [name for name in table.columns if name not in ("block", "gibbs", "gibbs_error", "weight")]:
        error = (table[name] - table.gibbs).abs()
        of_blocks = (blocks[name].sum() - blocks.gibbs.sum()).abs()
        rows.append([name, *(f"{value:.3f}" for value in (error.max(), error.mean(), of_blocks.max()))])
    noise = table.gibbs_error
    rows.append(["(standard error of Gibbs)", f"{noise.max():.3f}", f"{noise.mean():.3f}", ""])
    return common.markdown(["method", "largest error", "mean error", "largest error of a block's sum"], rows)


def _verdict(results: pd.DataFrame) -> str:
    best = results[results.method == OVER_BACKGROUND]
    in_blocks, on_ar = best[best.design == "blocks"], best[best.design != "blocks"]
    right = in_blocks.sets_right.sum() / max(in_blocks.sets.sum(), 1)
    return (
        f"Of the credible sets of EP over a background in blocks, {right:.3f} contain a true feature "
        f"(required {REQUIRED_RIGHT:.2f}). Its single features on AR(0.5) have a false share of "
        f"{on_ar.fdp.mean():.3f} (at most {REQUIRED_FDP:.2f}) and a power of {on_ar.power.mean():.2f} "
        f"(required {REQUIRED_POWER:.2f})."
    )


def draw(folder: Path) -> None:
    """Reliability of inclusion probabilities in blocks, and single columns against Gibbs sampling."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    calibration = pd.read_csv(folder / "calibration.csv")
    for method, group in calibration[calibration.design == "blocks"].groupby("method", sort=False):
        error = np.sqrt(group.believed * (1 - group.believed) / group.features)
        left.errorbar(group.believed, group.true, yerr=error, marker="o", ms=4, lw=1, label=method)
    left.plot([0, 1], [0, 1], color="0.6", lw=0.8, zorder=0)
    left.set(xlabel="inclusion probability", ylabel="share that is in", title="Blocks of 10, correlation 0.9")
    left.legend(frameon=False)

    table = pd.read_csv(folder / "gibbs.csv")
    for name, marker in (("EP", "x"), ("EP, refined", "o")):
        right.plot(table.gibbs, table[name], marker, ms=4, mfc="none", label=name)
    right.plot([0, 1], [0, 1], color="0.6", lw=0.8, zorder=0)
    right.set(xlabel="by Gibbs sampling", ylabel="inclusion probability", title="80 columns in blocks of 8")
    right.legend(frameon=False)
    figure.savefig(folder / "figure.png", dpi=120)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
