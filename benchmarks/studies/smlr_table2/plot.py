"""The table and the figure of the SMLR study, from its results.csv.

python -m benchmarks.studies.smlr_table2.plot
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.studies import _common as common

# Wrong (kept), as printed in table 2 of the paper.
PAPER = {
    "SMLR": {
        "crabs": "0 (10)",
        "iris": "1 (136)",
        "fgl": "50 (901)",
        "leukemia": "2 (10)",
        "colon": "75 (15)",
        "yeast": "3 (83)",
    },
    "RMLR": {
        "crabs": "1 (80)",
        "iris": "8 (270)",
        "fgl": "59 (965)",
        "leukemia": "2 (38)",
        "colon": "84 (50)",
        "yeast": "9 (728)",
    },
    "RVM": {
        "crabs": "0 (4)",
        "iris": "10 (37)",
        "fgl": "61 (74)",
        "leukemia": "5 (3)",
        "colon": "84 (6)",
        "yeast": "12 (49)",
    },
    "SVM": {
        "crabs": "2 (53)",
        "iris": "5 (124)",
        "fgl": "62 (365)",
        "leukemia": "3 (31)",
        "colon": "75 (32)",
        "yeast": "7 (155)",
    },
    "SMLR features": {"leukemia": "1 (81)", "colon": "75 (15)"},
}


def report(folder: Path) -> str:
    """Wrong predictions in all, mean of kept weights, seconds; ours and the paper's."""
    results = pd.read_csv(folder / "results.csv")
    names = list(dict.fromkeys(results.data))
    rows = []
    for method, group in results.groupby("method", sort=False):
        cells, paper = [method], ["paper"]
        for name in names:
            own = group[group.data == name]
            cells.append(
                f"{_total(own)} ({own.kept.mean():.0f}) {own.seconds.mean():.1f} s" if len(own) else ""
            )
            paper.append(PAPER.get(str(method), {}).get(name, ""))
        rows.append(cells)
        if method in PAPER:
            rows.append(paper)
    every = results[results.method == "SMLR"].groupby(["data", "repetition"]).tested.sum()
    tested = [f"of {every[n].iloc[0]}" for n in names]
    text = common.markdown(["wrong (kept) seconds", *names], [*rows, ["out of", *tested]])
    common.refresh_readme(folder, text)
    return text


def _total(own: pd.DataFrame) -> str:
    """Errors over all splits; of several drawings of the splits the mean and its range."""
    wrong = own.groupby("repetition").wrong.sum()
    if wrong.size == 1:
        return str(wrong.iloc[0])
    return f"{wrong.mean():.1f} [{wrong.min()}-{wrong.max()}]"


def draw(folder: Path) -> None:
    """figure.png: error against weights kept, one panel per data set, beside the paper's points."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = pd.read_csv(folder / "results.csv")
    names = list(dict.fromkeys(results.data))
    figure, panels = plt.subplots(2, 3, figsize=(11, 6), layout="constrained")
    for axes, name in zip(panels.flat, names, strict=False):
        for i, method in enumerate(["SMLR", "RMLR", "RVM", "SVM"]):
            own = results[(results.data == name) & (results.method == method)]
            if own.empty:
                continue
            total = own.tested.sum()
            axes.plot(own.kept.mean(), own.wrong.sum() / total, "o", color=f"C{i}", label=method)
            wrong, kept = PAPER[method][name].rstrip(")").split(" (")
            axes.plot(float(kept), float(wrong) / total, "x", color=f"C{i}")
        axes.set(title=name, xlabel="weights kept", ylabel="error", xscale="log")
    panels.flat[0].legend(title="x: paper", fontsize=8)
    figure.savefig(folder / "figure.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
