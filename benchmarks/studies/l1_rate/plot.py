"""Table of the study of L1 rates, from its results.csv.

python -m benchmarks.studies.l1_rate.plot
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from benchmarks.studies import _common as common

LEARNT = "learnt"
TEXT = "rcv1_small"
TWO_CLASSES, FOUR_CLASSES = "two classes, 300 samples", "four classes, 300 samples"
# Fixed rates as multiples of the learnt one, which is one more.
MULTIPLES = tuple(f"{2 ** (k / 2):.3g}" for k in range(-4, 5) if k != 0)
N_RATES = len(MULTIPLES) + 1
PLACE = ["data", "n_features", "n_active"]


def results_of(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "results.csv", dtype={"times": str})


def beyond_best(results: pd.DataFrame) -> pd.DataFrame:
    """Errors of the learnt rate, of the best fixed one of each trial, and of the one that is best on average.

    The first is no rule anyone could have: it is chosen by the test error of each trial by itself.
    """
    rows = []
    for place, group in results.groupby(PLACE, sort=False):
        # Trials that have every rate.
        by_times = group.pivot_table(index="trial", columns="times", values="error").dropna()
        if LEARNT not in by_times or by_times.shape[0] == 0 or by_times.shape[1] < N_RATES:
            continue
        learnt, fixed = by_times[LEARNT], by_times.drop(columns=LEARNT)
        best = fixed.min(axis=1)
        beyond = learnt - best
        rows.append(
            [
                *(*place, len(learnt), learnt.mean(), best.mean(), fixed.mean().min()),
                *(fixed.mean().idxmin(), beyond.mean(), beyond.max()),
            ]
        )
    names = ["trials", LEARNT, "best_of_each", "best_on_average", "its_times", "beyond", "most_beyond"]
    return pd.DataFrame(rows, columns=[*PLACE, *names])


def report(folder: Path) -> str:
    found = beyond_best(results_of(folder))
    header = ["data", "N", "K", "trials", "learnt", "best fixed of each trial", "best fixed on average"]
    header += ["as multiple of the learnt", "learnt − best of each", "at most"]
    rows = [
        [
            *(one.data, one.n_features, one.n_active or "", one.trials, f"{one.learnt:.3f}"),
            *(f"{one.best_of_each:.3f}", f"{one.best_on_average:.3f}", one.its_times),
            *(f"{one.beyond:+.3f}", f"{one.most_beyond:+.3f}"),
        ]
        for one in found.itertuples()
    ]
    text = common.markdown(header, rows)
    common.refresh_readme(folder, text)
    return text


if __name__ == "__main__":
    print(report(Path(__file__).parent))
