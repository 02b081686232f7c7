"""The tables and the figure of the study of inclusion probabilities, from its results.csv.

python -m benchmarks.studies.background.plot
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr

from benchmarks.studies import _common as common
from benchmarks.studies.background.designs import DESIGNS, NULL, REAL
from benchmarks.studies.background.methods import METHODS

Array = NDArray[np.float64]
N_BINS, RATES = 10, (0.1, 0.2)
# What issue 18 asks for: in each bin with so many features, over a stated rate, and of fits.
FULL_BIN, GAP_BAR, RATE_BAR, UNSETTLED_BAR = 30, 0.05, 0.02, 0.01
# A gap, and a left-out log loss below that of class frequencies, is clear from so many standard errors on.
CLEAR_GAP = CLEAR_GAIN = 2.0
TINY = float(np.finfo(np.float64).tiny)
GROUPS = {"real matrices": REAL, "simulated designs": tuple(set(DESIGNS) - set(REAL))}


class Bins(NamedTuple):
    """Ten bins of all runs of a group: features, the mean promised, and the share that is true.

    Several features of one run are not independent: they share its labels. So runs are the units: with n
    features in a bin, c of them a run's own, and d what these promise beyond those that are true, the gap's
    standard error is √Σ(d - gap c)² / n.
    """

    count: Array
    promised: Array
    true: Array
    error: Array  # of promised minus true

    @property
    def full(self) -> NDArray[np.bool_]:
        return self.count >= FULL_BIN

    @property
    def gap(self) -> Array:
        """Promised minus true, of full bins."""
        return (self.promised - self.true)[self.full]

    @property
    def clear_misses(self) -> int:
        """Full bins beyond the bar by what chance would seldom do: in one of twenty where the gap is nil."""
        outside = np.abs(self.gap) > GAP_BAR
        return int(np.sum(outside & (np.abs(self.gap) > CLEAR_GAP * self.error[self.full])))

    @property
    def expected_within(self) -> float:
        """So many full bins would be within the bar, on average, if the true gap of each were nil."""
        return float(np.sum(2.0 * ndtr(GAP_BAR / np.maximum(self.error[self.full], TINY)) - 1.0))


def pooled(group: pd.DataFrame) -> Bins | None:
    told = group[group["count"].notna()]
    if told.empty:
        return None
    of_runs = (
        np.array([np.array(text.split(), dtype=float) for text in told[name]])
        for name in ("count", "promised", "true")
    )
    counts, promises, truths = of_runs
    count = counts.sum(axis=0)
    filled = np.maximum(count, 1.0)
    promised, true = promises.sum(axis=0) / filled, truths.sum(axis=0) / filled
    beyond = promises - truths - (promised - true) * counts
    return Bins(count, promised, true, np.sqrt(np.sum(beyond**2, axis=0)) / filled)


def power_at(group: pd.DataFrame, rate: float) -> float:
    """The share of true features found by the lowest threshold that keeps the false share within the rate.

    Of the truth, not of what was promised: methods that promise too much or too little are compared alike.
    """
    listed = [entry for text in group.best.dropna() for entry in text.split()]
    true = np.array([entry.endswith("+") for entry in listed])
    score = np.array([float(entry.rstrip("+")) for entry in listed])
    order = np.argsort(-score, kind="stable")
    found = np.cumsum(true[order])
    within = np.flatnonzero(1.0 - found / np.arange(1, found.size + 1) <= rate)
    # Features with equal scores stand or fall together.
    within = within[np.append(np.diff(score[order]) < 0, True)[within]]
    return float(found[within[-1]] / group.n_active.sum()) if within.size else 0.0


def report(folder: Path) -> str:
    """Designs one by one, bins of real and of simulated ones, and the bars; also written into the README."""
    results = _sorted(folder)
    done = results[results.stopped.isna()]
    null, done = done[done.design.isin(NULL)], done[~done.design.isin(NULL)]
    texts = [
        f"Every design:\n\n{_designs(done)}",
        "Promised and true share by bins of the promised probability, ± the standard error of their "
        f"difference (number of features):\n\n{_bins(done)}",
        f"Against the bars of issue 18:\n\n{_bars(done)}",
    ]
    if beside := _beside(done):
        texts.append(f"Beside each other, on the runs that every method has:\n\n{beside}")
    if "groups" in done and done.groups.notna().any():
        texts.append(f"Groups at a false discovery rate of {RATES[0]:g}:\n\n{_groups(done, null)}")
    stopped = results[results.stopped.notna()]
    if len(stopped):
        failures = stopped.groupby(["method", "design", "stopped"], sort=False).size()
        lines = [f"- {method}, {design}, {n} runs: {why}" for (method, design, why), n in failures.items()]
        texts.append("Stopped:\n\n" + "\n".join(lines))
    text = "\n\n".join(texts)
    common.refresh_readme(folder, text)
    return text


def _sorted(folder: Path) -> pd.DataFrame:
    """Design by design, whenever they were measured; revisions in the order they came."""
    texts = {"revision": str, "outcome": str, "stopped": str, "group_sizes": str}
    results = pd.read_csv(folder / "results.csv", dtype=texts)
    results["revision"] = results.revision.fillna("")
    results["who"] = [f"{m} ({r})" if r else m for m, r in zip(results.method, results.revision, strict=True)]
    place = {name: i for i, name in enumerate((*DESIGNS, *NULL, *METHODS))}
    arrived = {name: i for i, name in enumerate(dict.fromkeys(results.revision))}
    places = pd.DataFrame(
        {
            "design": results.design.map(place),
            "method": results.method.map(place),
            "revision": results.revision.map(arrived),
            "run": results.run,
        }
    )
    return results.loc[places.sort_values(list(places), kind="stable").index]


def false_share(group: pd.DataFrame, rate: float) -> pd.Series:
    """Of every run; a run that selects nothing makes no mistake."""
    return group[f"false_{rate:g}"] / group[f"selected_{rate:g}"].clip(lower=1)


def power(group: pd.DataFrame, rate: float) -> float:
    return float((group[f"selected_{rate:g}"] - group[f"false_{rate:g}"]).sum() / group.n_active.sum())


def _designs(results: pd.DataFrame) -> str:
    rows = []
    for (design, who), group in results.groupby(["design", "who"], sort=False):
        bins = pooled(group)
        worst = _worst(bins) if bins and bins.full.any() else ""
        sure = bins.count[5:].sum() if bins else 0.0
        rows.append(
            [
                design,
                who,
                len(group),
                common.mean_only(1 - group.settled, 2),
                worst,
                _over(bins.promised, bins.count) if bins and sure else "",
                _over(bins.true, bins.count) if bins and sure else "",
                *(common.mean_and_error(false_share(group, rate), 2) for rate in RATES),
                *(f"{power(group, rate):.2f}" for rate in RATES),
                f"{power_at(group, 0.1):.2f}",
                f"{group.average_precision.mean():.3f}",
                f"{group.in_k_best.mean():.3f}",
                f"{group.cpu_seconds.mean():.2f}",
            ]
        )
    header = [
        "design",
        "method",
        "runs",
        "unsettled",
        "worst gap",
        "above .5: promised",
        "true",
        *(f"false at fdr {rate:g}" for rate in RATES),
        *(f"power at fdr {rate:g}" for rate in RATES),
        "power at 10 % truly false",
        "average precision",
        "true of K best",
        "CPU s",
    ]
    return common.markdown(header, rows)


def _worst(bins: Bins) -> str:
    """The largest gap with its standard error."""
    at = int(np.argmax(np.abs(bins.gap)))
    return f"{bins.gap[at]:+.3f} ({bins.error[bins.full][at]:.3f})"


def _over(share: Array, count: Array) -> str:
    """The mean over features in the upper five bins."""
    return f"{share[5:] @ count[5:] / count[5:].sum():.2f}"


def groups_of(results: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame]]:
    for name, designs in GROUPS.items():
        for who, group in results[results.design.isin(designs)].groupby("who", sort=False):
            yield name, who, group


def _bins(results: pd.DataFrame) -> str:
    rows = []
    for name, who, group in groups_of(results):
        bins = pooled(group)
        if bins is not None:
            cells = [
                f"{promised:.2f} {true:.2f} ± {error:.2f} ({count:.0f})" if count else ""
                for count, promised, true, error in zip(*bins, strict=True)
            ]
            rows.append([name, who, *cells])
    edges = [f".{i} to {f'.{i + 1}' if i < N_BINS - 1 else '1'}" for i in range(N_BINS)]
    return common.markdown(["", "method", *edges], rows)


def _bars(results: pd.DataFrame) -> str:
    rows = []
    for name, who, group in groups_of(results):
        bins = pooled(group)
        within = "" if bins is None else f"{np.sum(np.abs(bins.gap) <= GAP_BAR)} of {bins.gap.size}"
        clear = "" if bins is None else str(bins.clear_misses)
        expected = "" if bins is None else f"{bins.expected_within:.1f}"
        by_design = [part for _, part in group.groupby("design", sort=False)]
        rates = []
        for rate in RATES:
            kept = [false_share(part, rate).mean() <= rate + RATE_BAR for part in by_design]
            rates.append(f"{false_share(group, rate).mean():.3f}; {sum(kept)} of {len(kept)} designs")
        unsettled = 1 - group.settled.mean()  # NaN of methods that do not say
        verdict = f"{unsettled:.3f}; {'yes' if unsettled <= UNSETTLED_BAR else 'no'}"
        verdict = "" if np.isnan(unsettled) else verdict
        rows.append([name, who, len(group), within, expected, clear, *rates, verdict])
    header = [
        "",
        "method",
        "runs",
        f"bins of {FULL_BIN} within {GAP_BAR:g}",
        "expected of true promises",
        f"outside by more than {CLEAR_GAP:g} standard errors",
        *(f"false share at most {rate + RATE_BAR:g}" for rate in RATES),
        f"unsettled at most {UNSETTLED_BAR:g}",
    ]
    return common.markdown(header, rows)


def _beside(results: pd.DataFrame) -> str:
    """Power and false shares of all methods on the same problems; nothing where one is alone."""
    rows, n_methods = [], results.who.nunique()
    everyone = results.groupby(["design", "run"]).who.transform("nunique") == n_methods
    for name, who, group in groups_of(results[everyone]) if n_methods > 1 else ():
        by_design = [power_at(part, 0.1) for _, part in group.groupby("design", sort=False)]
        rows.append(
            [
                name,
                who,
                len(group),
                *(f"{power(group, rate):.3f}" for rate in RATES),
                *(f"{false_share(group, rate).mean():.3f}" for rate in RATES),
                f"{np.mean(by_design):.3f}",
                f"{group.average_precision.mean():.3f}",
            ]
        )
    header = [
        "",
        "method",
        "runs",
        *(f"power at fdr {rate:g}" for rate in RATES),
        *(f"false at fdr {rate:g}" for rate in RATES),
        "power at 10 % truly false, mean over designs",
        "average precision",
    ]
    return common.markdown(header, rows) if rows else ""


def _groups(results: pd.DataFrame, null: pd.DataFrame) -> str:
    """Of designs, of real and simulated ones together, and of labels that have nothing to do with X."""
    rows = []
    parts = [(design, who, part) for (design, who), part in results.groupby(["design", "who"], sort=False)]
    parts += [(f"all {name}", who, part) for name, who, part in groups_of(results)]
    parts += [(design, who, part) for (design, who), part in null.groupby(["design", "who"], sort=False)]
    for name, who, part in parts:
        part = part[part.groups.notna()]
        if part.empty:
            continue
        n, clear = part.groups.sum(), part[part.gain > CLEAR_GAIN]
        sizes = [int(size) for text in part.group_sizes.dropna().astype(str) for size in text.split()]
        single = f"{np.mean(np.array(sizes) == 1):.2f}" if sizes else ""
        rows.append(
            [
                name,
                who,
                len(part),
                int(n),
                f"{part.groups_right.sum() / n:.3f}" if n else "",
                f"{part.groups_promised.sum() / n:.3f}" if n else "",
                f"{np.median(sizes):g}" if sizes else "",
                single,
                f"{np.sum(part.groups > 0)} of {len(part)}",
                f"{np.sum(clear.groups > 0)} of {len(clear)}" if len(clear) else "",
                f"{part.in_groups.sum() / part.n_active.sum():.2f}" if part.n_active.sum() else "",
            ]
        )
    header = [
        "design",
        "method",
        "runs",
        "groups",
        "with a true feature",
        "promised",
        "median size",
        "of one feature",
        "runs with a group",
        "of those clearly better than class frequencies",
        "true features in groups",
    ]
    return common.markdown(header, rows)


def draw(folder: Path) -> None:
    """figure.png: the share that is true against what was promised."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    results = _sorted(folder)
    results = results[results.stopped.isna()]
    figure, axes = plt.subplots(1, 2, figsize=(10, 4.6), layout="constrained", sharey=True)
    colors: dict[str, str] = {}
    for name, who, group in groups_of(results):
        bins = pooled(group)
        if bins is None:
            continue
        axis = axes[list(GROUPS).index(name)]
        color = colors.setdefault(who, f"C{len(colors)}")
        shown = bins.full
        axis.errorbar(
            bins.promised[shown],
            bins.true[shown],
            bins.error[shown],
            marker="o",
            markersize=4,
            color=color,
            label=who,
            alpha=0.85,
        )
    for axis, name in zip(axes, GROUPS, strict=True):
        axis.plot([0, 1], [0, 1], "k:", linewidth=1)
        axis.set(title=name, xlabel="promised", xlim=(0, 1), ylim=(0, 1))
        axis.legend(fontsize=8, loc="upper left")
    axes[0].set_ylabel("true")
    figure.savefig(folder / "figure.png", dpi=130)
    plt.close(figure)


if __name__ == "__main__":
    common.redraw(Path(__file__).parent, report, draw)
