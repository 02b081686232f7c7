"""Is every number of one fit honest? Leave-one-out, p values and intervals beside the truth.

python -m benchmarks.studies.honesty.run                  # runs that results.csv lacks
python -m benchmarks.studies.honesty.run --designs "t3 tails" --again
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.studies import _common as common
from benchmarks.studies._resumable import Key, complete
from benchmarks.studies.honesty.designs import BLIND, DESIGNS, Drawn, drawn
from foldless import SparseClassifier
from foldless.evaluation import Worth

STUDY = Path(__file__).parent
KEY = ("design", "run")
COLUMNS = [
    *KEY,
    "n_samples",
    "n_features",
    "solver",
    "outcome",
    "flags",
    "seconds",
    "loo_error",
    "test_error",
    "test_error_here",  # at the class frequencies of the sample that was learnt from
    "loo_log_loss",
    "test_log_loss",
    "test_log_loss_here",
    "guessing_log_loss",
    "error_covered",  # whether the 95 % interval of the error has the truth in it
    "auc_covered",  # likewise, of two classes
    "calibration_slope",
    "p_value",
    "n_likely",
    "n_covered",
    "weight_ratio",
]
PAIRED = "paired.csv"
LIKELY, NORMAL_90 = 0.5, 1.645
SIGNIFICANT = 0.05


class Sizes(NamedTuple):
    n_samples: tuple[int, int]
    n_features: tuple[int, int]
    n_test: int


FULL, QUICK = Sizes((60, 150), (500, 1500), 4000), Sizes((40, 60), (40, 80), 300)


def main(argv: Sequence[str] | None = None) -> Path:
    parser = common.options(__doc__ or "", trials=20)
    parser.add_argument("--designs", nargs="+", choices=list(DESIGNS), default=list(DESIGNS))
    parser.add_argument("--again", action="store_true", help="measure anew what is there already")
    args = parser.parse_args(argv)
    sizes, trials = (QUICK, min(args.trials, 2)) if args.quick else (FULL, args.trials)
    folder = common.output_folder(args.out, STUDY, args.quick)

    def measure(key: Key, rows: dict[Key, dict[str, Any]]) -> dict[str, Any]:
        found = measured(key[0], int(key[1]), sizes)
        shown = {name: round(value, 3) for name, value in found.items() if isinstance(value, float)}
        print(*key, found["solver"], shown, flush=True)
        return found

    # Run by run, so that what was measured by an interruption is of all designs.
    asked = [(design, str(run)) for run in range(trials) for design in args.designs]
    complete(folder, COLUMNS, KEY, asked, measure, again=args.again, trials=trials, **sizes._asdict())
    (folder / "README.md").write_text(report(folder))
    print("\n" + report(folder))
    return folder


def learnt_from(design: str, run: int, sizes: Sizes) -> tuple[int, Drawn]:
    """How many rows are learnt from, and all rows; every class is among the first."""
    rng = np.random.default_rng([run, *design.encode()])
    n = int(rng.integers(*sizes.n_samples, endpoint=True))
    p = int(rng.integers(*sizes.n_features, endpoint=True))
    of = drawn(design, run, n + sizes.n_test, p)
    complete = np.unique(of.y[:n]).size == np.unique(of.y).size
    return (n, of) if complete else learnt_from(design, run + 1000, sizes)


def measured(design: str, run: int, sizes: Sizes) -> dict[str, Any]:
    """One fit beside the truth."""
    n, of = learnt_from(design, run, sizes)
    p, y, weight, groups = of.X.shape[1], of.y[:n], of.sample_weight, of.groups
    model, seconds, _ = common.timed(
        lambda: SparseClassifier().fit(
            of.X[:n],
            y,
            sample_weight=None if weight is None else weight[:n],
            groups=None if groups is None else groups[:n],
        )
    )
    log_proba = model.predict_log_proba(of.X[n:]).astype(np.float64)
    code = np.searchsorted(model.classes_, of.y[n:])
    share = np.ones(code.size) if weight is None else weight[n:]
    share = share / share.sum()
    wrong, loss = log_proba.argmax(axis=1) != code, -log_proba[np.arange(code.size), code]
    test_error = float(share @ wrong)
    # Of few samples, one class has more than its share, and guessing it errs less there than elsewhere.
    here = np.bincount(np.searchsorted(model.classes_, y), None if weight is None else weight[:n])
    here = share * (here / here.sum() / np.bincount(code, share))[code]
    worth = model.loo_worth_
    return {
        "n_samples": n,
        "n_features": p,
        "solver": model.solver_,
        "outcome": str(model.outcome_),
        "flags": " ".join(flag.code for flag in model.flags_),
        "seconds": seconds,
        "loo_error": model.loo_error_,
        "test_error": test_error,
        "test_error_here": float(here @ wrong),
        "loo_log_loss": model.loo_log_loss_,
        "test_log_loss": float(share @ loss),
        "test_log_loss_here": float(here @ loss),
        "guessing_log_loss": worth.guessing_log_loss,
        "error_covered": int(worth.error_interval.lower <= test_error <= worth.error_interval.upper),
        "auc_covered": auc_covered(worth, log_proba, code, share),
        "calibration_slope": worth.calibration_slope,
        "p_value": model.p_value_,
    } | intervals(model, of)


def auc_covered(
    worth: Worth, log_proba: NDArray[np.float64], code: NDArray[np.intp], share: NDArray[np.float64]
) -> int | None:
    if worth.auc_interval is None:
        return None
    true = roc_auc_score(code, np.diff(log_proba)[:, 0], sample_weight=share)
    return int(worth.auc_interval.lower <= true <= worth.auc_interval.upper)


def intervals(model: SparseClassifier, of: Drawn) -> dict[str, Any]:
    """How many true weights of likely features lie in their 90 % intervals, and how large these are."""
    if of.weights is None:
        return {}
    coef = np.ravel(getattr(model, "sparse_coef_", model.coef_)).astype(np.float64)
    std = np.ravel(getattr(model, "sparse_coef_std_", model.coef_std_)).astype(np.float64)
    likely = model.inclusion_probability_ > LIKELY
    covered = np.abs(coef - of.weights) <= NORMAL_90 * std
    active = likely & (of.weights != 0)
    found = {"n_likely": int(likely.sum()), "n_covered": int(covered[likely].sum())}
    if active.any():
        found["weight_ratio"] = float(np.median(np.abs(coef[active] / of.weights[active])))
    return found


ABOUT = """# Is every number honest?

`python -m benchmarks.studies.honesty.run` fits `SparseClassifier()` to {designs} simulated designs,
{sizes}, and holds its numbers to {n_test} further samples. Figures are means over runs, with their standard
errors. *Bias* is leave-one-out less the test sample: negative is too good to be true. *Here* it is less the
test sample at the class frequencies of the sample that was learnt from: of 100 samples at random from two
equal classes, one has 54 on average, so that always answering with it errs in 46 of them and in half of all
others. Subjects with one label each are few, and chance is larger. Covers: how often the 95 % interval of
the error rate has the error of the test sample in it, and that of AUC its AUC. *p < .05*: runs in which the
permutation test finds something to learn. Likely features have a probability above one half; shown is how
many of their weights lie in their 90 % intervals, and the median of |weight| over the true one. This page
is made by the script. Leave-one-out was mended after a look at these designs, but for those that were made
last and run once: {blind}.

{begins}
{table}

Over designs, the mean bias of the error is {error_bias} (here {error_here}) and of the log loss {loss_bias}
(here {loss_here}); the largest of a design {largest_error} ({largest_error_of}) and {largest_loss}
({largest_loss_of}). Of {n_null} null runs {n_false} have a p value below .05.

The ratio depends on how many labels are taken for wrong: of a hundred labels that are all right, one cannot
tell that fewer than one in ten is wrong, and if some were wrong weights would be larger. Weights are averaged
over both, and so are a little too large where no label is wrong, and too small where one in ten is.
{paired}
Flags, by what they are about: how often weights of likely features lie in their 90 % intervals, and the error
of the test sample in its 95 % interval, in runs that have the flag, and in those that have none.

{flags}
{ends}
"""

BESIDE_REFITS = """
Leave-one-out of a hundred samples is off by chance, whoever computes it. Beside refits without the same
samples chance cancels (`python -m benchmarks.studies.honesty.paired`; groups, which are left out at the class
frequencies of all, are not among them):

{table}
"""


def report(folder: Path) -> str:
    """The page of the study."""
    paired = folder / PAIRED
    results = pd.read_csv(folder / "results.csv")
    results["error_bias"] = results.loo_error - results.test_error
    results["loss_bias"] = results.loo_log_loss - results.test_log_loss
    results["error_here"] = results.loo_error - results.test_error_here
    results["loss_here"] = results.loo_log_loss - results.test_log_loss_here
    rows, by_design = [], results.groupby("design")
    for design in [name for name in DESIGNS if name in set(results.design)]:
        own = by_design.get_group(design)
        n_likely, n_covered = own.n_likely.sum(), own.n_covered.sum()
        rows.append(
            [
                design,
                len(own),
                common.mean_and_error(own.test_error),
                common.mean_and_error(own.error_bias),
                common.mean_and_error(own.error_here),
                common.mean_and_error(own.test_log_loss),
                common.mean_and_error(own.loss_bias),
                common.mean_and_error(own.loss_here),
                f"{own.error_covered.mean():.2f}",
                common.mean_only(own.auc_covered, 2),
                f"{int((own.p_value < SIGNIFICANT).sum())} of {len(own)}",
                f"{n_covered / n_likely:.2f} of {int(n_likely)}" if n_likely else "",
                common.mean_only(own.weight_ratio, 2),
            ]
        )
    header = [
        "design",
        "runs",
        "error",
        "bias",
        "here",
        "log loss",
        "bias",
        "here",
        "covers",
        "AUC",
        "p < .05",
        "intervals",
        "ratio",
    ]
    means = by_design[["error_bias", "error_here", "loss_bias", "loss_here"]].mean()
    nulls = results[results.design.isin([name for name, design in DESIGNS.items() if design.null])]
    worst = means.abs().idxmax()
    return ABOUT.format(
        designs=means.shape[0],
        sizes=f"{results.n_samples.min()} to {results.n_samples.max()} samples of "
        f"{results.n_features.min()} to {results.n_features.max()} features",
        n_test=FULL.n_test,
        blind=", ".join(BLIND),
        begins=common.TABLE_BEGINS,
        ends=common.TABLE_ENDS,
        table=common.markdown(header, rows),
        flags=flags_table(results),
        paired=BESIDE_REFITS.format(table=beside_refits(paired)) if paired.exists() else "",
        error_bias=f"{means.error_bias.mean():+.3f}",
        loss_bias=f"{means.loss_bias.mean():+.3f}",
        error_here=f"{means.error_here.mean():+.3f}",
        loss_here=f"{means.loss_here.mean():+.3f}",
        largest_error=f"{means.error_bias[worst.error_bias]:+.3f}",
        largest_error_of=worst.error_bias,
        largest_loss=f"{means.loss_bias[worst.loss_bias]:+.3f}",
        largest_loss_of=worst.loss_bias,
        n_null=len(nulls),
        n_false=int((nulls.p_value < SIGNIFICANT).sum()),
    )


def beside_refits(path: Path) -> str:
    """Leave-one-out less refits of the same samples: means over designs, of kinds of designs and of all."""
    rows = pd.read_csv(path)
    rows["error"] = rows.loo_error - rows.refit_error
    rows["loss"] = rows.loo_log_loss - rows.refit_log_loss
    null = rows.design.map(lambda name: DESIGNS[name].null)
    several = rows.design.str.contains("classes|60:30:10") & ~rows.design.str.contains("class means")
    passing = ~null & ~several & rows.solver.str.startswith("GAMP")
    found = []
    for kind, which in (
        ("nothing to find", null),
        ("two classes, by message passing", passing),
        ("two classes, exact covariances", ~null & ~several & ~passing),
        ("several classes", several),
        ("all designs", rows.refits > 0),
    ):
        own = rows[which].groupby("design")[["error", "loss"]].mean()
        means = [common.mean_and_error(own[name]) for name in ("error", "loss")] if len(own) else ["", ""]
        found.append([kind, len(own), int(rows.refits[which].sum()), *means])
    return common.markdown(["beside refits", "designs", "refits", "error", "log loss"], found)


def flags_table(results: pd.DataFrame) -> str:
    """Which flags are raised where numbers are wrong."""
    raised = results["flags"].fillna("").str.split()
    codes = sorted({code for own in raised for code in own})
    rows = []
    for name, with_it in [(code, raised.map(lambda own, c=code: c in own)) for code in codes] + [
        ("none of them", raised.map(len) == 0)
    ]:
        own = results[with_it]
        n_likely = own.n_likely.sum()
        covered = f"{own.n_covered.sum() / n_likely:.2f} of {int(n_likely)}" if n_likely else ""
        rows.append([name, len(own), covered, f"{own.error_covered.mean():.2f}"])
    return common.markdown(["flag", "runs", "intervals", "covers"], rows)


if __name__ == "__main__":
    main()
