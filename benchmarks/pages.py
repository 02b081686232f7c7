"""What README and docs say of studies: figures, the revisions that made them, and how old they are.

python -m benchmarks.pages           # says what differs from results
python -m benchmarks.pages --write   # writes figures, revisions and the table of ages anew
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from benchmarks.studies import _common as common
from benchmarks.studies.background.designs import REAL
from benchmarks.studies.real_data import plot as real_data

STUDIES = common.ROOT / "benchmarks" / "studies"
RESULTS_PAGE = common.ROOT / "docs" / "results.md"
PAGES = (common.ROOT / "README.md", RESULTS_PAGE)
AGES_BEGIN, AGES_END = "<!-- ages, by python -m benchmarks.pages -->", "<!-- end of ages -->"
# Methods of others: how they do does not depend on this package.
RIVALS = (
    "K largest",
    "L1",
    "SVM",
    "LDA",
    "adelie",
    "celer",
    "centroids",
    "liblinear",
    "one-bit",
    "ridge",
    "saga",
    "sparsevb",
    "susieR",
)
FIGURE = r"(\*{0,2}(?:–|\d+(?:\.\d+)?(?: \(\d+(?:\.\d+)?\))?)\*{0,2})"
COMMAND = re.compile(
    r"`python (?:-m )?benchmarks[./]studies[./](\w+)[./]run(?:\.py)?(?: [^`]*)?`( at `[^`]*`)?"
)


# ---------------------------------------------------------------- revisions and ages


class Made(NamedTuple):
    """The rows of one commit."""

    commit: str
    date: str
    rows: int
    changes_since: int  # commits to the package


@cache
def made(study: str) -> tuple[Made, ...]:
    """Which commits made our rows of a study, the oldest first."""
    counts: dict[tuple[str, str], int] = {}
    for row in common.read_rows(STUDIES / study / "results.csv"):
        if not row.get("method", "").startswith(RIVALS):
            by = row["commit"], row["date"]
            counts[by] = counts.get(by, 0) + 1
    found = [Made(*by, rows, _changes_since(by[0])) for by, rows in counts.items()]
    return tuple(sorted(found, key=lambda one: (-one.changes_since, one.date)))


@cache
def _changes_since(commit: str) -> int:
    since = f"{commit.rstrip('+')}..HEAD"
    return int(common.git("rev-list", "--count", since, "--", "src/foldless") or -1)


def revisions(study: str) -> str:
    """The commit of our rows, or the oldest and the newest."""
    commits = list(dict.fromkeys(one.commit for one in made(study)))
    return commits[0] if len(commits) == 1 else f"{commits[0]} to {commits[-1]}"


def ages() -> str:
    rows = []
    for path in sorted(STUDIES.glob("*/results.csv")):
        study = path.parent.name
        for one in made(study):
            rows.append([study, one.rows, one.commit, one.date, one.changes_since])
    rows.sort(key=lambda row: -row[4])
    return common.markdown(["study", "rows", "commit", "date", "changes of the package since"], rows)


# ---------------------------------------------------------------- figures


class Quote(NamedTuple):
    """A passage of one page, with a place `{}` for each figure that comes from results."""

    passage: str
    figures: Callable[[], Sequence[str]]


def _results(study: str, **where: object) -> pd.DataFrame:
    table = pd.read_csv(STUDIES / study / "results.csv", comment="#", dtype={"selected": str})
    for name, value in where.items():
        table = table[table[name] == value]
    return table


def _sparsity(n_active: int) -> list[str]:
    ours, celer, liblinear = (
        _results("gamp_sparsity", n_active=n_active, method=method)
        for method in ("foldless", "celer L1", "liblinear L1")
    )
    beside = ours[ours.trial.isin(celer.trial)]
    return [
        *(f"{table.error.mean():.3f}" for table in (ours, celer, liblinear)),
        *(
            f"{ours.kept.mean():.1f} ({ours.kept_false.mean():.1f})",
            f"{celer.kept.mean():.0f} ({celer.kept_false.mean():.0f})",
        ),
        f"{celer.seconds.sum() / beside.seconds.sum():.1f}",
    ]


def _from_to(method: str) -> list[str]:
    """The least and the largest mean error over the numbers of informative features."""
    errors = _results("gamp_sparsity", method=method).groupby("n_active").error.mean()
    return [f"{errors.min():.3f}", f"{errors.max():.3f}"]


def _robust() -> list[str]:
    robust, plain, default = (
        _results("gamp_robust", classes=2, flipped=0.4, method=method)
        for method in ("robust logistic", "plain logistic", "SparseClassifier")
    )
    means = robust.error, plain.error, robust.flip_prob, default.error, default.flip_prob
    return [f"{values.mean():.3f}" for values in means]


def _pruned(method: str) -> list[str]:
    return [f"{100 * _results('pruned_classifier', part='colon', method=method).error.mean():.1f}"]


def _real(bar: str) -> list[str]:
    """A line of the bars of the study, in the README's order of methods; the best is bold."""
    table = real_data.bars(real_data.counted(real_data.read(STUDIES / "real_data")))
    line = next(line for line in table.splitlines() if line.startswith(f"| {bar}"))
    cells = dict(zip(real_data.METHODS, [cell.strip() for cell in line.split("|")[3:]], strict=False))
    figures = [cells[name] for name in ("foldless", "ridge", "L1", "SVM", "centroids")]
    best = (max if bar.startswith("stability") else min)(filter(None, figures), key=float)
    return [f"**{one}**" if one == best else one or "–" for one in figures]


def _text_of_twelve() -> list[str]:
    table = real_data.counted(real_data.read(STUDIES / "real_data"))
    means = table[table.data == "rcv1_small"].groupby("method")[["error", "log_loss"]].mean()
    asked = [("foldless", "error"), ("foldless", "log_loss"), ("ridge", "error"), ("ridge", "log_loss")]
    asked += [("SVM", "error"), ("L1", "error"), ("L1", "log_loss")]
    return [f"{means[column][name]:.3f}" for name, column in asked]


def _trust() -> list[str]:
    table = _results("trust")
    gap = (table.loo_error - table.refit_error).abs()
    real = table.data.isin(["colon", "leukemia"])
    inside = _results("trust", part="calibration", data="in domain (independent)")
    simulated = table.part.eq("loo") & ~real
    return [
        f"{gap[real].max():.3f}",
        f"{gap[table.part == 'groups'].max():.3f}",
        f"{gap[simulated].max():.3f}",
        f"{inside.n_likely.sum():.0f}",
        f"{inside.simple_likely.sum() / inside.n_likely.sum():.3f}",
    ]


def _groups() -> list[str]:
    """On real matrices and on simulated ones: how many, how many of them right, how many promised."""
    table = _results("background", method="foldless").dropna(subset=["groups"])
    table = table[table.n_active > 0].drop_duplicates(["design", "run"], keep="last")
    figures = []
    for own in (table[table.design.isin(REAL)], table[~table.design.isin(REAL)]):
        sums = own[["groups", "groups_right", "groups_promised"]].sum()
        shares = (sums.groups_right / sums.groups, sums.groups_promised / sums.groups)
        figures += [f"{sums.groups:.0f}", *(f"{share:.3f}" for share in shares)]
    return figures


def _large_tables() -> list[str]:
    means = _results("large_tables").groupby(["table", "method"]).log_loss.mean().unstack()
    won = means.foldless <= means.drop(columns="foldless").min(axis=1)
    return [str(won.sum()), str(won.size)]


def _best_bold(means: Iterable[tuple[float, float]]) -> list[str]:
    """Error and log loss of methods side by side; the least of each is bold, and nan is a dash."""
    columns = [[f"{value:.3f}" for value in column] for column in zip(*means, strict=True)]
    shown = [[_bold_or_dash(one, min(column)) for one in column] for column in columns]
    return [figure for pair in zip(*shown, strict=True) for figure in pair]


def _bold_or_dash(figure: str, best: str) -> str:
    return "–" if figure == "nan" else f"**{figure}**" if figure == best else figure


def _twelve_sets() -> list[str]:
    table = real_data.bars(real_data.counted(real_data.read(STUDIES / "real_data")))
    lines = [line.split("|")[3:] for line in table.splitlines() if line.startswith("| mean ")]
    cells = [dict(zip(real_data.METHODS, line, strict=False)) for line in lines]
    methods = ("foldless", "ridge", "L1", "SVM")
    return _best_bold([tuple(float(cell[name].strip() or "nan") for cell in cells) for name in methods])


def _packaged_tables(rival: str) -> list[str]:
    both = _results("packaged_tables").groupby(["method", "table"])[["error", "log_loss"]].mean()
    shared = both.loc["foldless"].index.intersection(both.loc[rival].index)
    means = [both.loc[method].loc[shared].mean() for method in ("foldless", rival)]
    return [str(shared.size), *_best_bold([(mean.error, mean.log_loss) for mean in means])]


def _many_classes() -> list[str]:
    means = _results("many_classes").groupby(["method", "data"])[["error", "log_loss"]].mean()
    means = means.groupby("method").mean().loc[["foldless", "ridge", "L1"]]
    return _best_bold(means.itertuples(index=False))


def _times_of_many_classes() -> list[str]:
    seconds = _results("many_classes").groupby(["method", "data"]).cpu_seconds.mean().unstack("method").sum()
    return [f"{seconds[name] / seconds.foldless:.2f}" for name in ("ridge", "L1")]


def _panels(size: str) -> list[str]:
    table = _results("which_features", size=size).groupby(["method", "data"])[["error", "log_loss"]].mean()
    means = table.groupby("method").mean()
    return _best_bold(means.loc[["panel", "mRMR", "inclusion", "t test", "L1 path"]].itertuples(index=False))


def _whole_models() -> list[str]:
    means = _results("which_features", method="full").groupby("data")[["error", "log_loss"]].mean().mean()
    return [f"{means.error:.3f}", f"{means.log_loss:.3f}"]


def _honesty() -> list[str]:
    table = _results("honesty")
    bias = table.groupby("design")[["loo_error", "test_error", "loo_log_loss", "test_log_loss"]].mean().mean()
    null = table[table.design.str.startswith("null")]
    return [
        *(f"{bias[f'test_{name}'] - bias[f'loo_{name}']:.3f}" for name in ("error", "log_loss")),
        str((null.p_value < 0.05).sum()),
        str(len(null)),
    ]


def _four_classes() -> list[str]:
    setting = ["sweep", "n_samples", "n_features", "n_active"]
    table = _results("shygamp_synthetic")
    ours = table[table.method == "foldless"]
    rivals = table[(table.method != "foldless") & table.stopped.isna()]
    both = rivals.merge(ours, on=[*setting, "trial"], suffixes=("", "_ours"))
    means = both.groupby(["method", *setting])[
        ["error", "error_ours", "cpu_seconds", "cpu_seconds_ours"]
    ].mean()
    won = (means.error_ours <= means.error).groupby(setting).all()
    ratio = means.cpu_seconds / means.cpu_seconds_ours
    shares = [f"{of(ratio[name]):.2g}" for name in ("adelie", "adelie, 10 penalties") for of in (min, max)]
    return [str(won.sum()), str(won.size), *shares]


def _text() -> list[str]:
    table = _results("text_many_classes").set_index("method")
    known = table[table.index.str.endswith("of the largest")].sort_values("error").iloc[0]
    rows = (table.loc["foldless"], table.loc["saga L1, cross-validated"], known)
    return [figure for row in rows for figure in (f"{row.error:.3f}", f"{row.cpu_seconds:.0f}")]


def _state_evolution() -> list[str]:
    table = _results("state_evolution")
    return [f"{(table.measured_error - table.predicted_error).abs().max():.3f}", str(len(table))]


DEFAULTS = "PrunedBayesClassifier()"
FIVE = " | ".join(["{}"] * 5)
QUOTES = (
    *(
        Quote(f"| {k} | **{{}}** | {{}} | {{}} | {{}} | {{}} | {{}} |", partial(_sparsity, k))
        for k in (5, 10, 20, 30)
    ),
    Quote(
        "`SparseClassifier(generative_weight=0.0)`, errs at {} to {}.",
        partial(_from_to, "foldless (discriminative)"),
    ),
    Quote("one-bit compressed sensing errs at {} to {},", partial(_from_to, "one-bit, s by folds")),
    Quote(
        "the K largest entries of X'y, K by folds, at {} to {}.",
        partial(_from_to, "K largest of X'y, K by folds"),
    ),
    Quote(
        "errs at {} where a plain logistic channel errs at {}, and it estimates a flip rate of {}; "
        "`SparseClassifier()` errs at {}, with a flip rate of {}:",
        _robust,
    ),
    Quote("State evolution predicts the test error of GAMP to {} at {} points", _state_evolution),
    Quote("on intensities as they are, errs at {} % (published", partial(_pruned, "pruned")),
    Quote(
        "`PrunedBayesClassifier()` errs at {} % on the first {} of them",
        lambda: [*_pruned(DEFAULTS), str(len(_results("pruned_classifier", method=DEFAULTS)))],
    ),
    Quote("With κ fixed at 0.4 it errs at {} % (21.0 %)", partial(_pruned, "pruned, κ = 0.4")),
    Quote("whitened at {} % (16.3 %)", partial(_pruned, "pruned, whitened, κ = 0.4")),
    Quote("| 12 sets: genes, voxels, clinical, text | {} / {} | {} / {} | {} / {} | {} / {} |", _twelve_sets),
    Quote(
        "| {} tables of R packages, no default chosen on them | {} / {} | {} / {} | – | – |",
        partial(_packaged_tables, "ridge"),
    ),
    Quote(
        "| the {} of these with two classes | {} / {} | – | {} / {} | – |", partial(_packaged_tables, "L1")
    ),
    Quote("| 7 sets of three to eight classes | {} / {} | {} / {} | {} / {} | – |", _many_classes),
    *(
        Quote(f"| {size} | {' | '.join(['{} / {}'] * 5)} |", partial(_panels, size))
        for size in ("10", "20", "50")
    ),
    Quote("the full model errs at {} with a log loss of {}", _whole_models),
    Quote(
        "too low by {} in error and {} in log loss; on null data {} of {} fits have a p value below 0.05",
        _honesty,
    ),
    Quote(f"| mean error | {FIVE} |", partial(_real, "mean error")),
    Quote(f"| mean log loss | {FIVE} |", partial(_real, "mean log loss")),
    Quote(f"| colon, 200 splits of 42/20, error, % | {FIVE} |", partial(_real, "colon 42/20")),
    Quote(f"| colon, 30 splits of 50/12, errors of 360 | {FIVE} |", partial(_real, "colon 50/12")),
    Quote(f"| leukemia 38/34, errors | {FIVE} |", partial(_real, "leukemia 38/34")),
    Quote(f"| voxels, leave one run out, face/house, % | {FIVE} |", partial(_real, "haxby face/house")),
    Quote(f"| face/cat, % | {FIVE} |", partial(_real, "haxby face/cat")),
    Quote(f"| cat/scissors, % | {FIVE} |", partial(_real, "haxby cat/scissors")),
    Quote(f"| stability of the selection | {FIVE} |", partial(_real, "stability")),
    Quote(f"| time on colon, L1 = 1 | {FIVE} |", partial(_real, "colon: time")),
    Quote(
        "(`rcv1_small`): {} with a log loss of {}, ridge {} and {}, the SVM {}, L1 {} and {};",
        _text_of_twelve,
    ),
    Quote(
        "is within {} of true refits on colon and leukemia and within {} on the voxels' runs, but up to {} "
        "off in nine small simulations; 90 % intervals of {} likely features in simulations from the model "
        "cover {}:",
        _trust,
    ),
    Quote(
        "Of {} groups on five real matrices with simulated labels {} have a true feature (promised {}), "
        "of {} in simulated designs {} ({}):",
        _groups,
    ),
    Quote("is at or below those of ridge and L1 in {} of {}:", _large_tables),
    Quote("ridge with its cross-validation takes {} of the CPU time, L1 {} of it", _times_of_many_classes),
    Quote(
        "at or below every rival's in {} of {} settings, {} to {} times faster than the grouped lasso as "
        "glmnet runs it (by adelie) and {} to {} times than that with ten loose penalties:",
        _four_classes,
    ),
    Quote(
        "error {} in {} CPU seconds, cross-validated saga {} in {}; with the best penalty known beforehand "
        "{} in {}:",
        _text,
    ),
)


# ---------------------------------------------------------------- pages


def differences(write: bool = False) -> Iterator[str]:
    """What pages say otherwise than results; mended, if asked for."""
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    quotes: dict[Path, list[Quote]] = {page: [] for page in PAGES}
    for quote in QUOTES:
        quotes[_page_of(quote, texts)].append(quote)
    for page, text in texts.items():
        found = COMMAND.sub(lambda m: _with_revision(m), text)
        for quote in quotes[page]:
            found = _filled(found, quote)
        if page == RESULTS_PAGE and write:
            before, _, rest = found.partition(AGES_BEGIN)
            found = f"{before}{AGES_BEGIN}\n{ages()}\n{AGES_END}{rest.partition(AGES_END)[2]}"
        for is_, should in zip(text.splitlines(), found.splitlines(), strict=False):
            if is_ != should and not write:
                yield f"{page.name}: {is_}\n  should be {should}"
        if write and found != text:
            page.write_text(found, encoding="utf-8")
            yield f"{page.name}: written"


def _with_revision(found: re.Match[str]) -> str:
    command = found[0].removesuffix(found[2] or "")
    return f"{command} at `{revisions(found[1])}`"


def _places(quote: Quote, text: str) -> list[re.Match[str]]:
    # A passage may be broken between any two words.
    words = [re.escape(part).replace(r"\ ", r"\s+") for part in quote.passage.split("{}")]
    return list(re.finditer(FIGURE.join(words), text))


def _page_of(quote: Quote, texts: Mapping[Path, str]) -> Path:
    """The page that has the passage; it is on one page, once."""
    found = [page for page, text in texts.items() for _ in _places(quote, text)]
    if len(found) != 1:
        raise ValueError(f"pages have this passage {len(found)} times: {quote.passage}")
    return found[0]


def _filled(text: str, quote: Quote) -> str:
    """The page with the figures of results at the places of the passage."""
    (found,) = _places(quote, text)
    figures = quote.figures()
    for group in range(len(figures), 0, -1):
        text = text[: found.start(group)] + figures[group - 1] + text[found.end(group) :]
    return text


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--write", action="store_true", help="mend the pages")
    args = parser.parse_args(argv)
    told = list(differences(args.write))
    print("\n".join(told) or "Pages have the figures of results.")
    return 1 if told and not args.write else 0


if __name__ == "__main__":
    sys.exit(main())
