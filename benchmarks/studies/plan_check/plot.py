"""The tables and the figure of the planner's study, from its CSV files.

python -m benchmarks.studies.plan_check.plot
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.studies import _common as common

# What the study must show: predicted minus simulated error, at most this.
REQUIRED = {"independent": 0.01, "correlated": 0.03}


def report(folder: Path) -> str:
    """Predicted beside simulated, part by part, and the learning curves; also written into the README."""
    texts = []
    compared = _compared(folder)
    for part in dict.fromkeys(compared.part):
        group = compared[compared.part == part]
        rows = [
            [
                row.setting,
                int(row.trials),
                f"{row.error:.3f}",
                f"{row.simulated:.3f} ({row.standard_error:.3f})",
                f"{row.difference:+.3f}",
                f"{row.power:.2f}",
                f"{row.simulated_power:.2f}",
                f"{row.n_false:.1f}",
                f"{row.simulated_false:.1f}",
            ]
            for row in group.itertuples()
        ]
        header = ["setting", "trials", "predicted error", "simulated (s.e.)", "difference"]
        header += ["predicted power", "simulated", "predicted false", "simulated"]
        worst = group.difference.abs().max()
        bar = f" (at most {REQUIRED[part]:g})" if part in REQUIRED else ""
        texts.append(f"**{part}**: largest difference {worst:.3f}{bar}\n\n{common.markdown(header, rows)}")
    if (folder / "learning.csv").exists():
        texts.append(_learning(pd.read_csv(folder / "learning.csv")))
    text = "\n\n".join(texts)
    common.refresh_readme(folder, text)
    return text


def _compared(folder: Path) -> pd.DataFrame:
    predictions, results = pd.read_csv(folder / "predictions.csv"), pd.read_csv(folder / "results.csv")
    groups = results.groupby(["part", "setting"])
    simulated = pd.DataFrame(
        {
            "trials": groups.size(),
            "simulated": groups.error.mean(),
            "standard_error": groups.error.sem(),
            "simulated_power": groups.power.mean(),
            "simulated_false": groups.n_false.mean(),
        }
    )
    compared = predictions.merge(simulated.reset_index(), on=["part", "setting"])
    return compared.assign(difference=compared.error - compared.simulated)


def _learning(learning: pd.DataFrame) -> str:
    rows = []
    for name, data in learning.groupby("data", sort=False):
        wide = data.pivot_table(index=["n_samples", "trial"], columns="what", values="error")
        for size, group in wide.groupby(level="n_samples"):
            # Of single tests on ten samples a band cannot hold many; what it is to hold is their mean.
            bands = group.dropna(subset=["lower", "upper"])
            held = ((bands.lower <= group.shown.mean()) & (group.shown.mean() <= bands.upper)).mean()
            rows.append(
                [
                    name,
                    size,
                    common.mean_and_error(group.predicted),
                    f"{group.lower.mean():.3f} to {group.upper.mean():.3f}",
                    common.mean_and_error(group.shown),
                    f"{held:.0%}",
                ]
            )
    header = [
        "data",
        "samples",
        "predicted from a half (s.e.)",
        "band, mean",
        "shown (s.e.)",
        "bands that hold it",
    ]
    return (
        "**real**: learning curves predicted from random halves; shown are errors on the rest of the table, "
        f"and for all samples the leave-one-out error\n\n{common.markdown(header, rows)}"
    )


def draw(folder: Path) -> None:
    """figure.png: predicted against simulated, and the learning curves of real data."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    compared = _compared(folder)
    learning = pd.read_csv(folder / "learning.csv") if (folder / "learning.csv").exists() else None
    names = [] if learning is None else list(dict.fromkeys(learning.data))
    figure, axes = plt.subplots(1, 1 + len(names), figsize=(5 + 4 * len(names), 4.2), layout="constrained")
    first, *others = [axes] if not names else axes
    styles = {"independent": ("o", "#0072B2"), "logistic": ("^", "#E69F00"), "correlated": ("s", "#D55E00")}
    for part, group in compared.groupby("part", sort=False):
        marker, colour = styles[str(part)]
        first.errorbar(
            group.error,
            group.simulated,
            1.96 * group.standard_error,
            fmt=marker,
            ms=5,
            capsize=2,
            color=colour,
            label=str(part),
        )
    ends = [0.0, 1.05 * max(compared.error.max(), compared.simulated.max())]
    first.plot(ends, ends, color="grey", lw=0.8)
    first.set(xlabel="predicted error", ylabel="simulated error (95 %)", title="Simulated studies")
    first.legend(fontsize=8)
    for axis, name in zip(others, names, strict=True):
        data = learning[learning.data == name]
        mean = data.groupby(["what", "n_samples"]).error.mean()
        sizes = mean["predicted"].index
        axis.fill_between(
            sizes, mean["lower"], mean["upper"], color="#0072B2", alpha=0.15, label="band, mean of halves"
        )
        axis.plot(sizes, mean["predicted"], color="#0072B2", label="predicted from a half")
        shown = mean["shown"]
        error = data[data.what == "shown"].groupby("n_samples").error.sem().fillna(0)
        axis.errorbar(
            shown.index, shown, 1.96 * error, fmt="D", mfc="none", capsize=3, color="#222222", label="shown"
        )
        axis.set(xlabel="samples", ylabel="error", title=name, ylim=(0, None))
        axis.legend(fontsize=8)
    figure.savefig(folder / "figure.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
