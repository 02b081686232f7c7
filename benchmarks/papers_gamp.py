"""Pages about the two papers on message passing: published, ours, a verdict, from studies' results.

python -m benchmarks.papers_gamp           # says which pages differ from results
python -m benchmarks.papers_gamp --write   # writes their tables anew
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import pandas as pd

from benchmarks import papers
from benchmarks.papers import STUDIES, Row
from benchmarks.studies.gamp_tables import plot as tables_study
from benchmarks.studies.l1_rate import plot as l1_rate

BEGINS = "<!-- verdicts, by python -m benchmarks.papers_gamp -->"
HEADER = ["what", "published", "ours", "command", "verdict"]
# Section VI-A: "test errors from .05 to .08".
WORST_PUBLISHED = 0.08
SPARSITY = "`python -m benchmarks.studies.gamp_sparsity.run`"
ROBUST = "`python -m benchmarks.studies.gamp_robust.run`"
EVOLUTION = "`python benchmarks/studies/state_evolution/run.py`"
TABLES_VIII_TO_X = "`python -m benchmarks.studies.gamp_tables.run --data DIR`"
L1_RATE = "`python -m benchmarks.studies.l1_rate.run --data DIR`"
SYNTHETIC = "`python -m benchmarks.studies.shygamp_synthetic.run`"


def gamp() -> list[Row]:
    results = pd.read_csv(STUDIES / "gamp_sparsity" / "results.csv")
    rows = []
    for method, group in results.groupby("method", sort=False):
        by_size = group.groupby("n_active").error
        means, errors = by_size.mean(), by_size.sem().fillna(0.0)
        shown = ", ".join(f"{mean:.3f}" for mean in means)
        ours = str(method).startswith(("foldless", "GAMP"))
        reached = bool((means <= WORST_PUBLISHED + 2 * errors).all())
        verdict = (
            ("reached" if reached else f"above .08 by {means.max() - WORST_PUBLISHED:.3f}") if ours else ""
        )
        what = f"figure 3 (section VI-A), {method}, test error at K = {', '.join(map(str, means.index))}"
        rows.append([what, ".05 to .08" if ours else "", shown, SPARSITY, verdict])
    means = results.groupby(["n_active", "method"]).error.mean().unstack()
    ahead = means[list(SHORTCUTS)].min(axis=1) - means["foldless"]
    shown = f"they err {ahead.min():+.3f} to {ahead.max():+.3f} more than `SparseClassifier()`"
    what = "the shortcuts, the better of one-bit and K largest of X'y"
    rows.append(
        [what, "nearly as good", shown, SPARSITY, _verdict(ahead.min() > 0, "ours errs less", "even")]
    )
    rows += learnt_rates(l1_rate.TWO_CLASSES, l1_rate.TEXT)
    rows += wrong_labels()
    rows += text_and_brain()
    evolution = pd.read_csv(STUDIES / "state_evolution" / "results.csv", comment="#")
    off = float((evolution.measured_error - evolution.predicted_error).abs().max())
    shown = f"errors at most {off:.3f} apart, {len(evolution)} points"
    rows.append(["figure 2, state evolution against GAMP", "agree", shown, EVOLUTION, _verdict(off < 0.01)])
    return rows


# What each has of figure 4, where robust methods are "still achieving the Bayes error rate".
ROBUST_METHODS = {
    "robust (discriminative)": "the paper's robust logistic, EM",
    "genie, robust logistic": "the paper's robust logistic, genie",
    "robust logistic": "robust logistic blended with class means",
    "SparseClassifier": "SparseClassifier",
}
PLAIN_METHODS = {
    "plain logistic": "standard logistic, EM",
    "genie, plain logistic": "standard logistic, genie",
}
BAYES_ERROR, NEAR_BAYES = 0.05, 0.06


def wrong_labels() -> list[Row]:
    """Figure 4 at its largest share of wrong labels."""
    flips = pd.read_csv(STUDIES / "gamp_robust" / "results.csv").query("classes == 2")
    most = flips[flips.flipped == flips.flipped.max()].groupby("method").error
    means, errors = most.mean(), most.sem()
    rows = []
    for method, name in (ROBUST_METHODS | PLAIN_METHODS).items():
        robust, mean = method in ROBUST_METHODS, means[method]
        verdict = _verdict(mean <= NEAR_BAYES, no=f"above it by {mean - BAYES_ERROR:.2f}") if robust else ""
        what = f"figure 4, {flips.flipped.max():.0%} of labels flipped, {name}, test error"
        bar = "the Bayes error, .05" if robust else "above it"
        rows.append([what, bar, f"{mean:.3f} ± {errors[method]:.3f}", ROBUST, verdict])
    return rows


def text_and_brain() -> list[Row]:
    """Tables VIII to X: other data than the paper's, so errors are compared with those of L1 beside them."""
    results = tables_study.results_of(STUDIES / "gamp_tables")
    rows: list[Row] = []
    for table, published in tables_study.PUBLISHED.items():
        own = tables_study.by_table(results, table)
        beyond = tables_study.beyond_l1(own)
        for method in [m for m in beyond.index if m != tables_study.L1]:
            points, error = beyond.loc[method]
            shown = f"{points:+.1f} ± {error:.1f}, density {own.density[method]:.2g} %"
            what = f"table {table}, {method}, error beyond L1's, points"
            known, verdict = published.get(str(method)), ""
            if known is not None:
                off = points - (known[0] - published[tables_study.L1][0])
                verdict = (
                    "no difference seen"
                    if abs(off) <= 2 * error
                    else f"{abs(off):.1f} {'worse' if off > 0 else 'better'}"
                )
                bar = f"{known[0] - published[tables_study.L1][0]:+.1f}, density {known[1]:g} %"
            rows.append([what, "" if known is None else bar, shown, TABLES_VIII_TO_X, verdict])
    return rows


# How much more the learnt L1 rate may err than the best fixed one of each trial.
NEAR_BEST = 0.01


def learnt_rates(*data: str) -> list[Row]:
    """The learnt L1 rate of max-sum beside the best of eight fixed ones, known from test errors only."""
    found = l1_rate.beyond_best(l1_rate.results_of(STUDIES / "l1_rate"))
    rows: list[Row] = []
    for one in found[found.data.isin(data)].itertuples():
        place = (
            one.data if one.data == l1_rate.TEXT else f"{one.data}, N = {one.n_features}, K = {one.n_active}"
        )
        shown = f"{one.learnt:.3f}, {one.beyond:+.3f} (at most {one.most_beyond:+.3f}, trials: {one.trials})"
        what = f"L1 rate of max-sum, learnt, {place}: error, and beyond the best fixed rate"
        reached = _verdict(one.beyond <= NEAR_BEST, no=f"missed by {one.beyond - NEAR_BEST:.3f}")
        rows.append([what, f"at most {NEAR_BEST:+.2f}", shown, L1_RATE, reached])
    return rows


SHORTCUTS = ("one-bit, s by folds", "K largest of X'y, K by folds")


THESIS = ("MAP-SHyGAMP", "MMSE-SHyGAMP", "SBMLR", "one-bit, one against the rest")
PAIR = ["MAP-SHyGAMP", "SBMLR"]
FEW_TRIALS = 3
# Figures of errors against M, N and K, and what the thesis has of each pair: the first errs less.
FIGURES = {"M": ("4.1", "n_samples"), "N": ("4.3", "n_features"), "K": ("4.5", "n_active")}
ORDERS = {
    ("MMSE-SHyGAMP", "MAP-SHyGAMP"): {"M": "always", "N": "sometimes", "K": "always"},
    ("MAP-SHyGAMP", "adelie"): {"M": "always", "N": "always", "K": "always"},
    ("genie, MMSE, single weights", "MAP-SHyGAMP"): {},
    ("genie, MMSE, rows", "MAP-SHyGAMP"): {},
}


def shygamp() -> list[Row]:
    """Figures 4.1 to 4.6: error, time and counts of rows against M, N and K, of the thesis's own methods."""
    results = results_of_thesis()
    results = results[results.method.isin(["foldless", *THESIS])]
    results = results.reindex(columns=results.columns.union(["k99"], sort=False))
    sizes = ["n_samples", "n_features", "n_active"]
    rows: list[Row] = []
    for (sweep, *place), group in results.groupby(["sweep", *sizes]):
        pair = group.pivot_table(index="trial", columns="method", values="error").reindex(columns=PAIR)
        lead = (pair["SBMLR"] - pair["MAP-SHyGAMP"]).dropna()
        if lead.empty:
            continue
        # All methods on the trials that these two have.
        by_method = group[group.trial.isin(lead.index)].groupby("method")
        means = by_method.error.mean().sort_values()
        n_trials = by_method.trial.nunique()
        fewer = {name: f" ({n} trials)" for name, n in n_trials.items() if n < len(lead)}
        shown = ", ".join(f"{name} {error:.3f}{fewer.get(name, '')}" for name, error in means.items())
        seconds = by_method.cpu_seconds.mean()
        shown += f"; MAP takes {seconds['MAP-SHyGAMP'] / seconds['SBMLR']:.2f} of SBMLR's time"
        counts = by_method.k99.mean().reindex(THESIS[:3]).dropna()
        if len(counts):
            shown += "; K̂99 " + ", ".join(f"{name} {count:.0f}" for name, count in counts.items())
        m, n, k = place
        where = f"figures 4.1 to 4.6, against {sweep}: M = {m}, N = {n}, K = {k}, trials: {len(lead)}"
        rows.append([where, "MAP errs less than SBMLR", shown, SYNTHETIC, _by_trials(lead)])
    rows += [row for sweep in FIGURES for row in _orders(results_of_thesis(), sweep)]
    return rows + learnt_rates(l1_rate.FOUR_CLASSES)


def results_of_thesis() -> pd.DataFrame:
    results = pd.read_csv(STUDIES / "shygamp_synthetic" / "results.csv")
    return results[results.error.notna()]


def _orders(results: pd.DataFrame, sweep: str) -> Iterator[Row]:
    """Who errs less, size by size, in the trials that both have."""
    figure, size = FIGURES[sweep]
    own = results[results.sweep == sweep]
    for (first, second), published in ORDERS.items():
        shown, found = [], []
        for value, group in own[own.method.isin([first, second])].groupby(size):
            pair = group.pivot_table(index="trial", columns="method", values="error")
            lead = (pair[second] - pair[first]).dropna() if pair.shape[1] == 2 else pair.iloc[:0, 0]
            if lead.empty:
                continue
            noise = f" ± {lead.sem():.3f}" if len(lead) > 1 else ""
            shown.append(f"{sweep} = {value}: {lead.mean():+.3f}{noise} ({len(lead)})")
            if len(lead) >= FEW_TRIALS:
                order = "yes" if lead.mean() > 0 else "no"
                found.append(order if abs(lead.mean()) > 2 * lead.sem() else "even")
        if not shown:
            continue
        verdict = ", ".join(
            f"{word} at {found.count(word)}" for word in ("yes", "even", "no") if word in found
        )
        what = f"figure {figure}, {first} errs less than {second}, by how much (trials)"
        rows = published.get(sweep, ""), "; ".join(shown), SYNTHETIC, verdict or "too few trials"
        yield [what, *rows]


def _by_trials(lead: pd.Series) -> str:
    """Of a lead in paired trials: an order is seen only beyond two standard errors."""
    order = _verdict(lead.mean() > 0, "agrees", "the other way round")
    if len(lead) < FEW_TRIALS:
        return f"{order}, in {len(lead)} trial{'s' if len(lead) > 1 else ''} only"
    shown = f"{lead.mean():.3f} ± {lead.sem():.3f}"
    return f"{order}, by {shown}" if abs(lead.mean()) > 2 * lead.sem() else f"even: {shown}"


def _verdict(reached: bool, yes: str = "reached", no: str = "missed") -> str:
    return yes if reached else no


TABLES: dict[str, Callable[[], list[Row]]] = {"gamp": gamp, "hygamp": shygamp}


if __name__ == "__main__":
    sys.exit(papers.main(description=__doc__, tables=TABLES, header=HEADER, begins=BEGINS))
