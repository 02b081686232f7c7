"""The tables and the figure of the study of trust, from its results.csv.

python -m benchmarks.studies.trust.plot
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from benchmarks.studies import _common as common

LOO_BAR = 0.03
# A single fit counts as miscalibrated beyond either of these. If inclusion probabilities were exact, three
# standard errors would be exceeded in about one of 400 fits; class probabilities are judged on fresh samples.
Z_BAR, CLASS_BAR = 3.0, 0.1


def report(folder: Path) -> str:
    """A table per part; also written into the README."""
    results = pd.read_csv(folder / "results.csv", keep_default_na=False, na_values={"seconds": [""]})
    numeric = results.columns.difference(
        ["part", "data", "solver", "outcome", "warned", *common.PROVENANCE, *_bin_columns(results)]
    )
    results[numeric] = results[numeric].apply(pd.to_numeric)
    titles = {
        "loo": "Leave-one-out against refits without each sample:",
        "groups": "Leave-one-run-out against refits without each run:",
    }
    texts = [
        f"{title}\n\n{_refits(results[results.part == part])}"
        for part, title in titles.items()
        if (results.part == part).any()
    ]
    calibration = results[results.part == "calibration"]
    if len(calibration):
        texts.append(f"Calibration, all runs of a design together:\n\n{_calibration(calibration)}")
        texts.append(f"Share of true weights in their 90 % intervals:\n\n{_coverage(calibration)}")
        texts.append(f"Single fits, and whether a bad one said so:\n\n{_flags(calibration)}")
    text = "\n\n".join(texts)
    common.refresh_readme(folder, text)
    return text


def _bin_columns(results: pd.DataFrame) -> list[str]:
    return [c for c in results.columns if c.endswith(("_count", "_predicted", "_observed"))]


def _refits(results: pd.DataFrame) -> str:
    rows = []
    for data, group in results.groupby("data", sort=False):
        difference = (group.loo_error - group.refit_error).abs()
        rows.append(
            [
                data,
                f"{group.n_samples.iloc[0]} x {group.n_features.iloc[0]}",
                len(group),
                "/".join(sorted(set(group.solver))),
                f"{group.loo_error.mean():.3f}",
                f"{group.refit_error.mean():.3f}",
                f"{difference.max():.3f}",
                f"{group.loo_log_loss.mean():.3f}",
                f"{group.refit_log_loss.mean():.3f}",
                "yes" if (difference <= LOO_BAR).all() else "no",
            ]
        )
    header = [
        "data",
        "size",
        "runs",
        "solver",
        "loo_error_",
        "error of refits",
        "largest difference",
        "loo_log_loss_",
        "log loss of refits",
        f"within {LOO_BAR}",
    ]
    return common.markdown(header, rows)


def pooled(group: pd.DataFrame, name: str) -> tuple[NDArray[np.float64], ...]:
    """Bins of all runs together: counts, sums of probabilities, numbers of events."""
    return tuple(
        np.array([np.array(text.split(), dtype=float) for text in group[f"{name}_{part}"]]).sum(axis=0)
        for part in ("count", "predicted", "observed")
    )


def reliability_error(group: pd.DataFrame, name: str) -> float:
    """|observed - predicted| of ten bins, averaged with their counts."""
    count, predicted, observed = pooled(group, name)
    return float(np.abs(observed - predicted).sum() / count.sum())


def error_of_likely(group: pd.DataFrame) -> float:
    """The same of the upper five bins of inclusion alone: zeros are many, and easily right."""
    count, predicted, observed = (values[5:] for values in pooled(group, "inclusion"))
    return float(np.abs(observed - predicted).sum() / max(count.sum(), 1.0))


def _calibration(results: pd.DataFrame) -> str:
    rows = []
    for design, group in results.groupby("data", sort=False):
        _, predicted, observed = pooled(group, "inclusion")
        rows.append(
            [
                design,
                len(group),
                "/".join(
                    f"{solver} {(group.solver == solver).sum()}" for solver in sorted(set(group.solver))
                ),
                f"{reliability_error(group, 'inclusion'):.4f}",
                f"{error_of_likely(group):.3f}",
                f"{predicted.sum() / len(group):.1f}",
                f"{observed.sum() / len(group):.1f}",
                f"{reliability_error(group, 'class'):.3f}",
                f"{group.class_error.mean():.3f}",
            ]
        )
    header = [
        "design",
        "runs",
        "solver",
        "inclusion, 10 bins",
        "inclusion above 0.5",
        "expected active",
        "active",
        "class, 10 bins",
        "class, mean of single fits",
    ]
    return common.markdown(header, rows)


def _coverage(results: pd.DataFrame) -> str:
    readings = {
        "simple, likely": ("simple_likely", "n_likely"),
        "mixture, likely": ("mixture_likely", "n_likely"),
        "slab, likely and active": ("slab_likely_active", "n_likely_active"),
        "simple, all": ("simple_all", "n_all"),
        "mixture, all": ("mixture_all", "n_all"),
    }

    def share(group: pd.DataFrame, hits: str, of: str) -> str:
        read = group[group[hits].notna()]
        return f"{read[hits].sum() / read[of].sum():.3f}" if read[of].sum() > 0 else ""

    rows = [
        [design, int(group.n_likely.sum()), *(share(group, hits, of) for hits, of in readings.values())]
        for design, group in results.groupby("data", sort=False)
    ]
    return common.markdown(["design", "likely features", *readings], rows)


def _flags(results: pd.DataFrame) -> str:
    rows = []
    for design, group in results.groupby("data", sort=False):
        inclusion_off, class_off = group.inclusion_z.abs() > Z_BAR, group.class_error > CLASS_BAR
        off = inclusion_off | class_off
        flagged = (group.trustworthy == 0) | (group.warned != "") | (group["flags"] > 0)
        rows.append(
            [
                design,
                len(group),
                int(inclusion_off.sum()),
                int(class_off.sum()),
                int(off.sum()),
                int((off & flagged).sum()),
                int((~off & flagged).sum()),
            ]
        )
    header = [
        "design",
        "runs",
        "inclusion off",
        "class off",
        "miscalibrated",
        "of these flagged",
        "others flagged",
    ]
    return common.markdown(header, rows)


def draw(folder: Path) -> None:
    """figure.png: leave-one-out against refits; reliability of inclusion and of class probabilities."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = pd.read_csv(folder / "results.csv")
    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.6), layout="constrained")
    held = results[results.part != "calibration"]
    for (part, data), group in held.groupby(["part", "data"], sort=False):
        marker = "o" if part == "loo" else "s"
        left.plot(group.refit_error, group.loo_error, marker, label=data, alpha=0.8)
    end = 1.1 * max(0.1, held[["loo_error", "refit_error"]].max().max()) if len(held) else 0.5
    left.fill_between([0, end], [-LOO_BAR, end - LOO_BAR], [LOO_BAR, end + LOO_BAR], color="0.9", zorder=0)
    left.set(
        title="left-out error, one fit",
        xlabel="error of refits",
        ylabel="loo_error_",
        xlim=(0, end),
        ylim=(0, end),
    )
    calibration = results[results.part == "calibration"]
    panels = ((middle, "inclusion", "inclusion probabilities"), (right, "class", "class probabilities"))
    for axes, name, title in panels:
        axes.plot([0, 1], [0, 1], color="0.7", zorder=0)
        for design, group in calibration.groupby("data", sort=False):
            count, predicted, observed = pooled(group, name)
            there = count >= 10  # fewer say nothing
            axes.plot(
                predicted[there] / count[there], observed[there] / count[there], "o-", ms=4, label=design
            )
        axes.set(title=title, xlabel="predicted", ylabel="observed")
    for axes in (left, right):
        if axes.get_legend_handles_labels()[0]:
            axes.legend(fontsize=7)
    figure.savefig(folder / "figure.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
