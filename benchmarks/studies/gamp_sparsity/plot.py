"""The table and the figure of the sparsity study, from its results.csv.

python -m benchmarks.studies.gamp_sparsity.plot
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.studies import _common as common

BAYES_ERROR = 0.05
# What the study must show at the paper's sizes: mean test error at most this.
REQUIRED = {5: 0.053, 10: 0.054, 20: 0.058, 30: 0.076}
FOLDLESS = "foldless"
# They take longest, and run in the first trials only.
RIVALS = ("celer L1", "liblinear L1")


def report(folder: Path) -> str:
    """All trials, then the trials in which rivals ran beside foldless; also written into the README."""
    results = pd.read_csv(folder / "results.csv")
    text = f"All trials:\n\n{_all_trials(results)}\n\n{_beside_rivals(results)}"
    common.refresh_readme(folder, text)
    return text


def _all_trials(results: pd.DataFrame) -> str:
    rows = []
    results = results.sort_values(["n_active", "trial"], kind="stable")
    for (n_active, method), group in results.groupby(["n_active", "method"], sort=False):
        rows.append(
            [
                n_active,
                method,
                len(group),
                common.mean_and_error(group.error),
                REQUIRED.get(n_active, "") if method == FOLDLESS else "",
                common.mean_only(group.seconds, 2),
                f"{common.mean_only(group.kept)} ({common.mean_only(group.kept_false)})",
                f"{common.mean_only(group.kept_fdr)} ({common.mean_only(group.kept_fdr_false)})"
                if group.kept_fdr.notna().any()
                else "",
                common.mean_only(group.generative_weight, 2),
                common.mean_only(group.loo_error, 3),
            ]
        )
    header = [
        "K",
        "method",
        "trials",
        "error (s.e.)",
        "at most",
        "seconds",
        "kept (false)",
        "at FDR 0.1 (false)",
        "gen. weight",
        "LOO error",
    ]
    return common.markdown(header, rows)


def _beside_rivals(results: pd.DataFrame) -> str:
    is_rival = results.method.isin(RIVALS)
    if not is_rival.any():
        return "No rival was run."
    same = results[results.trial.isin(results.trial[is_rival])]
    seconds = same.groupby(["n_active", "method"], sort=False).seconds.sum()
    errors = same.groupby(["n_active", "method"], sort=False).error.mean()
    rivals = list(dict.fromkeys(results.method[is_rival]))
    rows = []
    for n_active in sorted(set(same.n_active)):
        ours = seconds[n_active, FOLDLESS]
        ratios = [seconds[n_active, rival] / ours for rival in rivals]
        rows.append(
            [n_active, f"{errors[n_active, FOLDLESS]:.3f}"]
            + [f"{errors[n_active, rival]:.3f}" for rival in rivals]
            + [f"{ratio:.1f}" for ratio in ratios]
            + [f"{min(ratios):.1f}"]
        )
    total = seconds.groupby(level="method").sum()
    ratios = [total[rival] / total[FOLDLESS] for rival in rivals]
    rows.append(["all", *[""] * (1 + len(rivals)), *[f"{r:.1f}" for r in ratios], f"{min(ratios):.1f}"])
    header = ["K", "error, foldless", *[f"error, {rival}" for rival in rivals]]
    header += [*[f"time ratio, {rival}" for rival in rivals], "to the fastest"]
    table = common.markdown(header, rows)
    trials = same.trial.nunique()
    return f"Trials in which rivals ran ({trials}); their seconds over those of foldless:\n\n{table}"


def draw(folder: Path) -> None:
    """figure.png: test error, features kept and seconds against the number of informative features."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = pd.read_csv(folder / "results.csv")
    figure, (errors, found, seconds) = plt.subplots(1, 3, figsize=(12, 3.8), layout="constrained")
    for method in dict.fromkeys(results.method):
        groups = results[results.method == method].groupby("n_active")
        for axes, column in ((errors, "error"), (found, "kept"), (seconds, "seconds")):
            mean, error = groups[column].mean(), groups[column].sem().fillna(0)
            axes.errorbar(mean.index, mean, error, marker="o", capsize=2, label=method)
    sizes = sorted(results.n_active.unique())
    errors.axhline(BAYES_ERROR, color="grey", linestyle=":", label="Bayes")
    errors.set(ylabel="test error", title="Test error")
    found.plot(sizes, sizes, color="grey", linestyle=":", label="K")
    found.set(ylabel="features", title="Features kept", yscale="log")
    seconds.set(ylabel="seconds", title="Time, tuning included", yscale="log")
    for axes in (errors, found, seconds):
        axes.set_xlabel("informative features K")
    errors.legend(fontsize=8)
    figure.savefig(folder / "figure.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
