"""The table and the figure of the study of text of many classes, from its results.csv.

python -m benchmarks.studies.text_many_classes.plot
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.studies import _common as common

FOLDLESS, TUNED = "foldless", "saga L1, cross-validated"
MOST_MEMORY_MB = 4096


def report(folder: Path) -> str:
    """Every method, and saga at the accuracy of foldless; also written into the README."""
    results = pd.read_csv(folder / "results.csv")
    text = f"{_each(results)}\n\n{equal_accuracy(results)}"
    common.refresh_readme(folder, text)
    return text


def _each(results: pd.DataFrame) -> str:
    rows = []
    for method in dict.fromkeys(results.method):
        group = results[results.method == method]
        done = group[group.error.notna()]
        rows.append(
            [
                method,
                len(done),
                common.mean_and_error(done.error) or "; ".join(sorted(set(group.stopped.dropna()))),
                common.mean_only(done.log_loss, 3),
                common.mean_only(done.kept, 0),
                common.mean_only(done.cpu_seconds, 1),
                common.mean_only(done.seconds, 1),
                common.mean_only(done.peak_mb, 0),
                common.mean_only(done.loaded_mb, 0),
            ]
        )
    header = [
        "method",
        "trials",
        "error (s.e.)",
        "log loss",
        "kept",
        "CPU seconds",
        "wall seconds",
        "peak, MB",
        "before the fit, MB",
    ]
    bayes = results.bayes_error.mean()
    table = common.markdown(header, rows)
    return f"The true word frequencies err at {bayes:.4f} on the test documents.\n\n{table}"


def equal_accuracy(results: pd.DataFrame) -> str:
    """The fastest saga that errs no more than foldless, its penalty known beforehand."""
    means = results[results.error.notna()].groupby("method")[["error", "cpu_seconds"]].mean()
    if FOLDLESS not in means.index:
        return "foldless has no finished fit to compare with."
    ours = means.loc[FOLDLESS]
    told = []
    for title, chosen in (
        ("with the penalty known beforehand", means.drop([FOLDLESS, TUNED], errors="ignore")),
        ("with cross-validation", means.loc[means.index == TUNED]),
    ):
        equal = chosen[chosen.error <= ours.error]
        if chosen.empty:
            continue
        if equal.empty:
            told.append(f"No saga {title} errs as little as foldless.")
        else:
            best = equal.cpu_seconds.idxmin()
            ratio = equal.cpu_seconds[best] / ours.cpu_seconds
            told.append(
                f"At the error of foldless or less, the fastest saga {title} ({best}) takes {ratio:.2f} "
                "times the CPU time of foldless."
            )
    return "\n".join(told)


def draw(folder: Path) -> None:
    """figure.png: error and memory against CPU time."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = pd.read_csv(folder / "results.csv")
    done = results[results.error.notna()]
    figure, (errors, memory) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for method in dict.fromkeys(done.method):
        group = done[done.method == method]
        marker = "s" if method == FOLDLESS else "o"
        errors.plot(group.cpu_seconds, group.error, marker, label=method)
        memory.plot(group.cpu_seconds, group.peak_mb, marker, label=method)
    errors.axhline(done.bayes_error.mean(), color="grey", linestyle=":", label="true frequencies")
    errors.set(xlabel="CPU seconds", ylabel="test error", xscale="log", title="Error against time")
    memory.axhline(MOST_MEMORY_MB, color="grey", linestyle=":", label="4 GB")
    memory.set(xlabel="CPU seconds", ylabel="MB", xscale="log", yscale="log", title="Peak memory")
    errors.legend(fontsize=7)
    figure.savefig(folder / "figure.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
