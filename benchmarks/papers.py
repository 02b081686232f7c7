"""Pages about single papers: what was published, what comes out here, and a verdict, from studies' results.

python -m benchmarks.papers           # says which pages differ from results
python -m benchmarks.papers --write   # writes their tables anew
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from benchmarks.studies import _common as common
from benchmarks.studies.bayes_point_table1 import plot as knapsack_study
from benchmarks.studies.pruned_classifier import plot as pruned_study
from benchmarks.studies.smlr_table2 import plot as smlr_study

STUDIES = common.ROOT / "benchmarks" / "studies"
PAGES = common.ROOT / "docs" / "papers"
BEGINS, ENDS = "<!-- verdicts, by python -m benchmarks.papers -->", "<!-- end of verdicts -->"
HEADER = ["what", "published", "ours", "verdict"]
Row = list[str]


def verdict(published: float, mean: float, error: float) -> str:
    """Of an error rate: reached if two standard errors cover what is missing."""
    if mean <= published:
        return "reached"
    if mean <= published + 2.0 * error:
        return "reached within two standard errors"
    return f"missed by {mean - published:.2g}"


def knapsack() -> list[Row]:
    table = knapsack_study.errors(STUDIES / "bayes_point_table1")
    n_splits = table.index.get_level_values("split").nunique()
    rows = []
    for method in ("knapsack", "knapsack, β = ∞"):
        by_split = table[method].unstack("data")[knapsack_study.SETS]
        for name in knapsack_study.SETS if method == "knapsack" else []:
            published, own = knapsack_study.PAPER[method][knapsack_study.SETS.index(name)], by_split[name]
            shown = f"{own.mean():.2f} ± {own.sem():.2f}"
            rows.append(
                [
                    f"table 1, {name}, error %",
                    f"{published:.2f}",
                    shown,
                    verdict(published, own.mean(), own.sem()),
                ]
            )
        mean, published = by_split.mean(axis=1), sum(knapsack_study.PAPER[method]) / len(knapsack_study.SETS)
        shown = f"{mean.mean():.2f} ± {mean.sem():.2f}"
        what = f"table 1, {method}, mean of the seven, {n_splits} splits"
        rows.append([what, f"{published:.2f}", shown, verdict(published, mean.mean(), mean.sem())])
    for rival in ("SVM", "EP"):
        for name in knapsack_study.SETS:
            place, lead = (
                knapsack_study.SETS.index(name),
                table.loc[name, rival] - table.loc[name, "knapsack"],
            )
            published = knapsack_study.PAPER[rival][place] - knapsack_study.PAPER["knapsack"][place]
            shown = f"{lead.mean():+.2f} ± {lead.sem():.2f}"
            what = f"table 1, {name}, points ahead of {rival} on the same splits"
            rows.append([what, f"{published:+.2f}", shown, _against(published, lead.mean(), lead.sem())])
    return rows


def _against(published: float, mean: float, error: float) -> str:
    """Of a difference, which can be off either way."""
    off = mean - published
    if abs(off) <= 2.0 * error:
        return "agrees"
    return f"{'less' if off < 0 else 'more'} by {abs(off):.2f} ({abs(off) / error:.1f} s.e.)"


def smlr() -> list[Row]:
    results = pd.read_csv(STUDIES / "smlr_table2" / "results.csv")
    rows = []
    for method in ("SMLR", "SMLR, width by leave-one-out", "SMLR features", "RMLR", "RVM"):
        published = smlr_study.PAPER.get(method, smlr_study.PAPER["SMLR"])
        for name, text in published.items():
            own = results[(results.method == method) & (results.data == name)]
            if own.empty:
                continue
            wrong = own.groupby("repetition").wrong.sum()
            bar = int(text.split(" ")[0])
            spread = wrong.std(ddof=1) if wrong.size > 2 else 0.0
            of = int(own.groupby("repetition").tested.sum().iloc[0])
            shown = f"{wrong.mean():.4g} ({own.kept.mean():.0f})"
            reached = verdict(bar, wrong.mean(), spread / 2.0)
            rows.append([f"table 2, {method}, {name}, wrong of {of} (kept)", text, shown, reached])
    return rows


def pruned() -> list[Row]:
    results = pd.read_csv(STUDIES / "pruned_classifier" / "results.csv", low_memory=False)
    rows = []
    curves = results[results.part == "density"]
    least = [g.loc[g.theory.idxmin()].density == t for t, g in curves.groupby("true_density")]
    shown = f"{sum(least)} of {len(least)} curves"
    rows.append(["figure 1, Bayes error least at the teacher's density", "yes", shown, _all(least)])
    moves = results[results.part == "dynamics"].groupby(["n", "density", "iteration"])
    within = [_within(g.error, g.theory.iloc[0]) for _, g in moves]
    shown = f"{sum(within)} of {len(within)} points"
    rows.append(["figure 3, dynamics within 95 % of theory", "excellent consistency", shown, _all(within)])
    left = results[results.part == "loo"].groupby("density")
    within = [_within(g[c], g.theory.iloc[0]) for _, g in left for c in ("error", "loo_error")]
    shown = f"{sum(within)} of {len(within)} points"
    rows.append(["figure 4, errors and leave-one-out within 95 % of theory", "yes", shown, _all(within)])
    colon = results[results.part == "colon"]
    fluctuate = colon[colon.method == "pruned"]
    spread = {c: float((fluctuate[c] == fluctuate[c].mode()[0]).mean()) for c in ("density", "noise")}
    shown = ", ".join(f"{100 * share:.0f} %" for share in spread.values())
    rows.append(
        ["figures 5, 6, how often the commonest C and κ are chosen", "κ fluctuates more", shown,
         "reached" if spread["noise"] < spread["density"] else "the other way round"]
    )  # fmt: skip
    for method, own in colon.groupby("method", sort=False):
        published = pruned_study.PUBLISHED.get(str(method))
        error = 100.0 * own.error
        shown = f"{error.mean():.1f} ± {error.sem():.1f} ({len(own)} splits)"
        known = "" if published is None else verdict(published, error.mean(), error.sem())
        rows.append(
            [f"colon, {method}, error %", "" if published is None else f"{published:.1f}", shown, known]
        )
    return rows


def _within(values: pd.Series, theory: float) -> bool:
    mean, half = pruned_study.interval(values)
    return bool(abs(mean - theory) <= half)


def _all(found: Sequence[bool]) -> str:
    return "reached" if all(found) else f"missed in {len(found) - sum(found)}"


TABLES: dict[str, Callable[[], list[Row]]] = {"knapsack": knapsack, "smlr": smlr, "pruned": pruned}


def page(path: Path, rows: list[Row], header: list[str] = HEADER, begins: str = BEGINS) -> str:
    before, _, rest = path.read_text(encoding="utf-8").partition(begins)
    _, _, after = rest.partition(ENDS)
    return f"{before}{begins}\n{common.markdown(header, rows)}\n{ENDS}{after}"


def main(
    argv: Sequence[str] | None = None,
    *,
    description: str | None = __doc__,
    tables: dict[str, Callable[[], list[Row]]] = TABLES,
    header: list[str] = HEADER,
    begins: str = BEGINS,
) -> int:
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args(argv)
    stale = 0
    for name, rows in tables.items():
        path = PAGES / f"{name}.md"
        text = page(path, rows(), header, begins)
        if text != path.read_text(encoding="utf-8"):
            stale += 1
            if args.write:
                path.write_text(text, encoding="utf-8")
            print(f"{path.relative_to(common.ROOT)} {'written' if args.write else 'differs from results'}")
    return 0 if args.write or not stale else 1


if __name__ == "__main__":
    sys.exit(main())
